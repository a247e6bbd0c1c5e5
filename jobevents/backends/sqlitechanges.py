"""What an event changes of its job's row in an SQLite file: those columns written alone, in the life that most jobs have.

SQLite writes every index anew that has one of the columns of an UPDATE, whatever is in them: of a dozen pages that a whole
row comes to, progress needs one. Each statement holds only for a row as of the event before, in the state that the event
leaves; where there is none, nothing is written and the whole row is.
"""
# ruff: noqa: S608  # table names are checked by Tables.named, values are bound

from collections.abc import Callable, Mapping
from typing import NamedTuple

from jobevents.backends.sql import Row, Tables, fields_text, json_text, time_text, updated_text
from jobevents.events import JobAnnotated, JobProgressed, JobStarted, JobSucceeded
from jobevents.job import QUEUED, RUNNING, SUCCEEDED, Job
from jobevents.store import duration_ms, progress_of


class Change(NamedTuple):
    """What an event of one type changes."""

    statement: str  # changes one row, or none
    values: Callable[[Job], Row]  # its parameters, from the job after the event
    ends_claim: bool = False  # the row waited before: somebody may have claimed it


def changes(tables: Tables) -> Mapping[str, Change]:
    """Return the changes by type of event; all others have the whole row written."""
    update = f'UPDATE "{tables.runs}" SET "updated_at" = ?, "version" = ?'
    row = 'WHERE "id" = ? AND "version" = ?'
    is_running = f"{row} AND \"status\" = '{RUNNING}'"
    return {
        JobStarted.__name__: Change(
            f'{update}, "attempt" = ?, "started_at" = ?, "worker_id" = ?, "start" = ?, "starts" = ?, "deadline" = ?, '
            f'"status" = \'{RUNNING}\', "finished_at" = NULL, "duration_ms" = 0, "progress" = 0, "progress_message" = \'\', '
            f'"result" = NULL, "error" = NULL {row} AND "status" = \'{QUEUED}\'',
            _started,
            ends_claim=True,
        ),
        JobProgressed.__name__: Change(f'{update}, "progress" = ?, "progress_message" = ? {is_running}', _progressed),
        JobAnnotated.__name__: Change(f'{update}, "fields" = ? {is_running} AND "job_name" = ?', _annotated),
        JobSucceeded.__name__: Change(
            f'{update}, "finished_at" = ?, "duration_ms" = ?, "progress" = ?, "result" = ?, '
            f'"status" = \'{SUCCEEDED}\', "deadline" = NULL, "error" = NULL {is_running}',
            _succeeded,
        ),
    }


def _started(job: Job) -> Row:
    return (
        updated_text(job),
        job.version,
        job.attempt,
        None if job.started_at is None else time_text(job.started_at),
        job.worker,
        job.start,
        job.starts,
        None if job.deadline is None else time_text(job.deadline),
        job.job_id,
        job.version - 1,
    )


def _progressed(job: Job) -> Row:
    return updated_text(job), job.version, progress_of(job), job.progress_message, job.job_id, job.version - 1


def _annotated(job: Job) -> Row:
    return updated_text(job), job.version, fields_text(job), job.job_id, job.version - 1, job.name


def _succeeded(job: Job) -> Row:
    return (
        updated_text(job),
        job.version,
        None if job.finished_at is None else time_text(job.finished_at),
        duration_ms(job),
        progress_of(job),
        None if job.result is None else json_text(job.result),
        job.job_id,
        job.version - 1,
    )
