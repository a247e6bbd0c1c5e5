"""Parked jobs: what a view could not take, with the stored bytes and the error, until a person has it tried again or passed over.

An entry is one blob, `parked/v1/{view}/{hh}/{job}/{n}.json`, for the event `n` at which the job stopped. `requeue` and
`discard` only say so in the entry, on the condition that it is as it was seen: the projector finds it and acts on it.
"""

import base64
from collections.abc import Callable, Iterator
from datetime import datetime
from hashlib import blake2b
from typing import Literal

import msgspec

from jobevents.assertions import Instant
from jobevents.blobs import ABSENT, Blobs
from jobevents.boundary import clean_text
from jobevents.errors import Conflict, Corrupt, NotFound
from jobevents.log import Record

Standing = Literal["parked", "requeued", "discarded"]

ERROR_LIMIT = 2000  # characters of an error that an entry keeps
_TRIES = 10  # each lost to another writer of the same entry
_CONTENT_TYPE = "application/json"


class Parked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One parked event; the job's later events wait behind it."""

    view: str  # name of the view
    job_id: str
    version: int  # of the event
    type: str  # of the event, as it is stored
    cursor: str = ""  # its place in the log; "" where it was not known
    status: Standing  # parked: waits for a person; requeued: to be tried again; discarded: passed over in this view
    error: str  # why it was parked, last
    parked_at: Instant  # when it was parked, last
    is_passed: bool = False  # discarded, and the view has the job without it
    data: str = ""  # the stored bytes, where they are UTF-8
    data_base64: str = ""  # the stored bytes, where they are not


class Entry(msgspec.Struct, frozen=True):
    """A parked event as it is stored."""

    name: str  # of its blob
    generation: str
    parked: Parked


def list_parked(blobs: Blobs, prefix: str = "", view: str = "", job_id: str = "") -> Iterator[Entry]:
    """Yield the entries of all views or one, of all jobs or one: one listing, and one read for each.

    Raises:
        Corrupt: an entry cannot be read.
    """
    listed = _root(prefix, view) + (directory_of(job_id) if view and job_id else "")
    for blob in blobs.list(listed):
        if job_id and blob.name.split("/")[-2] != job_id:
            continue
        try:
            yield read_entry(blobs, blob.name)
        except NotFound:  # tried again, and well, meanwhile
            continue


def requeue(blobs: Blobs, entry: Entry) -> Entry:
    """Ask the projector to fold the job again, from its first event; it is parked again if that fails again.

    Raises:
        Conflict: the entry is not as it was seen.
    """
    return write(blobs, entry, msgspec.structs.replace(entry.parked, status="requeued", is_passed=False))


def discard(blobs: Blobs, entry: Entry) -> Entry:
    """Ask the projector to pass the event over, in this view, for good; the entry stays as the record of it.

    Raises:
        Conflict: the entry is not as it was seen.
    """
    return write(blobs, entry, msgspec.structs.replace(entry.parked, status="discarded", is_passed=False))


def read_entry(blobs: Blobs, name: str) -> Entry:
    """Read one entry.

    Raises:
        NotFound: there is none.
        Corrupt: it is no entry.
    """
    blob = blobs.get(name)
    assert blob is not None  # noqa: S101  # None only for if_changed
    try:
        return Entry(name, blob.generation, msgspec.json.decode(blob.data, type=Parked))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Corrupt(f"parked entry cannot be read name={name} error={error}; remove or mend the blob") from error


def write(blobs: Blobs, entry: Entry, parked: Parked) -> Entry:
    """Replace an entry on the condition that it is as it was seen, and return it.

    Raises:
        Conflict: it is not.
    """
    data = msgspec.json.encode(parked)
    generation = blobs.put(entry.name, data, if_generation=entry.generation, content_type=_CONTENT_TYPE)
    return Entry(entry.name, generation, parked)


def raw(parked: Parked) -> bytes:
    """Return the stored bytes of a parked event."""
    return base64.b64decode(parked.data_base64) if parked.data_base64 else parked.data.encode()


class ParkedJobs:
    """What one view has parked, as its projector knows it. For one thread."""

    def __init__(self, blobs: Blobs, prefix: str, view: str, *, clock: Callable[[], datetime]) -> None:
        self._blobs = blobs
        self._prefix = prefix
        self._view = view
        self._clock = clock
        self._entries: dict[str, Entry] = {}  # by the name of the blob
        self.waiting: dict[str, str] = {}  # job id -> name of the entry at which it waits
        self.discarded: dict[str, set[int]] = {}  # job id -> versions passed over

    def look(self) -> set[str]:
        """Read what changed, and return the jobs to be folded again: one listing, and one read for each new generation.

        These are the requeued ones, the discarded ones that the view has not passed over yet, and those whose entry
        another projector has removed.
        """
        listed = {blob.name: blob.generation for blob in self._blobs.list(_root(self._prefix, self._view))}
        before = set(self.waiting)
        entries: dict[str, Entry] = {}
        for name, generation in listed.items():
            known = self._entries.get(name)
            if known is not None and known.generation == generation:
                entries[name] = known
                continue
            try:
                entries[name] = read_entry(self._blobs, name)
            except NotFound:
                continue
        self._entries = entries
        self._sort()
        asked = {e.parked.job_id for e in entries.values() if e.parked.status == "requeued" or _is_to_pass(e.parked)}
        return asked | (before - set(self.waiting))

    def park(self, record: Record, error: Exception) -> bool:
        """Park a job at one of its events; where this view knew of it already, the error is new.

        Returns:
            False: a person has had the event discarded already, so that the job need not wait for it.

        Raises:
            Unavailable, PermissionDenied: what the store says; park it again.
        """
        name = f"{_root(self._prefix, self._view)}{directory_of(record.job_id)}{record.version:010d}.json"
        parked = self._parked(record, error)
        for _ in range(_TRIES):
            entry = self._entries.get(name)
            try:
                self._entries[name] = write(self._blobs, entry or Entry(name, ABSENT, parked), parked)
                break
            except Conflict:  # another projector parks it too, or a person has asked for something
                try:
                    self._entries[name] = read_entry(self._blobs, name)
                except NotFound:
                    self._entries.pop(name, None)
                    continue
                if entry is None:
                    break
        self._sort()
        return record.version not in self.discarded.get(record.job_id, ())

    def settle(self, job_id: str) -> None:
        """Take notice that what was asked for is done: what was requeued goes, what was discarded stays as passed over.

        An entry at which the job was parked anew stays; one that somebody changed meanwhile is for the next look.
        """
        for name, entry in list(self._entries.items()):
            if entry.parked.job_id != job_id:
                continue
            try:
                if _is_to_pass(entry.parked):
                    self._entries[name] = write(
                        self._blobs, entry, msgspec.structs.replace(entry.parked, is_passed=True)
                    )
                elif entry.parked.status == "requeued":
                    self._blobs.delete(name, if_generation=entry.generation)
                    del self._entries[name]
            except (Conflict, NotFound):
                continue
        self._sort()

    def _parked(self, record: Record, error: Exception) -> Parked:
        try:
            text, encoded = record.data.decode(), ""
        except UnicodeDecodeError:
            text, encoded = "", base64.b64encode(record.data).decode()
        return Parked(
            view=self._view,
            job_id=record.job_id,
            version=record.version,
            type=clean_text(record.type, ERROR_LIMIT),
            cursor=record.cursor,
            status="parked",
            error=clean_text(f"{type(error).__name__}: {error}", ERROR_LIMIT),
            parked_at=self._clock(),
            data=text,
            data_base64=encoded,
        )

    def _sort(self) -> None:
        self.waiting.clear()
        self.discarded.clear()
        for name, entry in self._entries.items():
            if entry.parked.status == "discarded":
                self.discarded.setdefault(entry.parked.job_id, set()).add(entry.parked.version)
            else:
                self.waiting[entry.parked.job_id] = name


def _is_to_pass(parked: Parked) -> bool:
    return parked.status == "discarded" and not parked.is_passed


def _root(prefix: str, view: str) -> str:
    return (f"{prefix}/" if prefix else "") + "parked/v1/" + (f"{view}/" if view else "")


def directory_of(job_id: str) -> str:
    """Return where the entries of a job are, below those of a view."""
    return f"{blake2b(job_id.encode(), digest_size=8).hexdigest()[:2]}/{job_id}/"
