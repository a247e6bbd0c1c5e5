"""What needs the extra `analytics`, loaded when it is first asked for: it takes a server 100 MB that serves no such page."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from jobevents.errors import Misconfigured

_NEEDED = ("duckdb", "pyarrow")


def missing() -> str:
    """Return why it is not to be had; "" where it is."""
    lacking = [name for name in _NEEDED if find_spec(name) is None]
    if not lacking:
        return ""
    return f"this server lacks {' and '.join(lacking)}: pip install 'jobevents[analytics]'"


def module(name: str) -> ModuleType:
    """Return a module of `projections` that needs it.

    Raises:
        Misconfigured: it is not installed.
    """
    if why := missing():
        raise Misconfigured(why)
    return import_module(f"projections.{name}")
