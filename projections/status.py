"""The status view: `jobs/{id}/status.json`, the fold of a job's events, for the Projector.

Coalesced to the least interval between two writes of one blob: a job's last state waits until its blob may be written again,
and always lands. A position is recorded only when every job that changed up to it is saved.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec
from lru import LRU

from jobevents.blobs import Blobs
from jobevents.errors import InvalidValue, JobEventsError
from jobevents.job import Job
from jobevents.telemetry import Counts
from projections.adoption import Adopt
from projections.positions import Positions
from projections.statuswriter import CODE_VERSION, THREADS, Outcome, StatusWriter
from projections.view import Unstorable

TRIES = 3  # of a job that the store refuses for a reason of its own
YOUNG = 4  # events: with so few a job has likely no status yet, and is created unread (a wrong guess costs a write)
TIMED = 16_384  # jobs whose last write is remembered where a blob has a least interval
STALE_S = 5.0  # from taking to storing, a third of a lease's life: another projector may have gone on meanwhile


class _Waiting(msgspec.Struct):
    """A job to be saved."""

    job: Job  # its last state
    since: int  # every event up to this position is in what was stored before
    due_at: float  # on the monotonic clock
    tries: int = 0  # failed


class StatusView:
    """Statuses as a View. One thread takes and flushes; other writers of the same statuses may be about."""

    name = "status"

    def __init__(
        self,
        blobs: Blobs,
        prefix: str = "",
        *,
        positions: Positions,
        adopt: Adopt | None = None,
        adopt_deletes: bool = False,
        counts: Counts | None = None,
        code: int = CODE_VERSION,
        told: Callable[[str], int] | None = None,
        on_deleted: Callable[[str], object] = lambda _: None,
        threads: int = THREADS,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Write below the log's prefix; see StatusWriter for `adopt`, `adopt_deletes`, `told`, `on_deleted` and `threads`.

        Args:
            positions: where the view's position is kept: the log's own database.
        """
        self._writer = StatusWriter(
            blobs,
            prefix,
            adopt=adopt,
            adopt_deletes=adopt_deletes,
            counts=counts,
            code=code,
            told=told,
            on_deleted=on_deleted,
            threads=threads,
        )
        self._positions = positions
        self._interval_s = blobs.min_write_interval_s
        self._monotonic = monotonic
        self._sleep = sleep
        self._waiting: dict[str, _Waiting] = {}
        self._written_at: LRU[str, float] = LRU(TIMED)
        self._taken = 0
        self._taken_at = 0.0
        self._recorded = 0
        self._fresh: set[str] = set()  # saved since the last recorded position, and not known before
        self._given_up: deque[Unstorable] = deque()  # not told to the projector yet

    def position(self) -> int:
        """Return the recorded position, and go on from it. One read.

        What was taken and not saved is dropped: it is given again, unless the log does not know it any more.
        """
        self._waiting.clear()
        self._recorded = self._taken = self._positions.stored(self.name)
        return self._recorded

    def take(self, jobs: Sequence[Job], position: int) -> None:
        """Hold jobs until they are due; no I/O."""
        self._taken_at = self._monotonic()
        since = min(self._taken, position - 1)
        for job in jobs:
            waiting = self._waiting.get(job.job_id)
            if waiting is None:
                self._waiting[job.job_id] = _Waiting(job, since, self._due_at(job.job_id))
            elif job.version > waiting.job.version:
                waiting.job = job
        self._taken = max(self._taken, position)

    def flush(self, *, everything: bool = False) -> int:
        """Save what is due, final states first; with `everything`, wait for what is not due yet. Return the stored position.

        Raises:
            Unavailable, PermissionDenied, Corrupt: the store's trouble; what was not saved still waits.
            Unstorable: a job was given up after three tries; flush again for the rest.
        """
        while True:
            if self._given_up:
                raise self._given_up.popleft()
            self._save_due()
            wait_s = self.next_flush_s()
            if not self._given_up and (wait_s is None or not everything):
                return self._record()
            if wait_s and not self._given_up:
                self._sleep(wait_s)

    def next_flush_s(self) -> float | None:
        """Return in how many seconds the first waiting job is due; None when none waits."""
        if not self._waiting:
            return None
        if not self._interval_s:
            return 0.0
        return max(0.0, min(one.due_at for one in self._waiting.values()) - self._monotonic())

    def watches(self, job_id: str) -> bool:
        """Tell whether the next write of a job's status finds out if the job is gone."""
        return self._writer.watches(job_id)

    def close(self) -> None:
        """End the threads that save."""
        self._writer.close()

    def _due_at(self, job_id: str) -> float:
        return self._written_at.get(job_id, self._taken_at - self._interval_s) + self._interval_s

    def _save_due(self) -> None:
        now = self._monotonic()
        due = [one.job for one in self._waiting.values() if one.due_at <= now]
        due.sort(key=lambda job: not job.is_final())
        shown, failed = [], []
        is_fresh_view = self._recorded == 0
        for job in due:
            if not self._writer.knows(job.job_id):
                self._fresh.add(job.job_id)
            try:
                shown.append(self._writer.show(job, is_new=is_fresh_view or job.version <= YOUNG))
            except InvalidValue as error:
                failed.append(Outcome(job.job_id, error))
        self._settle(failed)
        self._settle(self._writer.save_all(shown))

    def _settle(self, outcomes: Iterable[Outcome]) -> None:
        """Let go of what was saved; raise the store's trouble, and give up a job that failed too often by itself."""
        trouble: JobEventsError | None = None
        for job_id, error in outcomes:
            if self._interval_s:
                self._written_at[job_id] = self._monotonic()
            waiting = self._waiting[job_id]
            if isinstance(error, InvalidValue | Unstorable):
                waiting.tries += 1
                if waiting.tries < TRIES:
                    continue
                self._given_up.append(Unstorable(job_id, waiting.job.version, error))
            elif error is not None:
                trouble = trouble or error
                continue
            del self._waiting[job_id]
        if trouble is not None:
            raise trouble

    def _record(self) -> int:
        """Record how far everything is saved; where another projector is ahead, go on from where it is."""
        position = min((one.since for one in self._waiting.values()), default=self._taken)
        if self._fresh and self._monotonic() - self._taken_at > STALE_S:
            self._writer.drop_ghosts(self._fresh)
        if position > self._recorded:
            self._recorded = self._positions.advance(self.name, position)
            if self._recorded > position:
                self._taken = max(self._taken, self._recorded)
                self._writer.drop_ghosts(self._fresh)
        self._fresh.clear()
        return self._recorded
