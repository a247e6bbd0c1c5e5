"""The commands for what is kept: `tail` follows events and log lines as they come, `purge` lets go of what is old."""

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from jobevents import console
from jobevents.cli_erase import erase_old
from jobevents.cli_options import LONGEST_DAYS, AsJson, Url, open_jobs
from jobevents.cli_run import load_registry
from jobevents.errors import JobEventsError
from jobevents.events import Event, JobStarted
from jobevents.registry import RETAIN, RETAIN_LOGS
from jobevents.store import Cutoffs, RunFilter

if TYPE_CHECKING:
    from jobevents.jobs import Jobs

LOOK_S = 0.2  # between two looks for what is new
WORKER_S = 5.0  # between two looks at whether the worker of the job lives
FINAL = ("succeeded", "failed", "canceled", "skipped")
PAGE = 1000  # runs in one read


def add_to(app: typer.Typer) -> None:
    """Give the command line these commands."""
    app.command("tail")(tail)
    app.command("purge")(purge)


def tail(
    url: Url,
    job_id: Annotated[
        str, typer.Argument(help="Only this job, from its first event to its end; default: all, from now.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Follow events and log lines as they come, until the job has ended, or until Ctrl-C."""
    with open_jobs(url) as jobs, _interruptible() as interrupts:
        follower = _Follower(jobs, job_id, as_json=console.wants_json(as_json))
        while follower.look() and not interrupts:
            time.sleep(LOOK_S)


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Collect Ctrl-C instead of being torn apart by it."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield heard
    finally:
        signal.signal(signal.SIGINT, before)


class _Follower:
    """What was shown of a log, and what is new."""

    def __init__(self, jobs: "Jobs", job_id: str, *, as_json: bool) -> None:
        self._jobs = jobs
        self._job_id = job_id
        self._as_json = as_json
        self._cursor = jobs.log.last_cursor()
        self._shown: dict[str, int] = {}  # job -> version of its last event that was shown
        self._look_at_worker_at = 0.0  # monotonic seconds
        self._lines: dict[str, int] = {}  # job that has started -> its last line that was shown
        if job_id:
            for event in jobs.history(job_id):
                self._show(event)

    def look(self) -> bool:
        """Show what is new; False when there will be no more."""
        for record in self._jobs.log.scan(self._cursor):
            self._cursor = record.cursor
            if self._job_id in ("", record.job_id) and record.version > self._shown.get(record.job_id, 0):
                try:
                    self._show(record.event())
                except JobEventsError as error:
                    console.error(str(error))
        has_ended = {job_id: self._has_ended(job_id) for job_id in self._lines}
        for job_id, is_over in has_ended.items():
            self._show_lines(job_id)
            if is_over and not self._job_id:
                del self._lines[job_id]
        if not self._job_id:
            return True
        self._warn_if_lost()
        return not self._has_ended(self._job_id)

    def _warn_if_lost(self) -> None:
        """Say once that nobody works on the job any more: nothing may ever come, unless somebody gives it back."""
        from projections.lost import Losses

        if time.monotonic() < self._look_at_worker_at:
            return
        self._look_at_worker_at = time.monotonic() + WORKER_S
        lost = Losses(self._jobs).listed([self._job_id]).get(self._job_id)
        if lost is not None:
            self._look_at_worker_at = math.inf
            what = f"{self._job_id}: {lost.text}: {lost.why}"
            console.note(f"{what}; any process that works gives it back, or: jobevents workers --reap", to_err=True)

    def _has_ended(self, job_id: str) -> bool:
        """Tell whether a job's events shown so far end it."""
        job = self._jobs.emitter.load(job_id)
        return job.version <= self._shown.get(job_id, 0) and job.state in (*FINAL, "(deleted)")

    def _show(self, event: Event) -> None:
        self._shown[event.job_id] = event.version
        if isinstance(event, JobStarted):
            self._lines.setdefault(event.job_id, 0)
        else:
            self._show_lines(event.job_id)
        if self._as_json:
            console.print_json({"event": event})
        else:
            console.print_event(event)

    def _show_lines(self, job_id: str) -> None:
        if job_id not in self._lines:
            return
        lines = self._jobs.run_logs.logs(job_id, self._lines[job_id])
        if not lines:
            return
        self._lines[job_id] = lines[-1].seq
        if self._as_json:
            for line in lines:
                console.print_json({"line": line})
        else:
            console.print_lines(lines)


def purge(
    url: Url,
    registry: Annotated[
        str,
        typer.Argument(metavar="[MODULE:REGISTRY]", help="Keep each kind of job for as long as its definition says."),
    ] = "",
    days: Annotated[float, typer.Option(min=0, max=LONGEST_DAYS, help="Days to keep finished runs.")] = RETAIN.days,
    log_days: Annotated[
        float, typer.Option(min=0, max=LONGEST_DAYS, help="Days to keep log lines.")
    ] = RETAIN_LOGS.days,
    history_days: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=LONGEST_DAYS,
            help="Erase the events of jobs deleted so many days ago; default: keep them for good.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without it, only count.")] = False,
    as_json: AsJson = False,
) -> None:
    """Count the finished runs that are old, or with --yes remove them and old log lines. What is unfinished always stays.

    Repeatable, also after it was interrupted. A purged job never comes back under its id.
    """
    definitions = {one.name: one for one in load_registry(registry)} if registry else {}
    with open_jobs(url) as jobs:
        now = jobs.emitter.clock()
        usual = Cutoffs(now - timedelta(days=days), now - timedelta(days=log_days))
        but = {name: Cutoffs(now - one.retain, now - one.retain_logs) for name, one in definitions.items()}
        if yes:
            count = jobs.store.purge(usual.runs_before, usual.logs_before, but=but)
        else:
            count = sum(_count(jobs, usual.runs_before, but))
        erased = None if history_days is None else erase_old(jobs, history_days, yes=yes)
    said = {"purged" if yes else "would_purge": count}
    text = f"{count} runs purged" if yes else f"{count} runs are old enough; purge them with --yes"
    if erased is not None:
        said["erased" if yes else "would_erase"] = erased
        text += f"; {erased} histories erased" if yes else f"; {erased} histories of deleted jobs are, too"
    console.answer(said, text, as_json)


def _count(jobs: "Jobs", before: datetime, but: dict[str, Cutoffs]) -> Iterator[bool]:
    """Tell of each finished run whether it is old."""
    page = 1
    while found := jobs.runs.list(RunFilter(statuses=FINAL, page=page, per_page=PAGE)).runs:
        for run in found:
            limit = but[run.job_name].runs_before if run.job_name in but else before
            yield run.finished_at is not None and run.finished_at < limit
        page += 1
