"""The bus: its contract in memory, on the stand-in for Pub/Sub and on Google's emulator; what a message is."""

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from jobevents import codec
from jobevents.backends.pubsub import PubSubBus
from jobevents.backends.pubsubpublisher import PubSubPublisher
from jobevents.backends.pubsubsubscriber import Terms
from jobevents.bus import Bus, InProcessBus, message_schema, notice, read_message
from jobevents.errors import Corrupt, Misconfigured, NotFound, PermissionDenied, Unavailable
from jobevents.telemetry import Counts
from jobevents.testing.bus import BusContract, a_notice, collect, places, pull_on, subscribed
from tests.clock import Clock
from tests.pubsub_server import PubSubServer

pytest_plugins = ("tests.pubsub",)


class TestInProcessBus(BusContract):
    @pytest.fixture
    def bus(self) -> Iterator[Bus]:
        made = InProcessBus()
        yield made
        made.close()


class TestPubSubBus(BusContract):
    @pytest.fixture
    def bus(self, pubsub: PubSubBus) -> Bus:
        return pubsub


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def stood_in(pubsub_server: PubSubServer, topic: str, counts: Counts) -> Iterator[PubSubBus]:
    """A topic on the stand-in, whose faults can be ordered."""
    bus = PubSubBus(topic, counts=counts, terms=Terms(ack_deadline_s=10))
    bus.create_topic()
    yield bus
    bus.close()


def attributes(**changed: str) -> dict[str, str]:
    return {"job": "song-1", "n": "1", "id": "song-1-1", "type": "JobQueued", **changed}


def test_a_message_is_the_stored_bytes() -> None:
    """What a consumer gets is the log's bytes, with the four attributes."""
    sent = a_notice()

    assert attributes() == sent.attributes()
    assert sent == read_message(sent.data, sent.attributes())
    assert sent == notice("song-1", 1, "JobQueued", sent.data)
    assert codec.decode(sent.data).chain == codec.unseal(sent.data)[1]


@pytest.mark.parametrize(
    "forged",
    [
        attributes(n="2"),
        attributes(job="song-2"),
        attributes(id="other"),
        attributes(type="JobSucceeded"),
        attributes(n="0"),
        attributes(n="-1"),
        attributes(n="1e3"),
        attributes(n="9" * 40),
        attributes(job="../../etc/passwd"),
        attributes(job="x" * 5000),
        {},
    ],
)
def test_attributes_that_do_not_fit_the_bytes_are_refused(forged: dict[str, str]) -> None:
    """A message whose attributes and bytes say different things is none of ours."""
    with pytest.raises(Corrupt):
        read_message(a_notice().data, forged)


@pytest.mark.parametrize("data", [b"", b"[" * 100_000, b"\xff\xfe", b"not json", b'{"version": 1e999}'])
def test_bytes_that_cannot_be_read_are_still_a_hint(data: bytes) -> None:
    """Where the log holds such an event, the message about it must not be lost: the log decides."""
    assert ("song-1", 1, data) == (
        (found := read_message(data, attributes())).job_id,
        found.version,
        found.data,
    )


def test_the_schema_fits_what_is_sent() -> None:
    """The JSON schema names every event and demands what every message has."""
    schema: dict[str, Any] = message_schema()

    json.dumps(schema)
    assert ["attributes", "data"] == schema["required"]
    assert set(a_notice().attributes()) == set(schema["properties"]["attributes"]["required"])
    data = json.loads(a_notice().data)
    queued = schema["$defs"][data["type"]]
    assert set(queued["required"]) <= set(data) <= set(queued["properties"])
    assert "chain" in queued["required"]


def test_memory_drops_what_does_not_fit() -> None:
    """A subscription that nobody pulls from is bounded, and says what it lost."""
    bus = InProcessBus(backlog=3)
    subscriber = bus.subscriber("slow", create=True)

    bus.publisher().publish([a_notice(version=n) for n in range(1, 6)])

    assert {"bus_dropped": 2} == bus.counts.snapshot()
    assert [1, 2, 3] == [one.notice.version for one in subscriber.pull(10, 0) if one.notice]


def test_memory_delivers_again_after_the_deadline(clock: Clock) -> None:
    """What a subscriber that died had pulled goes to another one."""
    bus = InProcessBus(ack_deadline_s=10, monotonic=clock.monotonic)
    bus.subscriber("p", create=True)
    bus.publisher().publish([a_notice()])
    died, lives = bus.subscriber("p"), bus.subscriber("p")
    died.pull(1, 0)

    assert [] == lives.pull(1, 0)
    clock.move(10)
    assert [2] == [one.attempt for one in lives.pull(1, 0)]


def test_memory_makes_a_lost_subscription_again() -> None:
    """A subscription that somebody deleted is made again and the loss is told; where it is not to be made, that is said."""
    bus = InProcessBus()
    subscriber, other = bus.subscriber("p", create=True), bus.subscriber("p")
    bus.delete("p")

    with pytest.raises(NotFound):
        other.pull(1, 0)
    assert [] == subscriber.pull(1, 0)
    assert 2 == subscriber.epoch


def test_publishing_never_blocks_while_pubsub_is_down(
    pubsub_server: PubSubServer, stood_in: PubSubBus, counts: Counts
) -> None:
    """Handing over takes no time, and what waited is sent when Pub/Sub is back."""
    subscriber = subscribed(stood_in, "p")
    publisher = stood_in.publisher()
    pubsub_server.unavailable()

    began = time.monotonic()
    publisher.publish([a_notice(version=n) for n in range(1, 1001)])
    took_s = time.monotonic() - began
    assert 1000 == publisher.flush(0.2)
    pubsub_server.unavailable(False)

    assert took_s < 0.5
    assert 1000 == len(set(places(collect(subscriber, 1000))))
    assert counts.snapshot()["publish_failed"] >= 1


def test_a_full_queue_drops_and_counts(pubsub_server: PubSubServer, topic: str) -> None:
    """The queue is bounded: what is too much is dropped, and the close says what was not sent."""
    counts = Counts()
    publisher = PubSubPublisher(topic, _never, _call, counts=counts, queued=10)

    publisher.publish([a_notice(version=n) for n in range(1, 51)])
    left = publisher.close(0.1)

    dropped = counts.snapshot()["publish_dropped"]
    assert 50 == dropped + left
    assert left == counts.snapshot()["publish_unsent"] > 0


def _never() -> Any:
    raise Unavailable("not today")


def _call(what: str, work: Any) -> Any:
    return work()


def test_a_batch_with_a_refused_message_costs_no_other(
    pubsub_server: PubSubServer, stood_in: PubSubBus, counts: Counts
) -> None:
    """A message that Pub/Sub does not take is dropped, counted and logged; the others of its batch are sent."""
    subscriber = subscribed(stood_in, "p")
    publisher = stood_in.publisher()
    good = [a_notice(version=n) for n in (1, 2)]
    too_large = notice("song-1", 3, "JobAnnotated", b"x" * 10_000_001)

    publisher.publish([good[0], too_large, good[1]])

    assert [("song-1", 1), ("song-1", 2)] == places(collect(subscriber, 2))
    assert 0 == publisher.flush(5)
    assert 1 == counts.snapshot()["publish_refused"]


def test_deliver_says_when_it_could_not(pubsub_server: PubSubServer, stood_in: PubSubBus) -> None:
    """Who must know that the bus has it gets the error."""
    publisher = PubSubPublisher(stood_in.topic, _never, _call, counts=Counts(), timeout_s=0.2)
    with pytest.raises(Unavailable):
        publisher.deliver([a_notice()])

    pubsub_server.fail = lambda method: grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(PermissionDenied):
        stood_in.publisher().deliver([a_notice()])

    pubsub_server.reset()
    with pytest.raises(NotFound):
        stood_in.publisher().deliver([a_notice()])


def test_a_lost_acknowledgement_has_it_delivered_again(pubsub_server: PubSubServer, stood_in: PubSubBus) -> None:
    """The next acknowledgement settles it."""
    subscriber = subscribed(stood_in, "p")
    pubsub_server.lost_acks = 1
    stood_in.publisher().deliver([a_notice()])
    first = collect(subscriber, 1)
    subscriber.ack(first)

    again = collect(subscriber, 1)
    subscriber.ack(again)
    subscriber.close()

    assert places(first) == places(again)
    assert 0 == pubsub_server.waiting(f"{_project(stood_in)}/subscriptions/p")


def test_acknowledgements_outlast_an_outage(pubsub_server: PubSubServer, stood_in: PubSubBus, counts: Counts) -> None:
    """What could not be acknowledged is acknowledged when Pub/Sub is back."""
    subscriber = subscribed(stood_in, "p")
    stood_in.publisher().deliver([a_notice()])
    taken = collect(subscriber, 1)
    pubsub_server.fail = lambda method: grpc.StatusCode.UNAVAILABLE if method == "Acknowledge" else None
    subscriber.ack(taken)
    _until(lambda: counts.snapshot().get("ack_failed", 0) > 0)
    pubsub_server.unavailable(False)

    _until(lambda: pubsub_server.waiting(f"{_project(stood_in)}/subscriptions/p") == 0)


def test_a_deleted_subscription_is_noticed_and_made_again(
    pubsub_server: PubSubServer, stood_in: PubSubBus, counts: Counts
) -> None:
    """While a pull waits, the subscription goes: it comes back, the loss is told, and notices flow."""
    subscriber = subscribed(stood_in, "p")
    before = subscriber.epoch
    pubsub_server.delete_subscription(f"{_project(stood_in)}/subscriptions/p")

    _until(lambda: _epoch(subscriber) > before)
    stood_in.publisher().deliver([a_notice()])

    assert [("song-1", 1)] == places(collect(subscriber, 1))
    assert 2 == counts.snapshot()["subscription_recreated"]


def test_trouble_is_told_by_every_pull(pubsub_server: PubSubServer, stood_in: PubSubBus) -> None:
    """A subscriber that gets nothing since it may not says so for as long as that lasts."""
    subscriber = subscribed(stood_in, "p")
    pubsub_server.fail = lambda method: grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(PermissionDenied):
        pull_on(subscriber)

    with pytest.raises(PermissionDenied):
        subscriber.pull(1, 0.05)


def test_a_held_delivery_is_kept_from_others(pubsub_server: PubSubServer, stood_in: PubSubBus) -> None:
    """Deadlines are extended while something is held."""
    subscribed(stood_in, "p").close()
    pubsub_server.subscriptions[f"{_project(stood_in)}/subscriptions/p"].proto.ack_deadline_seconds = 1
    pubsub_server.calls.clear()
    subscriber = stood_in.subscriber("p")
    stood_in.publisher().deliver([a_notice()])
    taken = collect(subscriber, 1)

    _until(lambda: pubsub_server.calls["ModifyAckDeadline"] >= 1)

    assert [] == subscriber.pull(1, 0.1)
    subscriber.ack(taken)


def test_flow_control_bounds_what_is_held(pubsub_server: PubSubServer, topic: str) -> None:
    """No more is pulled than may be outstanding, until some is acknowledged."""
    bus = PubSubBus(topic, terms=Terms(outstanding=20, batch=8, poll_s=0.3))
    subscriber = subscribed(bus, "p")
    bus.publisher().deliver([a_notice(version=n) for n in range(1, 101)])

    first = collect(subscriber, 20)
    assert [] == subscriber.pull(100, 0.2)
    subscriber.ack(first)

    assert 20 == len(collect(subscriber, 20))
    bus.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [({"filter": 'attributes.type = "JobQueued"'}, "filter"), ({"topic": "projects/test/topics/other"}, "topic")],
)
def test_a_subscription_that_hides_something_is_refused(
    pubsub_server: PubSubServer, stood_in: PubSubBus, change: dict[str, str], said: str
) -> None:
    """One with a filter, or of another topic, would never give every notice."""
    made = subscribed(stood_in, "p")
    made.close()
    proto = pubsub_server.subscriptions[f"{_project(stood_in)}/subscriptions/p"].proto
    for key, value in change.items():
        setattr(proto, key, value)

    with pytest.raises(Misconfigured, match=said):
        pull_on(stood_in.subscriber("p"))


def test_a_dead_letter_topic_comes_with_a_subscription(pubsub_server: PubSubServer, topic: str) -> None:
    """Without one it would lose what is sent there."""
    bus = PubSubBus(topic)
    subscriber = bus.subscriber("p", create=True, dead_letter=f"{topic}-dead")
    _until(lambda: _epoch(subscriber) > 0)

    project = _project(bus)
    assert {f"{project}/subscriptions/p", f"{project}/subscriptions/p-dead"} == set(pubsub_server.subscriptions)
    policy = pubsub_server.subscriptions[f"{project}/subscriptions/p"].proto.dead_letter_policy
    assert f"{topic}-dead" == policy.dead_letter_topic
    bus.close()


@pytest.mark.parametrize(
    "name", ["", "jobs", "projects/p/subscriptions/s", "projects//topics/t", "projects/p/topics/t/x"]
)
def test_a_topic_has_its_whole_name(name: str) -> None:
    """A name that could only fail later is refused at once."""
    with pytest.raises(Misconfigured):
        PubSubBus(name)


@pytest.mark.parametrize("name", ["", "a/b", "projects/p/topics/t"])
def test_a_subscription_has_a_name(topic: str, name: str) -> None:
    """A name that could only fail later is refused at once."""
    with pytest.raises(Misconfigured):
        PubSubBus(topic).subscriber(name)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_publishes_too(pubsub_server: PubSubServer, stood_in: PubSubBus) -> None:
    """A publisher that was used before a fork works in the child and goes on in the parent."""
    subscriber = subscribed(stood_in, "p")
    publisher = stood_in.publisher()
    publisher.deliver([a_notice("before")])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            publisher.publish([a_notice("child")])
            code = publisher.close(5)
        finally:
            os._exit(code)
    publisher.deliver([a_notice("parent")])

    assert (child, 0) == os.waitpid(child, 0)
    assert [("before", 1), ("child", 1), ("parent", 1)] == places(collect(subscriber, 3))


def _project(bus: PubSubBus) -> str:
    return bus.topic.rpartition("/topics/")[0]


def _epoch(subscriber: Any) -> int:
    try:
        subscriber.pull(1, 0.05)
    except NotFound:
        return -1
    return int(subscriber.epoch)


def _until(holds: Any) -> None:
    ends = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < ends, "it never came to be"
        time.sleep(0.01)
