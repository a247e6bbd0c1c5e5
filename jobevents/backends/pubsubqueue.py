"""A queue of runs on Pub/Sub, one topic for each queue's name: for a log that hands out nothing itself, such as one in a bucket.

What is not due yet is held here and published when it is. What was pulled waits here in order, its deadline extended, until it
is acknowledged: where a process dies, Pub/Sub hands it to another. The log stays the truth: what is lost with a process that
held it for later is brought again by the runner's sweep, and what comes twice is refused by the guard.

What a queue in one place can do and this cannot: order, and `remove` and `len`, are of what this process has pulled or holds;
between processes a run comes in no particular order, and one that another process has pulled is neither removed nor counted.
"""

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
from google.api_core.exceptions import DeadlineExceeded
from google.pubsub_v1 import types

from jobevents.backends.pubsub import call, ensure_topic, open_publisher, open_subscriber
from jobevents.boundary import check_instant
from jobevents.errors import Conflict, JobEventsError, NotFound, QueueClosed
from jobevents.queue import LEASE_S, PATIENCE_S, Reservation
from jobevents.store import JobRun
from jobevents.trouble import Trouble
from jobevents.waiting import Entry, Waiting

ACK_DEADLINE_S = 60  # after which Pub/Sub hands what a dead process had to another
OUTSTANDING = 100  # runs pulled and not acknowledged: what waits here could be begun elsewhere
_TIMEOUT_S = 10.0  # of a request
_POLL_S = 20.0  # how long a pull waits for the first message
_IDS = 1000  # acknowledgements in a request

logger = logging.getLogger(__name__)


class PubSubQueue:
    """A JobQueue. Safe for threads; for one process: a forked child makes its own.

    Requests: `enqueue` one when the run is due; `reserve` one for each queue where it does not wait, else the pulls of a thread
    for each queue; an acknowledgement one.
    """

    shares_store = False
    is_durable = True

    def __init__(
        self,
        topics: str,
        queues: Sequence[str] = ("default",),
        *,
        create: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
        lease_s: float = LEASE_S,
    ) -> None:
        """Pull nothing yet.

        Args:
            topics: what the topics' names begin with, `projects/{project}/topics/{prefix}`; each is that, `-` and the queue's
                name, and has a subscription of the same name.
            queues: names of the queues that there are.
            create: make topics and subscriptions where they are not there.
            lease_s: how long a run is held by who reserved it and does not acknowledge it.

        Raises:
            NotFound: one is not there, and is not to be made.
            Unavailable, PermissionDenied: what Pub/Sub says.
        """
        self._topics = topics
        self._clock = clock
        self._monotonic = monotonic
        self._lease_s = lease_s
        self._publisher = open_publisher()
        self._subscriber = open_subscriber()
        self._changed = threading.Condition()
        self._pulled: Waiting[JobRun] = Waiting()
        self._tokens: dict[
            str, list[tuple[str, str]]
        ] = {}  # job -> (queue, acknowledgement id) of what was pulled of it
        self._later: Waiting[JobRun] = Waiting()  # not published yet
        self._places = itertools.count(time.time_ns())
        self._queues = tuple(queues)
        self._is_closed = False
        self._threads: list[threading.Thread] = []
        self._trouble = Trouble("pulling runs", logger, monotonic=monotonic)
        for name in self._queues:
            self._join(name, create=create)

    def enqueue(self, run: JobRun) -> None:
        """Have a run wait: published when it is due, held here until then; one that waits here already is replaced.

        Raises:
            NotFound: there is no such queue. QueueClosed: it was closed.
            Unavailable, PermissionDenied, InvalidValue: what Pub/Sub says.
        """
        due = check_instant("scheduled_at", run.scheduled_at)
        if run.queue not in self._queues:
            raise NotFound(f"no such queue name={run.queue!r}; name it when the queue is opened")
        with self._changed:
            self._refuse_if_closed()
            known = self._later.find(run.id) or self._pulled.find(run.id)
            self._later.drop(run.id)
            stale = self._forget(run.id) if self._pulled.find(run.id) else []
            place = known.place if known else next(self._places)
            entry = Entry(run, run.queue, run.job_name, run.priority, due, place)
            is_due = due <= self._clock()
            if not is_due:
                self._later.put(run.id, entry)
            self._changed.notify_all()
        if is_due:
            self._publish([entry])
        self._acknowledge(stale)

    def reserve(
        self, queues: Sequence[str] = (), *, limit: int = 1, timeout_s: float | None = None
    ) -> list[Reservation]:
        """Wait for due runs; see `JobQueue.reserve`. Without a wait it gives what Pub/Sub has at hand, which may not be all.

        Raises: as there; and NotFound, Unavailable, PermissionDenied: what Pub/Sub says.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        token = os.urandom(8).hex()
        while True:
            with self._changed:
                self._refuse_if_closed()
            self._publish_due()
            if timeout_s == 0:
                self._pull_now(queues)
            else:
                self._start()
            with self._changed:
                self._refuse_if_closed()
                taken = self._take(queues, limit, token)
                if taken:
                    return taken
                left = PATIENCE_S if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return []
                self._changed.wait(min(left, self._patience_s()))

    def remove(self, job_id: str) -> bool:
        """Take out a run that waits here; False for one that another process has."""
        self._pull_now(())
        with self._changed:
            self._pulled.expire(self._monotonic())
            was_held = self._later.drop(job_id) is not None
            is_here = self._pulled.find(job_id) is not None
            stale = self._forget(job_id) if is_here else []
        self._acknowledge(stale)
        return was_held or is_here

    def __len__(self) -> int:
        """Return how many wait here."""
        self._pull_now(())
        with self._changed:
            self._pulled.expire(self._monotonic())
            return len(self._pulled) + len(self._later)

    def close(self) -> None:
        """Give back what nobody reserved, and wake who waits; any number of times.

        What is held for later is brought again by whoever has the log.
        """
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            free = [job_id for job_id in self._tokens if self._pulled.find(job_id)]
            back = [one for job_id in free for one in self._tokens.pop(job_id)]
            self._changed.notify_all()
        try:
            self._modify(back, 0)
        except JobEventsError as error:  # their deadline ends by itself
            self._trouble.came(error)

    # pulling

    def _start(self) -> None:
        with self._changed:
            if self._threads or self._is_closed:
                return
            work: list[Callable[[], None]] = [partial(self._run_puller, name) for name in self._queues]
            work.append(self._run_keeper)
            self._threads = [threading.Thread(target=run, name="jobevents-queue", daemon=True) for run in work]
            for thread in self._threads:
                thread.start()

    def _run_puller(self, queue: str) -> None:
        while self._has_room():
            try:
                found = self._pull(queue, at_once=False)
                if self._is_closed:
                    self._modify([(queue, one.ack_id) for one in found], 0)
                else:
                    self._keep(queue, found)
                self._trouble.went()
            except JobEventsError as error:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed, self._trouble.came(error))

    def _has_room(self) -> bool:
        """Wait until there is room for more; False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._tokens) < OUTSTANDING)
            return not self._is_closed

    def _pull_now(self, queues: Sequence[str]) -> None:
        for queue in self._queues:
            while queue in (queues or self._queues):
                found = self._pull(queue, at_once=True)
                self._keep(queue, found)
                if not found:
                    break

    def _pull(self, queue: str, *, at_once: bool) -> Sequence[Any]:  # Any: the library's messages
        request = types.PullRequest(
            subscription=self._subscription(queue), max_messages=OUTSTANDING, return_immediately=at_once
        )

        def pull() -> Sequence[Any]:
            try:
                reply = self._subscriber.pull(request=request, retry=None, timeout=_TIMEOUT_S if at_once else _POLL_S)
            except DeadlineExceeded:
                return ()
            return tuple(reply.received_messages)

        return tuple(call(f"pull from {request.subscription}", pull))

    def _keep(self, queue: str, messages: Iterable[Any]) -> None:
        """Have what was pulled wait here; what cannot be read is let go of, as nobody ever could."""
        unread: list[tuple[str, str]] = []
        with self._changed:
            for one in messages:
                try:
                    run = msgspec.json.decode(one.message.data, type=JobRun)
                    place = int(one.message.attributes.get("place", "0"))
                except (ValueError, RecursionError) as error:
                    logger.warning("a message of the queue is no run and is dropped queue=%s error=%s", queue, error)
                    unread.append((queue, one.ack_id))
                    continue
                known = self._pulled.find(run.id)
                order = min(place, known.place) if known else place
                self._pulled.put(run.id, Entry(run, run.queue, run.job_name, run.priority, run.scheduled_at, order))
                self._tokens.setdefault(run.id, []).append((queue, one.ack_id))
            self._changed.notify_all()
        self._acknowledge(unread)

    def _run_keeper(self) -> None:
        """Extend the deadlines of all that is here, three times within one."""
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._is_closed, ACK_DEADLINE_S / 3):
                    return
                tokens = [one for held in self._tokens.values() for one in held]
            try:
                self._modify(tokens, ACK_DEADLINE_S)
            except JobEventsError as error:  # they may come again, elsewhere: the guard knows
                self._trouble.came(error)

    # handing out

    def _take(self, queues: Sequence[str], limit: int, token: str) -> list[Reservation]:
        entries = self._pulled.take(
            queues,
            limit,
            lambda _queue, _job_name: True,
            now=self._clock(),
            tick=self._monotonic(),
            lease_s=self._lease_s,
            token=token,
        )
        return [Reservation(entry.item, partial(self._settle, entry.item.id, token)) for entry in entries]

    def _settle(self, job_id: str, token: str, error: BaseException | None, delay_s: float) -> None:
        done: list[tuple[str, str]] = []
        with self._changed:
            is_ours = self._pulled.is_held_by(job_id, token, self._monotonic())
            if error is not None:
                self._pulled.release(job_id, token, tick=self._monotonic(), delay_s=delay_s)
            elif is_ours:
                self._pulled.settle(job_id, token)
                done = self._tokens.pop(job_id, [])
            self._changed.notify_all()
        self._acknowledge(done)

    def _forget(self, job_id: str) -> list[tuple[str, str]]:
        self._pulled.drop(job_id)
        return self._tokens.pop(job_id, [])

    def _patience_s(self) -> float:
        """Return the seconds until a time comes at which there may be something; no more than PATIENCE_S."""
        times = [one for one in (self._later.next_due(), self._pulled.next_due()) if one is not None]
        until_due = min(((one - self._clock()).total_seconds() for one in times), default=PATIENCE_S)
        end = self._pulled.next_end()
        return max(0.0, min(until_due, PATIENCE_S if end is None else end - self._monotonic(), PATIENCE_S))

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise QueueClosed("the queue was closed")

    # requests

    def _publish_due(self) -> None:
        """Publish what was held and is due now; what cannot be published is held on."""
        token = os.urandom(8).hex()
        with self._changed:
            due = self._later.take(
                (),
                1000,
                lambda _queue, _job: True,
                now=self._clock(),
                tick=self._monotonic(),
                lease_s=60.0,
                token=token,
            )
        try:
            self._publish(due)
        except JobEventsError:
            with self._changed:
                for entry in due:
                    self._later.release(entry.item.id, token, tick=self._monotonic(), delay_s=0)
            raise
        with self._changed:
            for entry in due:
                self._later.settle(entry.item.id, token)

    def _publish(self, entries: Sequence[Entry[JobRun]]) -> None:
        by_queue: dict[str, list[types.PubsubMessage]] = {}
        for entry in entries:
            attributes = {"job": entry.item.id, "queue": entry.queue, "place": str(entry.place)}
            message = types.PubsubMessage(data=msgspec.json.encode(entry.item), attributes=attributes)
            by_queue.setdefault(entry.queue, []).append(message)
        for queue, messages in by_queue.items():
            topic = self._topic(queue)
            send = partial(self._publisher.publish, topic=topic, messages=messages, retry=None, timeout=_TIMEOUT_S)
            call(f"publish to {topic}", send)

    def _acknowledge(self, tokens: Sequence[tuple[str, str]]) -> None:
        for subscription, ids in self._by_subscription(tokens):
            send = partial(
                self._subscriber.acknowledge, subscription=subscription, ack_ids=ids, retry=None, timeout=_TIMEOUT_S
            )
            call("acknowledge", send)

    def _modify(self, tokens: Sequence[tuple[str, str]], deadline_s: int) -> None:
        for subscription, ids in self._by_subscription(tokens):
            send = partial(
                self._subscriber.modify_ack_deadline,
                subscription=subscription,
                ack_ids=ids,
                ack_deadline_seconds=deadline_s,
                retry=None,
                timeout=_TIMEOUT_S,
            )
            call("modify deadlines", send)

    def _by_subscription(self, tokens: Sequence[tuple[str, str]]) -> Iterable[tuple[str, list[str]]]:
        for queue in self._queues:
            ids = [ack_id for name, ack_id in tokens if name == queue]
            for at in range(0, len(ids), _IDS):
                yield self._subscription(queue), ids[at : at + _IDS]

    def _join(self, queue: str, *, create: bool) -> None:
        """Make sure that a topic and its subscription are there."""
        name = self._subscription(queue)
        look = partial(self._subscriber.get_subscription, subscription=name, retry=None, timeout=_TIMEOUT_S)
        try:
            call(f"look at {name}", look)
        except NotFound:
            if not create:
                raise
            ensure_topic(self._topic(queue))
            wanted = types.Subscription(
                name=name,
                topic=self._topic(queue),
                ack_deadline_seconds=ACK_DEADLINE_S,
                expiration_policy=types.ExpirationPolicy(),  # never
            )
            make = partial(self._subscriber.create_subscription, request=wanted, retry=None, timeout=_TIMEOUT_S)
            try:
                call(f"make {name}", make)
            except Conflict:  # another process was first
                return

    def _topic(self, queue: str) -> str:
        return f"{self._topics}-{quote(queue, safe='')}"

    def _subscription(self, queue: str) -> str:
        project, _, name = self._topic(queue).rpartition("/topics/")
        return f"{project}/subscriptions/{name}"
