"""Subscribing to Pub/Sub: one thread pulls into a bounded store, another acknowledges and keeps what is held.

Neither ever ends by an error: what goes wrong is tried again, and raised by `pull` for as long as it lasts, so that a
subscriber is never idle without a word. A subscription that is gone is made anew, where that is wanted.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from google.api_core.exceptions import DeadlineExceeded
from google.protobuf.duration_pb2 import Duration
from google.pubsub_v1 import SubscriberClient, types

from jobevents.bus import ACK_DEADLINE_S, Delivery, read_message
from jobevents.errors import Conflict, Corrupt, JobEventsError, Misconfigured, NotFound
from jobevents.telemetry import Counts
from jobevents.trouble import Trouble

logger = logging.getLogger(__name__)

Call = Callable[[str, Callable[[], Any]], Any]

_IDS = 1000  # acknowledgements in a request: at most 512 KiB of ids of about 200 bytes
_TIMEOUT_S = 10.0  # of every request but a pull
_CLOSE_S = 5.0  # for the last acknowledgements
_ATTEMPTS = 100  # deliveries before a message goes to the dead-letter topic; Pub/Sub: 5 to 100


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How a subscriber holds what it pulls, and how a subscription is made."""

    ack_deadline_s: int = int(ACK_DEADLINE_S)  # of a subscription made here; Pub/Sub: 10 to 600
    hold_s: float = 600.0  # after which what is not acknowledged is let go of
    outstanding: int = 5000  # deliveries held at most: flow control
    batch: int = 1000  # messages a pull
    poll_s: float = 30.0  # how long a pull waits for the first message
    dead_letter: str = (
        ""  # topic for what was delivered too often; made with a subscription of its own where it is not there
    )


class PubSubSubscriber:
    """Pulls from one subscription. For one process: a forked child makes its own.

    Counts `subscription_recreated`, `pull_failed`, `ack_failed` (requests) and `delivery_let_go`.
    """

    def __init__(
        self,
        subscription: str,
        topic: str,
        open_client: Callable[[], SubscriberClient],
        call: Call,
        ensure_topic: Callable[[str], bool],
        *,
        create: bool,
        terms: Terms,
        counts: Counts,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.epoch = 0
        self._subscription = subscription
        self._topic = topic
        self._open_client = open_client
        self._call = call
        self._ensure_topic = ensure_topic
        self._create = create
        self._terms = terms
        self._counts = counts
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._ready: deque[Delivery] = deque()
        self._held: dict[str, float] = {}  # token -> pulled when
        self._acks: list[str] = []
        self._nacks: list[str] = []
        self._error: JobEventsError | None = None
        self._deadline_s = terms.ack_deadline_s
        self._client: SubscriberClient | None = None
        self._pull_client: SubscriberClient | None = None  # of its own, so that a pull can be broken off
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._is_pulled_out = False  # closing, and nothing is pulled any more
        self._pulling = Trouble(f"pulling from {subscription}", logger, monotonic=monotonic)
        self._telling = Trouble(f"acknowledging to {subscription}", logger, monotonic=monotonic)

    def pull(self, limit: int, wait_s: float) -> list[Delivery]:
        """Return 1 to `limit` deliveries as soon as there are any, none after `wait_s`.

        Raises:
            NotFound, Misconfigured: there is no such subscription, or it is not as it must be.
            Unavailable, PermissionDenied: what Pub/Sub says; it is tried again meanwhile.
        """
        with self._changed:
            self._start()
            self._changed.wait_for(lambda: self._ready or self._closing, timeout=wait_s)
            if not self._ready and self._error is not None and not self._closing:
                raise self._error
            return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Say that they are dealt with: sent by the thread that does so, tried again while that fails."""
        self._tell(self._acks, [delivery.token for delivery in deliveries])

    def nack(self, deliveries: Sequence[Delivery]) -> None:
        """Give them back."""
        self._tell(self._nacks, [delivery.token for delivery in deliveries])

    def close(self) -> None:
        """Send what acknowledgements wait, give back the rest, and end; five seconds at most."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
            threads, pull_client = list(self._threads), self._pull_client
        if pull_client is not None:
            pull_client.transport.close()  # before anything is given back: a pull under way would take it
        for thread in threads[:1]:
            thread.join(_CLOSE_S)
        with self._changed:
            self._ready.clear()
            self._nacks += self._held
            self._held.clear()
            self._is_pulled_out = True
            self._changed.notify_all()
        for thread in threads[1:]:
            thread.join(_CLOSE_S)
        if self._client is not None:
            self._client.transport.close()

    def _tell(self, where: list[str], tokens: Sequence[str]) -> None:
        with self._changed:
            where += [token for token in tokens if self._held.pop(token, None) is not None]
            self._changed.notify_all()

    def _start(self) -> None:
        if self._threads or self._closing:
            return
        work = {"puller": self._run_puller, "keeper": self._run_keeper}
        self._threads = [
            threading.Thread(target=run, name=f"jobevents-{name}", daemon=True) for name, run in work.items()
        ]
        for thread in self._threads:
            thread.start()

    def _run_puller(self) -> None:
        is_joined = False
        while not self._closing:
            try:
                if not is_joined:
                    self._join()
                    self._error = None
                is_joined = self._pull()
            except JobEventsError as error:
                is_joined = False
                self._fail(error)
            else:
                self._pulling.went()

    def _fail(self, error: JobEventsError) -> None:
        if self._closing:
            return
        self._counts.add("pull_failed")
        with self._changed:
            self._error = error
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closing, timeout=self._pulling.came(error))

    def _pull(self) -> bool:
        """Pull once, when there is room; False when nothing came for so long that the subscription is to be looked at."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or len(self._held) < self._terms.outstanding)
            room = min(self._terms.batch, self._terms.outstanding - len(self._held))
            if self._closing:
                return True
        request = types.PullRequest(subscription=self._subscription, max_messages=room)
        messages = self._call(f"pull from {self._subscription}", lambda: self._pulled(request))
        now = self._monotonic()
        deliveries = [_delivery(message) for message in messages]
        with self._changed:
            self._held.update((delivery.token, now) for delivery in deliveries)
            self._ready += deliveries
            self._changed.notify_all()
        return bool(deliveries)

    def _pulled(self, request: types.PullRequest) -> Any:
        try:
            reply = self._pulling_client().pull(request=request, retry=None, timeout=self._terms.poll_s)
        except DeadlineExceeded:
            return ()
        return types.PullResponse.pb(reply).received_messages

    def _pulling_client(self) -> SubscriberClient:
        with self._changed:
            if self._pull_client is None:
                self._pull_client = self._open_client()
            return self._pull_client

    def _join(self) -> None:
        """Make sure of the subscription: that it is there, of our topic, and hides nothing.

        Raises:
            NotFound: it is not there, and is not to be made.
            Misconfigured: it would never give us every notice.
        """
        what = f"look at {self._subscription}"
        try:
            found = self._call(
                what,
                lambda: self._connected().get_subscription(
                    subscription=self._subscription, retry=None, timeout=_TIMEOUT_S
                ),
            )
        except NotFound as error:
            if not self._create:
                raise NotFound(f"no such subscription name={self._subscription}; make it with --create") from error
            self._make()
            return
        problems = [
            *([f"it is of topic {found.topic}"] if found.topic != self._topic else []),
            *([f"it has a filter {found.filter!r}"] if found.filter else []),
            *(["it pushes to an endpoint"] if found.push_config.push_endpoint else []),
            *(["it is detached"] if found.detached else []),
        ]
        if found.topic == "_deleted-topic_" and self._create:
            self._ensure_topic(self._topic)
        if problems:
            raise Misconfigured(
                f"subscription cannot be used name={self._subscription}: {', '.join(problems)}; give another one"
            )
        if found.expiration_policy.ttl and self.epoch == 0:
            logger.warning("subscription expires when nobody uses it name=%s", self._subscription)
        with self._changed:
            self._deadline_s = found.ack_deadline_seconds or self._deadline_s
            self._changed.notify_all()

    def _make(self) -> None:
        self._ensure_topic(self._topic)
        wanted = types.Subscription(
            name=self._subscription,
            topic=self._topic,
            ack_deadline_seconds=self._terms.ack_deadline_s,
            expiration_policy=types.ExpirationPolicy(),  # never
        )
        if self._terms.dead_letter:
            self._make_dead_letter()
            wanted.dead_letter_policy = types.DeadLetterPolicy(
                dead_letter_topic=self._terms.dead_letter, max_delivery_attempts=_ATTEMPTS
            )
        if self._made(wanted):
            logger.warning("subscription was made name=%s topic=%s", self._subscription, self._topic)
        self._deadline_s = self._terms.ack_deadline_s
        with self._changed:
            self._held.clear()  # its tokens are worth nothing any more
            self._acks.clear()
            self._nacks.clear()
            self.epoch += 1
        self._counts.add("subscription_recreated")

    def _make_dead_letter(self) -> None:
        """Make the dead-letter topic with a subscription: without one, it loses what comes."""
        self._ensure_topic(self._terms.dead_letter)
        kept = types.Subscription(
            name=f"{self._subscription}-dead",
            topic=self._terms.dead_letter,
            expiration_policy=types.ExpirationPolicy(),
            message_retention_duration=Duration(seconds=7 * 86_400),
        )
        self._made(kept)

    def _made(self, wanted: types.Subscription) -> bool:
        try:
            self._call(
                f"make {wanted.name}",
                lambda: self._connected().create_subscription(request=wanted, retry=None, timeout=_TIMEOUT_S),
            )
        except Conflict:  # another replica was first
            return False
        return True

    def _run_keeper(self) -> None:
        extended_at = self._monotonic()
        ends = 0.0
        while True:
            with self._changed:
                every_s = self._deadline_s / 3
                if not (self._acks or self._nacks or self._is_pulled_out):
                    self._changed.wait(max(0.0, extended_at + every_s - self._monotonic()))
                acks, self._acks[:] = self._acks[:_IDS], self._acks[_IDS:]
                nacks, self._nacks[:] = self._nacks[:_IDS], self._nacks[_IDS:]
                is_closing = self._is_pulled_out
            ends = ends or (self._monotonic() + _CLOSE_S if is_closing else 0.0)
            is_done = self._send(acks, nacks)
            if is_closing and ((is_done and not self._acks and not self._nacks) or self._monotonic() > ends):
                return
            if not is_closing and self._monotonic() - extended_at >= every_s:
                self._extend()
                extended_at = self._monotonic()

    def _send(self, acks: list[str], nacks: list[str]) -> bool:
        """Send acknowledgements and what is given back; after an error, again later."""
        try:
            if acks:
                self._call(
                    "acknowledge",
                    lambda: self._connected().acknowledge(
                        subscription=self._subscription, ack_ids=acks, retry=None, timeout=_TIMEOUT_S
                    ),
                )
                acks = []
            if nacks:
                self._modify(nacks, 0)
        except NotFound:  # with the subscription, they are gone
            return True
        except JobEventsError as error:
            self._counts.add("ack_failed")
            with self._changed:
                self._acks[:0] = acks
                self._nacks[:0] = nacks
                wait_s = self._telling.came(error)
                if self._closing:
                    self._changed.wait(min(wait_s, 0.5))
                else:
                    self._changed.wait_for(lambda: self._closing, timeout=wait_s)
            return False
        self._telling.went()
        return True

    def _extend(self) -> None:
        """Keep what is held, but for what was held too long: that goes to whoever has better luck with it."""
        oldest = self._monotonic() - self._terms.hold_s
        with self._changed:
            late = [token for token, since in self._held.items() if since < oldest]
            for token in late:
                del self._held[token]
            tokens = list(self._held)
        if late:
            self._counts.add("delivery_let_go", len(late))
        try:
            for start in range(0, len(tokens), _IDS):
                self._modify(tokens[start : start + _IDS], self._deadline_s)
        except JobEventsError as error:  # they may be delivered again: that is no more than dear
            self._counts.add("ack_failed")
            self._telling.came(error)

    def _modify(self, tokens: Sequence[str], deadline_s: int) -> None:
        self._call(
            "modify deadlines",
            lambda: self._connected().modify_ack_deadline(
                subscription=self._subscription,
                ack_ids=list(tokens),
                ack_deadline_seconds=deadline_s,
                retry=None,
                timeout=_TIMEOUT_S,
            ),
        )

    def _connected(self) -> SubscriberClient:
        with self._changed:
            if self._client is None:
                self._client = self._open_client()
            return self._client


def _delivery(received: Any) -> Delivery:
    message = received.message
    try:
        return Delivery(received.ack_id, read_message(message.data, message.attributes), "", received.delivery_attempt)
    except Corrupt as error:
        return Delivery(received.ack_id, None, str(error), received.delivery_attempt)
