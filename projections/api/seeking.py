"""The answer to a search: the jobs that it finds, newest first, and how far was looked. No HTTP."""

from jobevents.job import RUNNING
from projections.api.problems import CannotFilter
from projections.api.questions import Questions
from projections.api.search import filter_of, parse, sieve_of
from projections.api.shapes import JobsFound
from projections.api.sifting import sift
from projections.index import bounded
from projections.rowpages import load

_NO_TABLE = "this log keeps no table of runs to look through: list by state alone"


def seek(questions: Questions, text: str, cursor: str, limit: int) -> JobsFound:
    """Look through the table of jobs for what a text says.

    Args:
        text: as `search.parse` reads it.
        cursor: where a former answer stopped; "" begins.
        limit: jobs of an answer, within those of a page.

    Raises:
        InvalidSearch: it cannot be understood. InvalidValue: it is no cursor. CannotFilter: there is no table.
        Unavailable, PermissionDenied, Corrupt: what the log says.
    """
    jobs = questions.jobs
    if jobs.desk is None:
        raise CannotFilter(_NO_TABLE)
    now = jobs.emitter.clock()
    wanted = parse(text, now)
    found = sift(
        jobs.desk.census,
        filter_of(wanted, now),
        sieve_of(wanted),
        cursor=cursor,
        limit=bounded(limit),
        now=now,
        title_of=lambda job_id: jobs.job(job_id).title,
        shown=questions.mask.value,
    )
    items, left_out = load(jobs, [run.id for run in found.runs], questions.record)
    lost = questions.losses.listed([one.job_id for one in items if one.state == RUNNING])
    return JobsFound(
        items=[questions.mask.status(one) for one in items],
        left_out=left_out,
        cursor=found.cursor,
        looked=found.looked,
        down_to=found.down_to,
        lost=[*lost.values()],
    )
