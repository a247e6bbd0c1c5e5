"""Tests of one module, run again over the log of another."""

import inspect
from typing import Any


def over_the_url(module: Any) -> dict[str, Any]:
    """Return the tests of a module that are plain functions over `url`, or over the `jobs` that are made of it."""
    tests = {name: value for name, value in vars(module).items() if name.startswith("test_")}
    return {name: test for name, test in tests.items() if {"jobs", "url"} & inspect.signature(test).parameters.keys()}
