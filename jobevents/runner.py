"""The runner: takes due runs from a queue and has their handlers run, until it is stopped, which loses nothing.

    runner = JobRunner(jobs, registry)
    runner.run()        # until SIGTERM or SIGINT; or `with runner:` beside other work

In one process: a thread that reserves, threads that run handlers, one that watches over them, and where needed one each for
periodic jobs, for a queue of the user's own, and for an event loop.
"""

import logging
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from jobevents import turn
from jobevents.crew import Crew, Task
from jobevents.errors import Misconfigured, QueueClosed
from jobevents.execution import DONE, Execution, Executor, Ran, Stop
from jobevents.foreign import PausableQueue, QueueFeed, StoreMirror
from jobevents.periodic import Ticker
from jobevents.pulse import Pulse
from jobevents.queue import JobQueue, Reservation
from jobevents.registry import Registry
from jobevents.runlog import LogPolicy, RunLogHandler
from jobevents.store import JobStore
from jobevents.trouble import Trouble
from jobevents.watch import TICK_S, Watch

if TYPE_CHECKING:
    from jobevents.ending import Ending
    from jobevents.jobs import Jobs

# behaviour M3
WORKERS = 4
GRACE_S = (
    20.0  # with the two seconds after it, within the 30 that Kubernetes and systemd leave between SIGTERM and SIGKILL
)
STOP_GRACE_S = 2.0
RESERVE_S = 0.5  # of one wait for runs: how late a stop is heard
AHEAD_LIMIT_S = 1.0  # how long a run may wait here for a thread: then others may have it
RECORD_S = 5.0  # how long the jobs that are given back may take to be recorded so: then their leases must tell it
SIGNAL_S = 0.2  # how late a signal is heard

logger = logging.getLogger(__name__)


class JobRunner:
    """Runs the registered jobs of a log in this process. It starts once."""

    def __init__(
        self,
        jobs: "Jobs",
        registry: Registry,
        store: JobStore | None = None,
        queue: JobQueue | None = None,
        *,
        workers: int = WORKERS,
        queues: Sequence[str] | None = None,
        queue_limits: Mapping[str, int] | None = None,
        logs: LogPolicy = "off",
        grace_s: float = GRACE_S,
        stop_grace_s: float = STOP_GRACE_S,
        prefetch: int | None = None,
        worker: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start nothing yet, but have `jobs.submit` use the registry, and a queue of one's own told of what is submitted.

        Args:
            store: a store of one's own, kept in step with the log and heard for requests to cancel; default: the log's.
            queue: a queue of one's own; default: the log's, in which whatever is submitted is at once.
            workers: how many handlers may run at once here.
            queues: names of the queues to take runs from; default: "default" and those of the registered jobs.
            queue_limits: queue -> how many of its jobs may run at once, in all processes on the log.
            logs: whether `logging` records of handlers are kept, where a job does not say: "off", "failure" or "always".
            grace_s: seconds that handlers may go on after `stop` was called; then they are asked to stop.
            stop_grace_s: seconds that they may go on once asked; then their jobs are given back, the try not counted.
            prefetch: how many runs may wait here for a thread; default: as many as short ones are begun in an instant.
            worker: a name for who works, by default the host's.

        Raises:
            Misconfigured: a value cannot work.
        """
        if workers < 1 or grace_s < 0 or stop_grace_s < 0 or (prefetch or 0) < 0:
            raise Misconfigured(
                f"a runner needs a worker or more, and times of 0 or more workers={workers} "
                f"grace_s={grace_s} stop_grace_s={stop_grace_s} prefetch={prefetch}"
            )
        self._jobs = jobs
        self._registry = registry
        given = jobs.queue if queue is None else queue
        self._queue: JobQueue = given if given.shares_store else PausableQueue(jobs, given)
        self._queues = tuple(queues or sorted({"default", *(one.queue for one in registry)}))
        self._grace_s = grace_s
        self._stop_grace_s = stop_grace_s
        self._worker = worker or ""
        self._watch = Watch(self._begin_to_give_up, is_canceled=self._is_canceled, monotonic=monotonic)
        self._executor = Executor(
            jobs,
            registry,
            worker=worker,
            logs=logs,
            queue_limits=queue_limits,
            on_begin=self._watch.begin,
            on_end=self._watch.end,
            may_begin=lambda: not self._stopping.is_set(),
            monotonic=monotonic,
        )
        fetch = self._fetch if self._queue.shares_store else None
        self._crew = Crew(
            workers, self._turn, fetch=fetch, give_back=self._hand_back, ahead=prefetch, monotonic=monotonic
        )
        self._reserving = Trouble("reserving runs", logger)
        self._working = Trouble("starting and ending runs", logger)
        self._lock = threading.Lock()
        self._is_started = False
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._pulses: list[Pulse] = []
        self._signals = 0
        self._records = RunLogHandler()
        self._mirror = None if store is None or store is jobs.store else StoreMirror(jobs, store)
        self._ticker = Ticker(jobs, registry)
        self._feed = None if self._queue.shares_store else QueueFeed(jobs, self._queue)
        self._attach()

    def _attach(self) -> None:
        """Have the jobs tell us and what is of the user's own; warn of a pair that loses runs (behaviour T35)."""
        jobs = self._jobs
        if jobs.registry is None:
            jobs.use(self._registry)
        jobs.observe(self._watch.noticed)
        if self._mirror is not None:
            jobs.observe(self._mirror)
        if self._feed is not None:
            jobs.observe(self._feed)
            if not jobs.log.is_durable and getattr(self._queue, "is_durable", True):
                warnings.warn(
                    "a log in memory behind a queue that may outlive it: after a restart the queue hands out runs that no "
                    "log knows, and they are dropped; connect to a database, or use the log's own queue",
                    RuntimeWarning,
                    stacklevel=3,
                )

    def start(self) -> None:
        """Begin to work, in threads of its own; one that was stopped before begins nothing, and has ended.

        Raises:
            Misconfigured: it was started before.
            Unavailable, PermissionDenied: the log cannot be written.
        """
        with self._lock:  # a stop waits until all is there that it stops
            if self._is_started:
                raise Misconfigured("a runner starts once; make another")
            self._is_started = True
            if self._stopping.is_set():
                self._ended.set()
            else:
                self._start()

    def _start(self) -> None:
        self._jobs.presence.vouch(self._worker)  # from now on we live, and give back the jobs of those who do not
        logging.getLogger().addHandler(self._records)
        if self._feed is not None:
            self._pulses.append(Pulse("jobevents-feed", self._feed.sweep, self._feed.sweep()))
        if self._ticker.is_needed:
            self._pulses.append(Pulse("jobevents-schedules", self._ticker.beat, self._ticker.beat()))
        self._crew.start()
        for run in (self._reserve, self._look):
            self._threads.append(threading.Thread(target=run, name=f"jobevents-runner{run.__name__}", daemon=True))
            self._threads[-1].start()
        for pulse in self._pulses:
            pulse.start()

    def stop(self, *, grace_s: float | None = None) -> None:
        """Take no new work, wait for handlers, then ask them to stop, and give back the jobs of those that do not.

        What waited here for a thread is given back at once. A job given back is queued again with the same try. From any
        thread, any number of times.
        """
        with self._lock:
            is_first = self._is_started and not self._stopping.is_set()
            not_begun = self._crew.close()  # before all else: from now on nothing is begun (SHD-02)
            self._stopping.set()
        if not is_first:
            if self._is_started:
                self._ended.wait()
            return
        self._return(not_begun)
        for pulse in self._pulses:
            pulse.stop(0)
        grace_s = self._grace_s if grace_s is None else grace_s
        logger.info("stopping: nothing new is begun, handlers may take %g s more count=%d", grace_s, self._crew.busy)
        if not self._crew.wait_until_idle(grace_s):
            logger.info("handlers are asked to stop now count=%d", self._crew.busy)
            self._watch.ask_all(Stop.SHUTDOWN)
            if not self._crew.wait_until_idle(self._stop_grace_s):
                logger.warning(
                    "handlers do not stop: their jobs are queued again, with the same try count=%d", self._crew.busy
                )
                self._watch.give_up_all()
                self._crew.wait_until_idle(RECORD_S, patiently=True)
        self._finish()

    def _finish(self) -> None:
        self._watch.close()
        end = time.monotonic() + STOP_GRACE_S + RESERVE_S  # for all of them: who waits for a log that is away waits on
        for wait in (*(thread.join for thread in self._threads), *(pulse.stop for pulse in self._pulses)):
            wait(max(0.0, end - time.monotonic()))
        self._executor.leave_loop()
        logging.getLogger().removeHandler(self._records)
        logger.info("stopped")
        self._ended.set()

    def hurry(self) -> None:
        """Have a `stop` under way wait for no handler any more: what runs is given back now."""
        self._crew.hurry()

    def run(self) -> None:
        """Start, and return when it was stopped: by `stop`, or in the main thread by SIGTERM or SIGINT; a second one hurries.

        Raises: as `start`.
        """
        with self._hearing_signals():
            self.start()
            stopping: threading.Thread | None = None
            while not self._ended.wait(SIGNAL_S):
                if self._signals and stopping is None:
                    stopping = threading.Thread(target=self.stop, name="jobevents-stop", daemon=True)
                    stopping.start()
                if self._signals > 1:
                    self.hurry()

    @contextmanager
    def _hearing_signals(self) -> Iterator[None]:
        """Count signals within the block, no more: a handler interrupts the main thread wherever it is, in a lock too."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def heard(number: int, frame: FrameType | None) -> None:
            self._signals += 1

        before = {number: signal.signal(number, heard) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def __enter__(self) -> Self:
        """Start.

        Raises: as `start`.
        """
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def _reserve(self) -> None:
        """Keep the crew in work until the stop: one wait for runs after the other."""
        while not self._stopping.wait(max(self._reserving.wait_s, self._working.wait_s)):
            room = self._crew.wait_for_room(RESERVE_S)
            if not room:
                continue
            limit = 1 if self._working.wait_s else room  # in trouble, one finds out whether it is over
            try:
                found = self._queue.reserve(self._queues, limit=limit, timeout_s=RESERVE_S)
            except QueueClosed:
                logger.warning("the queue was closed: the runner stops")
                threading.Thread(target=self.stop, name="jobevents-stop", daemon=True).start()
                return
            except Exception as error:  # noqa: BLE001  # also a queue of the user's: it is asked again, later
                self._reserving.came(error)
                continue
            self._reserving.went()
            if found and not self._crew.put(found):
                for reservation in found:
                    self._hand_back(reservation)

    def _fetch(self, room: int) -> list[Reservation]:
        """Return runs that are due, without a wait; none while there is trouble, over which `_reserve` gets."""
        if self._stopping.is_set() or self._reserving.wait_s or self._working.wait_s:
            return []
        try:
            return self._queue.reserve(self._queues, limit=room, timeout_s=0)
        except QueueClosed:
            return []
        except Exception as error:  # noqa: BLE001  # as there
            self._reserving.came(error)
            return []

    def _look(self) -> None:
        """Watch over what runs, and over what waits here for too long, until the stop is over."""
        while self._watch.wait_for_any(AHEAD_LIMIT_S):
            self._watch.look()
            self._return(self._crew.take_back(AHEAD_LIMIT_S))
            self._ended.wait(TICK_S)

    def _turn(self, endings: "Sequence[Ending]", reservations: Sequence[Reservation]) -> list[Task]:
        """Record ends and starts in one transaction, and return what is left to do."""
        if (
            self._mirror is not None or self._working.wait_s
        ):  # it is asked of each before that is started; or in trouble
            return self._alone(endings, reservations)
        try:
            left = turn.take(self._executor, self._jobs.emitter, endings, reservations)
        except Exception as error:  # noqa: BLE001  # each by itself tells what is the matter with it
            self._working.came(error)
            return self._alone(endings, reservations)
        if left.begun or len(left.unrecorded) < len(endings):
            self._working.went()
        return [
            *(partial(self._handle, reservation, execution) for reservation, execution in left.begun),
            *(partial(self._acknowledge, reservation) for reservation in left.over),
            *(partial(self._run, reservation, find_out) for reservation, find_out in left.doubted),
            *self._alone(left.unrecorded, left.alone),
        ]

    def _alone(self, endings: "Sequence[Ending]", reservations: Sequence[Reservation]) -> list[Task]:
        """Return what does each by itself."""
        return [
            *(partial(self._record, ending) for ending in endings),
            *(partial(self._run, reservation, partial(self._run_alone, reservation)) for reservation in reservations),
        ]

    def _run_alone(self, reservation: Reservation) -> Ran:
        if self._mirror is not None:
            self._mirror.pass_on_cancel(reservation.job_id)
        return self._executor.run(reservation)

    def _run(self, reservation: Reservation, run: Task) -> Ran:
        """Run one, or hand it back."""
        try:
            ran = run()
        except Exception as error:  # noqa: BLE001  # the log's trouble, or the queue's: the run comes again
            self._hand_back(reservation, error, self._working.came(error))
            return DONE
        if ran.ending is None:
            self._working.went()
        return ran

    def _handle(self, reservation: Reservation, execution: Execution) -> Ran:
        self._executor.acknowledge(reservation)
        try:
            return self._executor.handle(execution)
        except Exception as error:  # noqa: BLE001  # its outcome cannot be told: our lease does, when it is given back
            self._working.came(error)
            return DONE

    def _acknowledge(self, reservation: Reservation) -> Ran:
        self._executor.acknowledge(reservation)
        return DONE

    def _record(self, ending: "Ending") -> Ran:
        """Record the end of a run."""
        error = ending.record()
        if error is None:
            self._working.went()
        else:
            self._working.came(error)
        return DONE

    def _begin_to_give_up(self, execution: Execution) -> None:
        self._crew.hire(lambda: self._give_up(execution))

    def _give_up(self, execution: Execution) -> None:
        try:
            self._executor.give_up(execution)
        except Exception as error:  # noqa: BLE001  # its worker's lease tells others that the job is lost
            self._working.came(error)

    def _is_canceled(self, execution: Execution) -> bool:
        if self._mirror is not None:
            self._mirror.pass_on_cancel(execution.attempt.job_id)
        return execution.attempt.canceled

    def _return(self, reservations: Sequence[Reservation]) -> None:
        """Have runs handed out again, beside all else: while the log is away, each may take as long as a call of it tries."""
        if reservations:
            call = partial(self._hand_back_all, reservations)
            thread = threading.Thread(target=call, name="jobevents-runner-return", daemon=True)
            thread.start()
            with self._lock:
                self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def _hand_back_all(self, reservations: Sequence[Reservation]) -> None:
        for reservation in reservations:
            self._hand_back(reservation)

    def _hand_back(self, reservation: Reservation, error: BaseException | None = None, delay_s: float = 0.0) -> None:
        """Have a run handed out again."""
        try:
            reservation.ack(error or QueueClosed("the runner takes no more runs"), delay_s=delay_s)
        except Exception as trouble:  # noqa: BLE001  # the reservation's lease ends by itself
            self._reserving.came(trouble)
