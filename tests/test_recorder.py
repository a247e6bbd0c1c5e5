"""The kit's recorder: every vector in both read-failure modes, and what vectors do not show (behaviour S16-S20)."""

import logging
from typing import Any, cast

import msgspec
import pytest

from jobevents.errors import (
    NotFound,
    Unavailable,
)
from jobevents.recorder import OnUnreadable, Recorder, StatusStore, under_job_dir
from jobevents.status import Status
from jobevents.times import to_datetime
from tests.bucket import BASE, JOB, KINDS, MODES, PLACE, Bucket, a_store, out_of
from tests.records import Bare, Story, record_of
from tests.vectors import vectors


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
