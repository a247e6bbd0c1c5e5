"""A turn of those who run handlers: the ends of some runs and the starts of others, in one transaction."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from jobevents.errors import AlreadyCanceled, AppendUnknown, JobEventsError
from jobevents.execution import DONE, Execution, Executor, Ran
from jobevents.queue import Reservation
from jobevents.registry import JobDefinition

if TYPE_CHECKING:
    from jobevents.attempt import Attempt
    from jobevents.emit import Emitter, Wanted
    from jobevents.ending import Ending

_Asked: TypeAlias = "tuple[Reservation, JobDefinition, Attempt]"


class Turn(NamedTuple):
    """What a turn leaves to be done, each by itself."""

    begun: list[tuple[Reservation, Execution]]  # to be acknowledged and handled
    over: list[Reservation]  # canceled instead of begun: to be acknowledged
    unrecorded: "list[Ending]"  # to be recorded
    alone: list[Reservation]  # to be run
    doubted: list[tuple[Reservation, Callable[[], Ran]]]  # their start may be in the log: what finds out, and runs them


def take(
    executor: Executor, emitter: "Emitter", endings: "Sequence[Ending]", reservations: Sequence[Reservation]
) -> Turn:
    """Record the ends and starts of runs together, as far as that can be; what is the matter with one holds up no other."""
    asked: list[_Asked] = []
    turn = Turn([], [], [], [], [])
    wanted = [ending.wanted for ending in endings]
    try:
        for reservation in reservations:
            if (found := _ask(executor, reservation, wanted)) is None:
                turn.alone.append(reservation)
            else:
                asked.append(found)
        changes = emitter.change_together(wanted)
    except BaseException:
        for _, _, attempt in asked:
            attempt.leave()
        raise
    turn.unrecorded.extend(one for one, change in zip(endings, changes, strict=False) if not one.recorded(change))
    for (reservation, definition, attempt), change in zip(asked, changes[len(endings) :], strict=True):
        if change is None:
            attempt.leave()
            turn.alone.append(reservation)
            continue
        if isinstance(change, AppendUnknown):
            find_out = partial(_find_out, executor, emitter, reservation, definition, attempt)
            turn.doubted.append((reservation, find_out))
            continue
        try:
            attempt.enter(change)
        except AlreadyCanceled:
            turn.over.append(reservation)
        else:
            turn.begun.append((reservation, executor.begun(definition, attempt)))
    return turn


def _ask(executor: Executor, reservation: Reservation, wanted: "list[Wanted]") -> "_Asked | None":
    """Add what starts a run to what is wanted; None when it is to be started by itself."""
    definition = executor.registry.get(reservation.job_name)
    if definition is None or executor.limits(reservation, definition):
        return None
    try:
        attempt = executor.attempt(reservation, definition)
    except JobEventsError:
        return None
    try:
        wanted.append(attempt.ask())
    except JobEventsError:
        attempt.leave()
        return None
    return reservation, definition, attempt


def _find_out(
    executor: Executor, emitter: "Emitter", reservation: Reservation, definition: JobDefinition, attempt: "Attempt"
) -> Ran:
    """Run a run if its start, the reply to which was lost, is in the log; raises as `Executor.run`."""
    try:
        change = emitter.settle_own(attempt.job_id)
    except BaseException:
        attempt.leave()
        raise
    if change is None:
        attempt.leave()
        return executor.run(reservation)
    with suppress(AlreadyCanceled):
        attempt.enter(change)
        executor.acknowledge(reservation)
        return executor.handle(executor.begun(definition, attempt))
    executor.acknowledge(reservation)
    return DONE
