"""The protocol of the cloud in simulated worlds: whatever is lost, late, doubled or dies, what must hold holds in the end.

`JOBEVENTS_CHAOS_SEEDS` says how many worlds; one that fails is lived through again by its number alone:
`JOBEVENTS_CHAOS_FIRST=127 JOBEVENTS_CHAOS_SEEDS=1 python -m pytest tests/test_simulation.py -k every_world`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

import msgspec
import pytest

from jobevents.backends.blobnames import Slot
from jobevents.errors import Conflict, Unavailable
from projections.adoption import Adopted
from projections.statuswriter import Shown, Stored
from tests.cloudlife import Life
from tests.simulation import NO_FAULTS, Broken, Faults, SimBlobs

FIRST = int(os.environ.get("JOBEVENTS_CHAOS_FIRST", "0"))
SEEDS = int(os.environ.get("JOBEVENTS_CHAOS_SEEDS", "500"))
PARTS = 20  # so that two processes share them
BITES_WITHIN = 60  # worlds in which a guard that was taken away must be missed

pytestmark = pytest.mark.slow


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_what_must_hold_holds_in_every_world(part: int) -> None:
    for seed in range(FIRST + part, FIRST + SEEDS, PARTS):
        life = Life(seed)
        try:
            life.live()
        except BaseException as error:
            story = "\n".join(life.world.story[-40:])
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}\n{story}")


def test_a_world_is_the_same_each_time() -> None:
    def lived(seed: int) -> object:
        life = Life(seed)
        life.live()
        world = life.world
        blobs = {name: (blob.data, blob.generation) for name, blob in world.store._blobs.items()}
        return world.story, world.now, world.acknowledged, blobs

    assert lived(7) == lived(7)


def test_something_goes_wrong_in_these_worlds() -> None:
    """What they are for: processes die and are stopped, requests arrive late, and work is done all the same."""
    told, written = "", 0
    for seed in range(5):
        life = Life(seed)
        life.live()
        told += "\n".join(life.world.story)
        written += len(life.world.acknowledged)
    assert all(part in told for part in ("dies", "is stopped", "is late"))
    assert written > 50


def _create_without_reading_back(self: Any, slot: Slot, event: Any) -> bool:
    tries = self._backoff.start()
    while True:
        try:
            self._put(slot, event)
            return True
        except Conflict:
            return False
        except Unavailable:
            if not tries.pause():
                raise


def _take_a_slot_for_another_s(self: Any, events: Any, error: Exception, rows: Any) -> None:
    raise Conflict("another event is in the slot") from error


def _write_without_generation(self: Any, shown: Shown, stored: Stored) -> Stored:
    name = self.locate(shown.job.job_id)
    if not shown.data:
        self._blobs.delete(name)
        return Stored("0", shown.job.version)
    return Stored(self._blobs.put(name, shown.data, metadata=shown.metadata), shown.job.version, self._code)


def _unenforced(prefix: str) -> Callable[..., str]:
    """Return a `put` to a store that ignores conditions on some names, as some emulators do."""

    def put(self: SimBlobs, name: str, data: bytes, *, if_generation: str | None = None, **headers: Any) -> str:
        asked = None if name.startswith(prefix) else if_generation
        found: str = self._ask("put", name, lambda: self._world.store.put(name, data, if_generation=asked, **headers))
        return found

    return put


def _wait_out_a_gap(self: Any, job_id: str, job: Any) -> bool:
    known, last = self._inlet.inflow.taken(job_id).version, max(job.versions)
    return last - known <= len(job.versions) and job.versions.issuperset(range(known + 1, last + 1))


WITHOUT: Mapping[str, Mapping[str, Any]] = {
    "reading back after a reply that settles nothing": {
        "jobevents.backends.blobappend.SlotAppender._create": _create_without_reading_back,
        "jobevents.log.EventLog._settle": _take_a_slot_for_another_s,
    },
    "create-only in the store": {"tests.simulation.SimBlobs.put": _unenforced("log/")},
    "compare-and-swap of statuses in the store": {"tests.simulation.SimBlobs.put": _unenforced("jobs/")},
    "the generation of a status": {"projections.statuswriter.StatusWriter._write": _write_without_generation},
    "the version of a status": {"projections.statuswriter.StatusWriter._supersedes": lambda *_: True},
    "the version of the code": {
        "projections.statuswriter.StatusWriter._supersedes": lambda _, job, stored: job.version >= stored.version
    },
    "taking what other services wrote into the log": {
        "projections.adoption.Adoption.record": lambda _, job, blob, was_ours: Adopted(job)
    },
    "looking behind the last version of the unfinished": {
        "projections.sweeper.Sweeper.look_at_unfinished": lambda _: 0
    },
    "going through the whole log": {"projections.sweeper.Sweeper._sweep_parts": lambda *_: 0},
    "publishing what no message told of": {"projections.inlet.Inlet._tell": lambda *_: None},
    "up to where a status says that it was told": {"projections.mending.told_of": lambda _: 10**6},
    "writing down what is owed to the bus": {
        "projections.arrears.Arrears.publish": lambda self, records: self._deliver(records)
    },
    "finding out what came of an append": {
        "jobevents.emit.Emitter.settle": lambda *_: None,
        "jobevents.emit.Emitter.settle_own": lambda *_: None,
    },
    "heeding floors": {
        "jobevents.backends.blobappend.SlotAppender._heed_floor_before": lambda *_: None,
        "jobevents.backends.blobappend.SlotAppender._heed_floor_after": lambda *_: None,
        "jobevents.backends.bloblog.BlobRecorder._heed_heads": lambda *_: None,
    },
}
"""A guard of the protocol -> what takes it away."""

WHERE: Mapping[str, Mapping[str, Any]] = {
    "finding out what came of an append": {"faults": msgspec.structs.replace(NO_FAULTS, cut_off=0.06)},
    "heeding floors": {"faults": Faults(pause=0.02), "erases": True, "jobs": 1},
}
"""A guard -> the worlds in which it is missed sooner than elsewhere."""


def _is_missed(
    changes: Mapping[str, Any], seeds: Sequence[int], judge: Callable[[Life], None] | None = None, **options: Any
) -> str:
    """Return what goes wrong in the first of the worlds in which something does; "" when nothing does."""
    with ExitStack() as stack:
        for name, stand_in in changes.items():
            stack.enter_context(mock.patch(name, stand_in))
        for seed in seeds:
            try:
                Life(seed, **options).live(judge)
            except Broken as broken:
                return str(broken)
    return ""


@pytest.mark.parametrize("guard", WITHOUT)
def test_no_guard_of_the_protocol_is_there_for_nothing(guard: str) -> None:
    assert _is_missed(WITHOUT[guard], range(BITES_WITHIN), **WHERE.get(guard, {}))


@pytest.mark.parametrize("guard", WHERE)
def test_with_the_guard_these_worlds_hold(guard: str) -> None:
    assert not _is_missed({}, range(BITES_WITHIN), **WHERE[guard])


def test_without_the_sweep_what_no_message_tells_is_never_found() -> None:
    assert _is_missed({}, range(BITES_WITHIN), sweeps=False)


def test_what_is_missing_before_a_message_is_read_and_not_waited_for() -> None:
    """Where messages alone tell, each shows what it is about, though one before it was lost."""
    told, waiting = Life.judge_what_was_told, {"projections.hints.Hints._is_whole": _wait_out_a_gap}

    assert not _is_missed({}, range(BITES_WITHIN), told, sweeps=False)
    assert _is_missed(waiting, range(BITES_WITHIN), told, sweeps=False)
