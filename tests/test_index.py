"""The sorted index: always equal to sorting, whatever happens to its writers, at a bounded cost for its readers."""

import random
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jobevents.backends.sqlblobs import SqliteBlobs
from jobevents.blobs import Blobs, FileBlobs, MemoryBlobs
from jobevents.errors import Conflict, Corrupt, InvalidValue, Misconfigured, NotFound, Unavailable
from jobevents.ids import sort_key
from jobevents.job import DELETED, Job
from jobevents.testing.faults import Call, Died, FailingBlobs, Fault
from projections.chunks import ChunkRef, rank
from projections.index import MAX_PER_PAGE, Index, cursor_after
from projections.indexview import IndexView
from projections.manifest import ALL, LETTERS, Manifest, ManifestBlob
from projections.paging import select_ids
from projections.sequences import Sizes, lengths
from tests.fake_time import FakeTime
from tests.index_model import (
    HORIZON_S,
    SMALL,
    JobLog,
    catch_up,
    chunks,
    expected,
    listed,
    manifest,
    memory,
    newest_first,
    told,
    view_of,
)

FAULTS: tuple[Fault, ...] = get_args(Fault)
STATES = [*LETTERS, "rendering", DELETED]
IDS = [f"job-20260101-0000{n:02d}-{n * 7919 % 256:02x}" for n in range(20)] + [f"plain{n}" for n in range(6)]


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def blobs(time: FakeTime) -> MemoryBlobs:
    return memory(time)


def some_log(events: int = 60) -> JobLog:
    """A log in which jobs come, move and go."""
    log = JobLog()
    go_on(log, events)
    return log


def go_on(log: JobLog, events: int) -> None:
    rng = random.Random(len(log.jobs))
    for _ in range(events):
        log.add(rng.choice(IDS), rng.choice(STATES))


def filled(blobs: Blobs, ids: list[str], state: Callable[[int], str] = lambda _: "queued") -> Index:
    """An index of these jobs, with chunks of the default size."""
    view = IndexView(blobs)
    view.take([Job(job_id=job_id, version=1, state=state(n)) for n, job_id in enumerate(ids)], len(ids))
    view.flush(everything=True)
    return Index(blobs)


def timed_ids(number: int, per_second: int = 1) -> list[str]:
    """Ids in order of time, all of one day."""
    seconds = (n // per_second for n in range(number))
    return [
        f"job-20260101-{second // 3600:02d}{second // 60 % 60:02d}{second % 60:02d}-{n:012x}"
        for n, second in enumerate(seconds)
    ]


def check_sizes(blobs: Blobs) -> None:
    for refs in manifest(blobs).sequences.values():
        assert all(SMALL.least <= ref.count for ref in refs[:-1])
        assert all(0 < ref.count <= SMALL.most for ref in refs)


# against sorting


class IndexMachine(RuleBasedStateMachine):
    """Two projectors over one log, each of which may lag, die or lose replies at any call; readers look all the time."""

    @initialize()
    def begin(self) -> None:
        self.time = FakeTime()
        self.blobs = memory(self.time)
        self.log = JobLog()
        self.views = [view_of(self.blobs, self.time) for _ in range(2)]
        self.read = [0, 0]  # how far each projector has read the log

    @rule(job_id=st.sampled_from(IDS), state=st.sampled_from(STATES))
    def happens(self, job_id: str, state: str) -> None:
        if self.log.at(len(self.log.jobs)).get(job_id) or job_id not in {job.job_id for job in self.log.jobs}:
            self.log.add(job_id, state)  # a deleted job never comes back

    @rule(events=st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(STATES)), min_size=5, max_size=25))
    def much_happens(self, events: list[tuple[str, str]]) -> None:
        for job_id, state in events:
            self.happens(job_id, state)

    @rule(who=st.integers(0, 1), share=st.floats(0.2, 1))
    def takes(self, who: int, share: float) -> None:
        until = self.read[who] + round(share * (len(self.log.jobs) - self.read[who]))
        self.views[who].take(self.log.since(self.read[who], until), until)
        self.read[who] = until

    @rule(who=st.integers(0, 1))
    def flushes(self, who: int) -> None:
        try:
            assert self.views[who].flush(everything=True) >= self.read[who]
        except Unavailable:
            pass  # what was taken waits for the next flush
        except Died:
            self.starts(who, 0, "die")

    @rule(who=st.integers(0, 1), at=st.integers(0, 12), fault=st.sampled_from(FAULTS))
    def starts(self, who: int, at: int, fault: Fault) -> None:
        """What the projector held is gone; the new one will meet a fault."""
        self.read[who] = manifest(self.blobs).position
        self.views[who] = view_of(FailingBlobs(self.blobs, at=at, fault=fault), self.time)
        try:
            assert self.views[who].position() == self.read[who]
        except (Unavailable, Died):
            self.views[who] = view_of(self.blobs, self.time)

    @rule(seconds=st.sampled_from([1.0, HORIZON_S / 5, HORIZON_S * 1.1]))
    def time_passes(self, seconds: float) -> None:
        self.time.now += seconds

    @invariant()
    def index_is_the_log_up_to_its_position(self) -> None:
        assert expected(self.log, manifest(self.blobs).position) == told(self.blobs)

    @invariant()
    def chunks_have_their_sizes(self) -> None:
        check_sizes(self.blobs)

    def teardown(self) -> None:
        """In the end everything is in, and what is out of use is collected."""
        view = view_of(self.blobs, self.time)
        for n in range(4):
            self.log.add(f"last{n}")
            catch_up(view, self.log)
            self.time.now += HORIZON_S * 1.2
        held = manifest(self.blobs)
        assert expected(self.log, len(self.log.jobs)) == told(self.blobs)
        recent = {chunk_id for batch in held.retired for chunk_id in batch.chunks}
        assert {*held.live(), *recent} == set(chunks(self.blobs).list())
        assert len(recent) <= 16


TestIndexMachine = pytest.mark.slow(IndexMachine.TestCase)
TestIndexMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(["queued", "failed", "odd"])), max_size=60), st.data())
def test_a_page_is_what_select_ids_chooses(events: list[tuple[str, str]], data: st.DataObject) -> None:
    """Ids and meta of any page are those of select_ids over the whole list."""
    log, blobs, time = JobLog(), MemoryBlobs(), FakeTime()
    for job_id, state in events:
        log.add(job_id, state)
    catch_up(view_of(blobs, time), log)
    state = data.draw(st.sampled_from(["", "queued", "failed", "other", "running"]))
    page, per_page = data.draw(st.integers(-1, 12)), data.draw(st.integers(1, 9))

    chosen = Index(blobs).page(state, page, per_page)

    assert select_ids(expected(log, len(log.jobs))[state or ALL], page, per_page, sort_key) == chosen


def test_chunks_that_shrink_are_merged(blobs: MemoryBlobs, time: FakeTime) -> None:
    """While jobs move between two states, or all go, every chunk but the last stays as large as pages need it."""
    rng, log, view = random.Random(6), JobLog(), view_of(blobs, time)
    for job_id in timed_ids(120):
        log.add(job_id)
    for step in range(60):
        for job_id in rng.sample(sorted(log.at(len(log.jobs))), 20 if step < 40 else 6):
            log.add(job_id, "running" if step % 2 else "queued" if step < 40 else DELETED)
        catch_up(view, log)

        check_sizes(blobs)
        assert expected(log, len(log.jobs)) == told(blobs)


@given(st.integers(0, 5000), st.integers(1, 20), st.booleans())
def test_parts_of_a_split_are_within_the_sizes(total: int, least: int, is_last: bool) -> None:
    """A split leaves no part that would be merged or split again, but for the last chunk, which may be short."""
    sizes = Sizes(least, 2 * least, 3 * least)

    parts = lengths(total, sizes, is_last=is_last)

    assert total == sum(parts)
    assert all(least <= part <= sizes.most for part in parts[:-1])
    assert all((is_last or total < least or least <= part) and 0 < part <= sizes.most for part in parts)


@given(st.lists(st.text("abZ019-_", max_size=20)))
def test_rank_is_the_order_of_pages(ids: list[str]) -> None:
    """Sorting by rank is sorting by sort key, then id."""
    assert sorted(ids, key=lambda job_id: (sort_key(job_id), job_id)) == sorted(ids, key=rank)


def test_an_entry_keeps_the_version_of_its_state(blobs: MemoryBlobs, time: FakeTime) -> None:
    """Events that leave the state as it is do not touch the chunks; the position moves on all the same."""
    view = view_of(blobs, time)
    view.take([Job(job_id="a", version=3, state="running")], 3)
    view.flush(everything=True)
    before = manifest(blobs)

    view.take([Job(job_id="a", version=7, state="running")], 7)

    assert 7 == view.flush(everything=True)
    assert before.sequences == manifest(blobs).sequences
    assert [3] == chunks(blobs).get(before.sequences[ALL][0]).versions


def test_an_older_version_changes_nothing(blobs: MemoryBlobs, time: FakeTime) -> None:
    """A job that is taken in an older version stays where it is."""
    view = view_of(blobs, time)
    view.take([Job(job_id="a", version=5, state="failed")], 5)
    view.flush(everything=True)

    view.take([Job(job_id="a", version=4, state="running"), Job(job_id="a", version=3, state=DELETED)], 6)
    view.flush(everything=True)

    assert (["a"], []) == (told(blobs)["failed"], told(blobs)["running"])


def test_what_comes_at_the_stored_position_is_taken(blobs: MemoryBlobs, time: FakeTime) -> None:
    """A job that was parked and is folded after all comes in, though the position has passed its events."""
    view = view_of(blobs, time)
    view.take([Job(job_id="a", version=1, state="queued")], 9)
    view.flush(everything=True)

    view.take([Job(job_id="parked", version=4, state="failed")], view.position())
    view.flush(everything=True)

    assert ["parked"] == told(blobs)["failed"]


def test_states_of_open_text_share_a_sequence(blobs: MemoryBlobs) -> None:
    """However many states are made up, the manifest names no more than the seven sequences and that of all."""
    index = filled(blobs, timed_ids(300), lambda n: f"made up {n}")

    assert {ALL, "other"} == set(manifest(blobs).sequences)
    assert 300 == index.counts()["other"]
    with pytest.raises(InvalidValue, match="other lists all states of open text"):
        index.page("made up 7")


def test_counts_are_those_of_the_states(blobs: MemoryBlobs) -> None:
    """Counts come for every state, also where there is no job, and for all."""
    index = filled(blobs, timed_ids(10), lambda n: "failed" if n < 3 else "succeeded")

    counts = index.counts()

    assert {name: {"failed": 3, "succeeded": 7}.get(name, 0) for name in LETTERS} | {ALL: 10} == counts


def test_before_the_first_flush_there_are_no_jobs(blobs: MemoryBlobs) -> None:
    """Without a manifest an index is empty, at position 0, and its page is what an empty list's is."""
    index = Index(blobs)

    assert select_ids([], 99, 20) == index.page("", 99, 20)
    assert (0, "") == (index.position(), index.after().cursor)


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_other_stores_hold_it_as_well(kind: str, tmp_path: Path, time: FakeTime) -> None:
    """On files and in SQLite the index is the log too, after every batch and by a new view each time."""
    blobs: Blobs = FileBlobs(tmp_path / "blobs") if kind == "files" else SqliteBlobs(tmp_path / "blobs.db")
    whole, log = some_log(80), JobLog()
    for start in range(0, 80, 20):
        log.jobs += whole.jobs[start : start + 20]
        catch_up(view_of(blobs, time), log)

        assert expected(log, len(log.jobs)) == told(blobs)
        time.now += HORIZON_S
    blobs.close()


# faults


@pytest.mark.parametrize("fault", FAULTS)
def test_a_flush_may_fail_at_any_call(fault: Fault) -> None:
    """Whichever call fails, and how, the stored index is the log up to its position; a new view goes on from there."""
    for at in count(1):
        time = FakeTime()
        blobs, log = memory(time), some_log(40)
        catch_up(view_of(blobs, time), log)
        go_on(log, 40)
        failing = FailingBlobs(blobs, at=at, fault=fault)
        view = view_of(failing, time)

        try:
            catch_up(view, log)
        except (Unavailable, Died):
            assert expected(log, manifest(blobs).position) == told(blobs)
            assert len(log.jobs) == catch_up(view_of(blobs, time), log)

        assert expected(log, len(log.jobs)) == told(blobs)
        if not failing.met:
            assert at > 10
            return


@pytest.mark.parametrize("fault", ["refuse", "lose reply"])
def test_a_failed_flush_is_made_up_for_by_the_next(fault: Fault) -> None:
    """The view itself goes on after a fault: nothing that was taken is lost, nothing that was stored stays unnamed."""
    for at in count(1):
        time = FakeTime()
        blobs, log = memory(time), some_log(60)
        failing = FailingBlobs(blobs, at=at, fault=fault)
        view = view_of(failing, time)
        view.take(log.since(0), len(log.jobs))

        try:
            view.flush(everything=True)
        except Unavailable:
            view.flush(everything=True)

        assert expected(log, len(log.jobs)) == told(blobs)
        held = manifest(blobs)
        unknown = set(chunks(blobs).list()).difference(held.live(), *(batch.chunks for batch in held.retired))
        assert len(unknown) <= 1  # the chunk whose reply was lost: nobody knows its name
        if not failing.met:
            return


def test_two_views_may_meet_at_any_call() -> None:
    """At whichever call of one flush another view's whole flush comes in between, all changes are in, once."""
    for at in count(1):
        time = FakeTime()
        blobs, log = memory(time), some_log(40)
        catch_up(view_of(blobs, time), log)
        go_on(log, 40)
        other, calls = view_of(blobs, time), count(1)
        other.take(log.since(other.position(), 70), 70)

        def meanwhile(_call: Call, other: IndexView = other, calls: "count[int]" = calls, at: int = at) -> None:
            if next(calls) == at:
                assert 70 == other.flush(everything=True)

        catch_up(view_of(FailingBlobs(blobs, before=meanwhile), time), log)

        assert expected(log, len(log.jobs)) == told(blobs)
        if next(calls) <= at:
            return


def test_the_view_that_is_behind_drops_its_work(blobs: MemoryBlobs, time: FakeTime) -> None:
    """A projector that was paused with a job in hand does not bring it back after its deletion."""
    log = JobLog()
    log.add("a")
    paused = view_of(blobs, time)
    paused.take(log.since(paused.position()), 1)
    log.add("a", DELETED)
    catch_up(view_of(blobs, time), log)

    assert 2 == paused.flush(everything=True)
    assert [] == told(blobs)[ALL]


def test_an_index_that_went_back_is_not_written_over(blobs: MemoryBlobs, time: FakeTime) -> None:
    """When the index was deleted under a view, its flush says so until the position is asked for again."""
    log = some_log(30)
    view = view_of(blobs, time)
    catch_up(view, log)
    for entry in list(blobs.list("index/")):
        blobs.delete(entry.name)
    log.add("late")
    view.take(log.since(30), 31)

    for _ in range(2):
        with pytest.raises(Conflict, match="ask for the position"):
            view.flush(everything=True)

    assert 31 == catch_up(view, log)
    assert expected(log, 31) == told(blobs)


def test_older_code_does_not_write(blobs: MemoryBlobs, time: FakeTime) -> None:
    """A manifest of newer code is left as it is."""
    file = ManifestBlob(blobs, "index/v1/MANIFEST.json")
    file.save(Manifest(position=5, code=99), file.load())

    with pytest.raises(Misconfigured, match="upgrade"):
        view_of(blobs, time).position()


# when it writes


def test_changes_wait_for_the_interval(blobs: MemoryBlobs, time: FakeTime) -> None:
    """What was taken is held back for the interval, counted from the first, and then stored in one write."""
    view = IndexView(blobs, flush_interval_s=10, monotonic=time.clock)
    view.position()
    assert view.next_flush_s() is None

    view.take([Job(job_id="a", version=1, state="queued")], 1)
    time.now += 4
    view.take([Job(job_id="b", version=1, state="queued")], 2)

    assert (6.0, 0) == (view.next_flush_s(), view.flush())
    time.now += 6
    assert (0.0, 2) == (view.next_flush_s(), view.flush())
    assert view.next_flush_s() is None


def test_many_changes_do_not_wait(blobs: MemoryBlobs, time: FakeTime) -> None:
    """As many changes as memory should hold are due at once."""
    view = IndexView(blobs, flush_interval_s=10, many=2, monotonic=time.clock)

    view.take([Job(job_id=job_id, version=1, state="queued") for job_id in "ab"], 2)

    assert 2 == view.flush()


class SlowBlobs(MemoryBlobs):
    """Blobs of which one name should be written every 1.05 s."""

    min_write_interval_s = 1.05


def test_many_changes_wait_for_the_store(time: FakeTime) -> None:
    """The manifest is not written more often than the store takes it, and every ten seconds where that costs."""
    view = IndexView(SlowBlobs(), many=1, monotonic=time.clock)
    view.take([Job(job_id="a", version=1, state="queued")], 1)
    view.flush()
    view.take([], 2)

    assert 10.0 == view.next_flush_s()
    view.take([Job(job_id="b", version=1, state="queued")], 3)
    assert 1.05 == pytest.approx(view.next_flush_s())


def test_a_flush_without_news_costs_nothing(blobs: MemoryBlobs, time: FakeTime) -> None:
    """Once stored, the same jobs again are no write."""
    log, counting = some_log(), FailingBlobs(blobs)
    view = view_of(counting, time)
    catch_up(view, log)
    view.take(log.since(0), len(log.jobs))
    counting.calls.clear()

    view.flush(everything=True)

    assert [] == [call for call in counting.calls if call.method != "get"]


def test_a_flush_touches_each_chunk_once(blobs: MemoryBlobs) -> None:
    """Two thousand jobs that move at once read and write each chunk of theirs a single time."""
    ids = timed_ids(10_000)
    filled(blobs, ids)
    counting = FailingBlobs(blobs)
    view = IndexView(counting)
    view.take([Job(job_id=job_id, version=2, state="running") for job_id in ids[::5]], 20_000)

    view.flush(everything=True)

    reads = [call.name for call in counting.calls if call.method == "get" and "chunk" in call.name]
    assert len(reads) == len(set(reads)) == 14  # 7 of all, 7 of the queued
    assert 15 == sum(call.method == "put" and "chunk" in call.name for call in counting.calls)  # and 1 of the running


# readers


def test_a_page_reads_the_manifest_and_two_chunks(blobs: MemoryBlobs) -> None:
    """A new reader pays no more than three reads for any page or slice, of up to 200 ids, of any state."""
    rng = random.Random(3)
    ids = timed_ids(8000)
    view = IndexView(blobs)
    for position in range(1, 41):
        batch = rng.sample(ids, 400)
        view.take([Job(job_id=i, version=position, state=rng.choice(STATES)) for i in batch], position)
        view.flush(everything=True)

    for _ in range(300):
        counting = FailingBlobs(blobs)
        index, state, size = Index(counting), rng.choice(["", *LETTERS]), rng.choice([1, 7, 50, 199, 200, 10**9])
        if rng.random() < 0.5:
            index.page(state, rng.choice([1, rng.randrange(1, 100), 10**12]), size)
        else:
            index.after(cursor_after(rng.choice(ids)), size, state)

        assert len(counting.calls) <= 3


def test_a_page_again_asks_for_the_manifest_alone(blobs: MemoryBlobs) -> None:
    """Chunks in memory are not read again, nor is a manifest that has not changed."""
    filled(blobs, timed_ids(3000))
    counting = FailingBlobs(blobs)
    index = Index(counting)
    index.page("", 3, 100)
    counting.calls.clear()

    index.page("", 3, 100)

    assert [Call("get", "index/v1/MANIFEST.json")] == counting.calls


def test_an_old_manifest_can_be_read_for_the_horizon(blobs: MemoryBlobs, time: FakeTime) -> None:
    """Every chunk of a manifest is there until the horizon after it was replaced, and gone some time later."""
    log, view = some_log(), view_of(blobs, time)
    catch_up(view, log)
    old = manifest(blobs)
    for step in range(1, 60):
        log.add(f"job-20260102-0000{step:02d}")
        for job_id in IDS[step % 3 :: 3]:
            log.add(job_id, STATES[step % 6])
        catch_up(view, log)
        time.now += HORIZON_S / 20
        if step < 20:
            assert all(chunks(blobs).get(ref).ids for refs in old.sequences.values() for ref in refs)

    assert not set(old.live()) & set(chunks(blobs).list()) - set(manifest(blobs).live())


def test_a_reader_that_misses_a_chunk_reads_the_manifest_again(blobs: MemoryBlobs, time: FakeTime) -> None:
    """A chunk collected between the manifest and its read is no error."""
    log = some_log()
    catch_up(view_of(blobs, time), log)
    old = manifest(blobs)

    def meanwhile(call: Call) -> None:
        if "chunk" in call.name and old.sequences == manifest(blobs).sequences:
            for job_id in IDS:
                log.add(job_id, "failed")
            catch_up(view_of(blobs, time), log)
            for chunk_id in old.live():
                chunks(blobs).delete(chunk_id)

    found, _ = Index(FailingBlobs(blobs, before=meanwhile)).page("", 1, 200)

    assert newest_first(list(log.at(len(log.jobs)))) == found


def test_a_chunk_that_stays_missing_is_corrupt(blobs: MemoryBlobs, time: FakeTime) -> None:
    """A chunk that the newest manifest names and nobody has is told with what to do, to readers and to the writer."""
    log = some_log()
    view = view_of(blobs, time)
    catch_up(view, log)
    for chunk_id in manifest(blobs).live():
        chunks(blobs).delete(chunk_id)
    log.add("late")

    with pytest.raises(Corrupt, match="rebuild"):
        Index(blobs).page()
    with pytest.raises(Corrupt, match="rebuild"):
        catch_up(view_of(blobs, time), log)


DAMAGE = [b"", b"{", b'{"ids":["a"],"versions":[]}', b'{"ids":["a","b"],"versions":[1,1]}', b"[" * 100_000]


@pytest.mark.parametrize("data", DAMAGE, ids=["empty", "cut", "columns", "count", "deep"])
def test_bytes_that_are_no_chunk_are_corrupt(data: bytes, blobs: MemoryBlobs) -> None:
    """A spoilt chunk is Corrupt, which names it."""
    filled(blobs, ["a"])
    ref = manifest(blobs).sequences[ALL][0]
    blobs.put(f"index/v1/chunk/{ref.id}", data)

    with pytest.raises(Corrupt, match=f"{ref.id}.*rebuild"):
        Index(blobs).page()


@pytest.mark.parametrize("data", [b"", b"{", b'{"sequences":[]}', b"[" * 100_000], ids=["empty", "cut", "type", "deep"])
def test_bytes_that_are_no_manifest_are_corrupt(data: bytes, blobs: MemoryBlobs) -> None:
    """A spoilt manifest is Corrupt, which names it."""
    blobs.put("index/v1/MANIFEST.json", data)

    with pytest.raises(Corrupt, match=r"MANIFEST.json.*rebuild"):
        Index(blobs).page()


@pytest.mark.parametrize(
    "cursor", ["x", "2", "====", "é", "a b", "job-20260101-000000-00", "ajE6", "ajE6_w", "a" * 5000]
)
def test_a_text_that_is_no_cursor_is_refused(cursor: str, blobs: MemoryBlobs) -> None:
    """What no slice returned is refused before anything is read."""
    counting = FailingBlobs(blobs)

    with pytest.raises(InvalidValue, match="not a cursor"):
        Index(counting).after(cursor)
    assert [] == counting.calls


def test_orphans_are_collected(blobs: MemoryBlobs, time: FakeTime) -> None:
    """Chunks that a killed flush left are found by the next view and deleted once nobody can be about to name them."""
    log = some_log(40)
    catch_up(view_of(blobs, time), log)
    log.add("late")
    with pytest.raises(Died):
        catch_up(view_of(FailingBlobs(blobs, at=8, fault="die"), time), log)
    left = set(chunks(blobs).list()) - set(manifest(blobs).live())
    assert left

    view = view_of(blobs, time)
    kept = []
    for step in range(4):
        log.add(f"later{step}")
        catch_up(view, log)
        kept.append(len(left & set(chunks(blobs).list())))
        time.now += HORIZON_S * 0.7

    assert [len(left)] * 2 == kept[:2]
    assert 0 == kept[-1]


def test_a_flush_paused_with_chunks_in_hand_does_not_name_collected_ones(blobs: MemoryBlobs, time: FakeTime) -> None:
    """A projector paused for hours before its manifest loses to the one that took its chunks for orphans."""
    log = some_log(40)
    catch_up(view_of(blobs, time), log)
    log.add("late")

    in_hand: set[str] = set()

    def meanwhile(call: Call) -> None:
        if call == Call("put", "index/v1/MANIFEST.json") and not in_hand:
            in_hand.update(set(chunks(blobs).list()) - set(manifest(blobs).live()))
            other = view_of(blobs, time)
            for n in range(4):
                log.add(f"meanwhile{n}")
                catch_up(other, log)
                time.now += HORIZON_S

    assert 45 == catch_up(view_of(FailingBlobs(blobs, before=meanwhile), time), log)

    assert in_hand
    assert set() == in_hand & set(chunks(blobs).list())
    assert expected(log, 45) == told(blobs)


# known cases


def test_pag_01_cursors_see_every_job_once(blobs: MemoryBlobs) -> None:
    """PAG-01: 500 jobs by 20, three newer inserted and two older deleted between slices: each that stays is seen once."""
    ids = timed_ids(500)
    index, view, seen, cursor, position = filled(blobs, ids), IndexView(blobs), [], "", 500
    deleted: set[str] = set()
    for step in count():
        found = index.after(cursor, 20)
        seen += found.ids
        index.page("", step, 20)  # a view of the moment, never an error
        cursor = found.cursor
        if not cursor:
            break
        position += 5
        gone = ids[2 * step : 2 * step + 2]
        deleted.update(gone)
        view.take([Job(job_id=f"job-20270101-{step:06d}-{n}", version=1, state="queued") for n in range(3)], position)
        view.take([Job(job_id=job_id, version=2, state=DELETED) for job_id in gone], position)
        view.flush(everything=True)

    assert newest_first([job_id for job_id in ids if job_id not in deleted]) == [i for i in seen if i not in deleted]


def test_pag_01_cursors_of_a_state_see_every_job_once(blobs: MemoryBlobs) -> None:
    """PAG-01: jobs that stay failed are seen once, though others come into the state and leave it meanwhile."""
    ids = timed_ids(500)
    index, view = filled(blobs, ids, lambda n: "failed" if n % 2 else "running"), IndexView(blobs)
    rng, seen, cursor, moved = random.Random(5), [], "", set()
    for position in count(501):
        found = index.after(cursor, 20, "failed")
        seen += found.ids
        cursor = found.cursor
        if not cursor:
            break
        moving = [job_id for job_id in rng.sample(ids, 10) if job_id not in moved]
        moved.update(moving)
        view.take([Job(job_id=i, version=2, state=rng.choice(["failed", "queued", DELETED])) for i in moving], position)
        view.flush(everything=True)

    assert newest_first([i for i in ids[1::2] if i not in moved]) == [i for i in seen if i not in moved]
    assert len(seen) == len(set(seen))


def test_pag_02_ties_are_neither_lost_nor_repeated(blobs: MemoryBlobs) -> None:
    """PAG-02: fifty jobs of one instant, by seven: the cursor and the pages give fifty distinct jobs."""
    rng = random.Random(2)
    ids = [f"job-20260101-000000-{rng.getrandbits(48):012x}" for _ in range(50)]
    index = filled(blobs, ids)

    by_page = [job_id for page in range(1, 9) for job_id in index.page("", page, 7)[0]]

    assert newest_first(ids) == listed(index, limit=7) == by_page


def test_pag_04_order_is_the_time_in_the_id(blobs: MemoryBlobs) -> None:
    """PAG-04: whatever prefix, width and case, ids go by their time, then their text; those without time come last."""
    ids = [
        "run-99",
        "run-101",
        "Run-99",
        "plain",
        "0",
        "comp-20260101-000002-b",
        "c20260101000003-x",
        "z-20260101-000001-a",
    ]
    ids += ["20260101-000002-aaaa", "A-20260101-000002-b", "a_20260101-000002", "job-19990101-000000-x"]
    rng = random.Random(4)

    for _ in range(5):
        rng.shuffle(ids)
        store = MemoryBlobs()

        assert newest_first(ids) == listed(filled(store, ids))
        assert select_ids(ids, 1, 200, sort_key) == Index(store).page("", 1, 200)
    assert "c20260101000003-x" == listed(Index(store))[0]
    assert ["0"] == listed(Index(store))[-1:]


@pytest.fixture(scope="module")
def many() -> MemoryBlobs:
    """An index of 200,000 jobs, 150,000 of them failed."""
    blobs = MemoryBlobs()
    filled(blobs, timed_ids(200_000, per_second=3), lambda n: "succeeded" if n % 4 == 0 else "failed")
    return blobs


@pytest.mark.parametrize("state", ["", "failed"])
@pytest.mark.parametrize(
    ("page", "per_page"), [(1, 50), (10**12, 50), (1500, 50), (0, 50), (1, 10**9), (1, -1), (1, 0), (-5, 200)]
)
def test_pag_08_every_page_is_bounded(state: str, page: int, per_page: int, many: MemoryBlobs) -> None:
    """PAG-08: of 200,000 jobs any page is three reads and 200 rows at most; one out of range is the last page."""
    counting = FailingBlobs(many)

    ids, meta = Index(counting).page(state, page, per_page)

    total = 150_000 if state else 200_000
    assert total == meta.total
    assert (MAX_PER_PAGE if per_page in (10**9, -1, 0) else per_page) == meta.per_page == len(ids)
    assert (min(max(page, 1), total // meta.per_page), -(-total // meta.per_page)) == (meta.page, meta.total_pages)
    assert len(counting.calls) <= 3
    assert all(a > b for a, b in pairwise(ids))


def test_pag_08_the_manifest_is_small(many: MemoryBlobs) -> None:
    """PAG-08: the manifest takes sixty bytes a chunk, and no chunk is over 80 KB."""
    sizes = {entry.name: entry.size_bytes for entry in many.list("index/v1/")}

    manifest_bytes = sizes.pop("index/v1/MANIFEST.json")

    assert manifest_bytes < 65 * len(sizes) + 200
    assert max(sizes.values()) < 80_000


def test_missing_chunk_is_not_found() -> None:
    """A chunk that nobody stored is NotFound, for the caller to look at a newer manifest."""
    with pytest.raises(NotFound):
        chunks(MemoryBlobs()).get(ChunkRef("nobody", "a", 1))
