"""A query of somebody else's, answered by a process of its own that can do no harm: for pages, where the log is read by a server.

DuckDB holds a limit of memory for what it sorts and joins, and none for a single value: `repeat('x', 1000000000)` took a process
with a limit of 128 MB two gigabytes. So the query runs in a child whose memory, time and files the system bounds. It has no
connection to the log, nor anything of this process's environment: it asks for the rows of a table, which are sent to it as they
may be read, with what is masked taken out.

Between the two go messages of a letter and what it needs: T table and columns (a table is read), N number (its next rows), and at
the end R the rows or E why there are none; the rows of tables go the other way as Arrow has them.
"""

import os
import resource
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from jobevents import codec
from jobevents.errors import Corrupt, InvalidValue, JobEventsError, Unavailable
from jobevents.jobs import Jobs
from projections.csvtext import as_text
from projections.query import ask
from projections.tables import Stream, Tables, rows_of

if TYPE_CHECKING:
    from projections.api.masking import Mask

ROWS: Final = 1000  # of an answer
COLUMNS: Final = 100
CELL: Final = 4000  # characters
SAID: Final = 8 * 1024**2  # characters of all cells: the server has them several times at once
SECONDS: Final = 30.0  # from when the child is ready
_READY_S: Final = 60.0  # for it to be: its libraries take half a second, and longer where others want the machine
_MEMORY_MB: Final = 192  # as DuckDB counts it
_SPACE: Final = 3 * 1024**3  # bytes of the child's address space: libraries and what they reserve take half of it
_DISK_MB: Final = 512  # of temporary files
_MESSAGE: Final = 16 * SAID  # bytes that the child may send at once: a character takes six at most
_NAMES: Final = ("events", "jobs", "attempts", "logs")
_TOO_MUCH: Final = "query needs more memory than it may have: have it keep, sort or read less"
_JSON: Final = {"jobs": ("params", "result", "fields"), "logs": ("attrs",), "events": ("data",), "attempts": ()}

_one = threading.Lock()  # a server answers one at a time


class Table(msgspec.Struct, frozen=True):
    """The answer."""

    columns: list[str]
    rows: list[list[str | None]]  # as people read them; None: NULL
    has_more: bool  # rows that are not here
    unreadable: int  # jobs that are shown only as far as they could be folded


class Busy(Unavailable):
    """Another query is under way."""


def run(jobs: Jobs, mask: "Mask", sql: str, *, seconds: float = SECONDS) -> Table:
    """Answer a SELECT over the tables of a log.

    Raises:
        InvalidValue: it cannot be run, or took too long or too much. Busy: another one runs.
        Unavailable, PermissionDenied, Corrupt: what the log says.
    """
    if not _one.acquire(blocking=False):
        raise Busy("another query runs: one is answered at a time")
    try:
        return _supervised(_Shown(Tables(jobs), mask), sql, seconds)
    finally:
        _one.release()


def _supervised(tables: "_Shown", sql: str, seconds: float) -> Table:
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryDirectory(prefix="jobevents-query-", ignore_cleanup_errors=True) as directory, theirs:
        environment = {"PATH": os.environ.get("PATH", ""), "TMPDIR": directory, "PYTHONPATH": os.pathsep.join(sys.path)}
        child = subprocess.Popen(  # noqa: S603  # ourselves
            [sys.executable, "-m", "projections.confined", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        theirs.close()
        is_late = threading.Event()

        def stop() -> None:
            is_late.set()
            child.kill()

        timer = threading.Timer(seconds, stop)
        try:
            with Connection(ours.detach()) as connection:
                _await(connection)
                timer.start()
                connection.send_bytes(sql.encode(errors="replace"))
                for name in _NAMES:
                    connection.send_bytes(tables.schema(name).serialize().to_pybytes())
                return _serve(connection, tables)
        except (EOFError, OSError) as error:
            why = (
                f"took longer than {seconds:g} s"
                if is_late.is_set()
                else "needs more memory, time or files than it may have"
            )
            raise InvalidValue(
                f"query was stopped: it {why}; have it keep, sort or read less, or run it by: jobevents sql"
            ) from error
        finally:
            timer.cancel()
            child.kill()
            child.wait()


def _await(connection: Connection) -> None:
    """Wait until the child is ready.

    Raises:
        Unavailable: it will not be.
    """
    if not connection.poll(_READY_S):
        raise Unavailable(f"the process that answers queries was not ready in {_READY_S:g} s")
    try:
        connection.recv_bytes(_MESSAGE)
    except (EOFError, OSError) as error:
        raise Unavailable("the process that answers queries has not begun: has this machine memory left?") from error


def _serve(connection: Connection, tables: "_Shown") -> Table:
    """Send the rows that are asked for, until the answer comes."""
    readings: list[Iterator[pa.RecordBatch]] = []
    while True:
        message = connection.recv_bytes(_MESSAGE)
        kind, said = message[:1], message[1:]
        match kind:
            case b"T":
                name, *columns = msgspec.json.decode(said, type=list[str])
                readings.append(tables.batches(name, columns))
            case b"N":
                batch = next(readings[int(said)], None)
                connection.send_bytes(b"" if batch is None else _packed(batch))
            case b"R":
                found = msgspec.json.decode(said, type=Table)
                return msgspec.structs.replace(found, unreadable=len(tables.unreadable))
            case _:
                raise InvalidValue(said.decode(errors="replace"))


class _Shown:
    """The tables of a log as they may be read."""

    def __init__(self, tables: Tables, mask: "Mask") -> None:
        self._tables = tables
        self._mask = mask

    @property
    def unreadable(self) -> dict[str, str]:
        return self._tables.unreadable

    def schema(self, name: str) -> pa.Schema:
        """Return the columns of a table."""
        return self._tables.stream(name).schema

    def batches(self, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table, with what is masked taken out before anything is asked of them."""
        show = self._event if name == "events" else self._value
        for batch in self._tables.stream(name).reader(columns):
            arrays = [
                pa.array([None if text is None else show(text) for text in column.to_pylist()], field.type)
                if field.name in _JSON[name]
                else column
                for field, column in zip(batch.schema, batch.columns, strict=True)
            ]
            yield pa.record_batch(arrays, schema=batch.schema)

    def _value(self, text: str) -> str:
        return msgspec.json.encode(self._mask.value(msgspec.json.decode(text))).decode()

    def _event(self, text: str) -> str | None:
        """Return an event; of one that cannot be read nothing, as its values have no names here."""
        try:
            return msgspec.json.encode(self._mask.event(codec.decode(text.encode()))).decode()
        except Corrupt:
            return None


def _packed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


class _Asked:
    """The tables as the child has them: each row is asked for."""

    def __init__(self, connection: Connection, schemas: dict[str, pa.Schema]) -> None:
        self.unreadable: dict[str, str] = {}
        self.error: BaseException | None = None
        self._connection = connection
        self._schemas = schemas
        self._readings = 0
        self._lock = threading.Lock()  # DuckDB reads several tables at a time, in threads

    def stream(self, name: str) -> Stream:
        """Return a table by its name."""
        return Stream(self._schemas[name], partial(self._batches, name), lambda _: None)

    def _batches(self, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self._lock:
            self._connection.send_bytes(b"T" + msgspec.json.encode([name, *columns]))
            number, self._readings = self._readings, self._readings + 1
        while True:
            with self._lock:
                self._connection.send_bytes(b"N%d" % number)
                packed = self._connection.recv_bytes()
            if not packed:
                return
            yield from pa.ipc.open_stream(packed)


def _answer(connection: Connection, sql: str) -> Table:
    schemas = {name: pa.ipc.read_schema(pa.py_buffer(connection.recv_bytes())) for name in _NAMES}
    with ask(_Asked(connection, schemas), sql, memory_mb=_MEMORY_MB, disk_mb=_DISK_MB) as found:
        rows: list[list[str | None]] = []
        left = SAID
        for batch in found.batches():
            for row in rows_of(batch.select(range(min(COLUMNS, batch.num_columns)))):
                rows.append([None if one is None else as_text(one)[:CELL] for one in row])
                left -= sum(len(cell or "") for cell in rows[-1])
                if len(rows) > ROWS or left < 0:
                    return Table(found.columns[:COLUMNS], rows[:-1], has_more=True, unreadable=0)
        return Table(found.columns[:COLUMNS], rows, has_more=False, unreadable=0)


def _confine() -> None:
    """Have the system bound what this process may take, for good."""
    for what, limit in (
        (resource.RLIMIT_AS, _SPACE),
        (resource.RLIMIT_FSIZE, _DISK_MB * 1024**2),
        (resource.RLIMIT_CPU, int(SECONDS)),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (limit, limit))


def _end_with(socket_number: int) -> None:
    """End as soon as nobody waits for the answer any more: a query may sleep, which no limit counts."""
    watched = select.poll()
    watched.register(socket_number, select.POLLRDHUP)
    watched.poll()
    os._exit(1)


def main() -> None:
    """Answer the query that comes over the socket whose number is given."""
    _confine()
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    with Connection(int(sys.argv[1])) as connection:
        connection.send_bytes(b"ready")
        sql = connection.recv_bytes().decode()
        try:
            connection.send_bytes(b"R" + msgspec.json.encode(_answer(connection, sql)))
        except (MemoryError, Unavailable):
            connection.send_bytes(b"E" + _TOO_MUCH.encode())
        except JobEventsError as error:
            connection.send_bytes(b"E" + str(error).encode(errors="replace"))


if __name__ == "__main__":
    main()
