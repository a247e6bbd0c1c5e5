"""Publishing to Pub/Sub: a bounded queue and one thread that sends what waits, a batch at a time.

While one request is under way, what comes meanwhile makes the next batch: no timer, no wait for a batch to fill. An append
is never held up: what does not fit the queue is dropped and counted, and found by the sweeper (a log on blobs) or sent from
the position that was not moved (a log in a database).
"""

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from google.pubsub_v1 import PublisherClient, types

from jobevents.backends import forks
from jobevents.backoff import Backoff
from jobevents.bus import Notice
from jobevents.errors import InvalidValue, JobEventsError, Unavailable
from jobevents.telemetry import Counts
from jobevents.trouble import Trouble

QUEUED = 50_000  # notices that wait at most: 25 MB of usual events
QUEUED_BYTES = 64 << 20
BATCH = 500  # messages a request; Pub/Sub: 1,000
BATCH_BYTES = 4 << 20  # Pub/Sub: 10 MB a request
TIMEOUT_S = 5.0  # of a request
_OVERHEAD = 200  # bytes of a message beside its data

logger = logging.getLogger(__name__)

Call = Callable[[str, Callable[[], Any]], Any]


class PubSubPublisher:
    """Publishes to one topic. In a forked child it begins afresh: what the parent had queued is the parent's to send.

    Counts `publish_failed` (requests), `publish_dropped`, `publish_refused` and `publish_unsent` (notices).
    """

    def __init__(
        self,
        topic: str,
        open_client: Callable[[], PublisherClient],
        call: Call,
        *,
        counts: Counts,
        queued: int = QUEUED,
        queued_bytes: int = QUEUED_BYTES,
        timeout_s: float = TIMEOUT_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topic = topic
        self._open_client = open_client
        self._call = call
        self._counts = counts
        self._limit = queued
        self._limit_bytes = queued_bytes
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._start_afresh()
        forks.watch(self)
        atexit.register(_close_at_exit, weakref.ref(self))

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._opening = threading.Lock()
        self._queue: deque[Notice] = deque()
        self._bytes = 0
        self._sending = 0  # notices of the request under way
        self._thread: threading.Thread | None = None
        self._client: PublisherClient | None = None
        self._closing = False
        self._trouble = Trouble(f"publishing to {self._topic}", logger, monotonic=self._monotonic)

    def before_fork(self) -> None:
        """Close the connection: a child hangs in what it inherits of gRPC's threads. It is made again when it is needed."""
        self._opening.acquire()
        client, self._client = self._client, None
        if client is not None:
            client.transport.close()

    def after_fork(self, *, child: bool) -> None:
        """Begin afresh in the child."""
        if child:
            self._start_afresh()
        else:
            self._opening.release()

    def publish(self, notices: Sequence[Notice]) -> None:
        """Hand notices over to be sent; what does not fit the queue is dropped and counted."""
        dropped = 0
        with self._changed:
            for notice in notices:
                size = len(notice.data) + _OVERHEAD
                if len(self._queue) >= self._limit or self._bytes + size > self._limit_bytes or self._closing:
                    dropped += 1
                    continue
                self._queue.append(notice)
                self._bytes += size
            if self._queue and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="jobevents-publisher", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if dropped:
            self._counts.add("publish_dropped", dropped)

    def deliver(self, notices: Sequence[Notice]) -> None:
        """Send notices and return when Pub/Sub has all of them, in batches, each tried until the timeout.

        Raises:
            Unavailable, PermissionDenied, NotFound: what Pub/Sub says; some may have been sent.
            InvalidValue: Pub/Sub takes no such message.
        """
        queue = deque(notices)
        backoff = Backoff(deadline_s=self._timeout_s, most_s=1.0)
        while queue:
            batch = _batch(queue)
            tries = backoff.start()
            while True:
                try:
                    self._send(batch, tries.left_s)
                    break
                except Unavailable:
                    self._counts.add("publish_failed")
                    if not tries.pause():
                        raise

    def flush(self, deadline_s: float) -> int:
        """Wait until all that was handed over is sent, or the deadline; return how many notices are not."""
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._queue and not self._sending, timeout=deadline_s)
            return len(self._queue) + self._sending

    def close(self, deadline_s: float = 5.0) -> int:
        """Flush, then end; return how many notices were not sent."""
        left = self.flush(0 if self._closing else deadline_s)
        with self._changed:
            was_closing, self._closing = self._closing, True
            self._changed.notify_all()
            thread = self._thread
        if left and not was_closing:
            self._counts.add("publish_unsent", left)
            logger.warning("notices not published topic=%s count=%d: the sweep publishes them", self._topic, left)
        with self._opening:
            client, self._client = self._client, None
        if client is not None:
            client.transport.close()
        if thread is not None:
            thread.join(self._timeout_s)
        return left

    def _run(self) -> None:
        """Send what waits until the publisher is closed, or nothing has come for a while."""
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._queue or self._closing, timeout=10.0) or self._closing:
                    self._thread = None
                    return
                batch = _batch(self._queue)
                self._bytes -= sum(len(notice.data) + _OVERHEAD for notice in batch)
                self._sending = len(batch)
            self._send_until_sent(batch)
            with self._changed:
                self._sending = 0
                self._changed.notify_all()

    def _send_until_sent(self, batch: list[Notice]) -> None:
        while not self._closing:
            try:
                self._send(batch, self._timeout_s)
            except InvalidValue as error:
                self._send_singly(batch, error)
                return
            except JobEventsError as error:
                self._counts.add("publish_failed")
                wait_s = self._trouble.came(error)
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, timeout=wait_s)
            else:
                self._trouble.went()
                return

    def _send_singly(self, batch: list[Notice], error: InvalidValue) -> None:
        """Send each by itself, so that one that Pub/Sub does not take costs no other; that one is dropped."""
        if len(batch) > 1:
            for notice in batch:
                self._send_until_sent([notice])
            return
        self._counts.add("publish_refused")
        logger.error(
            "the topic refuses a notice, which is dropped: the sweep finds its event job_id=%s version=%d error=%s",
            batch[0].job_id,
            batch[0].version,
            error,
        )

    def _send(self, batch: Sequence[Notice], timeout_s: float) -> None:
        request = types.PublishRequest.pb()()
        request.topic = self._topic
        for notice in batch:
            message = request.messages.add()
            message.data = notice.data
            for key, value in notice.attributes().items():
                message.attributes[key] = value
        wrapped = types.PublishRequest.wrap(request)
        self._call(
            f"publish to {self._topic}",
            lambda: self._connected().publish(request=wrapped, retry=None, timeout=timeout_s),
        )

    def _connected(self) -> PublisherClient:
        with self._opening:
            if self._client is None:
                self._client = self._open_client()
            return self._client


def _batch(queue: deque[Notice]) -> list[Notice]:
    """Take from the front of a queue what goes into one request."""
    batch = [queue.popleft()]
    size = len(batch[0].data)
    while queue and len(batch) < BATCH and size + len(queue[0].data) <= BATCH_BYTES:
        batch.append(queue.popleft())
        size += len(batch[-1].data)
    return batch


def _close_at_exit(made: "weakref.ref[PubSubPublisher]") -> None:
    publisher = made()
    if publisher is not None:
        publisher.close()
