"""The option `--jobevents-url` of pytest: where the contracts of `jobevents.testing` are run. Loaded wherever jobevents is."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest  # of the test extra: only pytest itself loads this module

OPTION = "--jobevents-url"


def pytest_addoption(parser: "pytest.Parser") -> None:
    """Add the option."""
    told = "a URL for jobevents.connect, behind which `--pyargs jobevents.testing` proves the contracts"
    parser.getgroup("jobevents").addoption(OPTION, default="", help=told)
