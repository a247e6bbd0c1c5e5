"""Group commit: who leads, what is shared, and that nobody is left waiting."""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from jobevents.backends.groupcommit import GROUP_LIMIT, Call, GroupCommit

WAIT_S = 10  # far beyond what any of this takes


class Disk:
    """Settles groups, remembers their sizes, and holds the first one until it is let go."""

    def __init__(self, *, held: bool = False) -> None:
        self.sizes: list[int] = []
        self.reached = threading.Event()
        self.let_go = threading.Event()
        if not held:
            self.let_go.set()

    def __call__(self, group: list[Call]) -> None:
        self.reached.set()
        assert self.let_go.wait(WAIT_S)
        self.sizes.append(len(group))
        for call in group:
            try:
                call.settle(call.work())
            except Exception as error:
                call.settle(error=error)


def queue_up(group: GroupCommit, pool: ThreadPoolExecutor, works: list[Callable[[], int]]) -> list[Future[int]]:
    """Have the works queued, in their order."""
    futures = []
    for work in works:
        before = len(group._calls)
        futures.append(pool.submit(group.run, work))
        while len(group._calls) == before:
            pass
    return futures


def fail() -> int:
    raise LookupError("mine")


def test_call_alone_is_a_group_of_one() -> None:
    """A caller without company does not wait for any."""
    disk = Disk()

    result = GroupCommit(disk).run(lambda: 7)

    assert (7, [1]) == (result, disk.sizes)


def test_calls_that_wait_share_the_next_commit() -> None:
    """What queues up behind a commit goes into one, and each caller gets its own result."""
    disk = Disk(held=True)
    group = GroupCommit(disk)
    with ThreadPoolExecutor(10) as pool:
        futures = queue_up(group, pool, [lambda n=n: n for n in range(10)])
        disk.let_go.set()

        assert list(range(10)) == [future.result(WAIT_S) for future in futures]
    assert [1, 9] == disk.sizes


def test_a_leader_waits_for_who_was_here_of_late() -> None:
    """Of two threads whose calls met at a commit, the one that comes back first waits for the other, if a commit takes long."""
    disk = Disk(held=True)
    clock = itertools.count(step=100)  # each commit takes a hundred seconds
    group = GroupCommit(disk, monotonic=lambda: float(next(clock)), company_s=WAIT_S)
    with ThreadPoolExecutor(3) as pool:
        futures = queue_up(group, pool, [lambda: 1])
        assert disk.reached.wait(WAIT_S)
        futures += queue_up(group, pool, [lambda: 2])
        disk.let_go.set()
        assert 1 == futures[0].result(WAIT_S)
        futures.append(pool.submit(group.run, lambda: 3))

        assert [1, 2, 3] == [future.result(WAIT_S) for future in futures]
    assert [1, 2] == disk.sizes


def test_a_leader_waits_in_vain_once() -> None:
    """Company that does not come is not waited for any longer than a commit takes, and not at the next commit."""
    disk = Disk(held=True)
    group = GroupCommit(disk)
    with ThreadPoolExecutor(3) as pool:
        futures = queue_up(group, pool, [lambda: 1])
        assert disk.reached.wait(WAIT_S)
        futures += queue_up(group, pool, [lambda: 2])
        disk.let_go.set()
        assert [1, 2] == [future.result(WAIT_S) for future in futures]

    assert [3, 4] == [group.run(lambda: 3), group.run(lambda: 4)]
    assert [1, 1, 1, 1] == disk.sizes


def test_group_is_bounded() -> None:
    """No more than the limit share a commit; the rest leads the next one."""
    disk = Disk(held=True)
    group = GroupCommit(disk)
    with ThreadPoolExecutor(GROUP_LIMIT + 5) as pool:
        futures = queue_up(group, pool, [lambda n=n: n for n in range(GROUP_LIMIT + 5)])
        disk.let_go.set()
        for future in futures:
            future.result(WAIT_S)

    assert [1, GROUP_LIMIT, 4] == disk.sizes


def test_error_is_its_callers_alone() -> None:
    """One call's error is raised to it, and to nobody else."""
    disk = Disk(held=True)
    group = GroupCommit(disk)
    with ThreadPoolExecutor(3) as pool:
        first, failing, last = queue_up(group, pool, [lambda: 1, fail, lambda: 3])
        disk.let_go.set()

        assert [1, 3] == [first.result(WAIT_S), last.result(WAIT_S)]
        with pytest.raises(LookupError, match="mine"):
            failing.result(WAIT_S)


def test_interrupted_leader_leaves_the_others_to_the_next() -> None:
    """What an interrupt keeps a leader from settling is settled by the one behind it."""
    disk = Disk(held=True)
    interrupts = [KeyboardInterrupt()]

    def commit(calls: list[Call]) -> None:
        if len(calls) > 1 and interrupts:
            raise interrupts.pop()
        disk(calls)

    group = GroupCommit(commit)
    with ThreadPoolExecutor(4) as pool:
        futures = queue_up(group, pool, [lambda n=n: n for n in range(4)])
        disk.let_go.set()

        assert [0, 2, 3] == [futures[n].result(WAIT_S) for n in (0, 2, 3)]
        with pytest.raises(KeyboardInterrupt):
            futures[1].result(WAIT_S)


def test_interrupted_follower_is_taken_back() -> None:
    """A caller that stops waiting takes its call with it."""
    disk = Disk(held=True)
    group = GroupCommit(disk)
    done = []
    with ThreadPoolExecutor(3) as pool:
        leader = pool.submit(group.run, lambda: done.append("leader"))
        assert disk.reached.wait(WAIT_S)
        follower = Call(lambda: done.append("follower"))
        assert not group._is_first(follower)

        group._withdraw(follower)
        last = pool.submit(group.run, lambda: done.append("last"))
        disk.let_go.set()
        leader.result(WAIT_S)
        last.result(WAIT_S)

    assert ["leader", "last"] == done
