"""Blobs on S3: the contract over moto behind the strict proxy, and a bad day."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from jobevents import errors
from jobevents.backends.s3 import S3Blobs
from jobevents.backoff import Backoff
from jobevents.blobs import ABSENT, Blob, Blobs
from jobevents.testing import BlobsContract
from jobevents.wiring import check_blobs, connect, open_blobs
from tests.fake_time import FakeTime
from tests.s3_proxy import S3Proxy

pytest_plugins = ("tests.s3",)

_CALLS: dict[str, Callable[[Blobs], object]] = {
    "get": lambda blobs: blobs.get("a"),
    "put": lambda blobs: blobs.put("a", b"2"),
    "put conditional": lambda blobs: blobs.put("b", b"2", if_generation=ABSENT),
    "delete": lambda blobs: blobs.delete("a"),
    "list": lambda blobs: list(blobs.list("")),
}
_calls = pytest.mark.parametrize("call", list(_CALLS.values()), ids=list(_CALLS))


@pytest.mark.slow
class TestS3Blobs(BlobsContract):
    """What every store of blobs promises."""

    turns = 2
    many = 120  # over two of its pages

    @pytest.fixture
    def blobs(self, s3_bucket: str, s3_time: FakeTime) -> Iterator[Blobs]:
        with closing(
            S3Blobs(s3_bucket, page_size=50, backoff=Backoff(sleep=s3_time.sleep, clock=s3_time.clock))
        ) as blobs:
            yield blobs


@pytest.fixture
def other(s3_bucket: str) -> Iterator[Blobs]:
    """Another writer of the same bucket."""
    with closing(S3Blobs(s3_bucket)) as blobs:
        yield blobs


def read(blobs: Blobs, name: str) -> Blob:
    """Return a blob that must be there."""
    blob = blobs.get(name)
    assert blob is not None
    return blob


# what a call costs


def test_requests_of_each_call(s3_blobs: S3Blobs, s3_proxy: S3Proxy) -> None:
    """As the class says."""
    s3_blobs.put("a", b"1", if_generation=ABSENT)
    s3_blobs.get("a")
    generation = read(s3_blobs, "a").generation
    s3_blobs.get("a", if_changed=generation)
    s3_blobs.put("a", b"2", if_generation=generation)
    s3_blobs.put("a", b"3")
    list(s3_blobs.list(""))
    s3_blobs.delete("a")

    created, replaced, deleted = ["upload"], ["stat", "upload"], ["stat", "delete", "list"]
    read_thrice = ["download", "download", "download", "stat"]  # the last of what is unchanged
    assert [*created, *read_thrice, *replaced, *replaced, "list", *deleted] == s3_proxy.kinds()


def test_much_metadata_goes_with_its_object(s3_blobs: S3Blobs, s3_proxy: S3Proxy, s3_bucket: str) -> None:
    """More than S3 has room for is kept beside the object, and nothing is left of it when that is replaced or gone."""
    much = {"job": "x" * 5000, "title": "作品名"}

    s3_blobs.put("jobs/a/status.json", b"1", metadata=much)
    s3_blobs.put("jobs/a/status.json", b"2", metadata=much)
    found, listed = read(s3_blobs, "jobs/a/status.json"), [one.name for one in s3_blobs.list("")]
    s3_blobs.delete("jobs/a/status.json")

    assert (b"2", much, ["jobs/a/status.json"]) == (found.data, found.metadata, listed)
    assert b"<Key>" not in s3_proxy.ask("GET", f"/{s3_bucket}?list-type=2").body


def test_another_program_s_object(s3_blobs: S3Blobs, s3_proxy: S3Proxy, s3_bucket: str) -> None:
    """Has a generation and its own metadata, and can be replaced on condition."""
    s3_proxy.ask("PUT", f"/{s3_bucket}/a", {"x-amz-meta-theirs": "1"}, b"theirs")

    blob = read(s3_blobs, "a")
    mine = s3_blobs.put("a", b"mine", if_generation=blob.generation)

    assert (b"theirs", {"theirs": "1"}) == (blob.data, blob.metadata)
    assert (b"mine", mine) == (read(s3_blobs, "a").data, read(s3_blobs, "a").generation)


def test_headers_of_a_status(s3_blobs: S3Blobs, s3_proxy: S3Proxy, s3_bucket: str) -> None:
    """A reader of the bucket gets content type and cache control."""
    s3_blobs.put("a", b"{}", content_type="application/json; charset=utf-8", cache_control="no-store")

    headers = dict(s3_proxy.ask("GET", f"/{s3_bucket}/a").headers)

    named = {key.lower(): value for key, value in headers.items()}
    assert ("application/json; charset=utf-8", "no-store") == (named["content-type"], named["cache-control"])


# lost replies


@pytest.mark.parametrize("lost", [1, 3])
def test_lost_reply_of_a_create(s3_blobs: S3Blobs, s3_proxy: S3Proxy, lost: int) -> None:
    """A create whose reply was lost is a success, not a Conflict with itself."""
    s3_proxy.drop_reply("upload", times=lost)

    generation = s3_blobs.put("a", b"1", if_generation=ABSENT)

    assert generation == read(s3_blobs, "a").generation


def test_lost_reply_of_a_replacement(s3_blobs: S3Blobs, s3_proxy: S3Proxy) -> None:
    """It is written once, and is a success."""
    first = s3_blobs.put("a", b"1")
    s3_proxy.drop_reply("upload")

    second = s3_blobs.put("a", b"2", if_generation=first)

    assert (b"2", second) == (read(s3_blobs, "a").data, read(s3_blobs, "a").generation)


def test_lost_request_and_another_writer(s3_blobs: S3Blobs, s3_proxy: S3Proxy, s3_time: FakeTime, other: Blobs) -> None:
    """A create that did not arrive is a Conflict when another was made meanwhile, even of the same bytes."""
    s3_proxy.drop_request("upload")
    s3_time.while_asleep = lambda: other.put("a", b"1", if_generation=ABSENT)

    with pytest.raises(errors.Conflict):
        s3_blobs.put("a", b"1", if_generation=ABSENT)


def test_lost_reply_of_a_delete(s3_blobs: S3Blobs, s3_proxy: S3Proxy) -> None:
    """It was ours."""
    s3_blobs.put("a", b"1")
    s3_proxy.drop_reply("delete")

    assert s3_blobs.delete("a")


def test_a_late_write_does_not_replace_a_newer_one(
    s3_blobs: S3Blobs, s3_proxy: S3Proxy, s3_time: FakeTime, other: Blobs
) -> None:
    """What was cut off and lands an hour later is refused."""
    first = s3_blobs.put("a", b"1")
    late = s3_proxy.hold("upload")

    second = s3_blobs.put("a", b"2", if_generation=first)
    third = other.put("a", b"3", if_generation=second)

    assert 412 == late.land()
    assert (b"3", third) == (read(s3_blobs, "a").data, read(s3_blobs, "a").generation)


# refusals


@_calls
@pytest.mark.parametrize("status", [503, 500, 429])
def test_what_passes_is_tried_again(
    s3_blobs: S3Blobs, s3_proxy: S3Proxy, s3_time: FakeTime, call: Callable[[Blobs], object], status: int
) -> None:
    """Three times, by waits of our own."""
    s3_blobs.put("a", b"1")
    s3_proxy.fail(status, times=3)

    call(s3_blobs)

    assert 3 == len(s3_time.sleeps)


def test_a_conflict_of_requests_is_tried_again(s3_blobs: S3Blobs, s3_proxy: S3Proxy) -> None:
    """S3 answers 409 where two conditional writes met: neither was refused."""
    s3_proxy.fail(409, "upload", times=2)

    generation = s3_blobs.put("a", b"1", if_generation=ABSENT)

    assert generation == read(s3_blobs, "a").generation


@_calls
def test_a_refusal_is_never_not_found(s3_blobs: S3Blobs, s3_proxy: S3Proxy, call: Callable[[Blobs], object]) -> None:
    """GCS-06: 403 is PermissionDenied at once, and the message says what to grant."""
    s3_blobs.put("a", b"1")
    before = len(s3_proxy.requests)
    s3_proxy.fail(403)

    with pytest.raises(errors.PermissionDenied, match="s3:ListBucket"):
        call(s3_blobs)

    assert 1 == len(s3_proxy.requests) - before


@_calls
def test_a_store_that_is_away_is_unavailable(
    s3_blobs: S3Blobs, s3_proxy: S3Proxy, call: Callable[[Blobs], object]
) -> None:
    """Until the deadline; each request is one, whatever the library would do."""
    s3_blobs.put("a", b"1")
    before = len(s3_proxy.requests)
    s3_proxy.fail(503, times=100)

    with pytest.raises(errors.Unavailable):
        call(s3_blobs.once())

    assert 1 == len(s3_proxy.requests) - before
    s3_proxy.reset()


@_calls
def test_without_its_bucket(s3_proxy: S3Proxy, call: Callable[[Blobs], object]) -> None:
    """It is a matter of set-up, and never taken for an absent object."""
    with (
        closing(S3Blobs("test-not-there", backoff=Backoff(tries=1))) as blobs,
        pytest.raises(errors.Misconfigured) as said,
    ):
        call(blobs)

    assert "there is no such bucket" in str(said.value)


def test_damaged_bytes_are_not_taken(s3_blobs: S3Blobs, s3_proxy: S3Proxy) -> None:
    """What was changed on the way here is read again."""
    s3_blobs.put("a", b"whole")
    s3_proxy.corrupt("download")

    assert b"whole" == read(s3_blobs, "a").data


def test_without_credentials(s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, at the first request."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with closing(S3Blobs(s3_bucket)) as blobs, pytest.raises(errors.PermissionDenied, match="credentials"):
        blobs.get("a")


# where it is used


def test_a_url_opens_it(s3_bucket: str) -> None:
    """With a prefix; a name may be a URL of the bucket, and of no other."""
    blobs, prefix = open_blobs(f"s3://{s3_bucket}/some/where/")
    with closing(blobs):
        blobs.put(f"s3://{s3_bucket}/{prefix}/a", b"1")

        assert ["some/where/a"] == [one.name for one in blobs.list("some/")]
        with pytest.raises(errors.Misconfigured, match="another bucket"):
            blobs.get("s3://elsewhere/a")


@pytest.mark.parametrize("url", ["s3:///a", "s3://bucket/a?region=x"])
def test_a_url_that_names_none(s3_proxy: S3Proxy, url: str) -> None:
    """It says what to write."""
    with pytest.raises(errors.Misconfigured):
        open_blobs(url)


def test_statuses_of_a_log_in_a_database(s3_bucket: str) -> None:
    """The kit's records lie in the bucket."""
    with connect("memory://", blobs=f"s3://{s3_bucket}/p", inline=True) as jobs:
        job_id = jobs.submit("render", {"song": 7})
        with jobs.attempt(job_id) as attempt:
            attempt.annotate(singer="é" * 2000)

        blob = read(jobs.blobs, f"p/jobs/{job_id}/status.json")

    assert b'"state":"succeeded"' in blob.data


def test_the_log_itself(s3_bucket: str) -> None:
    """Events as objects: one life of a job, and a second writer that loses its race."""
    with connect(f"s3://{s3_bucket}/log") as jobs, connect(f"s3://{s3_bucket}/log") as other:
        job_id = jobs.submit("render", key="k")
        with jobs.attempt(job_id) as attempt:
            attempt.log("one")
            with pytest.raises(errors.AlreadyRunning), other.attempt(job_id):
                pass

        assert ["JobQueued", "JobStarted", "JobSucceeded"] == [one.type for one in other.history(job_id)]
        with pytest.raises(errors.AlreadySucceeded), other.attempt(job_id):
            pass


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("upload", "create of an object that is there, write over another ETag"),
        ("delete", "delete of another ETag"),
    ],
)
def test_a_store_that_holds_no_conditions_is_refused(s3_bucket: str, s3_proxy: S3Proxy, kind: str, says: str) -> None:
    """A log on it would lose acknowledged events."""
    s3_proxy.ignores.add(kind)

    with pytest.raises(errors.Misconfigured, match=f"events would be lost.*{says}"):
        connect(f"s3://{s3_bucket}/log")


def test_the_doctor_tries_the_conditions(s3_bucket: str) -> None:
    """Of a store that is as it should be, repeatedly."""
    for _ in range(2):
        with connect(f"s3://{s3_bucket}/log") as jobs:
            assert [("conditions", True)] == [(one[0], one[1]) for one in check_blobs(jobs)]


def test_a_forked_child_has_its_own_connections(s3_blobs: S3Blobs) -> None:
    """Two processes on one would mix their replies up."""
    s3_blobs.put("a", b"1")
    pid = os.fork()
    if not pid:
        os._exit(0 if read(s3_blobs, "a").data == b"1" else 1)

    assert 0 == os.waitpid(pid, 0)[1]
    assert b"1" == read(s3_blobs, "a").data
