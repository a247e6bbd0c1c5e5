"""What pages, the dashboard and the API ask of a log: one place, in plain Python, no HTTP. Every method may block."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Final, cast

import msgspec

from jobevents.errors import Corrupt, Gone, Unavailable
from jobevents.events import AnyEvent, Event
from jobevents.ids import validate
from jobevents.job import DELETED, Job, fold
from jobevents.jobs import Jobs
from jobevents.log import Record
from jobevents.records import status_bytes
from jobevents.registry import Registry
from jobevents.status import Status
from projections.api.access import Identity
from projections.api.listing import Listing
from projections.api.masking import Mask
from projections.api.recent import UNORDERED, Recent
from projections.api.shapes import EventList, Features, Filter, JobSeen, LogLines, StartList, Unreadable
from projections.api.standing import Keeper, Standing
from projections.asof import Moment, job_at
from projections.index import MAX_PER_PAGE
from projections.lost import Losses, Lost
from projections.starts import starts_of

MAX_ITEMS: Final = 1000  # events or lines of an answer


class Questions:
    """Answers about single jobs; `listing` has lists, `standing` the whole. Safe for threads.

    What is asked about single jobs is answered from the log, and so never older than what anybody has committed.
    """

    def __init__(
        self,
        jobs: Jobs,
        *,
        registry: Registry | None = None,
        record: type[Status] = Status,
        mask: Mask | None = None,
    ) -> None:
        """Ask these jobs.

        Args:
            registry: the kinds of jobs, for schedules.
            record: Status, or the service's subclass of it, as lists show jobs.
            mask: what is taken out of all answers; None: secrets, by the usual names.
        """
        self.jobs = jobs
        self.record = record
        self.mask = mask or Mask()
        self.losses = Losses(jobs)
        self.listing = Listing(jobs, record, self.mask, self.losses)
        self.standing = Standing(jobs, self.listing.reader.index, registry)
        self.recent = Recent(jobs.log)
        self._readable = Keeper(self._read_ends, jobs.emitter.clock)

    def job(self, job_id: str, as_of: Moment | None = None) -> Job:
        """Return all that is known of a job, now or at a moment.

        Raises:
            InvalidJobId, NotFound, Gone: there is no such job. Unavailable, PermissionDenied, Corrupt: what the log says.
        """
        return self.mask.job(self.jobs.job(job_id) if as_of is None else job_at(self.jobs, job_id, as_of))

    def seen(self, job_id: str) -> JobSeen:
        """Return all that is known of a job now, and how its worker is lost if it is.

        Raises: as `job`.
        """
        job = self.jobs.job(job_id)
        return JobSeen(**msgspec.structs.asdict(self.mask.job(job)), lost=self.losses.of(job))

    def hides_params(self, job_id: str) -> bool:
        """Tell whether something is taken out of a job's params, so that what is shown is not what it was given.

        Raises: as `job`.
        """
        params = self.jobs.job(job_id).params
        return bool(self.mask.value(params) != params)

    def history(self, job_id: str) -> list[Event]:
        """Return all events of a job, of a deleted one too.

        Raises: as `events`.
        """
        return [self.mask.event(event) for event in self.jobs.history(job_id)]

    def status(self, job_id: str) -> tuple[bytes, int, Lost | None]:
        """Return the bytes of a job's status.json as they are now, without a newline, its version, and how it is lost.

        They are masked only where it was said what is to be: without, they are exactly those.

        Raises: as `job`.
        """
        job = self.jobs.job(job_id)
        shown = self.mask.job(job) if self.mask.covers_status else job
        return status_bytes(shown), job.version, self.losses.of(job)

    def version(self, job_id: str) -> int:
        """Return the version of a job's last event; 0 for none, that of the tombstone for a deleted one: one read.

        Raises:
            InvalidJobId: it is no id. Unavailable, PermissionDenied, Corrupt: what the log says.
        """
        validate(job_id)
        return self.jobs.log.head(job_id).version

    def state(self, job_id: str) -> str:
        """Return a job's state, `(deleted)` for a deleted one.

        Raises: as `events`.
        """
        try:
            return self.jobs.job(job_id).state
        except Gone:
            return DELETED

    def events(self, job_id: str, after: int, limit: int) -> EventList:
        """Return a job's next events, of a deleted one too: one read of no more than these.

        Raises: as `job`, but for Gone.
        """
        validate(job_id)
        found = self.jobs.log.read_raw(job_id, after=after, until=after + limit + 1)
        if not found and not self.version(job_id):
            self.jobs.history(job_id)  # fetches it from the inbox, or raises NotFound
            found = self.jobs.log.read_raw(job_id, after=after, until=after + limit + 1)
        events, unreadable = self._decoded(found[:limit])
        last = found[:limit][-1].version if found else after
        return EventList(cast("list[AnyEvent]", events), last, len(found) > limit, unreadable)

    def told(self, job_id: str) -> tuple[list[Event], list[Unreadable]]:
        """Return all events of a job that can be read, and those that cannot: of both together none is missing.

        Raises: as `job`, but for Gone and Corrupt.
        """
        validate(job_id)
        found = self.jobs.log.read_raw(job_id)
        if not found:
            self.jobs.history(job_id)  # fetches it from the inbox, or raises NotFound
            found = self.jobs.log.read_raw(job_id)
        return self._decoded(found)

    def _decoded(self, records: Sequence[Record]) -> tuple[list[Event], list[Unreadable]]:
        events, unreadable = list[Event](), list[Unreadable]()
        for one in records:
            try:
                events.append(self.mask.event(one.event()))
            except Corrupt as error:
                unreadable.append(Unreadable.of(one, error))
        return events, unreadable

    def starts(self, job_id: str) -> StartList:
        """Return a job's attempts, of a deleted one too.

        Raises: as `events`.
        """
        events = self.jobs.history(job_id)
        return StartList(starts_of(events)[::-1], self.losses.of(fold(events)))

    def logs(self, job_id: str, after_seq: int, limit: int) -> LogLines:
        """Return a job's next log lines.

        Raises: as `job`.
        """
        self.jobs.job(job_id)
        lines = self.jobs.run_logs.logs(job_id, after_seq, limit + 1)
        shown = [self.mask.line(line) for line in lines[:limit]]
        return LogLines(shown, shown[-1].seq if shown else after_seq, len(lines) > limit)

    def features(self, caller: Identity) -> Features:
        """Return what can be asked here, and what the caller may do."""
        return Features(
            version=version("jobevents"),
            filters=self.listing.filters(),
            as_of={
                "/api/jobs/{id}": Filter(True, ""),
                "/api/jobs": self.listing.past(),
            },
            streams={"/api/stream": self.can_follow(), "/api/jobs/{id}/logs/stream": Filter(True, "")},
            per_page_max=MAX_PER_PAGE,
            has_registry=self.standing.has_registry,
            status_is_exact=not self.mask.covers_status,
            caller=caller.name,
            roles=sorted(caller.roles),
        )

    def can_follow(self) -> Filter:
        """Return whether events can be followed as they are committed."""
        return Filter(True, "") if self.jobs.log.ordered else Filter(False, UNORDERED)

    def _read_ends(self) -> None:
        self.listing.head()
        self.listing.reader.index.position()

    def check_ready(self, *, with_views: bool) -> None:
        """Read the end of the log and the index's manifest, and hold the views against the log; what was well is kept for 2 s.

        Args:
            with_views: a view that is behind for more than two minutes is not ready; one that never was there is nobody's.

        Raises:
            Unavailable: a view is stale; or, as PermissionDenied and Corrupt, what cannot be read.
        """
        self._readable.get()
        stale = self.standing.stale() if with_views else []
        if stale:
            raise Unavailable(f"views are stale: is jobevents project running? {'; '.join(stale)}")
