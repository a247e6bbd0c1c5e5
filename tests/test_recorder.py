"""The kit's store and recorder: every vector in both read-failure modes, and what vectors do not show (behaviour S10-S20)."""

import logging
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest

from jobevents.blobs import MemoryBlobs
from jobevents.errors import (
    Corrupt,
    InvalidJobId,
    InvalidValue,
    JobEventsError,
    Misconfigured,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from jobevents.recorder import OnUnreadable, Recorder, StatusStore, under_job_dir
from jobevents.status import Status, encode
from jobevents.times import to_datetime
from tests.records import TYPES, Bare, Story, bytes_of, fields_of, record_of
from tests.vectors import vectors

BASE = "gs://bucket/jobs"
JOB = "c20260726-120000-abcd1234"
PLACE = f"{BASE}/{JOB}/status.json"
NOW = datetime(2026, 7, 26, 12, 0, 31, tzinfo=UTC)
MODES: list[OnUnreadable] = ["raise", "run"]
KINDS = {
    "invalid_id": InvalidJobId,
    "locate": Misconfigured,
    "marshal": InvalidValue,
    "not_found": NotFound,
    "unavailable": Unavailable,
    "decode": Corrupt,
}


class Bucket:
    """Objects in a dict, with failures to order."""

    def __init__(self, stored: dict[str, bytes] | None = None) -> None:
        self.stored = dict(stored or {})
        self.headers: dict[str, tuple[str, str]] = {}
        self.fail_read: Exception | None = None
        self.fail_write: Exception | None = None

    def get(self, name: str) -> Any:
        if self.fail_read:
            raise self.fail_read
        if name not in self.stored:
            raise NotFound(f"no such object name={name}")
        return Content(self.stored[name])

    def put(self, name: str, data: bytes, *, content_type: str, cache_control: str) -> str:
        if self.fail_write:
            raise self.fail_write
        self.stored[name] = data
        self.headers[name] = content_type, cache_control
        return "1"

    def delete(self, name: str) -> bool:
        if self.fail_write:
            raise self.fail_write
        return self.stored.pop(name, None) is not None


class Content(msgspec.Struct):
    """What the bucket gives back."""

    data: bytes


def a_store(bucket: Bucket, mode: OnUnreadable | None = "raise", *, now: datetime = NOW) -> StatusStore[Story]:
    """Make a store of Story records over a bucket."""
    return StatusStore(bucket, bucket, under_job_dir(BASE), Story, on_unreadable=mode, clock=lambda: now)


def out_of(vector: dict[str, Any], mode: OnUnreadable) -> dict[str, Any]:
    """Return what a vector says in a mode: "run" is what the seed describes and code v1.0.2 does."""
    return cast("dict[str, Any]", vector.get("out_v1_0_2", vector["out"]) if mode == "run" else vector["out"])


@pytest.mark.parametrize("vector", vectors("under_job_dir"))
def test_under_job_dir_gives_what_the_go_code_gives(vector: dict[str, Any]) -> None:
    """Every vector of under_job_dir holds; an empty base fails at the use (behaviour S10)."""
    locate = under_job_dir(vector["in"]["base"])

    if vector["out"]["ok"]:
        assert vector["out"]["path"] == locate(vector["in"]["id"])
    else:
        with pytest.raises(Misconfigured, match="base_uri"):
            locate(vector["in"]["id"])


@pytest.mark.parametrize("vector", vectors("encode"))
def test_save_writes_what_the_go_code_writes(vector: dict[str, Any]) -> None:
    """Every vector of encode holds: bytes, place and headers, or the kind of error and nothing written (behaviour S12)."""
    given, out, bucket = vector["in"], vector["out"], Bucket()
    fields, overlong = dict(given["fields"]), given["fields"].get("queued_at")
    if isinstance(overlong, dict) and overlong["y"] > 9999:
        fields["queued_at"] = None  # datetime ends at 9999: set afterwards, as text
    record = record_of(fields, TYPES[given["type"]])
    if fields != given["fields"]:
        record.queued_at = f"{overlong['y']}-01-01T00:00:00Z"
    before, now = msgspec.structs.asdict(record), to_datetime(given["now"])
    store = StatusStore(bucket, bucket, under_job_dir(given.get("base", BASE)), type(record), clock=lambda: now)

    if out["ok"]:
        store.save(given["id"], record)
        # A datetime has microseconds: the one vector with nanoseconds is exact in test_status.
        expected = out["bytes"].replace(".123456789Z", ".123456Z").encode()
        assert {out["path"]: expected} == bucket.stored
        assert {out["path"]: (out["content_type"], out["cache_control"])} == bucket.headers
    else:
        with pytest.raises(KINDS[out["error"]]):
            store.save(given["id"], record)
        assert not bucket.stored
    assert before == msgspec.structs.asdict(record)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("vector", vectors("decode"))
def test_get_reads_what_the_go_code_reads(vector: dict[str, Any], mode: OnUnreadable) -> None:
    """Every vector of decode holds in both modes: fields, guard and re-encoded bytes, or the kind of error (S8, S13)."""
    given, out = vector["in"], out_of(vector, mode)
    bucket = Bucket({} if given.get("missing") else {PLACE: bytes_of(given)})
    if given.get("open_error"):
        bucket.fail_read = Unavailable("503")
    store = StatusStore(bucket, bucket, under_job_dir(BASE), TYPES[given["type"]], on_unreadable=mode)

    if not out["ok"]:
        with pytest.raises(KINDS[out["error"]]):
            store.get(given["id"])
        return
    record = store.get(given["id"])
    assert {**out["fields"], **out["extras"], "version": 0} == fields_of(record)
    assert out["is_terminal"] == record.is_terminal()
    assert out["reencoded"].encode() == encode(record)


@pytest.mark.parametrize("error", [Unavailable("503"), OSError("disk"), TimeoutError("slow")])
def test_an_unreadable_status_is_unavailable_with_id_place_and_cause(error: Exception) -> None:
    """In mode "raise" a failed read is Unavailable and not NotFound, and says which and why (behaviour S13)."""
    bucket = Bucket()
    bucket.fail_read = error

    with pytest.raises(Unavailable) as caught:
        a_store(bucket).get(JOB)

    assert f"job_id={JOB} name={PLACE} cause={error}" in str(caught.value)
    assert error is caught.value.__cause__


@pytest.mark.parametrize("error", [Unavailable("503"), OSError("disk"), PermissionDenied("403")])
def test_in_mode_run_what_cannot_be_opened_is_not_found_with_its_cause(error: Exception) -> None:
    """In mode "run" any failed read is NotFound, with the cause wrapped and visible (behaviour X1)."""
    bucket = Bucket()
    bucket.fail_read = error

    with pytest.raises(NotFound, match=f"job_id={JOB}.*cause={error}") as caught:
        a_store(bucket, "run").get(JOB)

    assert error is caught.value.__cause__


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("error", [Corrupt("body cut off"), InvalidValue("bad name"), Misconfigured("no bucket")])
def test_an_error_that_says_what_is_wrong_passes_as_it_is(error: JobEventsError, mode: OnUnreadable) -> None:
    """What no later try mends is neither called unavailable nor not found, in either mode."""
    bucket = Bucket()
    bucket.fail_read = bucket.fail_write = error
    store = a_store(bucket, mode)

    for call in (lambda: store.get(JOB), lambda: store.save(JOB, Story()), lambda: store.delete(JOB)):
        with pytest.raises(type(error)) as caught:
            call()
        assert error is caught.value


def test_a_refused_credential_stays_one() -> None:
    """PermissionDenied keeps its kind through get, save and delete: trying again does not help."""
    bucket = Bucket()
    bucket.fail_read = bucket.fail_write = PermissionDenied("403")
    store = a_store(bucket)

    for call in (lambda: store.get(JOB), lambda: store.save(JOB, Story()), lambda: store.delete(JOB)):
        with pytest.raises(PermissionDenied, match=f"{JOB}.*cause=403"):
            call()


def test_a_missing_status_is_not_found_by_its_id() -> None:
    """NotFound names the job and wraps the reader's own error (behaviour S13)."""
    with pytest.raises(NotFound, match=f"job_id={JOB}") as caught:
        a_store(Bucket()).get(f" dir/{JOB}/ ")

    assert isinstance(caught.value.__cause__, NotFound)


def test_a_reader_that_gives_none_has_no_such_object() -> None:
    """None from a reader is an absent object."""

    class Nothing:
        def get(self, name: str) -> None:
            return None

    with pytest.raises(NotFound, match=JOB):
        StatusStore(Nothing(), None, under_job_dir(BASE)).get(JOB)


@pytest.mark.parametrize("error", [Unavailable("503"), OSError("disk")])
def test_a_failed_write_says_what_and_where(error: Exception) -> None:
    """Errors of save and delete are Unavailable, with the id, the place and the cause (behaviour S12, S14)."""
    bucket = Bucket()
    bucket.fail_write = error

    with pytest.raises(Unavailable, match=f"saved job_id={JOB} name={PLACE} cause={error}"):
        a_store(bucket).save(JOB, Story())
    with pytest.raises(Unavailable, match=f"deleted job_id={JOB} name={PLACE} cause={error}"):
        a_store(bucket).delete(JOB)


def test_delete_removes_the_record_and_tells_whether_there_was_one() -> None:
    """Delete normalises the id, and answers what the storage answers (behaviour S14)."""
    bucket = Bucket({PLACE: b"{}"})
    store = a_store(bucket)

    assert store.delete(f"x/{JOB}")
    assert not store.delete(JOB)
    assert not bucket.stored


def test_checks_come_in_the_kits_order() -> None:
    """The id is checked first, then the locator, then its answer, then reader and writer (behaviour S11)."""
    nothing = StatusStore(None, None, None)
    placeless = StatusStore(None, None, under_job_dir(" "))
    located = StatusStore(None, None, under_job_dir(BASE))

    with pytest.raises(InvalidJobId):
        nothing.get("a b")
    for store, what in ((nothing, "locator"), (placeless, "base_uri"), (located, "reader")):
        with pytest.raises(Misconfigured, match=what):
            store.get(JOB)
    with pytest.raises(Misconfigured, match="writer"):
        located.save(JOB, Status())


def test_without_writer_there_is_nothing_to_delete() -> None:
    """Delete without a writer is fine, but for the checks of id and locator (behaviour S14)."""
    assert not StatusStore(None, None, under_job_dir(BASE)).delete(JOB)
    with pytest.raises(InvalidJobId):
        StatusStore(None, None, under_job_dir(BASE)).delete("..")
    with pytest.raises(Misconfigured, match="locator"):
        StatusStore(None, None, None).delete(JOB)


def test_a_locator_of_the_services_own_gets_the_normalised_id() -> None:
    """The locator is given the cleaned id, and its failure is Misconfigured with the cause (behaviour S10)."""
    bucket, seen = Bucket(), list[str]()

    def locate(job_id: str) -> str:
        seen.append(job_id)
        raise RuntimeError("no tenant")

    with pytest.raises(Misconfigured, match=f"job_id={JOB} cause=no tenant"):
        StatusStore(bucket, bucket, locate).save(f"../{JOB}", Status())
    assert seen == [JOB]


@pytest.mark.parametrize("wrong", [dict, str, Status(), None, "Status"])
def test_a_type_that_is_no_record_type_is_refused_at_construction(wrong: Any) -> None:
    """Only a Struct class is a record type (behaviour S15)."""
    with pytest.raises(TypeError, match=r"msgspec\.Struct"):
        StatusStore(None, None, under_job_dir(BASE), wrong)


def test_an_unknown_mode_is_refused_at_construction() -> None:
    """`on_unreadable` is "raise", "run" or None; the message names both."""
    wrong = cast("OnUnreadable", "ignore")

    with pytest.raises(Misconfigured, match='"raise" or "run"'):
        StatusStore(None, None, under_job_dir(BASE), on_unreadable=wrong)
    with pytest.raises(Misconfigured, match='"raise" or "run"'):
        Recorder(None, on_unreadable=wrong)


def test_a_record_without_the_common_part_is_stored_as_it_is() -> None:
    """A bare Struct is neither stamped on save nor filled on get (behaviour S12)."""
    bucket = Bucket()
    store = StatusStore(bucket, bucket, under_job_dir(BASE), Bare)

    store.save(JOB, Bare(note="hello"))

    assert bucket.stored == {PLACE: b'{"note":"hello"}'}
    assert Bare(note="hello") == store.get(JOB)


def test_a_store_works_over_blobs() -> None:
    """Blobs serve as reader and writer as they are, the prefix as base."""
    blobs = MemoryBlobs()
    store = StatusStore(blobs, blobs, under_job_dir("jobs/"), clock=lambda: NOW)

    store.save(JOB, Status(state="running"))

    assert Status(JOB, state="running", updated_at=NOW.isoformat()) == store.get(JOB)
    assert [f"jobs/{JOB}/status.json"] == [entry.name for entry in blobs.list("")]


class Callbacks:
    """The apply callbacks of a vector, which note whether they saw a previous record."""

    def __init__(self, verbs: list[str]) -> None:
        self.prev_seen: list[bool] = []
        self.all = [self.callback(verb) for verb in verbs]

    def callback(self, verb: str) -> Any:
        def apply(next: Story, prev: Story | None) -> None:
            self.prev_seen.append(prev is not None)
            match verb.partition("="):
                case ("attempts+1", _, _):
                    next.attempts += 1
                case ("copy_output_dir", _, _):
                    assert prev is not None
                    next.output_dir = prev.output_dir
                case (name, "=", value):
                    setattr(next, name, value)

        return apply


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("vector", vectors("record"))
def test_record_does_what_the_go_code_does(
    vector: dict[str, Any], mode: OnUnreadable, caplog: pytest.LogCaptureFixture
) -> None:
    """Every vector of record holds in both modes: bytes, callbacks, warnings, and the argument untouched (S18)."""
    given, out = vector["in"], out_of(vector, mode)
    bucket = Bucket({PLACE: given["prev"].encode()} if given["prev"] else {})
    bucket.fail_read = Unavailable("503") if given.get("open_error") else None
    bucket.fail_write = Unavailable("503") if given.get("write_error") else None
    store = None if given.get("nil_store") else a_store(bucket, mode, now=to_datetime(given["now"]))
    status, callbacks = record_of(given["status"]), Callbacks(given["apply"])
    before = dict(bucket.stored)

    Recorder(store, on_unreadable=mode).record(given["id"], status, *callbacks.all)

    after = {PLACE: out["saved"].encode()} if out["saved"] else before
    assert after == bucket.stored
    assert out["prev_seen"] == callbacks.prev_seen
    assert out["warnings"] == [
        "save_failed" if hasattr(line, "state") else "prev_unreadable" for line in caplog.records
    ]
    assert out["arg_unchanged"] == (record_of(given["status"]) == status)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("vector", vectors("already_succeeded"))
def test_already_succeeded_does_what_the_go_code_does(vector: dict[str, Any], mode: OnUnreadable) -> None:
    """Every vector of already_succeeded holds in both modes: the answer, or the kind of error (behaviour S17)."""
    given, out = vector["in"], out_of(vector, mode)
    bucket = Bucket({} if given["bytes"] is None else {PLACE: given["bytes"].encode()})
    bucket.fail_read = Unavailable("503") if given.get("open_error") else None
    recorder = Recorder(None if given.get("nil_store") else a_store(bucket, mode), on_unreadable=mode)

    if out["error"]:
        with pytest.raises(KINDS[out["error"]]):
            recorder.already_succeeded(given["id"])
    else:
        assert out["done"] == recorder.already_succeeded(given["id"])


def test_a_recorder_without_store_is_disabled() -> None:
    """No store: not enabled, nothing done, no callback called (behaviour S16)."""
    recorder: Recorder[Status] = Recorder(None)
    callbacks = Callbacks(["nop"])

    recorder.record(JOB, Status(), *callbacks.all)

    assert not recorder.enabled
    assert not recorder.already_succeeded(JOB)
    assert not callbacks.prev_seen
    assert Recorder(a_store(Bucket())).enabled


def test_by_default_an_unreadable_status_lets_the_work_run(caplog: pytest.LogCaptureFixture) -> None:
    """The recorder's own mode is "run", also over a store that raises: False and one warning (behaviour X1)."""
    bucket = Bucket()
    bucket.fail_read = Unavailable("503")

    assert not Recorder(a_store(bucket, "raise")).already_succeeded(JOB)

    [line] = caplog.records
    assert f"job_id='{JOB}'" in line.getMessage()
    assert "cause=503" in line.getMessage()


def test_none_inherits_the_stores_mode() -> None:
    """`on_unreadable=None` means the store's own, and "run" for a store that has none."""
    bucket = Bucket()
    bucket.fail_read = Unavailable("503")

    with pytest.raises(Unavailable):
        Recorder(a_store(bucket, None), on_unreadable=None).already_succeeded(JOB)
    for store in (a_store(bucket, "run"), Shelf()):
        assert not Recorder(store, on_unreadable=None).already_succeeded(JOB)


def test_a_failed_save_is_one_warning_with_id_error_and_state(caplog: pytest.LogCaptureFixture) -> None:
    """What could not be saved is in the log line and on its attributes, and nothing is raised (behaviour S18)."""
    bucket = Bucket()
    bucket.fail_write = Unavailable("503")

    Recorder(a_store(bucket)).record(JOB, Story(state="succeeded"))

    [line] = caplog.records
    found: Any = line
    assert logging.WARNING == line.levelno
    assert line.name == "jobevents.recorder"
    assert (found.job_id, found.state) == (JOB, "succeeded")
    assert "cause=503" in found.error
    assert "state='succeeded'" in line.getMessage()


def test_a_status_that_cannot_be_encoded_does_not_stop_the_work(caplog: pytest.LogCaptureFixture) -> None:
    """A value of the wrong type is a failed save like any other."""
    bucket, broken = Bucket(), Story(state="failed")
    broken.error = cast("str", ValueError("boom"))

    Recorder(a_store(bucket)).record(JOB, broken)

    [line] = caplog.records
    assert "path=$.error" in line.getMessage()
    assert not bucket.stored


def test_warnings_go_to_the_logger_given(caplog: pytest.LogCaptureFixture) -> None:
    """A logger of the caller's takes the place of the module's own."""
    Recorder(a_store(Bucket()), logging.getLogger("service")).record("a b\n", Story())

    [line] = caplog.records
    assert line.name == "service"
    assert r"'a b\n'" in line.getMessage()


def test_a_callback_may_return_the_record_to_use() -> None:
    """Callbacks change next in place or return another; None among them is skipped."""
    bucket = Bucket()

    Recorder(a_store(bucket)).record(
        JOB, Story(state="running"), lambda next, prev: msgspec.structs.replace(next, title="T"), None
    )

    assert a_store(bucket).get(JOB).title == "T"


def test_what_a_callback_raises_comes_through() -> None:
    """A callback is the caller's code: its error is not taken for a failure to record."""

    def broken(next: Story, prev: Story | None) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Recorder(a_store(Bucket())).record(JOB, Story(), broken)


class Shelf:
    """The least that will do for a store: it keeps and hands out the very objects (behaviour S20)."""

    def __init__(self) -> None:
        self.kept: dict[str, Story] = {}

    def get(self, job_id: str) -> Story:
        if job_id not in self.kept:
            raise NotFound(job_id)
        return self.kept[job_id]

    def save(self, job_id: str, record: Story) -> None:
        self.kept[job_id] = record


def test_any_store_with_get_and_save_will_do() -> None:
    """The port is two methods, and what a callback does to prev stays its own affair (behaviour S18, S20)."""
    shelf, prev_titles = Shelf(), list[str]()
    shelf.kept[JOB] = stored = Story(JOB, state="queued", title="T", output_dir="gs://d")

    def apply(next: Story, prev: Story | None) -> None:
        assert prev is not None
        prev_titles.append(prev.title)
        prev.title = "changed"

    Recorder(shelf).record(JOB, Story(state="succeeded"), apply)

    assert prev_titles == ["T"]
    assert stored.title == "T"
    assert Story(state="succeeded", title="T") == shelf.kept[JOB]
    assert Recorder(shelf).already_succeeded(JOB)


def test_a_record_that_knows_no_end_never_counts_as_done() -> None:
    """A type without is_terminal gives False (behaviour S17)."""
    bucket = Bucket({PLACE: b'{"note":"succeeded"}'})
    store = StatusStore(bucket, bucket, under_job_dir(BASE), Bare)

    assert not Recorder(store).already_succeeded(JOB)
