"""What of a bucket's set-up would lose events or money is told when a log is opened, and by the doctor."""

import json
import logging
from typing import Any

import pytest

from jobevents import doctor, wiring
from jobevents.backends.gcs import GcsBlobs
from jobevents.backends.gcschecks import check_bucket, check_conditions, check_settings
from jobevents.errors import Misconfigured
from jobevents.wiring import connect
from tests.gcs_proxy import GcsProxy, Reply

pytest_plugins = ("tests.gcs",)


def set_up(proxy: GcsProxy, **settings: Any) -> None:  # Any: JSON
    """Have the store say that the bucket is set up so."""

    def answer(_: object, __: object) -> Reply:
        return Reply(200, [("Content-Type", "application/json")], json.dumps({"name": "b", **settings}).encode())

    proxy._add("bucket", 1, answer)


def bad(blobs: GcsBlobs, prefix: str = "team") -> dict[str, bool]:
    """Return the checks that are not well, and whether each is fatal."""
    return {check.name: check.is_fatal for check in check_bucket(blobs, prefix) if not check.is_well}


def test_a_plain_bucket_is_well(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy) -> None:
    """Nothing is found, for five requests the second time: the writes among them are refused, as they must be."""
    check_bucket(gcs_blobs, "team")
    gcs_proxy.requests.clear()

    assert {} == bad(gcs_blobs)
    assert ["upload", "upload", "delete", "stat", "bucket"] == gcs_proxy.kinds()


def test_a_store_that_enforces_no_condition_is_found_out(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy) -> None:
    """Some emulators, and stores that only look like it, take every write: acknowledged events would be lost."""
    check_conditions(gcs_blobs, "team")
    gcs_proxy._add("upload", 9, _without_condition(gcs_proxy))

    check = check_conditions(gcs_blobs, "team")

    assert check.is_fatal
    assert "create of an object that is there, write over another generation" in check.found


def _without_condition(proxy: GcsProxy) -> Any:  # a fault of the proxy
    def act(request: Any, _: object) -> Reply:
        target = request.target.replace("ifGenerationMatch", "ignored")
        return proxy.ask(request.method, target, request.headers, request.body)

    return act


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"softDeletePolicy": {"retentionDurationSeconds": "604800"}}, {"soft delete": False}),
        ({"softDeletePolicy": {"retentionDurationSeconds": "0"}}, {}),
        ({"versioning": {"enabled": True}}, {"object versioning": False}),
        ({"retentionPolicy": {"retentionPeriod": "86400"}}, {"retention": True}),
        ({"defaultEventBasedHold": True}, {"retention": True}),
    ],
)
def test_settings(
    gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, settings: dict[str, Any], expected: dict[str, bool]
) -> None:
    """What is dear is a warning; what forbids to overwrite is fatal."""
    set_up(gcs_proxy, **settings)

    assert expected == bad(gcs_blobs)


@pytest.mark.parametrize(
    ("rule", "deletes"),
    [
        ({"action": {"type": "Delete"}, "condition": {"age": 30}}, True),
        ({"action": {"type": "Delete"}, "condition": {"age": 30, "matchesPrefix": ["team/log/"]}}, True),
        ({"action": {"type": "Delete"}, "condition": {"age": 30, "matchesPrefix": ["team/log/v1/0"]}}, True),
        ({"action": {"type": "Delete"}, "condition": {"age": 30, "matchesPrefix": ["te"]}}, True),
        ({"action": {"type": "Delete"}, "condition": {"age": 30, "matchesPrefix": ["team/jobs/"]}}, True),
        (
            {
                "action": {"type": "Delete"},
                "condition": {"age": 30, "matchesPrefix": ["team/jobs/"], "matchesSuffix": [".wav"]},
            },
            False,
        ),
        ({"action": {"type": "Delete"}, "condition": {"age": 30, "matchesPrefix": ["other/"]}}, False),
        ({"action": {"type": "Delete"}, "condition": {"age": 30, "matchesPrefix": ["team/joblogs/"]}}, False),
        ({"action": {"type": "Delete"}, "condition": {"age": 3, "isLive": False}}, False),
        ({"action": {"type": "Delete"}, "condition": {"numNewerVersions": 2}}, False),
        ({"action": {"type": "SetStorageClass", "storageClass": "NEARLINE"}, "condition": {"age": 30}}, False),
    ],
)
def test_lifecycle_rules(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy, rule: dict[str, Any], *, deletes: bool) -> None:
    """A rule that deletes what a log keeps is fatal; one for lines, old versions, artifacts or another prefix is not."""
    set_up(gcs_proxy, lifecycle={"rule": [rule]})

    assert ({"lifecycle rules": True} if deletes else {}) == bad(gcs_blobs)


def test_settings_that_may_not_be_read_are_unknown(gcs_blobs: GcsBlobs, gcs_proxy: GcsProxy) -> None:
    """A worker needs no right to look at the bucket itself: that is said, and is no trouble."""
    gcs_proxy.fail(403, "bucket")

    (check,) = check_settings(gcs_blobs, "team")

    assert check.is_well
    assert "storage.buckets.get" in check.found


def test_connect_refuses_a_bucket_that_loses_events(gcs_bucket: str, gcs_proxy: GcsProxy) -> None:
    """The message says what to change."""
    set_up(gcs_proxy, lifecycle={"rule": [{"action": {"type": "Delete"}, "condition": {"age": 30}}]})

    with pytest.raises(Misconfigured, match="matchesPrefix"):
        connect(f"gs://{gcs_bucket}/team")


def test_connect_warns_of_what_is_dear(gcs_bucket: str, gcs_proxy: GcsProxy, caplog: pytest.LogCaptureFixture) -> None:
    """Jobs are opened, and the log says how to save the money."""
    set_up(gcs_proxy, softDeletePolicy={"retentionDurationSeconds": "604800"})

    with caplog.at_level(logging.WARNING):
        connect(f"gs://{gcs_bucket}/team").close()

    assert "kept and billed for 7 days" in caplog.text


def test_connect_to_a_missing_bucket(gcs_proxy: GcsProxy) -> None:
    """It is said at once, not with the first job."""
    with pytest.raises(Misconfigured, match="no such bucket"):
        connect("gs://not-there/team")


def test_connect_while_the_store_is_away(
    gcs_bucket: str, gcs_proxy: GcsProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker starts all the same, after one try: its record must not stop the work."""
    gcs_proxy.fail(503, "upload", times=1)

    with caplog.at_level(logging.WARNING):
        connect(f"gs://{gcs_bucket}/team").close()

    assert "bucket was not checked" in caplog.text


def test_the_doctor_looks_at_the_bucket(gcs_bucket: str, gcs_proxy: GcsProxy) -> None:
    """Each check is a finding."""
    with connect(f"gs://{gcs_bucket}/team") as jobs:
        jobs.submit("render")
        set_up(gcs_proxy, versioning={"enabled": True})

        found = {one.check: one.ok for one in doctor.examine(jobs, store=wiring.check_blobs)}

    assert (True, False, True) == tuple(found[name] for name in ("conditions", "object versioning", "log readable"))
