"""The port of task queues of the user's: what a task for one is, and what hands it over."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

import msgspec


class Task(msgspec.Struct, frozen=True):
    """A job that waits to be delivered."""

    job_id: str
    version: int  # of the event that had it wait: another try is another task
    name: str  # which kind of job; "" when a delivery began it and nobody has said
    queue: str  # as it was submitted
    due: datetime  # not to be delivered before; aware UTC
    attempt: int  # number of the try that it is for


Dispatch: TypeAlias = Callable[[Task], None]
"""Hands a task to a task queue, in the thread that wrote the event: soon, and safe for threads.

A task of the same job and version is the same task, and may come again. Whatever it raises means that the task was not taken.
"""
