"""What is well and what is not with a log: each check says what it found, and what to do where that is bad."""

import platform
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import msgspec

from jobevents import codec
from jobevents.blobs import ABSENT
from jobevents.errors import Corrupt, JobEventsError, NotFound
from jobevents.job import QUEUED, RUNNING
from jobevents.jobs import Jobs
from jobevents.status import State
from jobevents.store import JobRun, RunFilter

PROBE = "doctor-probe"  # name of the blob that is written, read and removed
BEHIND = 10_000  # events that wait for the bus: more than a relay that runs is ever behind for long
SAMPLE = 20  # jobs of each sort whose row is held against the fold of their history


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one check found."""

    check: str  # what was looked at
    ok: bool
    found: str  # what was found, or why it could not be
    facts: Any = None  # the same for programs, where there is more


Look = Callable[[Jobs], Sequence[tuple[str, bool, str]]]
"""Look at more, as `Finding`s: check, ok, found."""


def examine(jobs: Jobs, *, store: Look = lambda _: ()) -> list[Finding]:
    """Run every check; one that fails stops no other. Writes nothing but a probe blob, which is removed again.

    Args:
        store: looks at how the place of the blobs is set up.
    """
    checks: dict[str, Callable[[Jobs], tuple[bool, str]]] = {
        "versions": _versions,
        "log readable": _log,
        "jobs by state": _states,
        "rows are folds": _rows,
        "workers": _workers,
        "blobs writable": _blobs,
        "appends": _appends,
        **({"bus": _bus} if jobs.bus is not None else {}),
    }
    findings = []
    for name, check in checks.items():
        try:
            ok, found = check(jobs)
        except JobEventsError as error:
            ok, found = False, f"{type(error).__name__}: {error}"
        findings.append(Finding(name, ok, found))
    for name, look in {"store": lambda jobs: [Finding(*one) for one in store(jobs)], "views": _views}.items():
        try:
            findings += look(jobs)
        except JobEventsError as error:
            findings.append(Finding(name, False, f"{type(error).__name__}: {error}"))
    return findings


def _versions(_: Jobs) -> tuple[bool, str]:
    packages = ", ".join(f"{name} {version(name)}" for name in ("jobevents", "eventsourcing", "msgspec"))
    return True, f"{packages}, Python {platform.python_version()}"


def _log(jobs: Jobs) -> tuple[bool, str]:
    if not jobs.log.ordered:
        some = next(jobs.log.scan(limit=1), None)
        return True, f"an event: {some.job_id}#{some.version} {some.type}" if some else "no events yet"
    cursor = jobs.log.last_cursor()
    last = next(iter(jobs.log.scan(str(int(cursor) - 1), limit=1)), None) if cursor else None
    return True, f"last event at cursor {cursor}: {last.job_id}#{last.version} {last.type}" if last else "no events yet"


def _states(jobs: Jobs) -> tuple[bool, str]:
    counts = {state.value: jobs.runs.list(RunFilter(statuses=(state,), per_page=1)).total for state in State}
    return True, ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "no jobs yet"


def _rows(jobs: Jobs) -> tuple[bool, str]:
    newest = jobs.runs.list(RunFilter(per_page=SAMPLE))
    looked_at = {run.id: run for run in (*newest.runs, *_unfinished(jobs), *_by_chance(jobs, newest.total))}
    differ = [f"{run.id} ({why})" for run in looked_at.values() if (why := _difference(jobs, run))]
    if differ:
        return False, f"row in the table is not what the history says: {', '.join(differ)}"
    some = "" if len(looked_at) >= newest.total else ": the newest, unfinished ones, others by chance"
    return True, f"{len(looked_at)} of {newest.total} jobs looked at{some}; `jobevents verify` looks at all"


def _unfinished(jobs: Jobs) -> list[JobRun]:
    return jobs.runs.list(RunFilter(statuses=(QUEUED, RUNNING), per_page=SAMPLE)).runs


def _by_chance(jobs: Jobs, total: int) -> list[JobRun]:
    """Return some of the others; none of a log on blobs, where each costs a read of the whole list."""
    if not jobs.log.ordered or total <= SAMPLE:
        return []
    pages = random.sample(range(SAMPLE + 1, total + 1), min(SAMPLE, total - SAMPLE))
    return [run for page in pages for run in jobs.runs.list(RunFilter(page=page, per_page=1)).runs]


def _difference(jobs: Jobs, run: JobRun) -> str:
    """Return why a row is not the fold of its job's history; "" when it is, or the job went on meanwhile."""
    try:
        state = jobs.job(run.id).state
        breaks = codec.chain_breaks(record.data for record in jobs.log.read_raw(run.id))
    except (Corrupt, NotFound) as error:
        return f"{type(error).__name__}: {error}"
    if breaks:
        return f"its stored events were changed, from version {breaks[0] + 1} on"
    return "" if state == run.status or jobs.runs.get(run.id) != run else f"it is {state}, not {run.status}"


def _workers(jobs: Jobs) -> tuple[bool, str]:
    seen = jobs.workers()
    alive = sum(one.is_alive for one in seen)
    held = [job_id for one in seen if not one.is_alive for job_id in one.jobs]
    found = f"{alive} alive, {len(seen) - alive} dead, {sum(len(one.jobs) for one in seen)} jobs held"
    if held:
        shown = ", ".join(held[:SAMPLE]) + (" …" if len(held) > SAMPLE else "")
        back = "any process that works gives them back within a lease; to do it now: jobevents workers --reap"
        return False, f"{found}, {len(held)} by dead workers: {shown}; {back}"
    return True, found


def _blobs(jobs: Jobs) -> tuple[bool, str]:
    name = jobs.blob_name(PROBE)
    generation = jobs.blobs.put(name, b"probe")
    blob = jobs.blobs.get(name)
    jobs.blobs.delete(name, if_generation=generation)
    return blob is not None and blob.data == b"probe" and generation != ABSENT, "written, read and removed a probe"


def _appends(jobs: Jobs) -> tuple[bool, str]:
    """Say how often this process had to try an append again, and of how many nobody knows the outcome."""
    counts = jobs.counts.snapshot()
    retried, unknown = counts.get("appends_retried", 0), counts.get("appends_unknown", 0)
    return not unknown, f"{retried} tries made again in this process, {unknown} appends of unknown outcome"


def _bus(jobs: Jobs) -> tuple[bool, str]:
    """Say whether the topic is there, and how many events of a log with one sequence still have to go out."""
    assert jobs.bus is not None  # noqa: S101  # else it is not asked
    found = jobs.bus.check()
    if jobs.relay is None:
        return True, found
    behind = jobs.relay.behind()
    if behind > BEHIND:
        return (
            False,
            f"{found}, {behind} events wait to be sent: is a process running that relays, such as jobevents project?",
        )
    return True, f"{found}, {behind} events wait to be sent"


def _views(jobs: Jobs) -> list[Finding]:
    """Say of each view that a projector keeps how far it is, and what holds it up."""
    from projections import health

    end, now = int(jobs.log.last_cursor() or 0) if jobs.log.ordered else None, datetime.now(UTC)
    findings = []
    for one in health.read_health(jobs.blobs, jobs.prefix):
        head = one.head if end is None else end
        bad = health.troubles(one, end, now)
        since = health.idle_since(one, now)
        idle = f", nobody projects since {since.isoformat(timespec='seconds')}" if since else ""
        through = one.complete_through.isoformat(timespec="seconds") if one.complete_through else "not known"
        found = f"at {one.position} of {head}, complete through {through}, {one.parked} parked{idle}"
        findings.append(Finding(f"view {one.view}", not bad, "; ".join([found, *bad]), one))
    return findings
