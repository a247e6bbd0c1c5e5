"""The lease on a role: one holder, judged by its writes and the watcher's own clock."""

import pytest

from jobevents.blobs import MemoryBlobs
from jobevents.errors import Unavailable
from jobevents.lease import RoleLease
from jobevents.testing.faults import FailingBlobs
from tests.fake_time import FakeTime

TTL = 15.0
NAME = "ctl/v1/lease/projector.json"


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


def lease(blobs: MemoryBlobs | FailingBlobs, holder: str, time: FakeTime) -> RoleLease:
    return RoleLease(blobs, "projector", holder, ttl_s=TTL, monotonic=time.clock)


def test_the_first_to_ask_has_the_role(blobs: MemoryBlobs, time: FakeTime) -> None:
    """A role that nobody has is taken with one write, under the agreed name."""
    first = lease(blobs, "a", time)

    assert first.hold()
    assert [NAME] == [entry.name for entry in blobs.list("")]


def test_a_holder_that_writes_keeps_the_role(blobs: MemoryBlobs, time: FakeTime) -> None:
    """A lease that is written at every beat is never taken over, however long it is watched."""
    first, second = lease(blobs, "a", time), lease(blobs, "b", time)
    first.hold()

    taken = []
    for _ in range(10):
        time.sleep(first.beat_s)
        first.hold()
        taken.append(second.hold())

    assert [False] * 10 == taken
    assert first.hold()


def test_a_silent_holder_loses_the_role(blobs: MemoryBlobs, time: FakeTime) -> None:
    """A generation that the watcher has seen unchanged for the lease's life is taken over; not a moment earlier."""
    first, second = lease(blobs, "a", time), lease(blobs, "b", time)
    first.hold()

    second.hold()
    time.sleep(TTL - 0.1)
    before = second.hold()
    time.sleep(0.1)

    assert (False, True) == (before, second.hold())


def test_an_old_lease_is_watched_before_it_is_taken(blobs: MemoryBlobs, time: FakeTime) -> None:
    """However old a lease is by wall clocks, its first watcher waits for its whole life."""
    lease(blobs, "a", time).hold()
    time.sleep(1_000_000)

    second = lease(blobs, "b", time)

    assert not second.hold()


def test_who_was_taken_over_finds_out(blobs: MemoryBlobs, time: FakeTime) -> None:
    """A holder that comes back from a pause does not have the role any more, and leaves its successor's lease alone."""
    first, second = lease(blobs, "a", time), lease(blobs, "b", time)
    first.hold()
    second.hold()
    time.sleep(TTL)
    second.hold()

    assert not first.hold()
    assert not first.is_held
    assert second.hold()


def test_a_released_role_is_free_at_once(blobs: MemoryBlobs, time: FakeTime) -> None:
    """After a release the next look takes the role, without any wait."""
    first, second = lease(blobs, "a", time), lease(blobs, "b", time)
    first.hold()
    second.hold()

    first.release()

    assert second.hold()


def test_a_release_after_a_loss_changes_nothing(blobs: MemoryBlobs, time: FakeTime) -> None:
    """Who lost the role unawares does not give up the lease of its successor."""
    first, second = lease(blobs, "a", time), lease(blobs, "b", time)
    first.hold()
    second.hold()
    time.sleep(TTL)
    second.hold()

    first.release()

    assert second.hold()
    assert not lease(blobs, "c", time).hold()


def test_of_two_who_take_over_one_wins(blobs: MemoryBlobs, time: FakeTime) -> None:
    """Two watchers that find the role free at the same time do not both get it."""
    lease(blobs, "a", time).hold()
    second = lease(blobs, "b", time)
    third = lease(FailingBlobs(blobs, before=lambda call: call.method == "put" and second.hold()), "c", time)
    second.hold()
    third.hold()
    time.sleep(TTL)

    assert not third.hold()
    assert second.is_held


def test_a_process_finds_its_own_lease(blobs: MemoryBlobs, time: FakeTime) -> None:
    """The same holder goes on with its lease at once; another start of the process, with its own identity, waits."""
    lease(blobs, "a", time).hold()

    assert lease(blobs, "a", time).hold()
    assert not lease(blobs, "a2", time).hold()


def test_what_cannot_be_read_is_waited_out(blobs: MemoryBlobs, time: FakeTime) -> None:
    """A lease that is no lease holds the role for its life, and no longer."""
    blobs.put(NAME, b"{")
    watcher = lease(blobs, "a", time)

    first_look = watcher.hold()
    time.sleep(TTL)

    assert (False, True) == (first_look, watcher.hold())


def test_trouble_of_the_store_changes_nothing(blobs: MemoryBlobs, time: FakeTime) -> None:
    """An unavailable store is the caller's to handle; the lease is kept as it was."""
    failing = FailingBlobs(blobs, at=3)
    first = lease(failing, "a", time)
    first.hold()

    with pytest.raises(Unavailable):
        first.hold()

    assert first.is_held
    assert first.hold()


def test_a_lost_reply_is_waited_out(blobs: MemoryBlobs, time: FakeTime) -> None:
    """A beat that was stored without a reply costs the role, which comes back as one's own at the next look."""
    failing = FailingBlobs(blobs, at=3, fault="lose reply")
    first = lease(failing, "a", time)
    first.hold()
    with pytest.raises(Unavailable):
        first.hold()

    assert not first.hold()
    assert first.hold()
