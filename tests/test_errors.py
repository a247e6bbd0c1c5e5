"""The errors: what a caller may do with any of them, whichever it is."""

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from jobevents import errors, ids

RAISED: list[errors.JobEventsError] = [
    errors.JobEventsError("what"),
    errors.InvalidValue("what", path="$.a[3]"),
    errors.AppendUnknown("song-7", 3, "e1"),
    errors.KeyTaken("held", job_id="song-7", key="k"),
    errors.IllegalTransition(
        "JobStarted", job_id="song-7", state="failed", allowed=("JobRequeued",), start=2, current=4
    ),
    errors.AlreadySucceeded("done", job_id="song-7"),
    errors.Busy(job_id="song-7", column="queue", value="gpu", most=2),
    errors.Snooze(2.5, "not yet"),
    ids.NoTimestamp("no time"),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_an_error_goes_to_another_process_whole(error: errors.JobEventsError) -> None:
    """Type, message and attributes of every error survive pickling and copying; a pool of processes does that."""
    error.add_note("seen in a pool")

    for back in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(error) is type(back)
        assert str(error) == str(back)
        assert vars(error) == vars(back)


def test_a_pool_of_processes_raises_what_a_worker_raised() -> None:
    """A refusal in a worker of a pool is the refusal for who waits on it, and the pool goes on."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with pytest.raises(errors.AlreadySucceeded) as refused:
            pool.submit(_refuse).result()

        assert "song-7" == refused.value.job_id
        assert 7 == pool.submit(abs, -7).result()


def _refuse() -> None:
    raise errors.AlreadySucceeded("done", job_id="song-7")
