"""The bus: a hint of every event, for projectors and for consumers in other languages; and the bus within one process.

The log is the truth and a notice is a hint: it may be lost on its way, come twice, late, or out of order, and anybody who may
publish can make one up. So whoever gets one reads the log where that matters, and takes its own order from the version.

A message is the event's stored bytes, the canonical JSON with `chain` as its last key, the same as in the log; its attributes
are texts: `job` the job's id, `n` the event's version as a decimal number from 1, `id` the event's id (the same in every copy
of the message: what a consumer tells duplicates by), `type` the event's type. No ordering key is set. `message_schema` gives
all of it as a JSON schema; the command `jobevents schema` prints it. A consumer passes over types and keys it does not know.
"""

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from jobevents import boundary, codec, ids
from jobevents.errors import Corrupt, Misconfigured, NotFound
from jobevents.events import AnyEvent, Event
from jobevents.telemetry import Counts

ACK_DEADLINE_S = (
    20.0  # how long a delivery is its puller's alone unless that says more: what one that died had comes after it
)
BACKLOG = 100_000  # notices that wait in one subscription in memory: 50 MB

_is_number = re.compile(r"[1-9][0-9]{0,17}").fullmatch


class Notice(msgspec.Struct, frozen=True):
    """A hint that an event is in the log."""

    job_id: str
    version: int  # of the event
    type: str  # of the event, as it is stored
    data: bytes  # the stored bytes: body and chain
    event_id: str = ""  # "" when the bytes cannot be read

    def attributes(self) -> dict[str, str]:
        """Return the message's attributes."""
        return {"job": self.job_id, "n": str(self.version), "id": self.event_id, "type": self.type}


class Delivery(msgspec.Struct, frozen=True, eq=False):
    """One delivery of a message; it comes again unless it is acknowledged in time."""

    token: str  # by which it is acknowledged
    notice: Notice | None  # None: the message is no notice
    error: str = ""  # why not
    attempt: int = 0  # how often the message was delivered, this time included; 0: not known


class Publisher(Protocol):
    """Sends notices. Safe for threads, and usable in a forked child; the first call in a process makes what it needs."""

    def publish(self, notices: Sequence[Notice]) -> None:
        """Hand notices over to be sent; neither blocks nor raises. What does not fit the queue is dropped and counted."""
        ...

    def deliver(self, notices: Sequence[Notice]) -> None:
        """Send notices and return when the bus has all of them.

        Raises:
            Unavailable, PermissionDenied, NotFound: what the bus says; some may have been sent.
        """
        ...

    def flush(self, deadline_s: float) -> int:
        """Wait until all that was handed over is sent, or the deadline; return how many notices are not."""
        ...

    def close(self, deadline_s: float = 5.0) -> int:
        """Flush, then end; any number of times. Return how many notices were not sent."""
        ...


class Subscriber(Protocol):
    """Takes deliveries of one subscription, of which each goes to one of its subscribers. Safe for threads."""

    @property
    def epoch(self) -> int:
        """How often this subscriber had to make the subscription: what was published before that is never delivered."""
        ...

    def pull(self, limit: int, wait_s: float) -> list[Delivery]:
        """Return 1 to `limit` deliveries as soon as there are any, none after `wait_s`.

        They are kept from other subscribers until they are acknowledged, given back, or held for too long.

        Raises:
            NotFound: there is no such subscription, and it is not to be made.
            Unavailable, PermissionDenied: what the bus says; ask again.
        """
        ...

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Say that they are dealt with; a lost acknowledgement has them delivered again. Does not block or raise."""
        ...

    def nack(self, deliveries: Sequence[Delivery]) -> None:
        """Give them back, to be delivered again at once. Does not block or raise."""
        ...

    def close(self) -> None:
        """Send what acknowledgements wait, give back what was not acknowledged, and end a `pull`; any number of times."""
        ...


class Bus(Protocol):
    """One topic: all notices go to every subscription of it."""

    def publisher(self) -> Publisher:
        """Return a publisher to the topic."""
        ...

    def subscriber(self, subscription: str, *, create: bool = False, dead_letter: str = "") -> Subscriber:
        """Return a subscriber.

        Args:
            create: make the subscription when it is not there, now or later; it gets what is published from then on.
            dead_letter: topic for what was delivered too often, for a subscription that is made here; where there are such.
        """
        ...

    def check(self) -> str:
        """Return in words what is there; one request.

        Raises:
            NotFound: there is no such topic.
            Unavailable, PermissionDenied: what the bus says.
        """
        ...

    def close(self) -> None:
        """End what was made here."""
        ...


class _Named(msgspec.Struct):
    """What a message's bytes say of themselves."""

    job_id: str = ""
    version: int = 0
    id: str = ""
    type: str = ""


def notice(job_id: str, version: int, type: str, data: bytes) -> Notice:
    """Return the notice of a stored event, whether or not its bytes can be read."""
    try:
        event_id = _read_named(data).id
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        event_id = ""
    return Notice(job_id, version, type, data, event_id)


def notice_of(event: Event) -> Notice:
    """Return the notice of an event as the log returned it, with its chain."""
    return Notice(event.job_id, event.version, event.type, codec.seal(codec.encode(event), event.chain), event.id)


def read_message(data: bytes, attributes: Mapping[str, str]) -> Notice:
    """Return the notice in a message; bytes that cannot be read are no fault of it, as the log may hold the same.

    Raises:
        Corrupt: the attributes name no event, or another than the bytes do.
    """
    job_id, n = attributes.get("job", ""), attributes.get("n", "")
    if not ids.is_valid(job_id) or not _is_number(n):
        raise Corrupt(f"message names no event job={job_id!r:.80} n={n!r:.40}")
    found = Notice(job_id, int(n), attributes.get("type", ""), data, attributes.get("id", ""))
    try:
        named = _read_named(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return found
    if (named.job_id, named.version, named.id, named.type) != (job_id, found.version, found.event_id, found.type):
        raise Corrupt(
            f"message says another event than its attributes job={job_id} n={n} "
            f"found={boundary.visible(named.job_id, 80)}#{named.version}"
        )
    return found


def message_schema() -> dict[str, Any]:
    """Return the JSON schema of a message, attributes and data; for consumers in any language."""
    (event,), definitions = msgspec.json.schema_components((AnyEvent,), ref_template="#/$defs/{name}")
    for kind in definitions.values():
        if "type" in kind.get("properties", {}) and "chain" in kind["properties"]:
            kind["required"] = [*kind.get("required", ()), "chain"]
            kind["properties"]["chain"] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
    text = {"type": "string"}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "jobevents message",
        "description": "At least once, in any order. `attributes.id` tells duplicates, `attributes.n` orders the events "
        "of a job. Pass over a `type` and keys that you do not know.",
        "type": "object",
        "properties": {
            "attributes": {
                "type": "object",
                "properties": {
                    "job": text,
                    "n": {"type": "string", "pattern": "^[1-9][0-9]*$"},
                    "id": text,
                    "type": text,
                },
                "required": ["job", "n", "id", "type"],
            },
            "data": event,
        },
        "required": ["attributes", "data"],
        "$defs": definitions,
    }
    plain: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(schema)
    )  # defaults as JSON has them: a tuple is a list
    return plain


class InProcessBus:
    """A topic in memory, for one process: tests, development, a service that does all of it."""

    def __init__(
        self,
        *,
        ack_deadline_s: float = ACK_DEADLINE_S,
        backlog: int = BACKLOG,
        counts: Counts | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without subscriptions.

        Args:
            backlog: notices that may wait in one subscription; more are dropped and counted as `bus_dropped`.
        """
        self.counts = counts or Counts()
        self._ack_deadline_s = ack_deadline_s
        self._backlog = backlog
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._subscriptions: dict[str, _Waiting] = {}

    def publisher(self) -> "InProcessPublisher":
        """Return a publisher to the topic."""
        return InProcessPublisher(self)

    def subscriber(self, subscription: str, *, create: bool = False, dead_letter: str = "") -> "InProcessSubscriber":
        """Return a subscriber; a subscription that is to be made is there from now on. What is delivered often stays."""
        if not subscription:
            raise Misconfigured("subscription has no name")
        return InProcessSubscriber(self, subscription, create=create, epoch=int(create and self.create(subscription)))

    def check(self) -> str:
        """Return how many subscriptions there are."""
        return f"in memory, {len(self._subscriptions)} subscriptions"

    def create(self, subscription: str) -> bool:
        """Make a subscription; False when it is there."""
        with self._changed:
            if subscription in self._subscriptions:
                return False
            self._subscriptions[subscription] = _Waiting()
            return True

    def delete(self, subscription: str) -> None:
        """Remove a subscription with all that waits in it, as somebody might."""
        with self._changed:
            self._subscriptions.pop(subscription, None)
            self._changed.notify_all()

    def close(self) -> None:
        """Drop everything."""
        with self._changed:
            self._subscriptions.clear()
            self._changed.notify_all()

    def _send(self, notices: Sequence[Notice]) -> None:
        with self._changed:
            for waiting in self._subscriptions.values():
                room = max(0, self._backlog - len(waiting.ready))
                waiting.ready.extend((notice, 1) for notice in notices[:room])
                if room < len(notices):
                    self.counts.add("bus_dropped", len(notices) - room)
            self._changed.notify_all()


class _Waiting:
    """One subscription: what is ready, and what was delivered and not acknowledged."""

    def __init__(self) -> None:
        self.ready: deque[tuple[Notice, int]] = deque()  # notice, number of its next delivery
        self.held: dict[str, tuple[float, Notice, int]] = {}  # token -> until when, notice, number of its delivery
        self.tokens = 0

    def take(self, limit: int, now: float, deadline_s: float) -> list[Delivery]:
        for token in [token for token, (until, _, _) in self.held.items() if until <= now]:
            self.give_back(token)
        taken: list[Delivery] = []
        while self.ready and len(taken) < limit:
            notice, attempt = self.ready.popleft()
            self.tokens += 1
            token = str(self.tokens)
            self.held[token] = now + deadline_s, notice, attempt
            taken.append(Delivery(token, notice, "", attempt))
        return taken

    def give_back(self, token: str) -> None:
        found = self.held.pop(token, None)
        if found is not None:
            self.ready.append((found[1], found[2] + 1))


class InProcessPublisher:
    """Sends to the subscriptions in memory; nothing ever waits."""

    def __init__(self, bus: InProcessBus) -> None:
        self._bus = bus

    def publish(self, notices: Sequence[Notice]) -> None:
        """Send notices."""
        self._bus._send(notices)

    def deliver(self, notices: Sequence[Notice]) -> None:
        """Send notices."""
        self._bus._send(notices)

    def flush(self, deadline_s: float) -> int:
        """Return 0: nothing waits."""
        return 0

    def close(self, deadline_s: float = 5.0) -> int:
        """Return 0: nothing waits."""
        return 0


class InProcessSubscriber:
    """Takes deliveries from a subscription in memory."""

    def __init__(self, bus: InProcessBus, name: str, *, create: bool, epoch: int) -> None:
        self.epoch = epoch
        self._bus = bus
        self._name = name
        self._create = create
        self._closed = False
        self._own: set[str] = set()  # tokens not acknowledged yet

    def pull(self, limit: int, wait_s: float) -> list[Delivery]:
        """Return 1 to `limit` deliveries, none after `wait_s`.

        Raises:
            NotFound: there is no such subscription, and it is not to be made.
        """
        bus = self._bus
        ends = time.monotonic() + wait_s
        with bus._changed:
            while not self._closed:
                taken = self._subscription().take(limit, bus._monotonic(), bus._ack_deadline_s)
                left_s = ends - time.monotonic()
                if taken or left_s <= 0:
                    self._own.update(delivery.token for delivery in taken)
                    return taken
                bus._changed.wait(min(left_s, bus._ack_deadline_s))
        return []

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Say that they are dealt with."""
        with self._bus._changed:
            held = self._found().held
            for delivery in deliveries:
                held.pop(delivery.token, None)
                self._own.discard(delivery.token)

    def nack(self, deliveries: Sequence[Delivery]) -> None:
        """Give them back."""
        self._give_back([delivery.token for delivery in deliveries])

    def close(self) -> None:
        """Give back what was not acknowledged, and end a `pull`."""
        self._closed = True
        self._give_back(list(self._own))

    def _give_back(self, tokens: Sequence[str]) -> None:
        with self._bus._changed:
            subscription = self._found()
            for token in tokens:
                subscription.give_back(token)
                self._own.discard(token)
            self._bus._changed.notify_all()

    def _subscription(self) -> _Waiting:
        """Return the subscription, made anew where that is wanted."""
        if self._name not in self._bus._subscriptions:
            if not self._create:
                raise NotFound(f"no such subscription name={self._name}; make it with --create")
            self._bus._subscriptions[self._name] = _Waiting()
            self._own.clear()
            self.epoch += 1
            self._bus.counts.add("subscription_recreated")
        return self._bus._subscriptions[self._name]

    def _found(self) -> _Waiting:
        return self._bus._subscriptions.get(self._name) or _Waiting()


_read_named = msgspec.json.Decoder(_Named).decode
