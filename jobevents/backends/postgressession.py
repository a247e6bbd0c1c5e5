"""A connection to a Postgres database that sends several statements in one parcel.

psycopg's pipeline writes to the socket and looks at it once a statement: most of what a short transaction costs a client, and
as many times that the server wakes up. Here libpq puts the whole parcel together, and it goes in one write.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import Connection
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

Row: TypeAlias = tuple[Any, ...]  # Any: column values
Statement: TypeAlias = tuple[str, Sequence[object]]  # with its values: each is a %s in it, or they are $1, $2 and so on
_Key: TypeAlias = tuple[str, tuple[int, ...]]  # text of a statement, types of its values

_FORGOTTEN: Final = "26000"  # psycopg has its session forget all that is prepared, after a rollback of its own


class Session(Connection[Row]):
    """A connection of psycopg, for one thread at a time."""

    def __init__(self, *given: Any, **options: Any) -> None:  # Any: what psycopg makes it of
        """Wrap an open connection of libpq; `connect` makes one."""
        super().__init__(*given, **options)
        self._parcels = _Parcels(self)

    def send(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Have statements executed in order, and return the rows of each: one way to the server and back.

        From BEGIN to COMMIT they are one transaction; so are those that are in none. Each text is prepared and stays so: there
        may not be endlessly many.

        Raises:
            psycopg.Error: the first. What came before it in its transaction is undone, or waits for a ROLLBACK where BEGIN was
                sent; what comes after it was not done.
        """
        return self._parcels.send(statements)


class _Parcels:
    """What a session has prepared for its parcels."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._adapt = Transformer.from_context(session)
        self._names: dict[_Key, bytes] = {}  # what they are prepared as
        self._numbers = count()

    def send(self, statements: Sequence[Statement]) -> list[list[Row]]:
        pgconn, adapt, names = self._session.pgconn, self._adapt, self._names
        parcel = []
        for text, values in statements:
            data = adapt.dump_sequence(values, [PyFormat.AUTO] * len(values))
            parcel.append(((text, adapt.types or ()), data, adapt.formats))
        fresh: list[_Key] = []
        asked: list[bool] = []  # whether an answer is that of a statement, not of its preparation
        try:
            pgconn.enter_pipeline_mode()
            for key, data, formats in parcel:
                if key not in names:
                    names[key] = b"parcel_%d" % next(self._numbers)
                    pgconn.send_prepare(names[key], _numbered(key[0]), key[1])
                    fresh.append(key)
                    asked.append(False)
                pgconn.send_query_prepared(names[key], data, formats, result_format=Format.BINARY)
                asked.append(True)
            pgconn.pipeline_sync()
            results = self._session.wait(_exchange(pgconn))
            _check(results)
        except BaseException as error:
            for key in list(names) if getattr(error, "sqlstate", None) == _FORGOTTEN else fresh:
                names.pop(key, None)
            raise
        finally:
            with suppress(psycopg.OperationalError):  # answers are left: whoever lent the connection drops it
                pgconn.exit_pipeline_mode()
        return [self._rows(result) for result, is_asked in zip(results, asked, strict=True) if is_asked]

    def _rows(self, result: PGresult) -> list[Row]:
        if not result.ntuples:
            return []
        self._adapt.set_pgresult(result)
        return self._adapt.load_rows(0, result.ntuples, tuple)


def _exchange(pgconn: PGconn) -> Generator[Wait, Ready | int, list[PGresult]]:
    """Write what is to be sent, and return its answers, all there are."""
    while pgconn.flush():
        if (yield Wait.RW) & Ready.R:  # else both sides may wait for each other to read
            pgconn.consume_input()
    answers: list[PGresult] = []
    while True:
        while pgconn.is_busy():
            if (yield Wait.R):
                pgconn.consume_input()
        answer = pgconn.get_result()
        if answer is None:  # the end of one's answers
            if pgconn.status == ConnStatus.BAD:
                raise psycopg.OperationalError("connection was lost")
        elif answer.status == ExecStatus.PIPELINE_SYNC:
            return answers
        else:
            answers.append(answer)


def _check(results: Sequence[PGresult]) -> None:
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            if not result.error_field(DiagnosticField.SQLSTATE):  # libpq's own word, not the server's
                raise psycopg.OperationalError(result.get_error_message())
            raise error_from_result(result)


def _numbered(text: str) -> bytes:
    """Return a statement as Postgres has it: each %s a number."""
    numbers = count(1)
    return re.sub("%s", lambda _: f"${next(numbers)}", text).encode()
