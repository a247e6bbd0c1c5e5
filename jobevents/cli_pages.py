"""The commands `list`, pages of jobs from the sorted index where it is up to date, else from the table of runs; and `show`."""

import logging
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from jobevents import cli_search, console
from jobevents.cli_options import MOST, AsJson, AsOf, JobId, Url, open_jobs
from jobevents.cli_search import lost_among, print_left_out, print_page, with_lost
from jobevents.errors import Corrupt, InvalidValue, NotFound
from jobevents.jobs import Jobs
from jobevents.status import State, Status
from jobevents.store import RunFilter

if TYPE_CHECKING:
    from projections.reader import Reader, StatusPage, StatusSlice

MAX_PER_PAGE = 200  # what two chunks of the index hold for certain
OTHER = "other"  # all states of open text together, in the index


def add_to(app: typer.Typer) -> None:
    """Give the command line these commands."""
    app.command("list")(list_jobs)
    app.command("show")(show)


def list_jobs(
    search: Annotated[
        str,
        typer.Argument(
            metavar="[SEARCH]",
            help="As in the dashboard: 'state:failed queue:mail error:timeout'. Keys: state, command, queue, id (its begin), "
            "worker, actor, error, args.PLACE, after, before (-15m, a day, an instant), duration (>30s); words are looked for in "
            "ids, kinds, titles and errors. All parts hold; state:failed,canceled is either of two, -queue:mail is not.",
        ),
    ] = "",
    *,
    url: Url,
    state: Annotated[str, typer.Option(help=f"Only jobs in this state: {', '.join(State)} or {OTHER}.")] = "",
    job: Annotated[str, typer.Option("--job", help="Only this kind of job.")] = "",
    queue: Annotated[str, typer.Option(help="Only this queue.")] = "",
    page: Annotated[int, typer.Option(min=1, max=MOST, help="Page, from 1; past the end is the last one.")] = 1,
    per_page: Annotated[int, typer.Option(min=1, max=MAX_PER_PAGE, help="Jobs on a page.")] = 20,
    after: Annotated[
        str | None, typer.Option(help="Go on from the cursor that a call before returned; '' begins.")
    ] = None,
    as_of: AsOf = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first, or those that a search finds: jobevents list 'state:failed error:timeout'.

    The order is by the second that an id names; ids that name none, like
    song-7, come last.

    Page numbers show the moment: a job that comes in moves the others on.
    Cursors (--after) show every job that is there throughout exactly once;
    they need the index that `jobevents project` keeps. A search by worker,
    actor, error, duration, args or words, for one of several values, or for
    what is not, looks through the jobs from the newest on, says how far it
    has looked, and goes on with --after.

    With --as-of the list is folded from the whole log: the jobs of then, in
    the states they had, those deleted since among them.
    An instant is held against each event's own time, by its writer's clock.
    @1234 goes by the order in which events were committed: it is what every
    reader saw when event 1234 was.
    """
    if state not in ("", *State, OTHER):
        raise InvalidValue(f"no such state state={state!r:.80}; use one of {', '.join(State)} or {OTHER}")
    logging.getLogger("projections.paging").addHandler(logging.NullHandler())  # we name what is left out ourselves
    wanted = cli_search.searched(search, state=state, command=job, queue=queue)
    state, job, queue = wanted.state, wanted.command, wanted.queue
    with open_jobs(url) as jobs:
        if cli_search.needs_table(wanted, of_past=as_of is not None):
            cli_search.show(jobs, wanted, page=page, per_page=per_page, after=after, as_of=as_of, as_json=as_json)
            return
        if as_of is not None:
            if after is not None:
                raise InvalidValue(
                    "--after does not go with --as-of: cursors are of the index as it is now; use --page"
                )
            print_page(_page_as_of(jobs, as_of, state, job, queue, page, per_page), as_json, as_of=as_of)
            return
        if after is not None:
            if job or queue or page != 1:
                raise InvalidValue("--after goes with --state alone: the index knows neither kinds nor queues")
            _print_slice(jobs, _slice(jobs, after, per_page, state), as_json)
            return
        found = None if job or queue else _page_of_index(jobs, state, page, per_page)
        if found is not None:
            print_page(found, as_json, jobs=jobs)
            return
        if state == OTHER:
            raise InvalidValue("jobs in other states are listed from the index alone; run: jobevents project --once")
        from projections.rowpages import page_of

        filter = RunFilter(job=job, statuses=(state,) if state else (), queue=queue)
        print_page(page_of(jobs, filter, page, per_page, type=Status), as_json, jobs=jobs)


def _page_of_index(jobs: Jobs, state: str, page: int, per_page: int) -> "StatusPage[Status] | None":
    """Return a page of the index; None where the table is to be asked: the index is behind, or cannot be read, which is said."""
    try:
        reader = _current_reader(jobs)
        return None if reader is None else reader.page(state, page, per_page)
    except Corrupt as error:
        if not jobs.log.ordered or state == OTHER:
            raise
        console.note(f"listed from the table of jobs, as the views cannot be read: {error}", to_err=True)
        return None


def _current_reader(jobs: Jobs) -> "Reader[Status] | None":
    """Return a reader of the index if that has all that is in the log now, and no more.

    A job just submitted must not be missing, and none may show that a log put back from an older copy does not know. A log on
    blobs has no end to compare with, and its index is all there is.
    """
    from projections.reader import Reader

    reader = Reader(jobs.blobs, jobs.prefix)
    if not jobs.log.ordered:
        return _with_index(reader)
    return reader if reader.index.position() == int(jobs.log.last_cursor() or 0) > 0 else None


def _with_index(reader: "Reader[Status]") -> "Reader[Status]":
    if not reader.index.exists():
        raise NotFound("there is no index yet: is `jobevents project` running for this log?")
    return reader


def _slice(jobs: Jobs, cursor: str, limit: int, state: str) -> "StatusSlice[Status]":
    from projections.reader import Reader

    reader = Reader(jobs.blobs, jobs.prefix)
    if not jobs.log.ordered:
        return _with_index(reader).after(cursor, limit, state)
    position, head = reader.index.position(), int(jobs.log.last_cursor() or 0)
    if head and not position:
        raise NotFound("there is no index yet; run: jobevents project --once")
    if position > head:
        raise Corrupt(
            f"the index is {position - head} events ahead of the log: was that replaced by an older copy? "
            "make the views anew with: jobevents rebuild"
        )
    if position < head:
        console.note(f"the index is {head - position} events behind the log", to_err=True)
    return reader.after(cursor, limit, state)


def _page_as_of(
    jobs: Jobs, as_of: str, state: str, name: str, queue: str, page: int, per_page: int
) -> "StatusPage[Status]":
    from projections import asof

    moment = asof.parse(as_of, jobs.emitter.clock())
    with console.progress() as bar:
        reading = bar.add_task("reading the log", total=0)
        return asof.page(
            jobs,
            moment,
            state,
            name=name,
            queue=queue,
            page=page,
            per_page=per_page,
            on_progress=lambda done, total: bar.update(reading, completed=done, total=total),
        )


def _print_slice(jobs: Jobs, part: "StatusSlice[Status]", as_json: bool) -> None:
    lost = lost_among(jobs, part.items)
    if console.wants_json(as_json):
        console.print_json(with_lost(part, lost))
    else:
        place = f"go on with --after {part.cursor}" if part.cursor else "the end"
        console.print_statuses(part.items, place, lost=lost)
        print_left_out(part.left_out)


def show(job_id: JobId, url: Url, as_of: AsOf = None, as_json: AsJson = False) -> None:
    """Show all that is known of a job now, or was at a moment; --as-of '#3' is after its event 3.

    At an instant a job is as the last of its events left it that says it was
    written by then, by its writer's clock; with every event that was committed
    before that one, whatever those say.
    """
    from projections import asof
    from projections.lost import Losses

    with open_jobs(url) as jobs:
        if as_of is None:
            job = jobs.job(job_id)
            last, lost = job.version, Losses(jobs).of(job)
        else:
            job = asof.job_at(jobs, job_id, asof.parse(as_of, jobs.emitter.clock()))
            last, lost = len(jobs.log.read_raw(job_id)), None
    if console.wants_json(as_json):
        console.print_json(job if lost is None else {**msgspec.to_builtins(job), "lost": lost})
        return
    console.print_job(job, msgspec.to_builtins(job), lost=lost)
    if lost is not None:
        console.note(
            f"{lost.text}: {lost.why}; any process that works gives it back, or: jobevents workers --reap", to_err=True
        )
    if as_of is not None:
        console.note(f"as of {as_of}: after event {job.version} of {last}; all of them: jobevents events {job_id}")
