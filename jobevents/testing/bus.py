"""What every bus promises, as a pytest class: subclass it and give it the fixture `bus`."""

# ruff: noqa: SIM300 - the expected value stands first

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from jobevents import codec
from jobevents.bus import Bus, Delivery, Notice, Subscriber, notice_of
from jobevents.errors import NotFound
from jobevents.events import JobAnnotated, JobQueued

WAIT_S = 20.0  # for what comes at once where nothing is wrong
QUIET_S = 0.3  # in which what must not come would have come


def a_notice(job_id: str = "song-1", version: int = 1, title: str = "") -> Notice:
    """Return the notice of an event that could be in a log."""
    at = datetime(2026, 8, 1, 12, 0, tzinfo=UTC)
    event = (
        JobQueued(job_id=job_id, version=1, id=f"{job_id}-1", at=at, name="render", title=title)
        if version == 1
        else JobAnnotated(job_id=job_id, version=version, id=f"{job_id}-{version}", at=at, title=title)
    )
    chain = codec.link("00" * 16 if version > 1 else "", codec.encode(event))
    return notice_of(codec.decode(codec.seal(codec.encode(event), chain)))


def collect(subscriber: Subscriber, count: int, *, limit: int = 100) -> list[Delivery]:
    """Pull until there are `count` deliveries."""
    found: list[Delivery] = []
    ends = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < ends:
        found += subscriber.pull(min(limit, count - len(found)), 1.0)
    return found


def subscribed(bus: Bus, name: str) -> Subscriber:
    """Return a subscriber whose subscription has been made."""
    made = bus.subscriber(name, create=True)
    ends = time.monotonic() + WAIT_S
    while not made.epoch and time.monotonic() < ends:
        made.pull(1, 0.05)
    return made


def pull_on(subscriber: Subscriber) -> None:
    """Pull until it raises, or for a while."""
    ends = time.monotonic() + WAIT_S
    while time.monotonic() < ends:
        subscriber.pull(1, 0.05)


def places(deliveries: list[Delivery]) -> list[tuple[str, int]]:
    """Return (job, version) of each delivery, sorted."""
    return sorted((one.notice.job_id, one.notice.version) for one in deliveries if one.notice)


class BusContract:
    """The port's behaviour; the fixture must give each test a topic without subscriptions."""

    @pytest.fixture
    def bus(self) -> Bus:
        raise NotImplementedError("override the fixture `bus` with a topic that nobody has subscribed to")

    @pytest.fixture
    def subscriber(self, bus: Bus) -> Iterator[Subscriber]:
        made = subscribed(bus, "projector")
        yield made
        made.close()

    def test_a_notice_arrives_as_it_was_sent(self, bus: Bus, subscriber: Subscriber) -> None:
        """Bytes and attributes are the ones that were published, text of any script included."""
        sent = a_notice(title="Ünïcode ☃ 音")

        bus.publisher().deliver([sent])

        assert [sent] == [one.notice for one in collect(subscriber, 1)]

    def test_what_was_handed_over_is_sent_by_itself(self, bus: Bus, subscriber: Subscriber) -> None:
        """`publish` returns at once, and the notices arrive without a flush, each once where nothing goes wrong."""
        sent = [a_notice(version=n) for n in range(1, 101)]

        bus.publisher().publish(sent)

        found = collect(subscriber, 100)
        assert [("song-1", n) for n in range(1, 101)] == places(found)

    def test_flush_waits_for_what_was_handed_over(self, bus: Bus, subscriber: Subscriber) -> None:
        """After a flush that leaves nothing, the bus has all of it."""
        publisher = bus.publisher()
        publisher.publish([a_notice(version=n) for n in (1, 2, 3)])

        assert 0 == publisher.flush(WAIT_S)
        assert 0 == publisher.close()
        assert 3 == len(collect(subscriber, 3))

    def test_every_subscription_gets_every_notice(self, bus: Bus, subscriber: Subscriber) -> None:
        """Two subscriptions are independent of each other."""
        other = subscribed(bus, "analysts")

        bus.publisher().deliver([a_notice(version=n) for n in (1, 2)])

        assert [("song-1", 1), ("song-1", 2)] == places(collect(subscriber, 2)) == places(collect(other, 2))
        other.close()

    def test_subscribers_of_one_subscription_share(self, bus: Bus, subscriber: Subscriber) -> None:
        """What one has pulled is not delivered to another meanwhile."""
        bus.publisher().deliver([a_notice(version=n) for n in range(1, 11)])
        first = collect(subscriber, 10)
        second = bus.subscriber("projector")

        assert 10 == len(first)
        assert [] == second.pull(10, QUIET_S)
        second.close()

    def test_what_was_acknowledged_does_not_come_again(self, bus: Bus, subscriber: Subscriber) -> None:
        """Not even to another subscriber, after the first is closed."""
        bus.publisher().deliver([a_notice()])
        subscriber.ack(collect(subscriber, 1))
        subscriber.close()
        again = bus.subscriber("projector")

        assert [] == again.pull(10, QUIET_S)
        again.close()

    def test_what_was_given_back_comes_again(self, bus: Bus, subscriber: Subscriber) -> None:
        """A nack has the notice delivered again at once."""
        bus.publisher().deliver([a_notice()])
        subscriber.nack(collect(subscriber, 1))

        again = collect(subscriber, 1)

        assert [("song-1", 1)] == places(again)
        subscriber.ack(again)

    def test_what_a_subscriber_leaves_goes_to_another(self, bus: Bus, subscriber: Subscriber) -> None:
        """A subscriber that ends without an acknowledgement gives back what it had pulled."""
        bus.publisher().deliver([a_notice(version=n) for n in (1, 2, 3)])
        taken = collect(subscriber, 3)
        subscriber.ack(taken[:1])
        subscriber.close()
        successor = bus.subscriber("projector")

        found = collect(successor, 2)

        assert places(taken[1:]) == places(found)
        successor.close()

    def test_a_pull_takes_no_more_than_it_asks_for(self, bus: Bus, subscriber: Subscriber) -> None:
        """Flow control: the limit holds, and the rest waits."""
        bus.publisher().deliver([a_notice(version=n) for n in range(1, 8)])

        first = subscriber.pull(3, WAIT_S)

        assert 1 <= len(first) <= 3
        assert 7 - len(first) == len(collect(subscriber, 7 - len(first)))

    def test_a_pull_without_notices_ends_in_time(self, subscriber: Subscriber) -> None:
        """It returns nothing, soon after the wait is over."""
        began = time.monotonic()

        assert [] == subscriber.pull(10, 0.1)
        assert time.monotonic() - began < WAIT_S / 4

    def test_closing_ends_a_pull(self, subscriber: Subscriber) -> None:
        """A thread that waits is let go."""
        done = threading.Event()

        def wait() -> None:
            subscriber.pull(1, 60.0)
            done.set()

        thread = threading.Thread(target=wait)
        thread.start()
        subscriber.close()

        assert done.wait(WAIT_S)
        thread.join()

    def test_a_subscription_that_is_not_there_is_said_to_be_so(self, bus: Bus) -> None:
        """Nobody waits for ever on a mistyped name."""
        subscriber = bus.subscriber("mistyped")

        with pytest.raises(NotFound):
            pull_on(subscriber)
        subscriber.close()

    def test_many_threads_publish(self, bus: Bus, subscriber: Subscriber) -> None:
        """Nothing is lost between threads that share a publisher."""
        publisher = bus.publisher()

        def send(job_id: str) -> None:
            for n in range(1, 51):
                publisher.publish([a_notice(job_id, n)])

        threads = [threading.Thread(target=send, args=(f"song-{i}",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted((f"song-{i}", n) for i in range(4) for n in range(1, 51)) == places(collect(subscriber, 200))
        publisher.close()
