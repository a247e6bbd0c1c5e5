"""What every store of worker leases promises, as a pytest class: subclass it and give it `leases`, `again` and `elapse`."""

# ruff: noqa: SIM300 - the expected value stands first

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from jobevents.testing.blob_races import together
from jobevents.workers import Lease, Leases

LEASE_S = 30.0


def lease(worker: str = "w1", *, lease_s: float = LEASE_S) -> Lease:
    """Return what a worker says of itself."""
    return Lease(
        worker=worker,
        host="host-a",
        pid=7,
        started_at=datetime(2026, 8, 1, 12, 0, 0, 250_000, tzinfo=UTC),
        version="1.2.3",
        lease_s=lease_s,
    )


def living(leases: Leases) -> list[str]:
    """Return who is alive."""
    return [one.lease.worker for one in leases.list() if one.is_alive]


class LeasesContract:
    """The port's behaviour; the fixtures must give each test an empty store, by a clock that stands still."""

    @pytest.fixture
    def leases(self) -> Leases:
        raise NotImplementedError("override the fixture `leases` with an empty store")

    @pytest.fixture
    def again(self) -> Leases:
        """The same store as another process has it, which has seen nothing yet."""
        raise NotImplementedError("override the fixture `again` with the same store, opened again")

    @pytest.fixture
    def elapse(self) -> Callable[[float], object]:
        """Let that many seconds pass, by the store's clock and by the monotonic one."""
        raise NotImplementedError("override the fixture `elapse` with what moves the clocks")

    def test_a_lease_says_what_its_worker_said(self, leases: Leases) -> None:
        """Every field of a lease comes back as it was given."""
        leases.renew(lease())

        assert [lease()] == [one.lease for one in leases.list()]

    def test_leases_are_listed_by_worker(self, leases: Leases) -> None:
        """All leases come in the order of their identities, alive or not."""
        for worker in ("b", "a", "c"):
            leases.renew(lease(worker))

        assert ["a", "b", "c"] == [one.lease.worker for one in leases.list()]

    def test_a_look_finds_those_asked_for(self, leases: Leases) -> None:
        """A worker without a lease is left out, and so is one that was not asked for."""
        leases.renew(lease("a"))
        leases.renew(lease("b"))

        assert {"a"} == set(leases.look(["a", "nobody"]))

    def test_a_look_at_nobody(self, leases: Leases) -> None:
        """No workers are no question."""
        leases.renew(lease())

        assert {} == leases.look([])

    def test_a_look_at_many(self, leases: Leases) -> None:
        """A thousand and more workers may be asked for in one call."""
        leases.renew(lease("w7"))

        assert {"w7"} == set(leases.look([f"w{n}" for n in range(1200)]))

    def test_a_lease_lives_as_long_as_it_says(
        self, leases: Leases, again: Leases, elapse: Callable[[float], object]
    ) -> None:
        """Before `lease_s` without a renewal it is alive, from then on dead; to a process that never saw it before, too."""
        leases.renew(lease())

        elapse(LEASE_S - 2)
        before = living(again)
        elapse(2)

        assert (["w1"], []) == (before, living(again))

    def test_each_lease_has_its_own_length(
        self, leases: Leases, again: Leases, elapse: Callable[[float], object]
    ) -> None:
        """How long a lease lives is what its owner said, not who looks."""
        leases.renew(lease("short", lease_s=5))
        leases.renew(lease("long", lease_s=60))

        elapse(6)

        assert ["long"] == living(again)

    def test_a_renewal_makes_it_young(self, leases: Leases, again: Leases, elapse: Callable[[float], object]) -> None:
        """A lease that is renewed in time goes on."""
        for _ in range(3):
            leases.renew(lease())
            elapse(LEASE_S - 2)

        assert ["w1"] == living(again)

    def test_a_dead_worker_that_renews_is_alive(
        self, leases: Leases, again: Leases, elapse: Callable[[float], object]
    ) -> None:
        """One that was stopped past its lease comes back with its next renewal."""
        leases.renew(lease())
        elapse(LEASE_S + 5)
        dead = living(again)

        leases.renew(lease())

        assert ([], ["w1"]) == (dead, living(again))

    def test_ages_are_counted_from_the_renewal(
        self, leases: Leases, again: Leases, elapse: Callable[[float], object]
    ) -> None:
        """A lease tells how long ago it was renewed, within a second."""
        leases.renew(lease())

        elapse(12)

        assert 12 == pytest.approx(again.look(["w1"])["w1"].age_s, abs=1)

    def test_a_dropped_lease_is_gone(self, leases: Leases, again: Leases) -> None:
        """A drop removes a living lease; one that is not there is no error."""
        leases.renew(lease())

        assert (True, False) == (leases.drop("w1"), leases.drop("w1"))
        assert [] == again.list()

    def test_only_a_dead_lease_is_dropped_as_dead(
        self, leases: Leases, again: Leases, elapse: Callable[[float], object]
    ) -> None:
        """A lease renewed in time stays, whoever takes it for dead."""
        leases.renew(lease())

        alive = again.drop("w1", if_dead=True)
        elapse(LEASE_S)

        assert (False, True, False) == (alive, again.drop("w1", if_dead=True), again.drop("w1", if_dead=True))

    def test_a_dropped_lease_may_begin_again(self, leases: Leases, again: Leases) -> None:
        """A worker whose lease was taken away by hand has it again with its next renewal."""
        leases.renew(lease())
        again.drop("w1")

        leases.renew(lease())

        assert ["w1"] == living(again)

    @pytest.mark.parametrize(
        "worker", ["a/b", "..", "ä b%2F", "x" * 200, "日本語" * 20], ids=["slash", "dots", "odd", "long", "wide"]
    )
    def test_any_identity_will_do(self, leases: Leases, worker: str) -> None:
        """An identity is any text that a name may be."""
        leases.renew(lease(worker))
        leases.renew(lease(worker + "2"))

        assert {worker} == set(leases.look([worker]))
        assert (True, [worker + "2"]) == (leases.drop(worker), living(leases))

    def test_many_renew_at_once(self, leases: Leases) -> None:
        """Eight workers that renew at the same instant all have their lease."""

        def renew(number: int) -> str:
            leases.renew(lease(f"w{number}"))
            return ""

        together(renew)

        assert [f"w{n}" for n in range(8)] == living(leases)
