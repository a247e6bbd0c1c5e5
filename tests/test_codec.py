"""Bytes and events: what was stored once is read for ever, what is no event is Corrupt, and the chain shows any change."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from eventsourcing.persistence import StoredEvent
from hypothesis import given
from hypothesis import strategies as st

from jobevents import codec
from jobevents.assertions import RunChanges, RunError
from jobevents.errors import Corrupt
from jobevents.events import (
    EVENT_TYPES,
    CancelRequested,
    Event,
    JobAnnotated,
    JobCanceled,
    JobDeleted,
    JobFailed,
    JobImported,
    JobProgressed,
    JobQueued,
    JobRecorded,
    JobRequeued,
    JobSkipped,
    JobStarted,
    JobSucceeded,
    TransitionRefused,
)
from jobevents.testing.strategies import histories

GOLDEN = Path(__file__).parent / "golden"
AT = datetime(2026, 8, 1, 12, 0, 31, 500_000, tzinfo=UTC)
LATER = datetime(2026, 8, 1, 13, 0, 0, 123_456, tzinfo=UTC)

LEAST: dict[str, Any] = {
    "job_id": "render-20260801-120000-0123456789ab",
    "version": 3,
    "id": "0123456789abcdef01234567",
    "at": AT,
}
FULL: dict[str, Any] = {
    **LEAST,
    "actor": "alice <alice@example.com>",
    "reason": 'said "so": \\ / & < > \u2028 \x7f ü 😀',
    "trace": "0af7651916cd43dd8448eb211c80319c",
}
PARAMS = {"song": 7, "z": [1, 2.5, None, True, "ü"], "a": {"": 9007199254740993, "big": 1e300}}

# One expectation for each golden file. A released file and its line here are never changed: they are added to.
EXPECTED: dict[str, Event] = {
    "JobQueued.full": JobQueued(
        **FULL,
        name="render",
        params=PARAMS,
        title="Song 7",
        queue="slow",
        key="song-7",
        scheduled_at=LATER,
        priority=-5,
        max_attempts=3,
        external=True,
        trigger="replay",
        replay_of="render-1",
        root_id="render-0",
    ),
    "JobQueued.least": JobQueued(**LEAST, name="render"),
    "JobStarted.full": JobStarted(**FULL, attempt=2, worker="host-12-ab", deadline=LATER, late=True),
    "JobStarted.least": JobStarted(**LEAST, attempt=1),
    "JobProgressed.full": JobProgressed(**FULL, start=2, percent=12.5, message="mixing"),
    "JobProgressed.least": JobProgressed(**LEAST, start=2, percent=40),
    "JobAnnotated.full": JobAnnotated(
        **FULL,
        start=2,
        command="mix",
        title="Song 7",
        fields={"output_dir": "gs://b/o", "count": 3, "ratio": 0.5, "ok": True, "gone": None},
    ),
    "JobAnnotated.least": JobAnnotated(**LEAST),
    "JobSucceeded.full": JobSucceeded(**FULL, start=2, result=PARAMS),
    "JobSucceeded.least": JobSucceeded(**LEAST, start=2),
    "JobFailed.full": JobFailed(
        **FULL, error="no disk", start=2, retry_at=LATER, kind="OSError", traceback="Traceback …"
    ),
    "JobFailed.tail": JobFailed(**LEAST, error="no disk", kind="OSError", tail=("info: mixing", "error: ü")),
    "JobFailed.least": JobFailed(**LEAST, error="no disk"),
    "JobRequeued.full": JobRequeued(**FULL, cause="snooze", start=2, scheduled_at=LATER),
    "JobRequeued.least": JobRequeued(**LEAST, cause="retry"),
    "CancelRequested.full": CancelRequested(**FULL),
    "CancelRequested.least": CancelRequested(**LEAST),
    "JobCanceled.full": JobCanceled(**FULL, start=2),
    "JobCanceled.forced": JobCanceled(**LEAST, start=2, forced=True),
    "JobCanceled.least": JobCanceled(**LEAST),
    "JobSkipped.full": JobSkipped(**FULL),
    "JobSkipped.least": JobSkipped(**LEAST),
    "TransitionRefused.full": TransitionRefused(**FULL, start=2, tried="JobFailed", state="queued", detail="no disk"),
    "TransitionRefused.least": TransitionRefused(**LEAST, start=0, tried="JobSucceeded", state="running"),
    "JobRecorded.full": JobRecorded(
        **FULL, state="paused", changes={"title": "T", "attempts": 2, "output_dir": "gs://b/o"}
    ),
    "JobRecorded.least": JobRecorded(**LEAST, state="running"),
    "JobRecorded.run": JobRecorded(
        **LEAST,
        state="failed",
        run=RunChanges(
            job_name="render",
            queue="slow",
            params=PARAMS,
            trigger="schedule",
            triggered_by="ann",
            idem_key="song-7",
            attempt=2,
            max_attempts=3,
            scheduled_at=AT,
            started_at=AT,
            finished_at=LATER,
            duration_ms=3_568_623,
            progress=12.5,
            progress_message="mixing",
            result=None,
            error=RunError(
                code="E", status=507, message="no space", fields={"left": 0}, stack="line 1", tail=["mixing", "ü"]
            ),
            worker_id="w1",
            capture_logs="failure",
            cancel_requested_at=LATER,
            canceled_by="bob",
            cancel_reason="wrong song",
            replay_of="render-1",
            root_id="render-0",
            created_at=AT,
            updated_at=LATER,
            priority=-5,
            external=True,
        ),
    ),
    "JobImported.full": JobImported(
        **FULL,
        state="failed",
        record={"error": "no disk", "attempts": 2, "updated_at": "2026-07-31T21:00:00.123456789+09:00"},
    ),
    "JobImported.least": JobImported(**LEAST, state="succeeded"),
    "JobDeleted.full": JobDeleted(**FULL, artifacts=True),
    "JobDeleted.least": JobDeleted(**LEAST),
}

# The fields that came after a full file was released, and the file that shows them.
ADDED: dict[str, tuple[str, ...]] = {
    "JobRecorded.full": ("JobRecorded.run",),
    "JobFailed.full": ("JobFailed.tail",),
    "JobCanceled.full": ("JobCanceled.forced",),
}

BODY = b'{"type":"JobQueued","job_id":"j","version":1,"id":"x","at":"2026-08-01T12:00:00Z","name":"n"%s}'


def body(more: bytes = b"") -> bytes:
    """Return the body of a JobQueued with more members."""
    return BODY % more


# Golden files


def test_every_event_type_has_golden_files_and_they_no_others() -> None:
    """A type that is added brings its files: one with all fields set, one with the least."""
    wanted = {f"{name}.{size}.json" for name in EVENT_TYPES for size in ("full", "least")}
    wanted |= {f"{name}.json" for names in ADDED.values() for name in names}

    assert wanted == {path.name for path in GOLDEN.iterdir()}
    assert wanted == {f"{name}.json" for name in EXPECTED}


@pytest.mark.parametrize("name", EXPECTED)
def test_stored_bytes_of_every_release_decode_for_ever(name: str) -> None:
    """The bytes that were stored once give the event that was meant, its chain beside it."""
    stored = (GOLDEN / f"{name}.json").read_bytes()

    event = codec.decode(stored)

    assert EXPECTED[name] == msgspec.structs.replace(event, chain="")
    assert event.chain == codec.unseal(stored)[1]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_golden_event_encodes_to_the_body_it_was_stored_with(name: str) -> None:
    """One event has one canonical form: the chain of old events can be computed for ever."""
    stored = (GOLDEN / f"{name}.json").read_bytes()

    assert codec.unseal(stored)[0] == codec.encode(codec.decode(stored))
    assert [] == codec.chain_breaks([stored])


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.endswith(".full")])
def test_a_full_golden_event_leaves_no_field_at_its_default(name: str) -> None:
    """Otherwise the file would not show how that field is stored."""
    events = [EXPECTED[one] for one in (name, *ADDED.get(name, ()))]

    unset = [
        field.name
        for field in msgspec.structs.fields(events[0])
        if field.name != "chain"
        and all(getattr(one, field.name) in (field.default, "", None, {}, (), 0) for one in events)
    ]

    assert [] == unset


def test_the_golden_run_leaves_no_field_unset() -> None:
    """The file shows how each field of a run is stored that a store's caller may assert."""
    event = EXPECTED["JobRecorded.run"]

    assert isinstance(event, JobRecorded)
    assert event.run is not None
    assert msgspec.UNSET not in msgspec.structs.astuple(event.run)


# Reading


@given(histories())
def test_every_event_survives_its_bytes(events: list[Event]) -> None:
    """Decoding what was encoded gives the event again."""
    assert events == [codec.decode(codec.encode(event)) for event in events]


@given(histories(max_size=3), st.text("0123456789abcdef", min_size=32, max_size=32))
def test_the_body_does_not_depend_on_the_chain(events: list[Event], chain: str) -> None:
    """An event that was stored has the same canonical bytes as before: the chain is never part of them."""
    for event in events:
        assert codec.encode(event) == codec.encode(msgspec.structs.replace(event, chain=chain))


@given(histories(max_size=3), st.text("0123456789abcdef", min_size=32, max_size=32))
def test_unseal_gives_back_what_was_sealed(events: list[Event], chain: str) -> None:
    """Body and chain come apart as they were put together, and the whole decodes with its chain."""
    for event in events:
        stored = codec.seal(codec.encode(event), chain)

        assert (codec.encode(event), chain) == codec.unseal(stored)
        assert msgspec.structs.replace(event, chain=chain) == codec.decode(stored)


def test_unknown_fields_pass() -> None:
    """An event of a later version, with fields that this one does not know, is read without them."""
    later = body(b',"colour":{"deep":[1,2]},"weight":1e3')

    assert codec.decode(body()) == codec.decode(later)


def test_an_unknown_type_is_corrupt_and_says_what_to_do() -> None:
    """The type is named, and so is the remedy."""
    with pytest.raises(Corrupt, match=r"type=JobPaused; upgrade jobevents"):
        codec.decode(body().replace(b"JobQueued", b"JobPaused"))


DEEP = b"[" * 100_000
NO_EVENTS = {
    "empty": b"",
    "blank": b" \n",
    "null": b"null",
    "no object": b"[]",
    "deep": DEEP,
    "deep value": body(b',"params":' + DEEP),
    "deep value in an unknown field": body(b',"colour":' + DEEP),
    "bad UTF-8": body(b',"title":"\xff"'),
    "UTF-16": body().decode().encode("utf-16"),
    "NaN": body(b',"params":NaN'),
    "infinity": body(b',"params":1e999'),
    "lone surrogate": body(b',"title":"\\ud800"'),
    "surrogate in UTF-8": body(b',"title":"\xed\xa0\x80"'),
    "truncated": body()[:-1],
    "two values": body() * 2,
    "time without a zone": body().replace(b"00Z", b"00"),
    "time that is none": body().replace(b"08-01", b"02-30"),
    "type of another kind": b'{"type":["JobQueued"]}',
    "no type": b'{"job_id":"j"}',
    "missing field": body().replace(b',"name":"n"', b""),
    "field of another type": body(b',"priority":"high"'),
    "unknown cause": b'{"type":"JobRequeued","job_id":"j","version":1,"id":"x","at":"2026-08-01T12:00:00Z","cause":"x"}',
}


@pytest.mark.parametrize("data", NO_EVENTS.values(), ids=NO_EVENTS)
def test_bytes_that_are_no_event_are_corrupt(data: bytes) -> None:
    """One kind of error for all of them, with the start of the bytes, so that a reader can park what it cannot read."""
    with pytest.raises(Corrupt, match="event"):
        codec.decode(data)


@pytest.mark.parametrize(
    "data",
    [
        body().replace(b'"JobQueued"', b'"\\u001b]0;owned\\u0007\\u009b2J\\u202e"'),
        NO_EVENTS["unknown cause"].replace(b'"cause":"x"', b'"cause":"\\u001b[2J\\u202e"'),
    ],
    ids=["type", "cause"],
)
def test_an_error_holds_nothing_that_a_terminal_would_obey(data: bytes) -> None:
    """What an event that cannot be read says of itself is shown escaped."""
    with pytest.raises(Corrupt) as caught:
        codec.decode(data)

    assert str(caught.value).isprintable()
    assert "x1b" in str(caught.value) or "u001b" in str(caught.value)


@given(histories(max_size=2), st.data())
def test_damaged_bytes_are_corrupt_or_another_event(events: list[Event], data: st.DataObject) -> None:
    """No damage raises anything but Corrupt."""
    whole = codec.encode(events[-1])
    at = data.draw(st.integers(0, len(whole)))
    damaged = whole[:at] + data.draw(st.binary(max_size=4)) + whole[at + data.draw(st.integers(0, 4)) :]

    try:
        event = codec.decode(damaged)
    except Corrupt:
        return
    assert isinstance(event, Event)


def test_an_event_in_another_slot_is_corrupt() -> None:
    """A stored event whose own id or version is not that of its place was put there by a mistake."""
    mapper = codec.EventMapper()
    stored = codec.seal(body(), codec.link("", body()))

    assert "n" == mapper.to_domain_event(StoredEvent("j", 1, "JobQueued", stored)).name
    for job_id, version in (("j", 2), ("k", 1)):
        with pytest.raises(Corrupt, match=f"another slot job_id={job_id} version={version} found=j#1"):
            mapper.to_domain_event(StoredEvent(job_id, version, "JobQueued", stored))


def test_the_topic_is_the_type_whatever_the_class_is_called_elsewhere() -> None:
    """Recorders file events under the type that their bytes name."""
    event = EXPECTED["JobFailed.least"]
    sealed = codec.Sealed(event.job_id, event.version, event.type, b"{}", "")

    assert "JobFailed" == codec.EventMapper().to_stored_event(sealed).topic


# The chain


def stored(events: list[Event]) -> list[bytes]:
    """Return a history as a log stores it."""
    chain, found = codec.NO_CHAIN, []
    for event in events:
        made = codec.encode(event)
        chain = codec.link(chain, made)
        found.append(codec.seal(made, chain))
    return found


@given(histories())
def test_an_untouched_history_has_no_break(events: list[Event]) -> None:
    """What was stored in order fits together."""
    assert [] == codec.chain_breaks(stored(events))


@given(histories(), st.data())
def test_an_edit_of_any_event_shows(events: list[Event], data: st.DataObject) -> None:
    """One byte of any body, the last event's too, breaks the chain at that event."""
    kept = stored(events)
    at = data.draw(st.integers(0, len(kept) - 1))
    place = data.draw(st.integers(0, len(codec.unseal(kept[at])[0]) - 2))
    edited = bytearray(kept[at])
    edited[place] ^= data.draw(st.integers(1, 255))

    assert [at] == codec.chain_breaks([*kept[:at], bytes(edited), *kept[at + 1 :]])


@given(histories(), st.data())
def test_an_altered_chain_shows(events: list[Event], data: st.DataObject) -> None:
    """The hash itself cannot be changed unseen, to another hash or to what is none."""
    kept = stored(events)
    at = data.draw(st.integers(0, len(kept) - 1))
    edited = bytearray(kept[at])
    edited[-3 - data.draw(st.integers(0, 31))] ^= data.draw(st.integers(1, 255))

    assert at in codec.chain_breaks([*kept[:at], bytes(edited), *kept[at + 1 :]])


@given(histories(min_size=2), st.data())
def test_a_hole_shows(events: list[Event], data: st.DataObject) -> None:
    """A missing event breaks the chain at the one after it."""
    kept = stored(events)
    at = data.draw(st.integers(0, len(kept) - 2))

    assert [at] == codec.chain_breaks([*kept[:at], *kept[at + 1 :]])


@given(histories(min_size=2), st.data())
def test_a_fork_shows(events: list[Event], data: st.DataObject) -> None:
    """Of two events that follow the same one, the second does not follow the first."""
    kept = stored(events)
    at = data.draw(st.integers(1, len(kept) - 1))
    other = codec.encode(msgspec.structs.replace(events[at], id="another"))
    rival = codec.seal(other, codec.link(codec.unseal(kept[at - 1])[1], other))

    assert at + 1 in codec.chain_breaks([*kept[: at + 1], rival, *kept[at + 1 :]])


@given(histories(min_size=2), st.data())
def test_a_swap_shows(events: list[Event], data: st.DataObject) -> None:
    """Two events that changed places fit neither here nor there."""
    kept = stored(events)
    first = data.draw(st.integers(0, len(kept) - 2))
    second = data.draw(st.integers(first + 1, len(kept) - 1))
    kept[first], kept[second] = kept[second], kept[first]

    assert first in codec.chain_breaks(kept)


@given(histories(min_size=2), st.data())
def test_an_event_that_is_no_longer_sealed_shows_and_stops_nothing(events: list[Event], data: st.DataObject) -> None:
    """Bytes without a chain are a break among others: the rest is still looked at."""
    kept = stored(events)
    at = data.draw(st.integers(0, len(kept) - 1))
    kept[at] = data.draw(st.binary(max_size=80))

    expected = [at] if at == len(kept) - 1 else [at, at + 1]
    assert expected == codec.chain_breaks(kept)


@pytest.mark.parametrize(
    "end", [b"", b"{}", b'"}', b',"chain":"' + b"g" * 32 + b'"}', b',"chain":"' + b"A" * 32 + b'"}']
)
def test_bytes_without_a_chain_are_corrupt(end: bytes) -> None:
    """A chain is 32 lower-case hexadecimal digits, and nothing else is taken for one."""
    with pytest.raises(Corrupt, match="does not end in its chain"):
        codec.unseal(body()[:-1] + end)
