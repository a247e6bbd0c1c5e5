"""What of a bucket's set-up would lose events, or cost more than it need: looked at when a log is opened, and by the doctor.

Two kinds of answer: what cannot work is an error, what is only dear or unwise a warning. The bucket's own settings are read
with the permission `storage.buckets.get`, which a worker need not have: then they are said to be unknown.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jobevents.backends.checks import Check as Check  # what is found here
from jobevents.backends.gcs import GcsBlobs
from jobevents.blobs import ABSENT
from jobevents.errors import Conflict, PermissionDenied

PROBE = "ctl/v1/probe"  # the object by which conditions are tried: written once, then refused each time
_NEVER = "1"  # no object ever has this generation

# what may be deleted some day without harm; all else that a log has is for good
_PASSING = ("workers/", "ctl/v1/clock/", "joblogs/")
_KEPT = ("log/", "jobs/", "index/", "keys/", "ctl/", "segments/", "blob/", "parked/")


def check_bucket(blobs: GcsBlobs, prefix: str) -> list[Check]:
    """Look at everything: five requests at most. Nothing is changed but a probe object, which stays.

    Raises:
        Unavailable, PermissionDenied, Misconfigured: the bucket cannot be used now, or at all.
    """
    return [check_conditions(blobs, prefix), *check_settings(blobs, prefix)]


def check_conditions(blobs: GcsBlobs, prefix: str) -> Check:
    """Try that the store refuses what it must: to create what is there, to write over another generation, to delete it."""
    name = f"{prefix}/{PROBE}" if prefix else PROBE
    create = "create of an object that is there", lambda: blobs.put(name, b"", if_generation=ABSENT)
    was_there = _is_refused(create[1])
    attempts: Mapping[str, Callable[[], object]] = {
        **({} if was_there else dict([create])),
        "write over another generation": lambda: blobs.put(name, b"", if_generation=_NEVER),
        "delete of another generation": lambda: blobs.delete(name, if_generation=_NEVER),
    }
    done = [what for what, attempt in attempts.items() if not _is_refused(attempt)]
    if done == ["delete of another generation"] and os.environ.get("STORAGE_EMULATOR_HOST"):
        return Check("conditions", False, f"the emulator does not refuse: {done[0]}; good enough for development")
    if done:
        return Check("conditions", False, f"the store does not refuse: {', '.join(done)}; use another", is_fatal=True)
    return Check("conditions", True, "create-only and generations are enforced")


def check_settings(blobs: GcsBlobs, prefix: str) -> Iterator[Check]:
    """Look at the bucket's settings: soft delete, versions, what deletes or holds objects."""
    try:
        settings = blobs.settings()
    except PermissionDenied:
        yield Check("bucket settings", True, "not known: reading them takes the permission storage.buckets.get")
        return
    yield _soft_delete(settings)
    yield _versioning(settings)
    yield _holds(settings)
    yield _lifecycle(settings, prefix)


def _is_refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except Conflict:
        return True
    return False


def _soft_delete(settings: Mapping[str, Any]) -> Check:
    seconds = int(settings.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0))
    if seconds:
        return Check(
            "soft delete",
            False,
            f"every overwritten status is kept and billed for {seconds / 86400:g} days:"
            " gcloud storage buckets update gs://BUCKET --clear-soft-delete",
        )
    return Check("soft delete", True, "off")


def _versioning(settings: Mapping[str, Any]) -> Check:
    if settings.get("versioning", {}).get("enabled"):
        return Check(
            "object versioning",
            False,
            "every overwritten status is kept and billed: gcloud storage buckets update gs://BUCKET --no-versioning",
        )
    return Check("object versioning", True, "off")


def _holds(settings: Mapping[str, Any]) -> Check:
    if settings.get("retentionPolicy") or settings.get("defaultEventBasedHold"):
        return Check(
            "retention",
            False,
            "objects of this bucket may not be overwritten: statuses, leases and the index are; use a bucket without"
            " a retention policy and without default holds",
            is_fatal=True,
        )
    return Check("retention", True, "nothing is held")


def _lifecycle(settings: Mapping[str, Any], prefix: str) -> Check:
    root = f"{prefix}/" if prefix else ""
    rules = settings.get("lifecycle", {}).get("rule", [])
    touching = sorted({place for rule in rules if _deletes(rule) for place in _touched(rule, root)})
    if touching:
        return Check(
            "lifecycle rules",
            False,
            f"a rule of the bucket deletes objects of this log: {', '.join(touching)}; take it away, or give it other"
            " prefixes (matchesPrefix)",
            is_fatal=True,
        )
    return Check("lifecycle rules", True, "none deletes what a log keeps")


def _deletes(rule: Mapping[str, Any]) -> bool:
    """Tell whether a rule deletes live objects."""
    condition = rule.get("condition", {})
    is_of_old_versions = condition.get("isLive") is False or any(
        key in condition for key in ("numNewerVersions", "daysSinceNoncurrentTime", "noncurrentTimeBefore")
    )
    return rule.get("action", {}).get("type") == "Delete" and not is_of_old_versions


def _touched(rule: Mapping[str, Any], root: str) -> Iterator[str]:
    """Yield the places of a log that the rule's prefixes and suffixes let it delete from."""
    condition = rule.get("condition", {})
    prefixes = condition.get("matchesPrefix") or [""]
    suffixes = condition.get("matchesSuffix") or [""]
    if not any("/status.json".endswith(suffix) for suffix in suffixes):
        return  # such as the songs that jobs made
    for place in (f"{root}{kept}" for kept in _KEPT):
        for prefix in prefixes:
            inside = prefix.removeprefix(root)
            if any(inside.startswith(passing) for passing in _PASSING):
                continue
            if place.startswith(prefix) or prefix.startswith(place):
                yield place
