"""The commands that read history: why, replay and diff. Nothing is published, no live view written."""

import re
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from jobevents import codec, console
from jobevents.cli_options import AsJson, AsOf, JobId, Url, open_jobs
from jobevents.cli_run import load_module
from jobevents.errors import InvalidValue, NotFound
from jobevents.job import Job
from jobevents.jobs import Jobs

if TYPE_CHECKING:
    from projections.diff import JobDiff, ViewsDiff
    from projections.replay import Bound, OwnView, Trouble
    from projections.why import Sentence

BUILD_NAME = re.compile(r"\d{8}-\d{6}-\d{6}").fullmatch
DIFFS_SHOWN = 40  # jobs at a terminal
VALUE = 40  # characters of a value that differs
TROUBLES_NAMED = 20  # on standard error; the rest is counted

_KIND_STYLE = {"refused": "yellow", "cancel": "yellow", "ended": "bold", "deleted": "red", "record": "magenta"}


def add_to(app: typer.Typer) -> None:
    """Give the command line these commands."""
    app.command("why")(why)
    app.command("replay")(replay)
    app.command("diff")(diff)


def job_at(jobs: Jobs, job_id: str, as_of: str) -> Job:
    """Return a job as it was at a moment that a person wrote."""
    from projections import asof

    return asof.job_at(jobs, job_id, asof.parse(as_of, jobs.emitter.clock()))


def why(job_id: JobId, url: Url, as_of: AsOf = None, as_json: AsJson = False) -> None:
    """Explain why a job is as it is: what won, what was refused and why, who did it, how long it took.

    With --as-of, why it was as it was then; '#3' is after its event 3.
    """
    from projections.lost import Losses
    from projections.why import explain

    with open_jobs(url) as jobs:
        version = None if as_of is None else job_at(jobs, job_id, as_of).version
        events = jobs.history(job_id)[:version]
        now = jobs.emitter.clock() if as_of is None else None
        lost = Losses(jobs).listed([job_id]).get(job_id) if as_of is None else None
    if console.wants_json(as_json):
        console.print_json(explain(events, now=now, lost=lost))
    else:
        _print_sentences(job_id, explain(events, now=now, zone=None, lost=lost))


def _print_sentences(job_id: str, sentences: "Sequence[Sentence]") -> None:
    first = sentences[0]
    console.out.print(Text.assemble((job_id, "bold"), "  ", console.state_text(first.state)), soft_wrap=True)
    console.out.print(console.plain(first.text, console.MESSAGE))
    console.out.print()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", style="dim", no_wrap=True)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for one in sentences[1:]:
        told = Text(console.plain(one.text, console.MESSAGE).plain, style=_KIND_STYLE.get(one.kind, ""))
        if one.kind == "sum":
            grid.add_row("", "", told)
        else:
            grid.add_row(f"#{one.version}", console.local(one.at, short=True), told)
    console.out.print(grid)
    console.note(f"times in {console.zone_name()}; every event: jobevents events {job_id}")


def replay(
    url: Url,
    view: Annotated[
        str,
        typer.Option(
            metavar="MODULE:VIEW",
            help="Give the events to this: a class or object with `apply(event)` (and `result()`, `upcast`, if you like), "
            "or a function of an event. Without it they are printed.",
        ),
    ] = "",
    since: Annotated[
        str,
        typer.Option(metavar="WHEN", help="From this instant on, by the writers' clocks; or after @1234 of the log."),
    ] = "",
    until: Annotated[str, typer.Option(metavar="WHEN", help="Before this instant; or up to and with @1234.")] = "",
    job: Annotated[list[str] | None, typer.Option("--job", help="Only this job; may be repeated.")] = None,
    type: Annotated[
        list[str] | None, typer.Option("--type", help="Only these events: JobFailed, …; may be repeated.")
    ] = None,
    go_on: Annotated[
        bool, typer.Option("--go-on", help="Name an event that cannot be read or taken, and go on; else it ends there.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Give every event again, in order: printed, or into a view of your own. Nothing is written or published.

    In a pipe each event is one line of JSON, the bytes that the log has.
    Exit 1 when an event could not be read, or the view raised.
    """
    from projections.replay import fold_into
    from projections.replay import replay as replayed

    own = _own_view(view) if view else None
    troubles = _Troubles()
    lines = own is None and not console.wants_json(as_json)  # which a bar would get in the way of
    with open_jobs(url) as jobs, console.progress(hidden=lines) as bar:
        reading = bar.add_task("replaying", total=0)
        events = replayed(
            jobs,
            since=_bound(since, jobs.emitter.clock()),
            until=_bound(until, jobs.emitter.clock()),
            only=job or (),
            types=type or (),
            upcast=getattr(own, "upcast", None),
            on_trouble=troubles if go_on else None,
            on_progress=lambda done, total: bar.update(reading, completed=done, total=total),
        )
        if own is None:
            for event in events:
                if console.wants_json(as_json):
                    console.print_json_line(codec.seal(codec.encode(event), event.chain))
                else:
                    console.print_event(event)
        else:
            began = time.monotonic()
            done = fold_into(own, events, on_trouble=troubles if go_on else None)
            took = time.monotonic() - began
    if own is not None:
        done.troubles = troubles.count
        told = f"{done.events:,} {'event' if done.events == 1 else 'events'} into {view} in {took:.1f} s"
        console.answer(done, told if done.result is None else f"{told}\n{_as_json(done.result)}", as_json)
    troubles.sum_up()
    if troubles.count:
        sys.exit(1)


def _as_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


class _Troubles:
    """Names the first events that were passed over, and counts the rest."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, trouble: "Trouble") -> None:
        self.count += 1
        if self.count <= TROUBLES_NAMED:
            what = f"{trouble.job_id} #{trouble.version} {trouble.type}"
            console.note(f"passed over: {what}: {trouble.error}", to_err=True)

    def sum_up(self) -> None:
        if self.count > TROUBLES_NAMED:
            console.note(f"… {self.count:,} events were passed over in all", to_err=True)


def _bound(text: str, now: datetime) -> "Bound":
    from projections import asof

    if not text:
        return None
    moment = asof.parse(text, now)
    if moment.version:
        raise InvalidValue(f"a bound is an instant, or @1234 of the log value={text!r:.80}")
    return moment.instant or moment.position


def _own_view(name: str) -> "OwnView":
    """Import a view by `module:name`: an object as it is, a class made without arguments, or a function.

    Raises:
        InvalidValue: there is no such module or name, or it takes no events.
    """
    module_name, _, attribute = name.partition(":")
    found = getattr(load_module(module_name), attribute, None)
    if found is None:
        raise InvalidValue(f"no such view name={name!r:.200}; write MODULE:VIEW, such as studio.views:Durations")
    made = found() if isinstance(found, type) else found
    if callable(getattr(made, "apply", None)):
        view: OwnView = made
        return view
    if callable(made):
        return _OfFunction(made)
    raise InvalidValue(f"the view takes no events name={name!r:.200}; give it a method `apply(event)`")


class _OfFunction:
    """A function of an event, as a view."""

    def __init__(self, function: Any) -> None:
        self.apply = function


def diff(
    left: Annotated[str, typer.Argument(metavar="A", help="A job's id; or `live`, or the name of a build.")],
    right: Annotated[str, typer.Argument(metavar="B", help="Another; or `new`: the last build beside the live views.")],
    url: Url,
    as_json: AsJson = False,
) -> None:
    """Compare two jobs, or the live views with a build, and say since which event they differ. Exit 1 if they do.

    `jobevents rebuild --beside` makes a build to compare with; then
    `jobevents diff live new`. A job of which the one has a later event than
    the other, each as its history says, has moved on, and is only counted.
    """
    with open_jobs(url) as jobs:
        if _is_view(left) and _is_view(right):
            is_same = _diff_views(jobs, left, right, as_json)
        elif "live" in (left, right) or "new" in (left, right):
            raise InvalidValue("compare two jobs, or two of live, new and the names of builds")
        else:
            is_same = _diff_jobs(jobs, left, right, as_json)
    if not is_same:
        sys.exit(1)


def _is_view(name: str) -> bool:
    return name in ("live", "new") or BUILD_NAME(name) is not None


def _root_of(jobs: Jobs, name: str) -> str:
    """Return the prefix below which a view or a build is.

    Raises:
        NotFound: there is no such build.
    """
    from projections.rebuild import list_kept

    if name == "live":
        return jobs.prefix
    kept = [one.build for one in list_kept(jobs.blobs, jobs.prefix)]
    build = kept[-1] if name == "new" and kept else name
    if build not in kept:
        raise NotFound(f"no build stands beside the live views build={name}; make one with: jobevents rebuild --beside")
    return jobs.blob_name(f"rebuild/{build}")


def _diff_views(jobs: Jobs, left: str, right: str, as_json: bool) -> bool:
    from projections.bulk import Bulk
    from projections.diff import ViewsDiff, diff_indexes, diff_statuses
    from projections.statusswap import Place

    roots = [_root_of(jobs, name) for name in (left, right)]
    places = [Place(f"{root}/jobs/" if root else "jobs/") for root in roots]
    total, lines = ViewsDiff(), _DiffLines(left, right, as_json=console.wants_json(as_json))
    with Bulk(jobs.blobs) as bulk, console.progress(hidden=not lines.as_json) as bar:
        task = bar.add_task("comparing", total=0)
        for one in diff_statuses(jobs.log, jobs.blobs, bulk, places[0], places[1], total, lambda: bar.advance(task)):
            lines.show(one)
        for one in diff_indexes(jobs.blobs, *roots):
            lines.show(one)
    lines.end(total)
    return not lines.count


class _DiffLines:
    """Says job by job what differs: a line of JSON each for programs; the first ones, and counts, for people."""

    def __init__(self, left: str, right: str, *, as_json: bool) -> None:
        self.as_json = as_json
        self.count = 0
        self._left, self._right = left, right

    def show(self, one: "JobDiff") -> None:
        self.count += 1
        if self.as_json:
            console.print_json_line(msgspec.json.encode(one))
        elif self.count <= DIFFS_SHOWN:
            only = {"only-left": f"only in {self._left}; ", "only-right": f"only in {self._right}; "}.get(one.kind, "")
            logged = {"left": self._left, "right": self._right}.get(one.logged, "neither")
            said = f"{only}as the log says: {logged}" if one.kind != "index" else ""
            console.out.print(Text.assemble((one.job_id, "bold"), f"  {said}"), soft_wrap=True)
            for field in one.fields:
                since = f"   since #{field.version} {field.type}" if field.version else ""
                line = Text.assemble(
                    "    ", field.name, "  ", (_value(field.left), "red"), " → ", (_value(field.right), "green")
                )
                console.out.print(line + Text(since, style="dim"), soft_wrap=True)

    def end(self, total: "ViewsDiff") -> None:
        if self.as_json:
            console.print_json_line(msgspec.json.encode({"total": total, "differences": self.count}))
            return
        if self.count > DIFFS_SHOWN:
            console.note(f"… and {self.count - DIFFS_SHOWN:,} more; in a pipe all of them are named")
        counts = [
            f"{total.differ:,} differ",
            f"{total.only_left:,} only in {self._left}",
            f"{total.only_right:,} only in {self._right}",
            f"{total.moved:,} moved on since",
        ]
        console.out.print(f"{total.compared:,} statuses compared: {', '.join(counts)}", soft_wrap=True)


def _value(value: Any) -> str:
    text = "-" if value is None else console.plain(value).plain
    return text if len(text) <= VALUE else text[: VALUE - 1] + "…"


def _diff_jobs(jobs: Jobs, left: str, right: str, as_json: bool) -> bool:
    from projections.diff import diff_jobs

    parting = diff_jobs(jobs.history(left), jobs.history(right))
    is_same = parting.left is None and parting.right is None and not parting.fields
    if console.wants_json(as_json):
        console.print_json(parting)
        return is_same
    out = console.out
    out.print(Text.assemble(("A ", "bold red"), left), soft_wrap=True)
    out.print(Text.assemble(("B ", "bold green"), right), soft_wrap=True)
    same = f"the same in {parting.same} {'step' if parting.same == 1 else 'steps'}"
    out.print(f"{same}, to the end" if parting.left is None and parting.right is None else f"{same}, then")
    for mark, style, event in (("A", "bold red", parting.left), ("B", "bold green", parting.right)):
        if event is not None or parting.left is not parting.right:
            said = f"#{event.version} {console.told(event)}" if event is not None else "has no more"
            out.print(Text.assemble((f"  {mark} ", style), console.plain(said)))
    if parting.fields:
        rows = [[console.plain(one.name), Text(_value(one.left)), Text(_value(one.right))] for one in parting.fields]
        console.print_table(["what differs now", "A", "B"], rows)
    return is_same
