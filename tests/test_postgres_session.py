"""Several statements in one parcel, on a connection to Postgres."""

from collections.abc import Iterator

import psycopg
import pytest

from jobevents.backends.postgresdb import BEGIN, COMMIT, PostgresDatabase
from jobevents.backends.postgressession import Session
from jobevents.backends.postgresurl import parse

pytest_plugins = ("tests.postgres",)
pytestmark = pytest.mark.services


@pytest.fixture
def session(postgres_url: str) -> Iterator[Session]:
    database = PostgresDatabase(parse(postgres_url))
    with database.connect(10) as session:
        session.execute("CREATE TEMP TABLE kept (number bigint PRIMARY KEY, word text)")
        yield session
    database.close()


def test_each_statement_has_its_answer(session: Session) -> None:
    """Rows come back as values, of as many statements as there are, however their values are of other types next time."""
    keep = "INSERT INTO kept VALUES (%s, %s) RETURNING number"

    answers = session.send([BEGIN, (keep, (1, "one")), (keep, (2, None)), ("SELECT word FROM kept", ()), COMMIT])

    assert [[], [(1,)], [(2,)], [("one",), (None,)], []] == answers
    assert [[(3,)]] == session.send([(keep, (3, "three"))])


def test_statements_without_begin_are_one_transaction(session: Session) -> None:
    """One that fails undoes all of them, and the session goes on."""
    keep = ("INSERT INTO kept VALUES (%s, '')", (1,))

    with pytest.raises(psycopg.errors.UniqueViolation) as raised:
        session.send([keep, keep, ("SELECT 1", ())])

    assert "kept" == raised.value.diag.table_name
    assert [[(0,)]] == session.send([("SELECT count(*) FROM kept", ())])


def test_a_statement_that_cannot_be_prepared_is_not_remembered(session: Session) -> None:
    """It is prepared again when there is what it needs."""
    look = ("SELECT * FROM later", ())
    with pytest.raises(psycopg.errors.UndefinedTable):
        session.send([("SELECT 1", ()), look])

    session.execute("CREATE TEMP TABLE later (number bigint)")

    assert [[(1,)], []] == session.send([("SELECT 1", ()), look])


def test_a_session_that_forgot_all_is_told_again(session: Session) -> None:
    """psycopg has the server forget what is prepared after a rollback; that shows once, as what passes."""
    session.send([("SELECT 1", ())])
    session.execute("DEALLOCATE ALL")

    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        session.send([("SELECT 1", ())])

    assert [[(1,)]] == session.send([("SELECT 1", ())])


def test_a_value_that_cannot_be_sent_sends_nothing(session: Session) -> None:
    """It is refused, not cut short, and the session goes on."""
    with pytest.raises(psycopg.DataError):
        session.send([("INSERT INTO kept VALUES (1, %s)", ("a",)), ("INSERT INTO kept VALUES (2, %s)", ("a\0b",))])

    assert [[(0,)]] == session.send([("SELECT count(*) FROM kept", ())])


def test_more_than_the_sockets_hold_goes_both_ways(session: Session) -> None:
    """Neither side waits for the other to read: 32 MiB each way in one parcel."""
    text = "x" * 2**20

    answers = session.send([("SELECT %s::text", (text,))] * 32)

    assert [[(text,)]] * 32 == answers
