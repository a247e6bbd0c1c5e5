"""Event-sourced life of background jobs: workers emit events, everything anyone looks at is folded from them."""

from jobevents import errors
from jobevents.recorder import Recorder
from jobevents.registry import Registry
from jobevents.runner import JobRunner
from jobevents.status import State, Status
from jobevents.wiring import connect

__all__ = ["JobRunner", "Recorder", "Registry", "State", "Status", "connect", "errors"]
