"""Whether a store that speaks S3's API refuses what it must: looked at when a log is opened on it, and by the doctor.

Amazon's own does. Others have taken conditions for comments: a log on such a one loses acknowledged events.
"""

from jobevents.backends.checks import Check
from jobevents.backends.s3 import S3Blobs

PROBE = "ctl/v1/probe"  # the object by which conditions are tried: written once, then refused each time


def check_bucket(blobs: S3Blobs, prefix: str) -> list[Check]:
    """Try it: four requests. Nothing is changed but a probe object, which stays.

    Raises:
        Unavailable, PermissionDenied, Misconfigured: the bucket cannot be used now, or at all.
    """
    done = blobs.not_refused(f"{prefix}/{PROBE}" if prefix else PROBE)
    if done:
        return [Check("conditions", False, f"the store does not refuse: {', '.join(done)}; use another", is_fatal=True)]
    return [Check("conditions", True, "create-only, If-Match of writes and of deletes are enforced")]
