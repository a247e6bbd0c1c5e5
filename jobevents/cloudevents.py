"""A stored event as a line of CloudEvents JSON, with its bytes exactly as they are, and back.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md: `data` is the stored event, chain included;
`data_base64` has stored bytes that are no JSON on one line. `subject` is the job, `sequence` the version in ten digits, `cursor`
the place in the log that was read. Beside events there are the lines that jobs logged, and one line at each end of a file.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import Any, TypeVar

import msgspec

from jobevents import admission, boundary, codec, ids
from jobevents.errors import Corrupt, InvalidJobId, InvalidValue
from jobevents.events import Event
from jobevents.log import Record
from jobevents.store import JobLog

SOURCE = "jobevents"
EVENT = "jobevents."  # what the type of an event begins with
LOG_LINE = "jobevents.log-line"
BEGIN = "jobevents.begin"  # first line of a file
END = "jobevents.end"  # last line of a whole file
FORMAT = 1

T = TypeVar("T")
_NO_DATA = msgspec.Raw()
_is_sequence = re.compile(r"\d{10,19}").fullmatch


class Begin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a file says at its beginning of what it holds."""

    format: int  # version of this format
    order: str = "commit"  # or "log", of a log without one order; each job's are in order of version in any case
    through: str = ""  # cursor of the last event of the log that is in it; "" in the order of the log
    logs: bool = False  # the lines that jobs logged are in it
    kind: str = "export"  # or "capture"
    since: str = ""  # of a capture: jobs at work then or later
    until: str = ""  # of a capture: nothing after this instant
    redacted: bool = False  # of a capture: payloads and texts were taken out, the chains made anew


class End(msgspec.Struct, frozen=True, kw_only=True):
    """What a whole file says at its end of what it held."""

    events: int
    jobs: int  # first events among them
    lines: int  # log lines
    digest: str  # `codec.Digest` over all events
    lines_digest: str  # and over all log lines


class Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of a file."""

    specversion: str
    id: str
    source: str
    type: str
    subject: str = ""
    time: str = ""
    sequence: str = ""
    cursor: str = ""
    data: msgspec.Raw = _NO_DATA
    data_base64: str = ""

    @property
    def is_event(self) -> bool:
        """Tell whether it holds an event, which has a sequence."""
        return bool(self.sequence)


class _Known(msgspec.Struct):
    """What every event says of itself."""

    type: str
    job_id: str
    version: int
    id: str = ""
    at: str = ""


class _Payloads(msgspec.Struct):
    """The JSON values of an event, or of the run that it asserts, as they are stored: measured before they are decoded."""

    params: msgspec.Raw = _NO_DATA
    result: msgspec.Raw = _NO_DATA
    run: msgspec.Raw = _NO_DATA


_encode = msgspec.json.Encoder().encode
_decode_line = msgspec.json.Decoder(Line).decode
_decode_payloads = msgspec.json.Decoder(_Payloads).decode
_decode_known = msgspec.json.Decoder(_Known).decode


def of_record(record: Record) -> bytes:
    """Return the line of a stored event."""
    known = _known(record.data)
    if known is None or b"\n" in record.data:
        known = _Known(record.type, record.job_id, record.version, f"{record.job_id}#{record.version}")
        data, base64 = _NO_DATA, b64encode(record.data).decode()
    else:
        data, base64 = msgspec.Raw(record.data), ""
    return _encode(
        Line(
            specversion="1.0",
            id=known.id,
            source=SOURCE,
            type=EVENT + record.type,
            subject=record.job_id,
            time=known.at,
            sequence=f"{record.version:010}",
            cursor=record.cursor,
            data=data,
            data_base64=base64,
        )
    )


def of_log_line(line: JobLog) -> bytes:
    """Return the line of a line that a job logged."""
    return _own(LOG_LINE, f"{line.run_id}/{line.seq}", line, subject=line.run_id)


def of_begin(begin: Begin) -> bytes:
    """Return the first line of a file."""
    return _own(BEGIN, f"begin-{begin.through}", begin)


def of_end(end: End) -> bytes:
    """Return the last line of a file."""
    return _own(END, f"end-{end.digest}", end)


def _own(type: str, id: str, data: msgspec.Struct, *, subject: str = "") -> bytes:
    raw = msgspec.Raw(_encode(data))
    return _encode(Line(specversion="1.0", id=id, source=SOURCE, type=type, subject=subject, data=raw))


def read(line: bytes) -> Line:
    """Return a line of a file.

    Raises:
        Corrupt: it is no CloudEvent of ours.
    """
    try:
        found = _decode_line(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise Corrupt(f"no CloudEvent: {boundary.visible(str(error))} line={line[:120]!r}") from error
    if not found.type.startswith(EVENT):
        raise Corrupt(f"CloudEvent of another system type={found.type[:80]!r}")
    return found


def to_record(line: Line) -> Record:
    """Return the stored event in a line, its bytes exactly as they were.

    Raises:
        Corrupt: the line does not say what its event says, names no job, or its event holds what none of ours may: values
            that are nested too deep or too large, texts, names, numbers or times beyond `admission`.
    """
    try:
        data = bytes(line.data) or b64decode(line.data_base64, validate=True)
        ids.validate(line.subject)
    except (NotBase64, ValueError, InvalidJobId) as error:
        raise Corrupt(f"line of an event cannot be read: {error} subject={line.subject[:200]!r}") from error
    if not _is_sequence(line.sequence) or int(line.sequence) < 1 or int(line.sequence) >= 2**63:
        raise Corrupt(f"line of an event has no version job_id={line.subject} sequence={line.sequence[:40]!r}")
    record = Record(line.cursor, line.subject, int(line.sequence), line.type.removeprefix(EVENT), data)
    known = _known(data)
    if known is not None and (known.type, known.job_id, known.version) != (record.type, record.job_id, record.version):
        raise Corrupt(
            f"line is of another event than it says line={record.job_id}#{record.version} "
            f"{boundary.visible(record.type, 80)} "
            f"event={boundary.visible(known.job_id)}#{known.version} {boundary.visible(known.type, 80)}"
        )
    try:
        if known is not None:
            _check_sizes(data)
        _check_depth(record)
        event = _read(data)
        if event is not None:
            admission.check(event)
    except (InvalidValue, UnicodeError) as error:
        why = boundary.visible(str(error))
        raise Corrupt(f"event cannot be taken job_id={record.job_id} version={record.version} cause={why}") from error
    return record


def to_log_line(line: Line) -> JobLog:
    """Return the log line in a line of a file.

    Raises:
        Corrupt: it is none, or no table could take it.
    """
    found = _data(line, JobLog)
    try:
        ids.validate(found.run_id)
        attrs = boundary.check_json("attrs", found.attrs)
        at = boundary.check_instant("at", found.at)
    except (InvalidValue, InvalidJobId) as error:
        raise Corrupt(f"log line cannot be stored: {boundary.visible(str(error))}") from error
    message = boundary.clean_text(found.message, boundary.LINE_LIMIT)
    level = boundary.clean_text(found.level, boundary.NAME_LIMIT)
    if not 0 <= found.seq < 2**63 or not 0 <= found.attempt < 2**31:
        raise Corrupt(f"log line has no place job_id={found.run_id} seq={found.seq}")
    return msgspec.structs.replace(found, message=message, level=level, attrs=attrs, at=at)


def to_begin(line: Line) -> Begin:
    """Return what the first line of a file says.

    Raises:
        Corrupt: it is no first line, or of a newer format.
    """
    if line.type != BEGIN:
        raise Corrupt(f"file does not begin as one of ours does type={line.type[:80]!r}")
    begin = _data(line, Begin)
    if begin.format != FORMAT:
        raise Corrupt(f"format unknown to this version format={begin.format}; upgrade jobevents to read it")
    return begin


def to_end(line: Line) -> End:
    """Return what the last line of a file says.

    Raises:
        Corrupt: it cannot be read.
    """
    return _data(line, End)


def _data(line: Line, type: type[T]) -> T:
    try:
        return msgspec.json.decode(line.data, type=type)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise Corrupt(
            f"line cannot be read type={boundary.visible(line.type, 80)} cause={boundary.visible(str(error))}"
        ) from error


def _known(data: bytes) -> _Known | None:
    """Return what an event says of itself; None when its bytes are no event."""
    try:
        return _decode_known(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def _read(data: bytes) -> Event | None:
    """Return an event; None when this version cannot read it: such a one is moved as it is."""
    try:
        return codec.decode(data)
    except Corrupt:
        return None


def _check_sizes(data: bytes) -> None:
    """Refuse payloads of over 64 KiB while they are bytes: as Python's objects they would take some thirty times as much."""
    if len(data) <= boundary.PAYLOAD_LIMIT:  # so it is, almost always
        return
    try:
        found = _decode_payloads(data)
        asserted = _decode_payloads(found.run) if bytes(found.run)[:1] == b"{" else _Payloads()
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidValue(f"event cannot be measured: {error}") from error
    for what, raw in (
        ("params", found.params), ("result", found.result), ("params", asserted.params), ("result", asserted.result),
    ):  # fmt: skip
        size = len(bytes(raw))
        if size > boundary.PAYLOAD_LIMIT:
            raise InvalidValue(f"{what} is too large size={size} limit={boundary.PAYLOAD_LIMIT} bytes")


def _check_depth(record: Record) -> None:
    """Refuse what no event of ours can be: values nested deeper than any that we take.

    Raises:
        Corrupt: it is.
    """
    data = record.data
    if data.count(b"[") + data.count(b"{") <= boundary.DEPTH_LIMIT:  # so it is, almost always
        return
    try:
        value: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
        for key, item in value.items():
            boundary.check_depth(key, item)
    except (msgspec.MsgspecError, RecursionError, UnicodeError, InvalidValue) as error:
        raise Corrupt(
            f"event cannot be taken job_id={record.job_id} version={record.version} cause={boundary.visible(str(error))}"
        ) from error
