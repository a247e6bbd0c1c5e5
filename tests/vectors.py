"""The 306 data vectors made by running the Go code, as pytest parameters named by the vector's id."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest


@functools.cache
def _all() -> list[dict[str, Any]]:
    return json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))["vectors"]


def vectors(fn: str) -> list[Any]:
    """Every vector of one function as `pytest.param(vector, id=vector["id"])`."""
    found = [pytest.param(vector, id=vector["id"]) for vector in _all() if vector["fn"] == fn]
    assert found, f"no vectors for fn={fn}"
    return found
