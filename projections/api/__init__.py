"""The HTTP API over the jobs of one log; `create_app` needs the extra `server`, what it asks of a log does not."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from projections.api.app import create_app as create_app


def __getattr__(name: str) -> object:
    """Import the app when it is asked for: the command line searches by the same modules, and has no web framework."""
    if name == "create_app":
        from projections.api.app import create_app

        return create_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
