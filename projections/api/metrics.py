"""What Prometheus is told: the state of the log and its events, counted when it asks, and what this process counted."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from jobevents.guard import GUARD_HITS
from projections.api.meter import Meter
from projections.api.questions import Questions

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

_COUNTS: Final = {
    "events_of_old_starts_dropped": ("jobevents_fenced_events", "Events of an older start, which were not applied."),
    "records_failed": ("jobevents_append_errors", "Records of attempts that could not be appended."),
    "lost_starts_taken_over": ("jobevents_lost_starts_taken_over", "Starts of dead workers that a guard gave back."),
}


class Metrics:
    """The metrics of one app. Safe for threads."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._registry = CollectorRegistry(auto_describe=False)
        self._meter = Meter(questions.jobs.log, self._registry)
        log: Collector = _Log(questions)
        self._registry.register(log)
        self._requests = Counter(
            "jobevents_http_requests", "Requests answered.", ["route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "jobevents_http_request_seconds", "How long answers took.", ["route"], registry=self._registry
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Take notice of an answer."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Return everything as Prometheus reads it; counts of jobs may be a few seconds old.

        Events are counted from the first call on.

        Raises:
            Unavailable, PermissionDenied, Corrupt: what the log or the store says.
        """
        self._meter.read()
        return generate_latest(self._registry)


class _Log:
    """The state of the log."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        standing = self._questions.standing
        jobs = GaugeMetricFamily("jobevents_jobs", "Jobs by state and queue.", labels=["state", "queue"])
        for one in standing.tally().value:
            jobs.add_metric([one.state, one.queue], one.jobs)
        yield jobs
        if self._questions.jobs.desk is not None:
            yield self._waiting()
        yield from self._projection()
        yield from _counted(self._questions.jobs.counts.snapshot())

    def _waiting(self) -> Metric:
        now = self._questions.jobs.emitter.clock()
        ages = GaugeMetricFamily(
            "jobevents_oldest_queued_age_seconds", "How long the oldest due job of a queue waits.", labels=["queue"]
        )
        for one in self._questions.standing.waiting().value:
            ages.add_metric([one.queue], max(0.0, (now - one.oldest_due).total_seconds()))
        return ages

    def _projection(self) -> Iterator[Metric]:
        seen = self._questions.standing.projector()
        yield GaugeMetricFamily("jobevents_log_position", "Last place in the log.", value=seen.head)
        lag = GaugeMetricFamily(
            "jobevents_projection_lag_seconds", "Age of the oldest event that waits.", labels=["view"]
        )
        events = GaugeMetricFamily("jobevents_projection_lag_events", "Events that wait.", labels=["view"])
        position = GaugeMetricFamily(
            "jobevents_projection_position", "Place up to which all is stored.", labels=["view"]
        )
        parked = GaugeMetricFamily("jobevents_projection_parked", "Jobs that wait for a person.", labels=["view"])
        for one in seen.items:
            view = [one.health.view]
            lag.add_metric(view, one.lag_s)
            events.add_metric(view, one.lag_events)
            position.add_metric(view, one.health.position)
            parked.add_metric(view, one.health.parked)
        yield from (lag, events, position, parked)


def _counted(counts: Mapping[str, int]) -> Iterator[Metric]:
    """Yield what this process counted, which is little in one that serves alone."""
    hits = CounterMetricFamily("jobevents_guard_hits", "Attempts that the guard refused.", labels=["reason"])
    for name, count in sorted(counts.items()):
        if name.startswith(GUARD_HITS):
            hits.add_metric([name.removeprefix(GUARD_HITS)], count)
    yield hits
    for name, (metric, about) in _COUNTS.items():
        yield CounterMetricFamily(metric, about, value=counts.get(name, 0))
