"""The part of the log contract about feeds: scanning all events, and waiting for new ones."""

# ruff: noqa: SIM300 - the expected value stands first

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from queue import SimpleQueue
from threading import Thread

import pytest

from jobevents.errors import Conflict, Misconfigured
from jobevents.events import Event
from jobevents.log import EventLog, Feed, Record
from jobevents.testing.log_events import ids_of, note, notes, one_of_each

PATIENCE_S = 30.0  # how long a test waits for what should come at once


class LogFeeds:
    """Promises to those who read every job; `LogContract` includes them."""

    ordered = True
    many = 1100  # events of a scan of more than it reads at a time
    at_a_time = 500  # of these

    def test_scan_gives_every_event_once(self, log: EventLog) -> None:
        """A scan has each event of every job once, a job's in order of version."""
        stored = fill(log)

        records = list(log.scan())

        assert {event.id for event in stored} == {record.event().id for record in records}
        assert {"a": [1, 2, 3], "b": [1, 2], "c": [1]} == by_job(records)

    def test_scan_is_in_commit_order(self, log: EventLog) -> None:
        """Events come in the order in which they were appended, over all jobs."""
        if not self.ordered:
            pytest.skip("this log has no order across jobs")
        stored = fill(log)

        assert ids_of(stored) == [record.event().id for record in log.scan()]

    def test_record_says_what_it_holds(self, log: EventLog) -> None:
        """A record names job, version and type of its event, and holds its stored bytes."""
        stored = log.append(one_of_each("a"))

        records = list(log.scan())

        assert stored == [record.event() for record in records]
        assert [("a", e.version, e.type) for e in stored] == [(r.job_id, r.version, r.type) for r in records]
        assert [record.data for record in log.read_raw("a")] == [record.data for record in records]

    def test_scan_goes_on_from_every_cursor(self, log: EventLog) -> None:
        """A scan from a record's cursor gives what came after that record, no more and no less."""
        fill(log)
        records = list(log.scan())

        for position, record in enumerate(records):
            assert records[position + 1 :] == list(log.scan(record.cursor))

    def test_scan_in_batches(self, log: EventLog) -> None:
        """How many events are read at a time changes nothing."""
        fill(log)

        assert [list(log.scan())] * 4 == [list(log.scan(batch=batch)) for batch in (1, 2, 3, 500)]

    @pytest.mark.parametrize("batch", [1, 4, 500])
    @pytest.mark.parametrize("names", [(), ("data",), ("type", "job_id"), ("job_id", "version", "type", "data")])
    def test_columns_are_those_of_a_scan(self, log: EventLog, names: tuple[str, ...], batch: int) -> None:
        """Read column by column up to any place, events are those of a scan, and nothing of what comes after it."""
        if not self.ordered:
            pytest.skip("this log has no order across jobs")
        assert [] == list(log.columns(names, until=100, batch=batch))
        fill(log)
        records = list(log.scan())

        for count, last in enumerate(records, 1):
            found = [
                row
                for page in log.columns(names, until=int(last.cursor), batch=batch)
                for row in zip(*page, strict=True)
            ]

            assert [(int(one.cursor), *(getattr(one, name) for name in names)) for one in records[:count]] == found

    def test_scan_with_a_limit(self, log: EventLog) -> None:
        """A scan ends after `limit` events, however they are read."""
        fill(log)
        found = list(log.scan())

        for limit, batch in product([0, 1, 3, 4, 6, 100], [1, 4, 500]):
            assert found[:limit] == list(log.scan(limit=limit, batch=batch)), (limit, batch)

    def test_scan_of_many(self, log: EventLog) -> None:
        """A scan of more events than it reads at a time is whole."""
        for first in range(1, self.many, 100):
            log.append(notes("a", range(first, first + 100)))

        assert {"a": list(range(1, self.many + 1))} == by_job(log.scan(batch=self.at_a_time))

    def test_by_job_gives_each_job_together(self, log: EventLog) -> None:
        """Every job's events come together, by version, jobs in the order of their ids' bytes, however they are read."""
        fill(log)
        log.append([note("é", 1)])
        log.append([note("Z", 1)])

        expected = [("Z", 1), ("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1), ("é", 1)]
        stored = sorted(record.data for record in log.scan())

        for batch in (1, 2, 3, 500):
            records = list(log.by_job(batch=batch))

            assert expected == [(record.job_id, record.version) for record in records]
            assert stored == sorted(record.data for record in records)

    def test_by_job_begins_with_a_job(self, log: EventLog) -> None:
        """A place to begin is a job, which need not be there."""
        fill(log)

        assert {"b": [1, 2], "c": [1]} == by_job(log.by_job("b"))
        assert {"c": [1]} == by_job(log.by_job("bb"))
        assert {} == by_job(log.by_job("d"))

    def test_by_job_says_where_each_event_is(self, log: EventLog) -> None:
        """A record by job has the cursor that the scan gives it, where the log has one order."""
        fill(log)

        if self.ordered:
            assert {r.cursor: r for r in log.scan()} == {r.cursor: r for r in log.by_job()}

    def test_scan_of_nothing(self, log: EventLog) -> None:
        """An empty log, and the end of one, have nothing more."""
        assert [] == list(log.scan())

        log.append([note("a", 1)])

        (last,) = log.scan()
        assert [] == list(log.scan(last.cursor))

    def test_scan_passes_over_what_was_refused(self, log: EventLog) -> None:
        """A call that was refused leaves nothing in the feed."""
        log.append([note("a", 1)])
        with pytest.raises(Conflict):
            log.append([note("b", 1), note("a", 1)])
        log.append([note("c", 1)])

        assert {"a": [1], "c": [1]} == by_job(log.scan())

    def test_last_cursor(self, log: EventLog) -> None:
        """The last cursor is that of the last record; an empty log has none."""
        if not self.ordered:
            pytest.skip("this log has no order across jobs")
        assert "" == log.last_cursor()

        fill(log)

        assert list(log.scan())[-1].cursor == log.last_cursor()

    def test_scan_while_others_append(self, log: EventLog) -> None:
        """Scanning again and again from the last cursor, while four threads append, gives every event exactly once."""
        if not self.ordered:
            pytest.skip("this log has no order across jobs")

        def write(job_id: str) -> None:
            for version in range(1, 101):
                log.append([note(job_id, version)])

        writers = [Thread(target=write, args=(job_id,)) for job_id in "abcd"]
        seen: list[Record] = []
        for writer in writers:
            writer.start()
        writing = True
        while writing:
            writing = any(writer.is_alive() for writer in writers)
            seen += log.scan(seen[-1].cursor if seen else "", batch=7)

        assert {job_id: list(range(1, 101)) for job_id in "abcd"} == by_job(seen)

    def test_what_has_no_order_says_so(self, log: EventLog) -> None:
        """A log without one sequence has no last cursor and no feed, and says what to do instead."""
        if self.ordered:
            pytest.skip("this log has one order")

        with pytest.raises(Misconfigured, match="scan"):
            log.last_cursor()
        with pytest.raises(Misconfigured, match="topic"):
            log.subscribe()

    def test_scans_from_the_start_miss_nothing(self, log: EventLog) -> None:
        """Scanning from the start while four threads append gives each job in order, and after the last append every event."""

        def write(job_id: str) -> None:
            for version in range(1, 31):
                log.append([note(job_id, version)])

        writers = [Thread(target=write, args=(job_id,)) for job_id in "abcd"]
        for writer in writers:
            writer.start()
        whole: dict[str, list[int]] = {}
        writing = True
        while writing:
            writing = any(writer.is_alive() for writer in writers)
            whole = by_job(log.scan(batch=7))
            assert all(versions == list(range(1, len(versions) + 1)) for versions in whole.values())

        assert {job_id: list(range(1, 31)) for job_id in "abcd"} == whole

    def test_feed_begins_with_old_events(self, log: EventLog) -> None:
        """A subscription gives what was there before it, then what comes."""
        if not self.ordered:
            pytest.skip("this log has no order across jobs")
        log.append(notes("a", (1, 2)))

        with listening(log.subscribe()) as heard:
            log.append([note("a", 3)])

            assert [1, 2, 3] == [heard().version for _ in range(3)]

    def test_feed_begins_after_its_cursor(self, log: EventLog) -> None:
        """A subscription with a cursor gives what came after that event."""
        if not self.ordered:
            pytest.skip("this log has no order across jobs")
        fill(log)
        records = list(log.scan())

        with listening(log.subscribe(records[3].cursor)) as heard:
            assert records[4:] == [heard() for _ in records[4:]]

    def test_feed_gives_new_events_at_once(self, log: EventLog) -> None:
        """A waiting subscriber is woken by an append: a hundred are heard of one by one, in far less than a second each."""
        if not self.ordered:
            pytest.skip("this log has no order across jobs")
        with listening(log.subscribe()) as heard:
            for version in range(1, 101):
                log.append([note("a", version)])

                assert version == heard().version

    def test_feed_is_a_scan(self, log: EventLog) -> None:
        """A subscription gives the records that a scan gives, with the same cursors."""
        if not self.ordered:
            pytest.skip("this log has no order across jobs")
        with listening(log.subscribe()) as heard:
            fill(log)
            records = list(log.scan())

            assert records == [heard() for _ in records]

    def test_several_feeds(self, log: EventLog) -> None:
        """Each subscriber gets every event, and one that ends does not end the others."""
        if not self.ordered:
            pytest.skip("this log has no order across jobs")
        with listening(log.subscribe()) as first, listening(log.subscribe()) as second:
            with listening(log.subscribe()) as third:
                log.append([note("a", 1)])
                assert [1, 1, 1] == [heard().version for heard in (first, second, third)]

            log.append([note("a", 2)])

            assert [2, 2] == [heard().version for heard in (first, second)]

    def test_close_ends_a_waiting_feed(self, log: EventLog) -> None:
        """Closing a subscription from another thread ends the iteration that waits, and again does nothing."""
        if not self.ordered:
            pytest.skip("this log has no order across jobs")
        feed = log.subscribe()
        heard: SimpleQueue[Record] = SimpleQueue()
        reader = Thread(target=pour, args=(feed, heard))
        reader.start()
        log.append([note("a", 1)])
        heard.get(timeout=PATIENCE_S)

        feed.close()
        feed.close()

        reader.join(PATIENCE_S)
        assert not reader.is_alive()

    def test_closed_feed_gives_nothing(self, log: EventLog) -> None:
        """A closed subscription is at its end, whatever there would be to read."""
        if not self.ordered:
            pytest.skip("this log has no order across jobs")
        log.append([note("a", 1)])

        with log.subscribe() as feed:
            pass

        assert [] == list(feed)

    def test_closing_the_log_ends_feeds(self, log: EventLog) -> None:
        """A subscriber that reads while the log is closed comes to an end, without an error."""
        if not self.ordered:
            pytest.skip("this log has no order across jobs")
        log.append(notes("a", range(1, 1001)))
        feeds = [log.subscribe() for _ in range(4)]
        failed: list[Exception] = []

        def read(feed: Feed) -> None:
            try:
                pour(feed, heard)
            except Exception as error:  # noqa: BLE001  # whatever it is fails the test
                failed.append(error)

        heard: SimpleQueue[Record] = SimpleQueue()
        readers = [Thread(target=read, args=(feed,)) for feed in feeds]
        for reader in readers:
            reader.start()
        heard.get(timeout=PATIENCE_S)

        log.close()

        for reader in readers:
            reader.join(PATIENCE_S)
        assert [] == failed
        assert not any(reader.is_alive() for reader in readers)


def fill(log: EventLog) -> list[Event]:
    """Append six events of three jobs in four calls, and return them in order."""
    return [
        *log.append([note("a", 1)]),
        *log.append([note("b", 1), note("a", 2)]),
        *log.append([note("c", 1)]),
        *log.append([note("a", 3), note("b", 2)]),
    ]


def by_job(records: Iterable[Record]) -> dict[str, list[int]]:
    """Return the versions of each job, in the order in which they came."""
    found: dict[str, list[int]] = {}
    for record in records:
        found.setdefault(record.job_id, []).append(record.version)
    return found


def pour(feed: Feed, heard: "SimpleQueue[Record]") -> None:
    """Put every record of a feed into a queue, until the feed ends."""
    for record in feed:
        heard.put(record)


@contextmanager
def listening(feed: Feed) -> Iterator[Callable[[], Record]]:
    """Read a feed in a thread; gives a function that waits for the next record. The feed is closed in the end."""
    heard: SimpleQueue[Record] = SimpleQueue()
    reader = Thread(target=pour, args=(feed, heard))
    reader.start()
    try:
        yield lambda: heard.get(timeout=PATIENCE_S)
    finally:
        feed.close()
        reader.join(PATIENCE_S)
