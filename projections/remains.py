"""What views and their like have of one job, for those who erase it: names of blobs, by what they are.

Not the index: an entry of it is an id, a state and a version, and goes with the tombstone when a projector reads that.
"""

from collections.abc import Iterator

from jobevents.blobs import Blobs
from projections.parked import directory_of


def remains(blobs: Blobs, prefix: str, job_id: str) -> Iterator[tuple[str, str]]:
    """Yield (what it is, name) of each blob: a list for each view and each build, and one for the job's directory."""
    below = f"{prefix}/" if prefix else ""
    yield from _of(blobs, below, "", job_id)
    for build in list(_directories(blobs, f"{below}rebuild/")):
        for root in (build, f"{build}before/"):
            yield from _of(blobs, root, "rebuilt ", job_id)


def _of(blobs: Blobs, below: str, kind: str, job_id: str) -> Iterator[tuple[str, str]]:
    for entry in list(blobs.list(f"{below}jobs/{job_id}/")):
        is_status = entry.name == f"{below}jobs/{job_id}/status.json"
        yield f"{kind}{'status' if is_status else 'artifact'}", entry.name
    for view in list(_directories(blobs, f"{below}parked/v1/")):
        for entry in list(blobs.list(f"{view}{directory_of(job_id)}")):
            yield f"{kind}parked copy", entry.name


def _directories(blobs: Blobs, prefix: str) -> Iterator[str]:
    """Yield the names of what is directly below a prefix, each with its slash."""
    return (entry.name for entry in blobs.list(prefix, delimiter="/") if entry.name.endswith("/"))
