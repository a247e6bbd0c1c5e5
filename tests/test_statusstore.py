"""The kit's store: every vector in both read-failure modes, and what vectors do not show (behaviour S10-S15)."""

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
from tests.bucket import BASE, JOB, KINDS, MODES, NOW, PLACE, Bucket, a_store, out_of
from tests.records import TYPES, Bare, Story, bytes_of, fields_of, record_of
from tests.vectors import vectors


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
