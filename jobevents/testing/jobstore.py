"""What every store of runs promises, as a pytest class: subclass it and give it the fixtures `store` and `elapse`.

class TestOurStore(JobStoreContract):
    @pytest.fixture
    def clock(self):
        return Clock()

    @pytest.fixture
    def store(self, clock):
        return OurStore(clock=clock)

    @pytest.fixture
    def elapse(self, clock):
        return clock.move
"""

# ruff: noqa: SIM300 - the expected value stands first

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from jobevents.errors import Conflict, IllegalTransition, InvalidValue, NotFound
from jobevents.store import JobRun, JobStore, RunError, RunFilter
from jobevents.testing.blob_races import together
from jobevents.testing.clock import START
from jobevents.testing.jobstore_lists import JobStoreLists
from jobevents.testing.jobstore_logs import JobStoreLogs
from jobevents.testing.outages import JobStoreOutages
from jobevents.testing.runs import CANCEL, FINAL, WHOLE, Elapse, changed, ended, listed, run


class JobStoreContract(JobStoreLists, JobStoreLogs, JobStoreOutages):
    """The store's behaviour; the fixtures must give each test an empty store, by a clock that stands still at START."""

    checks_states = True  # refuses an update that takes a run out of `succeeded` or `canceled`
    remembers_purged = True  # the id of a purged run stays taken

    @pytest.fixture
    def store(self) -> Iterator[JobStore]:
        raise NotImplementedError("override the fixture `store` with an empty store")

    @pytest.fixture
    def elapse(self) -> Elapse:
        """Let so many seconds pass by the store's clock; a negative number sets it back."""
        raise NotImplementedError("override the fixture `elapse` with what moves the store's clock")

    # one run

    def test_every_field_comes_back(self, store: JobStore) -> None:
        """A run is read as it was created, error and cancel included."""
        store.create(WHOLE)

        assert WHOLE == store.get(WHOLE.id)

    @pytest.mark.parametrize("name", JobRun.__struct_fields__)
    def test_each_field_alone_comes_back(self, store: JobStore, name: str) -> None:
        """No field depends on another one being there."""
        created = msgspec.structs.replace(run(scheduled_at=START, updated_at=START, root_id="a"))
        created = msgspec.structs.replace(created, **{name: getattr(WHOLE, name)})

        store.create(created)

        assert created == store.get(created.id)

    @pytest.mark.parametrize("value", [0, False, 1, True, 1.0, "", [], {}, {"b": 1, "a": 2}, 2**63 - 1, "\u2028ü😀"])
    def test_params_and_results_keep_their_types(self, store: JobStore, value: object) -> None:
        """JSON values come back as the very value that they were, an object's keys in their order."""
        store.create(ended(params={"p": value}, result={"r": value}))

        found = store.get("a")

        assert [repr({"p": value}), repr({"r": value})] == [repr(found.params), repr(found.result)]

    def test_what_is_not_said_is_filled_in(self, store: JobStore) -> None:
        """A run is made now, due now and the first of its chain, unless it says otherwise."""
        store.create(JobRun(id="a", job_name="render"))

        found = store.get("a")

        assert (START, START, START) == (found.created_at, found.scheduled_at, found.updated_at)
        assert ("a", "queued", "default", "manual", 1) == (
            found.root_id,
            found.status,
            found.queue,
            found.trigger,
            found.attempt,
        )

    def test_an_id_is_taken_once(self, store: JobStore) -> None:
        """A second run with the id is refused, and the first stays as it is."""
        store.create(run(params=1))

        with pytest.raises(Conflict):
            store.create(run(params=2))

        assert 1 == store.get("a").params

    def test_one_of_eight_creates(self, store: JobStore) -> None:
        """Of eight that create one run at once, one succeeds."""

        def create(number: int) -> str:
            store.create(run(params=number))
            return str(number)

        (winner,) = together(create).values()

        assert winner == str(store.get("a").params)

    @pytest.mark.parametrize(
        "broken", [{"params": float("nan")}, {"job_name": ""}, {"id": "no/id"}, {"priority": 2**20}]
    )
    def test_what_cannot_be_stored_is_refused(self, store: JobStore, broken: dict[str, Any]) -> None:
        """Nothing is stored of a run that would not come back as it is."""
        with pytest.raises(InvalidValue):
            store.create(msgspec.structs.replace(run(), **broken))

        assert [] == listed(store)

    def test_an_unknown_run_is_not_found(self, store: JobStore) -> None:
        """Get of an id never seen is NotFound."""
        with pytest.raises(NotFound, match="nobody"):
            store.get("nobody")

    def test_values_are_the_callers_own(self, store: JobStore) -> None:
        """Neither what was given nor what was handed out is what is stored: changing it changes nothing."""
        given = {"parts": [1]}
        store.create(run(params=given))

        given["parts"].append(2)
        store.get("a").params["parts"].append(3)

        assert {"parts": [1]} == store.get("a").params

    def test_a_run_that_was_handed_out_stands_still(self, store: JobStore) -> None:
        """What a reader holds is of the moment when it read, whatever is written meanwhile."""
        store.create(run())
        held, page = store.get("a"), store.list(RunFilter())

        changed(store, "a", status="running", progress=50)

        assert ("queued", "queued") == (held.status, page.runs[0].status)

    # updates

    def test_an_update_stores_the_full_state(self, store: JobStore, elapse: Elapse) -> None:
        """Every field is as said, but for the cancel fields and `updated_at`, which is now."""
        store.create(run(WHOLE.id))
        elapse(60)

        store.update(WHOLE)

        kept = dict.fromkeys(CANCEL, "") | {"cancel_requested_at": None, "updated_at": START + timedelta(seconds=60)}
        assert msgspec.structs.replace(WHOLE, **kept) == store.get(WHOLE.id)

    @pytest.mark.parametrize(
        "name", [name for name in JobRun.__struct_fields__ if name not in ("id", "updated_at", *CANCEL)]
    )
    def test_each_field_is_updated_alone(self, store: JobStore, name: str) -> None:
        """One field that changes changes no other."""
        store.create(run(finished_at=START, started_at=START))
        before = store.get("a")

        found = changed(store, "a", **{name: getattr(WHOLE, name)})

        assert msgspec.structs.replace(before, **{name: getattr(WHOLE, name)}) == found

    def test_an_update_empties_what_it_says_is_empty(self, store: JobStore) -> None:
        """A retry clears the start, the worker, the error: what is empty is said to be."""
        store.create(WHOLE)
        empty = {
            "started_at": None,
            "finished_at": None,
            "duration_ms": 0,
            "error": None,
            "worker_id": "",
            "result": None,
        }

        found = changed(store, WHOLE.id, status="queued", attempt=3, progress=0, progress_message="", **empty)

        assert ("queued", 3, None, None, 0, None, "", None) == (
            found.status,
            found.attempt,
            *(getattr(found, n) for n in empty),
        )

    def test_a_run_lives(self, store: JobStore, elapse: Elapse) -> None:
        """From try to try to its end, each update is what is read."""
        store.create(run(max_attempts=2))
        steps: list[dict[str, Any]] = [
            {"status": "running", "started_at": START, "worker_id": "w1"},
            {"progress": 40, "progress_message": "mixing"},
            {"status": "queued", "attempt": 2, "started_at": None, "worker_id": "", "error": RunError(message="no")},
            {"status": "running", "started_at": START + timedelta(seconds=30), "worker_id": "w2"},
            {
                "status": "succeeded",
                "finished_at": START + timedelta(seconds=40),
                "duration_ms": 10_000,
                "result": {"n": 1},
            },
        ]

        for step in steps:
            elapse(10)
            wanted = msgspec.structs.replace(store.get("a"), **step)

            found = changed(store, "a", **step)

            assert wanted == msgspec.structs.replace(found, updated_at=wanted.updated_at)

    def test_an_update_of_an_unknown_run_is_not_found(self, store: JobStore) -> None:
        """An update makes no run."""
        with pytest.raises(NotFound):
            store.update(run())

        assert [] == listed(store)

    @pytest.mark.parametrize("status", ["succeeded", "canceled"])
    def test_an_end_is_an_end(self, store: JobStore, status: str) -> None:
        """A worker that comes too late does not take a run out of its end."""
        if not self.checks_states:
            pytest.skip("this store checks no states")
        store.create(ended(status=status))

        with pytest.raises(IllegalTransition):
            changed(store, "a", status="running")

        assert status == store.get("a").status

    def test_the_clock_is_set_back(self, store: JobStore, elapse: Elapse) -> None:
        """Updates are stored in the order they are made, whatever the clock says."""
        store.create(run())
        elapse(-3600)

        found = changed(store, "a", status="running", progress=50)

        assert ("running", START - timedelta(hours=1)) == (found.status, found.updated_at)
        assert START == found.created_at

    # cancel

    @pytest.mark.parametrize("status", ["queued", "running"])
    def test_a_request_to_cancel(self, store: JobStore, elapse: Elapse, status: str) -> None:
        """When, who and why are recorded, and nothing else changes but that."""
        store.create(run(status=status))
        elapse(5)

        store.request_cancel("a", "bob", "wrong song")

        found = store.get("a")
        assert (START + timedelta(seconds=5), "bob", "wrong song") == tuple(getattr(found, name) for name in CANCEL)
        assert status == found.status

    def test_it_is_known_whether_a_cancel_was_asked_for(self, store: JobStore) -> None:
        """False before, true after."""
        store.create(run())
        before = store.is_cancel_requested("a")

        store.request_cancel("a", "bob", "")

        assert (False, True) == (before, store.is_cancel_requested("a"))

    def test_the_first_request_counts(self, store: JobStore, elapse: Elapse) -> None:
        """A second request changes neither who nor when."""
        store.create(run())
        store.request_cancel("a", "bob", "wrong song")
        elapse(5)

        store.request_cancel("a", "eve", "me too")

        found = store.get("a")
        assert (START, "bob", "wrong song") == tuple(getattr(found, name) for name in CANCEL)

    def test_an_update_never_undoes_a_cancel(self, store: JobStore) -> None:
        """The worker's copy is older than the request, and stores its progress all the same."""
        store.create(run(status="running"))
        copy = store.get("a")
        store.request_cancel("a", "bob", "wrong song")

        store.update(msgspec.structs.replace(copy, progress=50))

        found = store.get("a")
        assert (50, "bob", "wrong song") == (found.progress, found.canceled_by, found.cancel_reason)
        assert store.is_cancel_requested("a")

    def test_an_update_asks_for_no_cancel(self, store: JobStore) -> None:
        """Only `request_cancel` writes the cancel fields."""
        store.create(run(status="running"))

        changed(store, "a", cancel_requested_at=START, canceled_by="eve", cancel_reason="so")

        assert not store.is_cancel_requested("a")

    def test_a_canceled_run_remembers_who(self, store: JobStore) -> None:
        """The end of a canceled run keeps the request."""
        store.create(run(status="running"))
        store.request_cancel("a", "bob", "wrong song")

        found = changed(store, "a", status="canceled", finished_at=START)

        assert ("canceled", "bob", "wrong song") == (found.status, found.canceled_by, found.cancel_reason)

    @pytest.mark.parametrize("status", FINAL)
    def test_a_finished_run_is_not_canceled(self, store: JobStore, status: str) -> None:
        """What has ended is left as it is."""
        store.create(ended(status=status))
        before = store.get("a")

        store.request_cancel("a", "bob", "")

        assert before == store.get("a")

    def test_nobody_cannot_be_canceled(self, store: JobStore) -> None:
        """Both sides of a cancel are NotFound for an unknown id."""
        with pytest.raises(NotFound):
            store.request_cancel("nobody", "bob", "")
        with pytest.raises(NotFound):
            store.is_cancel_requested("nobody")

    def test_the_store_closes_twice(self, store: JobStore) -> None:
        """A second close does nothing."""
        store.close()
        store.close()
