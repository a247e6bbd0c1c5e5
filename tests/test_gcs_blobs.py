"""Blobs on Cloud Storage through a bad day: lost replies, late writes, refusals, limits."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Thread

import pytest
from google.cloud.storage import Client
from urllib3.exceptions import ProtocolError as Disconnected

from jobevents.backends.gcs import GcsBlobs
from jobevents.blobs import ABSENT, Blob, Blobs
from jobevents.errors import Conflict, Misconfigured, NotFound, PermissionDenied, Unavailable
from tests.fake_time import FakeTime
from tests.gcs_proxy import GcsProxy

pytest_plugins = ("tests.gcs",)

_CALLS: dict[str, Callable[[Blobs], object]] = {
    "get": lambda blobs: blobs.get("a"),
    "put": lambda blobs: blobs.put("a", b"2"),
    "put conditional": lambda blobs: blobs.put("b", b"2", if_generation=ABSENT),
    "delete": lambda blobs: blobs.delete("a"),
    "list": lambda blobs: list(blobs.list("")),
}
_calls = pytest.mark.parametrize("call", list(_CALLS.values()), ids=list(_CALLS))


@pytest.fixture
def other(gcs_bucket: str) -> Iterator[Blobs]:
    """Another writer of the same bucket."""
    with closing(GcsBlobs(gcs_bucket)) as blobs:
        yield blobs


def _read(blobs: Blobs, name: str) -> Blob:
    blob = blobs.get(name)
    assert blob is not None
    return blob


# lost replies


@pytest.mark.parametrize("lost", [1, 3])
def test_lost_reply_of_a_create(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, lost: int) -> None:
    """A create whose reply was lost is a success, not a Conflict with itself."""
    gcs_proxy.drop_reply("upload", times=lost)

    generation = gcs_blobs.put("a", b"1", if_generation=ABSENT)

    assert generation == _read(gcs_blobs, "a").generation


def test_lost_reply_of_a_replacement(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy) -> None:
    """A conditional replacement whose reply was lost is written once, and is a success."""
    first = gcs_blobs.put("a", b"1")
    gcs_proxy.drop_reply("upload")

    second = gcs_blobs.put("a", b"2", if_generation=first)

    assert (b"2", second) == (_read(gcs_blobs, "a").data, _read(gcs_blobs, "a").generation)


def test_lost_request_and_another_writer(
    gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, gcs_time: FakeTime, other: Blobs
) -> None:
    """A create that did not arrive is a Conflict when another was made meanwhile, even of the same bytes."""
    gcs_proxy.drop_request("upload")
    gcs_time.while_asleep = lambda: other.put("a", b"1", if_generation=ABSENT)

    with pytest.raises(Conflict):
        gcs_blobs.put("a", b"1", if_generation=ABSENT)


def test_lost_reply_and_lost_read_back(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy) -> None:
    """Reading back one's own write is tried again too."""
    gcs_proxy.drop_reply("upload")
    gcs_proxy.fail(503, "stat", times=2)

    assert gcs_blobs.put("a", b"1", if_generation=ABSENT) == _read(gcs_blobs, "a").generation


def test_lost_reply_of_a_delete(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy) -> None:
    """A delete whose reply was lost tells that it deleted."""
    generation = gcs_blobs.put("a", b"1")
    gcs_proxy.drop_reply("delete")

    assert gcs_blobs.delete("a", if_generation=generation)


@pytest.mark.parametrize("conditional", [False, True])
def test_late_write_is_refused(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, conditional: bool) -> None:
    """A write that arrives after a newer one does not replace it, though none of them named a generation."""
    first = gcs_blobs.put("a", b"1")
    held = gcs_proxy.hold("upload")
    second = gcs_blobs.put("a", b"2", if_generation=first if conditional else None)
    third = gcs_blobs.put("a", b"3")

    status = held.land()

    assert 412 == status
    assert second != third == _read(gcs_blobs, "a").generation


def test_late_delete_is_refused(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy) -> None:
    """A delete that arrives after a newer write does not remove it."""
    gcs_blobs.put("a", b"1")
    held = gcs_proxy.hold("delete")
    assert gcs_blobs.delete("a")
    gcs_blobs.put("a", b"2")

    assert 412 == held.land()
    assert b"2" == _read(gcs_blobs, "a").data


def test_overwrite_meets_another_writer(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, other: Blobs) -> None:
    """A put without a condition is written also when another was written since it looked."""
    gcs_blobs.put("a", b"1")
    gcs_proxy.before("upload", lambda: other.put("a", b"2"))

    generation = gcs_blobs.put("a", b"3")

    assert (b"3", generation) == (_read(gcs_blobs, "a").data, _read(gcs_blobs, "a").generation)


def test_slow_reply(gcs_bucket: str, gcs_proxy: GcsProxy) -> None:
    """A reply after the request's timeout is a lost one."""
    gcs_proxy.delay(0.5, "upload")

    with closing(GcsBlobs(gcs_bucket, timeout_s=0.2)) as blobs:
        assert blobs.put("a", b"1", if_generation=ABSENT) == _read(blobs, "a").generation


# errors


@_calls
def test_refused_credentials(
    gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, gcs_time: FakeTime, call: Callable[[Blobs], object]
) -> None:
    """Refused credentials are PermissionDenied at once, never NotFound, with the library's error as the cause."""
    gcs_blobs.put("a", b"1")
    gcs_proxy.fail(403, times=9, message="does not have storage access")

    with pytest.raises(PermissionDenied, match="status=403") as caught:
        call(gcs_blobs)

    assert "does not have storage access" in str(caught.value.__cause__)
    assert [] == gcs_time.sleeps


@_calls
def test_expired_credentials(
    gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, gcs_time: FakeTime, call: Callable[[Blobs], object]
) -> None:
    """Credentials that have run out, and cannot be made new, are PermissionDenied at once."""
    gcs_proxy.fail(401, times=9)

    with pytest.raises(PermissionDenied):
        call(gcs_blobs)

    assert [] == gcs_time.sleeps


@_calls
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_outage_is_waited_out(
    gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, gcs_time: FakeTime, call: Callable[[Blobs], object], status: int
) -> None:
    """Answers that mean "not now" are tried again until the store works."""
    gcs_blobs.put("a", b"1")
    gcs_proxy.fail(status, times=4)

    call(gcs_blobs)

    assert 4 == len(gcs_time.sleeps)


@_calls
def test_disconnections_are_waited_out(
    gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, gcs_time: FakeTime, call: Callable[[Blobs], object]
) -> None:
    """A broken connection is tried again."""
    gcs_blobs.put("a", b"1")
    gcs_proxy.drop_request(times=4)

    call(gcs_blobs)

    assert 4 == len(gcs_time.sleeps)


@_calls
def test_outage_beyond_the_deadline(
    gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, gcs_time: FakeTime, call: Callable[[Blobs], object]
) -> None:
    """After 30 s without an answer a call raises Unavailable, with the last failure as its cause."""
    gcs_blobs.put("a", b"1")
    begun = gcs_time.now
    gcs_proxy.fail(503, times=1000, message="come back later")

    with pytest.raises(Unavailable, match="come back later") as caught:
        call(gcs_blobs)

    assert caught.value.__cause__ is not None
    assert 20 < gcs_time.now - begun < 30


def test_store_that_is_not_there(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy) -> None:
    """A store that cannot be reached is Unavailable, and the connection's error is the cause."""
    gcs_proxy.drop_request(times=1000)

    with pytest.raises(Unavailable) as caught:
        gcs_blobs.get("a")

    assert isinstance(caught.value.__cause__, Disconnected)


@_calls
def test_missing_bucket(gcs_proxy: GcsProxy, call: Callable[[Blobs], object]) -> None:
    """A bucket that does not exist is Misconfigured; a blob in it is not "not found"."""
    with closing(GcsBlobs("no-such-bucket")) as blobs, pytest.raises(Misconfigured, match="no-such-bucket"):
        call(blobs)


def test_damaged_download(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy) -> None:
    """Data whose checksum does not fit are read again."""
    gcs_blobs.put("a", b"whole")
    gcs_proxy.corrupt("download")

    assert b"whole" == _read(gcs_blobs, "a").data


def test_quota_refusal_is_waited_out(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy) -> None:
    """A 403 that speaks of a rate is a "not now", not a refusal of credentials."""
    gcs_blobs.put("a", b"1")
    gcs_proxy.fail(403, "download", message="userRateLimitExceeded")

    assert b"1" == _read(gcs_blobs, "a").data


def test_write_limit_is_waited_out(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, gcs_time: FakeTime) -> None:
    """Two writes of one name within a second both land, the second after the store's limit."""
    gcs_proxy.limits_writes, gcs_proxy.clock = True, gcs_time.clock
    begun = gcs_time.now

    first = gcs_blobs.put("a", b"1")
    second = gcs_blobs.put("a", b"2", if_generation=first)

    assert second == _read(gcs_blobs, "a").generation
    assert 1.0 <= gcs_time.now - begun


def test_writes_at_the_stated_interval(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, gcs_time: FakeTime) -> None:
    """A writer that keeps to min_write_interval_s meets no limit."""
    gcs_proxy.limits_writes, gcs_proxy.clock = True, gcs_time.clock

    for _ in range(3):
        gcs_blobs.put("a", b"1")
        gcs_time.now += gcs_blobs.min_write_interval_s

    assert [] == gcs_time.sleeps


# one generation, few requests


def test_headers_are_stored(gcs_blobs: GcsBlobs, gcs_bucket: str, gcs_proxy: GcsProxy) -> None:
    """Content type and cache control are the object's, also after a second write of the name."""
    for _ in range(2):
        gcs_blobs.put("a", b"{}", content_type="application/json; charset=utf-8", cache_control="no-store")

        resource = json.loads(gcs_proxy.ask("GET", f"/storage/v1/b/{gcs_bucket}/o/a").body)
        assert ("application/json; charset=utf-8", "no-store") == (resource["contentType"], resource["cacheControl"])


@pytest.mark.parametrize(
    ("metadata", "kinds"),
    [
        ({}, ["download"]),
        ({"chain": "ff", "job": '{"title":"\\u4f5c"}'}, ["download"]),
        ({"title": "作品"}, ["download", "stat"]),
        ({"Title": "a"}, ["download", "stat"]),
    ],
)
def test_requests_of_a_get(
    gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, metadata: dict[str, str], kinds: list[str]
) -> None:
    """A get is one request, and a second one only for metadata that headers do not carry exactly."""
    gcs_blobs.put("a", b"1", metadata=metadata)
    gcs_proxy.requests.clear()

    blob = _read(gcs_blobs, "a")

    assert (metadata, kinds) == (blob.metadata, gcs_proxy.kinds())


def test_get_without_metadata_headers(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy) -> None:
    """A server that sends no metadata with a download is asked for it."""
    gcs_blobs.put("a", b"1", metadata={"k": "v"})
    gcs_proxy.strip_headers("x-goog-meta-")

    assert {"k": "v"} == _read(gcs_blobs, "a").metadata


def test_get_of_a_foreign_blob(gcs_blobs: GcsBlobs, gcs_bucket: str, gcs_proxy: GcsProxy) -> None:
    """A blob that another program wrote comes with what metadata that program gave."""
    with closing(Client()) as client:
        foreign = client.bucket(gcs_bucket).blob("a")
        foreign.metadata = {"by": "kit"}
        foreign.upload_from_string(b"{}", checksum="crc32c", retry=None)

    blob = _read(gcs_blobs, "a")

    assert (b"{}", {"by": "kit"}, str(foreign.generation)) == (blob.data, blob.metadata, blob.generation)


def test_get_while_replaced(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, other: Blobs) -> None:
    """A blob replaced between a get's two requests is read anew: data and metadata are of one write."""
    gcs_blobs.put("a", b"1", metadata={"n": "一"})
    gcs_proxy.before("stat", lambda: other.put("a", b"2", metadata={"n": "二"}))

    blob = _read(gcs_blobs, "a")

    assert (b"2", {"n": "二"}) == (blob.data, blob.metadata)


def test_unchanged_get_reads_no_data(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy) -> None:
    """An unchanged blob is one request, answered without data."""
    generation = gcs_blobs.put("a", b"1")
    gcs_proxy.requests.clear()

    assert gcs_blobs.get("a", if_changed=generation) is None
    assert ["download"] == gcs_proxy.kinds()
    assert generation == gcs_proxy.requests[0].query["ifGenerationNotMatch"]


def test_requests_of_writes(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy) -> None:
    """A conditional put or delete is one request, one without a condition two; nothing else is asked for."""
    generation = gcs_blobs.put("a", b"1", if_generation=ABSENT)
    gcs_blobs.put("b", b"1")
    gcs_blobs.delete("a", if_generation=generation)
    gcs_blobs.delete("b")
    with pytest.raises(NotFound):
        gcs_blobs.get("a")

    assert ["upload", "stat", "upload", "delete", "stat", "delete", "download"] == gcs_proxy.kinds()


def test_large_blob(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy) -> None:
    """Data of over 8 MB, sent in a session, keep the condition too."""
    data = random.Random(1).randbytes(9 << 20)
    gcs_blobs.put("a", data, if_generation=ABSENT)

    with pytest.raises(Conflict):
        gcs_blobs.put("a", data, if_generation=ABSENT)

    assert data == _read(gcs_blobs, "a").data


def test_pages_of_a_listing(gcs_bucket: str, gcs_proxy: GcsProxy) -> None:
    """A listing of several replies is whole and in order, and one that failed goes on where it was."""
    with closing(GcsBlobs(gcs_bucket, page_size=2)) as blobs:
        for name in ("a/1", "a/2", "a/3", "b", "c"):
            blobs.put(name, b"1")
        gcs_proxy.requests.clear()

        listing = blobs.list("")
        found = [next(listing).name]
        gcs_proxy.drop_request("list")
        found += [entry.name for entry in listing]

    assert ["a/1", "a/2", "a/3", "b", "c"] == found
    assert ["list"] * 4 == gcs_proxy.kinds()


# names


def test_names_as_uris(gcs_blobs: GcsBlobs, gcs_bucket: str) -> None:
    """A name may be given with its bucket, to every call."""
    uri = f"gs://{gcs_bucket}/jobs/a/status.json"

    generation = gcs_blobs.put(uri, b"{}")

    assert generation == _read(gcs_blobs, "jobs/a/status.json").generation == _read(gcs_blobs, uri).generation
    listed = [entry.name for entry in gcs_blobs.list(f"gs://{gcs_bucket}/jobs/", delimiter="/")]
    assert ["jobs/a/"] == listed
    assert gcs_blobs.delete(uri)


def test_uri_of_another_bucket(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy) -> None:
    """A name in another bucket is Misconfigured before any request, also when its name begins with ours."""
    for uri in ("gs://other/a", f"gs://{gcs_blobs._name}-2/a"):
        with pytest.raises(Misconfigured, match="another bucket"):
            gcs_blobs.get(uri)

    assert [] == gcs_proxy.requests


# clients


def test_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an emulator and without credentials, the store says so when it is opened, with a remedy."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", os.devnull + "/none.json")

    with pytest.raises(Misconfigured, match="gcloud auth"):
        GcsBlobs("bucket")


def test_connections_are_kept_for_all_threads(
    gcs_bucket: str, gcs_proxy: GcsProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """No connection of a thread is thrown away for want of a place in the pool."""
    blobs = GcsBlobs(gcs_bucket, threads=20)
    threads = [Thread(target=blobs.put, args=(f"a/{n}", b"1")) for n in range(20)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 20 == len(list(blobs.list("a/")))
    assert [] == [record.message for record in caplog.records if "pool is full" in record.message]
    blobs.close()


_FORK = """
import os, sys
from google.cloud.storage import Client
from jobevents.backends.gcs import GcsBlobs
from jobevents.errors import Misconfigured
own, given = GcsBlobs(sys.argv[1]), GcsBlobs(sys.argv[1], client=Client())
own.put("parent", b"1")
if os.fork() == 0:
    own.put("child", b"2", if_generation="0")
    try:
        given.get("parent")
    except Misconfigured:
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.wait()[1]), own.get("child").data, given.get("parent").data)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork(gcs_bucket: str) -> None:
    """A forked child makes a client of its own; one that was given cannot be, and the child is told."""
    done = subprocess.run(
        [sys.executable, "-c", _FORK, gcs_bucket], capture_output=True, text=True, timeout=60, check=False
    )

    assert "7 b'2' b'1'" == done.stdout.strip(), done.stderr
