"""Blobs that fail on command: they do so at the call that was asked for, in the way that was asked for, and else not."""

import pytest

from jobevents.blobs import Blobs, MemoryBlobs
from jobevents.errors import NotFound, Unavailable
from jobevents.testing import BlobsContract, Died, FailingBlobs
from jobevents.testing.faults import Call, Fault


class TestFailingBlobs(BlobsContract):
    """Without a fault they are the blobs behind them."""

    @pytest.fixture
    def blobs(self) -> Blobs:
        return FailingBlobs(MemoryBlobs())


@pytest.mark.parametrize(("fault", "error", "is_done"), [
    ("refuse", Unavailable, False),
    ("lose reply", Unavailable, True),
    ("die", Died, False),
    ("die after", Died, True),
])  # fmt: skip
def test_the_nth_call_fails(fault: Fault, error: type[BaseException], is_done: bool) -> None:
    """The second call fails as told: done or not, as an error or as the end."""
    behind = MemoryBlobs()
    blobs = FailingBlobs(behind, at=2, fault=fault)
    blobs.put("a", b"1")

    with pytest.raises(error, match="name=b"):
        blobs.put("b", b"2")

    assert blobs.met
    assert is_done == (["a", "b"] == [entry.name for entry in behind.list("")])


def test_life_goes_on_after_a_fault() -> None:
    """Calls after the one that failed work."""
    blobs = FailingBlobs(MemoryBlobs(), at=1)
    with pytest.raises(Unavailable):
        blobs.put("a", b"1")

    blobs.put("a", b"1")

    assert blobs.delete("a")


def test_nothing_is_done_after_death() -> None:
    """Who died makes no call any more."""
    behind = MemoryBlobs()
    blobs = FailingBlobs(behind, at=1, fault="die")

    for _ in range(2):
        with pytest.raises(Died):
            blobs.put("a", b"1")

    with pytest.raises(NotFound):
        behind.get("a")
    assert [Call("put", "a")] == blobs.calls


def test_calls_are_told_before_they_are_made() -> None:
    """`before` sees each call, and what it raises is the call's error."""
    seen: list[Call] = []
    blobs = FailingBlobs(MemoryBlobs(), before=seen.append)

    blobs.put("a", b"1")
    blobs.get("a")
    list(blobs.list(""))

    assert [Call("put", "a"), Call("get", "a"), Call("list", "")] == seen == blobs.calls
