"""The search of `list`, by the dashboard's own parser; and how lists are shown, with the jobs whose workers are lost."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from jobevents import console
from jobevents.errors import InvalidValue
from jobevents.job import RUNNING
from jobevents.jobs import Jobs
from jobevents.status import Status
from jobevents.store import JobRun

if TYPE_CHECKING:
    from projections.api.search import Search
    from projections.api.sifting import Sieve
    from projections.reader import LeftOut, StatusPage

_NO_TABLE = "this log keeps no table of jobs to look through: search by state alone"


class Sifting(msgspec.Struct, frozen=True, kw_only=True):
    """What a search that looks through jobs came to."""

    items: list[Status]  # newest first
    left_out: "list[LeftOut]"  # found, and not readable
    looked: int  # jobs that were looked through
    down_to: datetime | None  # when the last of them was made; None: there was none
    cursor: str  # what --after goes on with; "" when all were looked through


def searched(text: str, **options: str) -> "Search":
    """Return what a text and the options beside it look for.

    Raises:
        InvalidValue: the text cannot be understood, or an option says otherwise.
    """
    from projections.api.search import parse

    found = parse(text, datetime.now(UTC))
    for key, value in options.items():
        if value and getattr(found, key) not in ("", value):
            raise InvalidValue(
                f"the search says {key}:{getattr(found, key)}, and an option says {value}: give one of both"
            )
    return msgspec.structs.replace(found, **{key: value for key, value in options.items() if value})


def needs_table(wanted: "Search", *, of_past: bool) -> bool:
    """Tell whether a search is for more than a state, a kind and a queue."""
    from projections.api.search import sieve_of

    listed = type(wanted)(state=wanted.state, command=wanted.command, queue=wanted.queue)
    return wanted != listed or bool(sieve_of(wanted, of_past=of_past))


def show(
    jobs: Jobs, wanted: "Search", *, page: int, per_page: int, after: str | None, as_of: str | None, as_json: bool
) -> None:
    """Print what a search finds that only the table of jobs knows.

    Raises:
        InvalidValue: it cannot be found with these options, or in this log.
    """
    from projections.api.search import filter_of, sieve_of
    from projections.rowpages import page_of

    if as_of is not None:
        raise InvalidValue("--as-of goes with state, command, queue and --page alone")
    if jobs.desk is None:
        raise InvalidValue(_NO_TABLE)
    sieve = sieve_of(wanted)
    if sieve:
        if page != 1:
            raise InvalidValue(
                "--page does not go with worker, actor, error, duration, words, several values and what is not to be: these are "
                "looked for from the newest job on; go on with --after"
            )
        _print_sifting(jobs, _sifted(jobs, wanted, sieve, after or "", per_page), as_json)
        return
    if after is not None:
        raise InvalidValue(
            "--after goes with --state alone, or with what is looked for from the newest job on: use --page"
        )
    print_page(page_of(jobs, filter_of(wanted, jobs.emitter.clock()), page, per_page, type=Status), as_json, jobs=jobs)


def _sifted(jobs: Jobs, wanted: "Search", sieve: "Sieve", cursor: str, limit: int) -> Sifting:
    """Look through the jobs until enough are found, or to the end: a page of the dashboard at a time."""
    from projections.api.search import filter_of
    from projections.api.sifting import sift
    from projections.rowpages import load

    assert jobs.desk is not None  # noqa: S101  # else it was refused
    now = jobs.emitter.clock()
    filter = filter_of(wanted, now)
    runs, looked, down_to = list[JobRun](), 0, None
    with console.progress() as bar:
        task = bar.add_task(
            "looking through jobs", total=jobs.runs.list(msgspec.structs.replace(filter, per_page=1)).total
        )
        while True:
            part = sift(
                jobs.desk.census,
                filter,
                sieve,
                cursor=cursor,
                limit=limit - len(runs),
                now=now,
                title_of=lambda job_id: jobs.job(job_id).title,
            )
            runs += part.runs
            looked, down_to, cursor = looked + part.looked, part.down_to or down_to, part.cursor
            bar.update(task, completed=looked)
            if not cursor or len(runs) >= limit:
                break
    items, left_out = load(jobs, [run.id for run in runs], Status)
    return Sifting(items=items, left_out=left_out, looked=looked, down_to=down_to, cursor=cursor)


def _print_sifting(jobs: Jobs, found: Sifting, as_json: bool) -> None:
    lost = lost_among(jobs, found.items)
    if console.wants_json(as_json):
        console.print_json(with_lost(found, lost))
        return
    looked = f"{console.count(found.looked, 'job')} {'was' if found.looked == 1 else 'were'}"
    how_far = f"{looked} looked through, and there are no others"
    if found.cursor:
        how_far = f"{looked} looked through, down to {console.local(found.down_to)}; go on with --after {found.cursor}"
    if found.items:
        console.print_statuses(found.items, how_far, lost=lost)
    else:
        console.note(f"no such jobs: {how_far}")
    print_left_out(found.left_out)


def print_page(page: "StatusPage[Status]", as_json: bool, *, jobs: Jobs | None = None, as_of: str = "") -> None:
    """Print a page of jobs, and of those of now which are lost.

    Args:
        jobs: of now; None for a page of the past, when nobody knows who lived.
    """
    then = f" as of {as_of}" if as_of else ""
    lost = lost_among(jobs, page.items) if jobs is not None else {}
    if console.wants_json(as_json):
        console.print_json(with_lost(page, lost))
    elif not page.total:
        console.note(f"no such jobs{then}")
        print_left_out(page.left_out)
    else:
        place = f"{page.from_}-{page.to} of {console.count(page.total, 'job')}{then}, page {page.page} of {page.total_pages}"
        console.print_statuses(page.items, place, lost=lost)
        print_left_out(page.left_out)


def lost_among(jobs: Jobs, items: Sequence[Status]) -> dict[str, Any]:
    """Return the running jobs among some whose workers are lost, by id."""
    running = [one.job_id for one in items if one.state == RUNNING]
    if not running:
        return {}
    from projections.lost import Losses

    return dict(Losses(jobs).listed(running))


def with_lost(page: msgspec.Struct, lost: Mapping[str, Any]) -> dict[str, Any]:
    """Return a list as JSON shows it, with its lost jobs."""
    return {**msgspec.to_builtins(page), "lost": list(lost.values())}


def print_left_out(left_out: "Sequence[LeftOut]") -> None:
    """Name the jobs that could not be read, and count them."""
    for one in left_out:
        console.note(f"left out: {one.job_id}: {one.reason}", to_err=True)
    if left_out:
        console.note(f"jobs left out, since they cannot be read: {len(left_out)}; see jobevents verify", to_err=True)
