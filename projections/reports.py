"""The named reports: one query each over the tables of history. `$now` and `$within` are given where a query has them."""

from datetime import timedelta
from typing import NamedTuple


class Report(NamedTuple):
    """A question that is asked again and again."""

    about: str  # what it answers
    sql: str
    within: timedelta | None = None  # the usual `$within`, of those that have one


REPORTS: dict[str, Report] = {
    "failures-per-day": Report(
        "attempts that failed or were lost, by day and kind of job",
        """
        SELECT CAST(ended_at AS DATE) AS day, name, count(*) AS failures, count(DISTINCT job_id) AS jobs,
               count(*) FILTER (outcome = 'lost') AS lost, mode(error_kind) FILTER (error_kind <> '') AS most_often
        FROM attempts WHERE outcome IN ('failed', 'retried', 'lost')
        GROUP BY ALL ORDER BY day, failures DESC, name
        """,
    ),
    "stuck": Report(
        "jobs that have been running for longer than --within: their workers died, or they are slow",
        """
        SELECT job_id, name, worker, started_at, CAST(date_diff('second', started_at, $now) AS BIGINT) AS running_s,
               deadline, progress, progress_message
        FROM jobs WHERE state = 'running' AND started_at < CAST($now AS TIMESTAMPTZ) - CAST($within AS INTERVAL)
        ORDER BY started_at, job_id
        """,
        timedelta(hours=1),
    ),
    "durations": Report(
        "how long attempts took, by kind of job: milliseconds",
        """
        SELECT name, outcome, count(*) AS attempts, CAST(quantile_disc(duration_ms, 0.5) AS BIGINT) AS p50_ms,
               CAST(quantile_disc(duration_ms, 0.95) AS BIGINT) AS p95_ms, max(duration_ms) AS most_ms
        FROM attempts WHERE ended_at IS NOT NULL AND NOT late
        GROUP BY ALL ORDER BY name, attempts DESC, outcome
        """,
    ),
    "waits": Report(
        "how long attempts waited from when they were due, by queue and kind of job: milliseconds",
        """
        SELECT queue, name, count(*) AS attempts, CAST(quantile_disc(waited_ms, 0.5) AS BIGINT) AS p50_ms,
               CAST(quantile_disc(waited_ms, 0.95) AS BIGINT) AS p95_ms, max(waited_ms) AS most_ms
        FROM attempts WHERE waited_ms IS NOT NULL
        GROUP BY ALL ORDER BY queue, name
        """,
    ),
    "retries": Report(
        "how many tries jobs took, by kind of job, and why they were tried again",
        """
        SELECT name, count(DISTINCT job_id) AS jobs, count(*) AS attempts,
               count(*) FILTER (outcome = 'retried') AS retried, count(*) FILTER (outcome = 'lost') AS lost,
               count(*) FILTER (outcome IN ('shutdown', 'snooze')) AS given_back,
               count(*) FILTER (outcome = 'failed') AS failed, max(attempt) AS most_tries,
               mode(error_kind) FILTER (error_kind <> '') AS most_often
        FROM attempts GROUP BY name ORDER BY retried + lost DESC, name
        """,
    ),
    "guard-savings": Report(
        "outcomes that came too late and were refused, so that they undid nothing, by kind of job and the state they met",
        """
        SELECT j.name, e.data ->> '$.state' AS met, e.data ->> '$.tried' AS tried, count(*) AS refused,
               count(DISTINCT e.job_id) AS jobs, max(e.written_at) AS last
        FROM events e LEFT JOIN jobs j USING (job_id) WHERE e.type = 'TransitionRefused'
        GROUP BY ALL ORDER BY refused DESC, name, met, tried
        """,
    ),
    "sla": Report(
        "how many jobs had succeeded --within so long of being due, by kind of job",
        """
        WITH ends AS (
            SELECT job_id, min(ended_at) FILTER (outcome = 'succeeded') AS done_at FROM attempts GROUP BY job_id
        ), asked AS (
            SELECT j.name, j.job_id, ends.done_at,
                   greatest(j.created_at, coalesce((SELECT min(due_at) FROM attempts a WHERE a.job_id = j.job_id),
                            j.scheduled_at, j.created_at)) AS due_at
            FROM jobs j LEFT JOIN ends USING (job_id) WHERE j.state NOT IN ('canceled', 'skipped')
        )
        SELECT name, count(*) AS jobs,
               count(*) FILTER (done_at <= due_at + CAST($within AS INTERVAL)) AS within,
               count(*) FILTER (done_at > due_at + CAST($within AS INTERVAL)
                                OR (done_at IS NULL AND due_at + CAST($within AS INTERVAL) < CAST($now AS TIMESTAMPTZ)))
                   AS beyond,
               count(*) FILTER (done_at IS NULL AND due_at + CAST($within AS INTERVAL) >= CAST($now AS TIMESTAMPTZ))
                   AS still_in_time,
               round(100.0 * within / nullif(within + beyond, 0), 2) AS percent
        FROM asked GROUP BY name ORDER BY percent NULLS LAST, name
        """,
        timedelta(minutes=5),
    ),
}
