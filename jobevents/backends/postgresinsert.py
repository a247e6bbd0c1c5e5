"""The statements by which events are written into a Postgres database: each in its slot, after the one that it goes on from."""
# ruff: noqa: S608  # table names are constants, values are bound

from collections.abc import Mapping, Sequence
from typing import Final

from eventsourcing.persistence import StoredEvent

from jobevents import codec
from jobevents.backends.postgresschema import EVENTS
from jobevents.backends.postgressession import Row, Statement
from jobevents.log import Head

EVENT: Final = "originator_id, originator_version, topic, state"
"""The columns of an event."""

# The state becomes null, which the table refuses, so that nothing is written: where the event before is not there, or is
# another; and for a first event where later ones are there, as the job was erased.
_UNLESS_ERASED = (
    f"given.originator_version > 1 OR NOT EXISTS (SELECT FROM {EVENTS} AS later "
    "WHERE later.originator_id = given.originator_id AND later.originator_version > 1)"
)
_UNLESS_LOST = (
    f"CASE WHEN (end_before IS NULL AND ({_UNLESS_ERASED})) "
    f"OR EXISTS (SELECT FROM {EVENTS} AS before WHERE before.originator_id = given.originator_id "
    "AND before.originator_version = given.originator_version - 1 "
    "AND substring(before.state FROM octet_length(before.state) - octet_length(end_before) + 1) = end_before) "
    "THEN given.state END"
)
_FIRST = (
    f"INSERT INTO {EVENTS} ({EVENT}) SELECT originator_id, originator_version, topic, "
    f"CASE WHEN {_UNLESS_ERASED} THEN given.state END "
    f"FROM (VALUES (%s::text, %s::bigint, %s::text, %s::bytea)) AS given ({EVENT}) RETURNING notification_id"
)
_GIVEN = f"AS given ({EVENT}, end_before"
_ONE = (
    f"INSERT INTO {EVENTS} ({EVENT}) SELECT originator_id, originator_version, topic, {_UNLESS_LOST} "
    f"FROM (VALUES (%s::text, %s::bigint, %s::text, %s::bytea, %s::bytea)) {_GIVEN}) RETURNING notification_id"
)
_SEVERAL = (  # one statement, whatever their number
    f"INSERT INTO {EVENTS} ({EVENT}) SELECT originator_id, originator_version, topic, {_UNLESS_LOST} "
    "FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::bytea[], %s::bytea[]) "
    f"WITH ORDINALITY {_GIVEN}, place) ORDER BY place RETURNING notification_id"
)


def writing(stored: Sequence[Row]) -> Statement:
    """Return the statement that writes 1..n events, each as `columns` has it, and returns their ids."""
    if len(stored) > 1:
        return _SEVERAL, [list(column) for column in zip(*stored, strict=True)]
    return (_FIRST, stored[0][:-1]) if stored[0][-1] is None else (_ONE, stored[0])


def columns(event: StoredEvent, follows: Mapping[str, Head]) -> Row:
    """Return an event's columns, and the end of the event that it must go on from; None for a first one."""
    job_id, version = str(event.originator_id), event.originator_version
    head = follows.get(job_id)
    end_before = codec.tail(head.chain) if head is not None and head.version == version - 1 else None
    return job_id, version, event.topic, event.state, end_before
