"""What differs, and since which event: between two builds of the same views, or between two jobs."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from jobevents import status
from jobevents.blobs import Blob, Blobs
from jobevents.errors import Corrupt
from jobevents.events import Event, JobAnnotated, JobProgressed
from jobevents.job import DELETED, Job, fold
from jobevents.log import EventLog
from jobevents.records import status_bytes
from projections.bulk import Bulk
from projections.chunks import Chunks
from projections.ledger import Entry, Ledger
from projections.manifest import ALL, LETTERS, ManifestBlob, root_of
from projections.rebuild import merged
from projections.statusswap import Place

BATCH = 500  # jobs compared together
_FOLLOWS = ("version", "updated_at")  # differ wherever anything does

_TELLING = ("type", "attempt", "late", "cause", "error", "kind", "state", "tried")
"""Fields of an event that say how a job goes on; the others are of this job alone, such as its params, or of who and when."""


class Field(msgspec.Struct, frozen=True):
    """One field that differs."""

    name: str
    left: Any  # None: not there
    right: Any
    version: int = 0  # of the event from which on the two part; 0: no event explains it
    type: str = ""  # of that event


class JobDiff(msgspec.Struct, frozen=True):
    """One job of which two views say different things."""

    job_id: str
    kind: str  # differs; only-left, only-right: it is only there; index: only its place in the index differs
    logged: str = (
        ""  # left, right: the one that says what the log says for its version; "": neither does, or it is the index
    )
    left_version: int = 0
    right_version: int = 0
    fields: list[Field] = []


class ViewsDiff(msgspec.Struct):
    """What came of comparing two views."""

    compared: int = 0
    differ: int = 0
    moved: int = 0  # of another event of the job, each as the log says for its own: one of the views is further on
    only_left: int = 0
    only_right: int = 0


class Parting(msgspec.Struct, frozen=True):
    """How two jobs went the same way, and where not any more."""

    same: int  # events in which they do not differ, progress and annotations left out
    left: Event | None  # the first that does; None: it has no more
    right: Event | None
    fields: list[Field]  # in which they differ now; `version` and `type` are not set


def diff_statuses(
    log: EventLog, blobs: Blobs, bulk: Bulk, left: Place, right: Place, total: ViewsDiff, on_done: Callable[[], None]
) -> Iterator[JobDiff]:
    """Yield the jobs whose statuses differ, in the order of their names, and count all in `total`: two reads a job.

    The history is read only of those that differ.
    """
    ids = merged(left.job_ids(blobs), right.job_ids(blobs))
    while batch := list(islice(ids, BATCH)):
        found = bulk.get([place.name(job_id) for job_id in batch for place in (left, right)])
        for number, job_id in enumerate(batch):
            one, other = found[2 * number : 2 * number + 2]
            total.compared += 1
            on_done()
            if one is not None and other is not None and one.data == other.data:
                continue
            different = _of_job(log, job_id, one, other)
            total.moved += different is None
            if different is not None:
                total.differ += different.kind == "differs"
                total.only_left += different.kind == "only-left"
                total.only_right += different.kind == "only-right"
                yield different


def _of_job(log: EventLog, job_id: str, left: Blob | None, right: Blob | None) -> JobDiff | None:
    """Return what differs; None when both say what the log says, each for its own event."""
    says, should = _read(left), _read(right)
    at_left, at_right = int(says.get("version") or 0), int(should.get("version") or 0)
    folds = _folds(log, job_id)
    left_fits, right_fits = _is_as_logged(left, at_left, folds), _is_as_logged(right, at_right, folds)
    if left_fits and right_fits and at_left != at_right:
        return None
    logged = "left" if left_fits else "right" if right_fits else ""
    if left is None or right is None:
        return JobDiff(job_id, "only-right" if left is None else "only-left", logged, at_left, at_right)
    names = [name for name in {**says, **should} if says.get(name) != should.get(name)]
    told = [name for name in names if name not in _FOLLOWS] or names
    fields = [_since(name, says.get(name), should.get(name), folds) for name in told]
    return JobDiff(job_id, "differs", logged, at_left, at_right, fields)


def _read(blob: Blob | None) -> dict[str, Any]:
    """Return a status's keys as they stand; {"(unreadable)": …} where it is none."""
    if blob is None:
        return {}
    try:
        status.decode(blob.data)
        found: dict[str, Any] = msgspec.json.decode(blob.data)
    except (Corrupt, msgspec.MsgspecError) as error:
        return {"(unreadable)": str(error)}
    return found


def _folds(log: EventLog, job_id: str) -> list[tuple[Event, Job]]:
    """Return each event with the job after it; as far as they can be read."""
    job, found = Job(job_id=job_id), list[tuple[Event, Job]]()
    try:
        for event in log.read(job_id):
            job = fold([event], job)
            found.append((event, job))
    except Corrupt:
        return found
    return found


def _is_as_logged(blob: Blob | None, version: int, folds: Sequence[tuple[Event, Job]]) -> bool:
    if blob is None:
        return not folds or folds[-1][1].state == DELETED
    return 0 < version <= len(folds) and blob.data == status_bytes(folds[version - 1][1])


def _since(name: str, left: Any, right: Any, folds: Sequence[tuple[Event, Job]]) -> Field:
    """Return a field with the event from which on the history says what one of the two says, and the other does not."""
    values = [msgspec.json.decode(status_bytes(job)).get(name) for _, job in folds]
    for wanted in (right, left):
        if wanted in values:
            last = len(values) - 1 - values[::-1].index(wanted)
            while last and values[last - 1] == wanted:
                last -= 1
            event = folds[last][0]
            return Field(name, left, right, event.version, event.type)
    return Field(name, left, right)


def diff_indexes(blobs: Blobs, left: str, right: str) -> Iterator[JobDiff]:
    """Yield the jobs that one index below a prefix has and the other has not, or in another state: each is read once."""
    with Ledger() as ledger:
        for side, prefix in (("left", left), ("right", right)):
            manifest = ManifestBlob(blobs, f"{root_of(prefix)}MANIFEST.json").load().manifest
            chunks = Chunks(blobs, f"{root_of(prefix)}chunk/", cached=1)
            for ref in manifest.sequences.get(ALL, []):
                chunk = chunks.get(ref)
                ledger.add_entries(map(Entry, [side] * ref.count, chunk.ids, chunk.states))
        for job_id, says, should in ledger.entries_apart("left", "right"):
            left_state, right_state = (_STATES.get(letter or "", letter) for letter in (says, should))
            yield JobDiff(job_id, "index", fields=[Field("state in the index", left_state, right_state)])


_STATES = {letter: state for state, letter in LETTERS.items()}


def diff_jobs(left: Sequence[Event], right: Sequence[Event]) -> Parting:
    """Return how two jobs' histories part, and what differs between what they came to.

    What they were given, who did it, when, and why are left out, and what has no part in how a job goes on: progress,
    annotations. What they were given is among `fields`.
    """
    one, other = ([event for event in events if not isinstance(event, _BESIDE)] for events in (left, right))
    same = 0
    while same < min(len(one), len(other)) and _gist(one[same]) == _gist(other[same]):
        same += 1
    says, should = (_shown(fold(events)) for events in (left, right))
    keys = [key for key in {**says, **should} if says.get(key) != should.get(key)]
    return Parting(
        same=same,
        left=one[same] if same < len(one) else None,
        right=other[same] if same < len(other) else None,
        fields=[Field(key, says.get(key), should.get(key)) for key in keys],
    )


_BESIDE = (JobProgressed, JobAnnotated)
_INDIVIDUAL = ("job_id", "version", "chain", "root_id", "start", "worker")


def _gist(event: Event) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(event)
    return {key: fields[key] for key in _TELLING if key in fields}


def _shown(job: Job) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(job)
    return {key: value for key, value in fields.items() if key not in _INDIVIDUAL and not key.endswith("_at")}
