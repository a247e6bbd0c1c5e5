"""A fleet of two languages: every status that the Go kit writes, over ours, on a log of blobs."""

from typing import Any

import msgspec
import pytest

from jobevents import ids, status
from jobevents.blobs import Blob, MemoryBlobs
from jobevents.errors import AlreadySucceeded
from jobevents.events import TransitionRefused
from jobevents.recorder import StatusStore
from jobevents.status import Status, decode
from jobevents.testing import Clock
from tests.bloblogs import bucket_jobs, close_buckets, write_status
from tests.vectors import vectors

GO = [one for one in vectors("encode") if "bytes" in one.values[0]["out"]]
RECORDS = [
    one for one in GO if '"state":' in one.values[0]["out"]["bytes"]
]  # the other is a type without the common part
NO_RECORD = {"", None}  # states of what the kit writes where it was given no record: no job has such a one


class Fleet:
    """A job that runs, with its status as ours; then the Go kit's bytes in its place, and another process of ours."""

    def __init__(self, vector: dict[str, Any], clock: Clock) -> None:
        self.data = vector["out"]["bytes"].encode()
        self.record: dict[str, Any] = msgspec.json.decode(self.data)
        self.state = self.record.get("state")
        self.job_id = ids.sanitize(vector["in"]["id"])
        self.store = MemoryBlobs(clock=clock)
        ours, self.other = bucket_jobs(self.store, clock), bucket_jobs(self.store, clock)
        ours.submit("generate", id=self.job_id)
        ours.attempt(self.job_id, deadline_s=0).__enter__()
        write_status(ours, self.job_id)
        self.store.put(self.name, self.data)

    @property
    def name(self) -> str:
        return f"log-1/jobs/{self.job_id}/status.json"

    def stored(self) -> Blob:
        blob = self.store.get(self.name)
        assert blob is not None
        return blob

    def foreign(self) -> list[Any]:
        return [event for event in self.other.history(self.job_id) if event.actor == "foreign"]


@pytest.fixture
def fleet(vector: dict[str, Any], clock: Clock) -> Any:
    yield Fleet(vector, clock)
    close_buckets()


@pytest.mark.parametrize("vector", RECORDS)
def test_a_record_of_the_go_kit_is_read_as_it_is(fleet: Fleet) -> None:
    """The kit's API of ours gives what the kit's own would."""
    store: StatusStore[Status] = StatusStore(fleet.store, None, lambda _: fleet.name, Status)

    read = store.get(fleet.job_id)

    assert decode(fleet.data) == read
    assert (fleet.state, fleet.record.get("attempts", 0)) == (read.state, read.attempts)
    assert read.is_terminal() == (fleet.state == "succeeded")


@pytest.mark.parametrize("vector", GO)
def test_a_record_of_the_go_kit_is_adopted(fleet: Fleet) -> None:
    """It becomes one event of a foreign service, and is then our status, byte for byte but for its version and when; never twice.

    What is no record of the job is refused, told, and replaced by ours.
    """
    before = len(fleet.other.history(fleet.job_id))

    for _ in range(2):
        fleet.other.emitter.heed(fleet.job_id)

    [event] = fleet.foreign()
    shown = fleet.stored().data
    assert before + 1 == event.version == decode(shown).version
    if fleet.state in NO_RECORD:
        assert isinstance(event, TransitionRefused)
        assert "running" == decode(shown).state
    else:
        ours = f'"updated_at":"{decode(shown).updated_at}"'  # that of the event: a page that is sorted by it shows what is new
        theirs = f'"updated_at":"{fleet.record["updated_at"]}"'
        kept = shown.replace(b',"version":%d}' % event.version, b"}").replace(ours.encode(), theirs.encode())
        assert fleet.data == kept
        assert fleet.state == fleet.other.get(fleet.job_id).state


@pytest.mark.parametrize("vector", GO)
def test_a_record_of_the_go_kit_is_guarded_and_continued(fleet: Fleet) -> None:
    """A success of theirs is not run again; from any other state, and after a rerun, ours goes on and keeps their fields.

    What ours writes then is a record to the kit: its keys in their places, the service's after them, and carried over.
    """
    if fleet.state == "succeeded":
        with pytest.raises(AlreadySucceeded), fleet.other.attempt(fleet.job_id):
            raise AssertionError("run again")
        fleet.other.rerun(fleet.job_id)
    with fleet.other.attempt(fleet.job_id):
        pass
    write_status(fleet.other, fleet.job_id)

    shown = fleet.stored().data
    read, record = decode(shown), msgspec.json.decode(shown)
    own = {key: value for key, value in fleet.record.items() if not status.is_reserved(key)}
    assert ("succeeded", True, "") == (read.state, read.is_terminal(), read.error)
    assert len(fleet.foreign()) == 1
    if fleet.state not in NO_RECORD:
        assert own == {key: record.get(key) for key in own}
        assert fleet.record.get("title", "") == read.title
        assert max(0, fleet.record.get("attempts", 0) + 1) == read.attempts
    assert shown == status.encode(read).replace(b',"version"', _members(own, fleet.state) + b',"version"')
    following = status.carry_over(Status(job_id=fleet.job_id, state="queued"), read)
    assert (read.title, read.command) == (following.title, following.command)


def _members(own: dict[str, Any], state: Any) -> bytes:
    """Return a service's fields as they stand in a record, after the common ones."""
    return b"".join(b"," + msgspec.json.encode({k: v})[1:-1] for k, v in own.items()) if state not in NO_RECORD else b""
