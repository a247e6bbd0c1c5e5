"""The log in Postgres: what its readers are promised, its set-up and schema, and what its errors say."""

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import psycopg
import pytest
from eventsourcing.persistence import IntegrityError

from jobevents import connect, wiring
from jobevents.backends.postgres import PostgresRecorder, ddl, migrate, open_blobs
from jobevents.backends.postgresschema import VERSION, lock_key
from jobevents.backends.postgresurl import parse
from jobevents.errors import Conflict, JobEventsError, KeyTaken, Misconfigured, PermissionDenied, Unavailable
from jobevents.events import JobProgressed, JobRecorded, new_event_id
from jobevents.job import fold
from jobevents.log import EventLog, Record
from jobevents.store import JobLog
from jobevents.testing.log_events import AT, note, queued
from projections.index import Index
from tests.postgres_server import PASSWORD, Cluster

pytest_plugins = ("tests.postgres",)
pytestmark = pytest.mark.services

Admin = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def admin(postgres: Cluster) -> Iterator[Admin]:
    """A connection of the superuser."""
    with postgres.connect() as connection:
        yield connection


@pytest.fixture
def fresh(postgres_blank: str) -> str:
    """The URL of an empty log of this test alone, whose schema it may spoil."""
    migrate(postgres_blank)
    return postgres_blank


def opened(url: str, **options: Any) -> EventLog:
    """Open a log."""
    recorder = PostgresRecorder.open(url, **options)
    return EventLog(recorder, recorder.translate)


def recorder_of(log: EventLog) -> PostgresRecorder:
    """Return the recorder under a log."""
    assert isinstance(log.recorder, PostgresRecorder)
    return log.recorder


def schema_of(url: str) -> str:
    """Return the schema that a URL names."""
    return url.rpartition("schema=")[2]


def until(happens: Callable[[], object]) -> None:
    """Wait for the server to come to something that it tells nobody of."""
    give_up = time.monotonic() + 20
    while not happens():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def waiting(admin: Admin, kind: str = "advisory") -> int:
    """Return how many sessions wait for a lock."""
    found = admin.execute("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = %s", (kind,)).fetchone()
    assert found is not None
    return int(found[0])


# Readers


def hold_commits(admin: Admin, url: str) -> None:
    """Have the server stop each commit of an event of the job `slow` at its last moment, until lock 4711 is free."""
    admin.execute(f"""
        SET search_path TO {schema_of(url)};
        CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END';
        CREATE CONSTRAINT TRIGGER held AFTER INSERT ON job_events DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW WHEN (NEW.originator_id = 'slow') EXECUTE FUNCTION wait();
        SELECT pg_advisory_lock(4711)
    """)


def test_prj_03_an_event_that_commits_late_is_not_passed_over(admin: Admin, fresh: str) -> None:
    """PRJ-03: an event has its id and its commit is held: until it can be seen, no other event gets a higher id and is seen."""
    hold_commits(admin, fresh)
    with (
        closing(opened(fresh)) as slow,
        closing(opened(fresh)) as fast,
        closing(opened(fresh)) as reader,
        reader.subscribe() as feed,
        ThreadPoolExecutor(2) as pool,
    ):
        late = pool.submit(slow.append, [queued("slow")])
        until(lambda: waiting(admin) == 1)
        early = pool.submit(fast.append, [queued("fast")])
        until(lambda: waiting(admin) == 2)
        seen_meanwhile = list(reader.scan())

        admin.execute("SELECT pg_advisory_unlock(4711)")
        late.result(20)
        early.result(20)

        assert [] == seen_meanwhile
        assert ["slow", "fast"] == [next(feed).job_id for _ in range(2)]


@pytest.mark.slow
def test_prj_03_twenty_writers_and_a_reader(postgres_url: str) -> None:
    """PRJ-03: of 20 writers over four connections' pools, 500 events each, a reader that goes on after the last sees 10,000."""
    logs = [opened(postgres_url) for _ in range(4)]
    total = 20 * 500

    def write(number: int) -> None:
        for version in range(1, 501):
            logs[number % 4].append([note(f"job-{number}", version)])

    def follow() -> list[Record]:
        return list(itertools.islice(feed, total))

    with ExitStack() as stack:
        reader = stack.enter_context(closing(opened(postgres_url)))
        pool = stack.enter_context(ThreadPoolExecutor(21))
        feed = stack.enter_context(reader.subscribe())
        following = pool.submit(follow)
        for writing in [pool.submit(write, number) for number in range(20)]:
            writing.result(120)
        seen = following.result(20)
        stored = list(reader.scan())
    for log in logs:
        log.close()

    assert total == len(seen) == len({(record.job_id, record.version) for record in seen})
    assert stored == seen


def test_a_vacuum_and_a_writer_do_not_wait_for_each_other(admin: Admin, fresh: str) -> None:
    """While a vacuum holds its lock on the events, events are appended."""
    with closing(opened(fresh)) as log, admin.transaction():
        admin.execute(f"LOCK TABLE {schema_of(fresh)}.job_events IN SHARE UPDATE EXCLUSIVE MODE")

        log.append([queued("a")])

        assert 1 == log.head("a").version


def test_a_users_open_transaction_holds_up_nobody(admin: Admin, fresh: str) -> None:
    """A transaction that has written, and read our tables, delays neither writers nor readers."""
    with closing(opened(fresh)) as log, log.subscribe() as feed, admin.transaction():
        admin.execute(f"CREATE TABLE {schema_of(fresh)}.theirs (id text)")
        admin.execute(f"SELECT * FROM {schema_of(fresh)}.job_runs")

        log.append([queued("a")], rows=[fold([queued("a")])])

        assert "a" == next(feed).job_id


_LISTEN = """
import sys, threading, time
from jobevents.backends.postgres import PostgresRecorder
recorder = PostgresRecorder.open(sys.argv[1], poll_interval_s=600)
flag = threading.Event()
recorder.listen(flag)
flag.wait(30)  # it listens
flag.clear()
print("listening", flush=True)
print(flag.wait(30), recorder.max_notification_id(), flush=True)
recorder.close()
"""


def test_a_commit_wakes_another_process_at_once(postgres_url: str) -> None:
    """With a poll every ten minutes, a process that waits is woken by the notification."""
    with closing(opened(postgres_url)) as log:
        listener = subprocess.Popen([sys.executable, "-c", _LISTEN, postgres_url], stdout=subprocess.PIPE, text=True)
        assert listener.stdout is not None
        with listener.stdout as said:
            assert "listening\n" == said.readline()
            began = time.monotonic()

            log.append([queued("a")])

            assert "True 1\n" == said.readline()
        took_s = time.monotonic() - began
        assert 0 == listener.wait(20)
    assert took_s < 10


def listening(admin: Admin, url: str) -> list[int]:
    """Return the sessions of an application named as the schema that listen: they poll as soon as they do."""
    query = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT max(%%' AND application_name = %s"
    return [pid for (pid,) in admin.execute(query, (schema_of(url),))]


def test_a_lost_listening_connection_is_made_again(admin: Admin, fresh: str) -> None:
    """When the session that listens was ended, another one does, and what was missed meanwhile is read at once."""
    woken = threading.Event()
    url = f"{fresh}&application_name={schema_of(fresh)}"
    with closing(opened(url, poll_interval_s=600)) as log, closing(opened(fresh)) as other:
        recorder_of(log).listen(woken)
        assert woken.wait(20)
        until(lambda: listening(admin, fresh))
        (first,) = listening(admin, fresh)
        woken.clear()

        admin.execute("SELECT pg_terminate_backend(%s)", (first,))

        assert woken.wait(20)  # for what may have been missed
        until(lambda: [pid for pid in listening(admin, fresh) if pid != first])
        woken.clear()
        other.append([queued("a")])
        assert woken.wait(20)


def test_a_commit_that_nobody_tells_of_is_found_by_the_poll(admin: Admin, fresh: str) -> None:
    """An event that came in without a notification wakes those who wait within the poll's interval."""
    woken = threading.Event()
    with closing(opened(fresh, poll_interval_s=0.05)) as log:
        recorder_of(log).listen(woken)
        assert woken.wait(20)
        woken.clear()

        admin.execute(
            f"INSERT INTO {schema_of(fresh)}.job_events (originator_id, originator_version, topic, state) "
            "VALUES ('a', 1, 't', '')"
        )

        assert woken.wait(20)


def test_a_projector_keeps_its_views_in_the_same_database(postgres_url: str) -> None:
    """Views, their positions and the log are in one database, and are there when it is opened again."""
    with connect(postgres_url) as jobs:
        for n in range(3):
            jobs.submit("render", id=f"job-{n}")
        wiring.projector(jobs).run_once()

    with connect(postgres_url) as jobs:
        assert 3 == Index(jobs.blobs).counts()["queued"]
        assert [f"jobs/job-{n}/status.json" for n in range(3)] == [entry.name for entry in jobs.blobs.list("jobs/")]
        wiring.projector(jobs).run_once()


# Writers


@contextmanager
def locked(admin: Admin, url: str) -> Iterator[None]:
    """Hold the lock that all writers of a log take."""
    key = lock_key(schema_of(url), "job_events")
    admin.execute("SELECT pg_advisory_lock(%s)", (key,))
    try:
        yield
    finally:
        admin.execute("SELECT pg_advisory_unlock(%s)", (key,))


def queue_length(log: EventLog) -> int:
    """Return how many calls wait for their commit, which nothing but the queue itself can tell."""
    return len(recorder_of(log)._writer._group._calls)


def test_threads_share_a_transaction(admin: Admin, fresh: str) -> None:
    """While one writer waits for the lock, nine others queue up behind it, and are committed together."""
    with closing(opened(fresh)) as log, ThreadPoolExecutor(10) as pool:
        log.append([queued("warm")])
        with locked(admin, fresh):
            appending = [pool.submit(log.append, [queued("job-0")])]
            until(lambda: waiting(admin) == 1)
            appending += [pool.submit(log.append, [queued(f"job-{n}")]) for n in range(1, 10)]
            until(lambda: queue_length(log) == 10)
        for one in appending:
            one.result(20)

        found = admin.execute(
            f"SELECT count(DISTINCT xmin::text) FROM {schema_of(fresh)}.job_events WHERE originator_id <> 'warm'"
        ).fetchone()
    assert (2,) == found


def test_one_that_cannot_be_written_fails_no_other(admin: Admin, fresh: str) -> None:
    """Of those that share a transaction, one meets a taken slot and one a taken key; the rest is committed."""
    with closing(opened(fresh)) as log, ThreadPoolExecutor(10) as pool:
        log.append([queued("a", key="k")], rows=[fold([queued("a", key="k")])])
        calls = [[queued(f"job-{n}")] for n in range(6)]
        calls[2:2] = [[queued("a")], [queued("b", key="k")]]
        with locked(admin, fresh):
            appending = [pool.submit(log.append, [queued("first")])]
            until(lambda: waiting(admin) == 1)
            for call in calls:
                appending.append(pool.submit(log.append, call, rows=[fold(call)]))
                until(lambda: queue_length(log) == len(appending))
        errors = [type(one.exception(20)) for one in appending]

        nothing = type(None)
        assert [nothing, nothing, nothing, Conflict, KeyTaken, *[nothing] * 4] == errors
        assert 8 == len(list(log.scan()))


def test_a_lock_that_is_never_freed_is_unavailable(admin: Admin, fresh: str) -> None:
    """A writer waits for the lock as long as it was told, and says what is the matter; nothing is written."""
    with closing(opened(f"{fresh}&timeout_s=0.2")) as log:
        with locked(admin, fresh), pytest.raises(Unavailable, match="locked"):
            log.append([queued("a")])

        assert 0 == log.head("a").version


def test_a_database_that_is_serializable_by_default(admin: Admin, fresh: str) -> None:
    """Writers choose their own isolation: where the default is another, none fails over another's commit."""
    options = "options=-c%20default_transaction_isolation=serializable"
    with closing(opened(f"{fresh}&{options}")) as log, ThreadPoolExecutor(4) as pool:
        calls = [[queued(f"job-{n}", key=f"k{n}")] for n in range(40)]

        list(pool.map(lambda call: log.append(call, rows=[fold(call)]), calls))

        assert 40 == len(list(log.scan()))


def test_a_commit_is_durable_where_the_server_is_set_to_less(fresh: str) -> None:
    """`synchronous_commit=off` of a database or a role is not taken over."""
    with closing(opened(f"{fresh}&options=-c%20synchronous_commit=off")) as log:
        assert [("on",)] == recorder_of(log).database.query("SHOW synchronous_commit")


def test_a_batch_of_two_thousand_events_is_one_statement(postgres_url: str) -> None:
    """Many events of many jobs are one transaction, in the order they were given in."""
    events = [note(f"job-{n % 7}", n // 7 + 1) for n in range(2000)]
    with closing(opened(postgres_url)) as log:
        log.append(events)

        assert [(one.job_id, one.version) for one in events] == [(one.job_id, one.version) for one in log.scan()]


# Rows


def test_dat_01_text_with_nul_in_a_row_becomes_visible(postgres_url: str) -> None:
    """DAT-01: Postgres has no text with NUL: a record's is shown as a picture, params and the event keep it."""
    event = JobRecorded(
        job_id="a", version=1, id=new_event_id(), at=AT, state="fai\0led", changes={"command": "re\0nder"}
    )
    other = queued("b", params={"a\0": ["\0", {"b": "c\0"}]})
    line = JobLog(run_id="b", seq=1, attempt=1, at=AT, level="info", message="m\0", attrs={"a": "\0"})
    with closing(opened(postgres_url)) as log:
        log.append([event, other], rows=[fold([event]), fold([other])])
        recorder_of(log).run_logs.append_logs([line])

        rows = [recorder_of(log).runs.get(job_id) for job_id in "ab"]
        (found,) = recorder_of(log).run_logs.logs("b")
        assert rows[0] is not None
        assert rows[1] is not None
        assert ("fai\u2400led", "re\u2400nder") == (rows[0].status, rows[0].job_name)
        assert {"a\0": ["\0", {"b": "c\0"}]} == rows[1].params
        assert ("m\u2400", {"a": "\0"}) == (found.message, found.attrs)
        assert "fai\0led" == log.read("a")[0].state  # type: ignore[attr-defined]


def test_a_record_of_odd_values_has_a_row(postgres_url: str) -> None:
    """What a foreign record says of another type than the column's is shown as text, or as nothing."""
    changes = {"command": 5, "attempts": "many", "progress": "half"}
    event = JobRecorded(job_id="a", version=1, id=new_event_id(), at=AT, state="running", changes=changes)
    with closing(opened(postgres_url)) as log:
        log.append([event], rows=[fold([event])])

        run = recorder_of(log).runs.get("a")
        assert run is not None
        assert ("5", 0) == (run.job_name, run.progress)


def test_whole_progress_is_a_whole_number(postgres_url: str) -> None:
    """40.0 comes back as 40, as from SQLite, and 40.5 as it is."""
    with closing(opened(postgres_url)) as log:
        events: list[Any] = [queued("a")]
        shown = []
        for percent in (40.0, 40.5):
            events.append(
                JobProgressed(job_id="a", version=len(events) + 1, id=new_event_id(), at=AT, start=1, percent=percent)
            )
            log.append(events[-1:] if len(events) > 2 else events, rows=[fold(events)])
            run = recorder_of(log).runs.get("a")
            assert run is not None
            shown.append(repr(run.progress))

        assert ["0", "0"] == shown or ["40", "40.5"] == shown


def test_history_is_plain_data(admin: Admin, fresh: str) -> None:
    """T10 to T13: times are times and JSON is JSON to whoever queries the table."""
    with connect(fresh) as jobs:
        jobs.submit("render", {"song": {"bpm": 120}}, id="a")
        with jobs.attempt("a") as attempt:
            attempt.result({"url": "x"})

    found = admin.execute(
        f"SELECT params->'song'->>'bpm', result->>'url', finished_at - started_at >= interval '0', "
        f"date_trunc('day', created_at) <= now() FROM {schema_of(fresh)}.job_runs"
    ).fetchall()
    assert [("120", "x", True, True)] == found


def test_tables_and_schema_by_name(admin: Admin, postgres_blank: str) -> None:
    """T5: the tables have the names that they were asked for, in the schema that was asked for, and no others."""
    url, schema = postgres_blank.partition("?")[0], schema_of(postgres_blank)
    names = ("runs", "lines")
    migrate(url, tables=names, schema=schema)

    with connect(url, tables=names, schema=schema) as jobs:
        jobs.submit("render", id="a")

    assert [("a",)] == admin.execute(f"SELECT id FROM {schema}.runs").fetchall()
    with pytest.raises(Misconfigured, match="job_runs, job_run_logs: give the table names"):
        connect(postgres_blank)


# The schema


def test_nothing_is_migrated_unasked(admin: Admin, postgres_blank: str) -> None:
    """T9: a database without our tables is refused, with the command that makes them; nothing is made."""
    with pytest.raises(Misconfigured, match=rf"`jobevents migrate --url {postgres_blank.replace('?', '.')}`"):
        connect(postgres_blank)

    assert [] == admin.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema_of(postgres_blank),)).fetchall()


def test_migrate_twice_does_nothing(fresh: str) -> None:
    """The second time there is nothing left to do."""
    assert [] == migrate(fresh)


def test_of_eight_that_migrate_at_once_one_does(postgres_blank: str) -> None:
    """STO-15: under concurrency each step is applied once, and nobody fails."""
    with ThreadPoolExecutor(8) as pool:
        applied = list(pool.map(lambda _: migrate(postgres_blank), range(8)))

    assert [[]] * 7 + [list(range(1, VERSION + 1))] == sorted(applied)


def columns(admin: Admin, url: str) -> list[tuple[Any, ...]]:
    """Return what a schema is made of."""
    return admin.execute(
        "SELECT table_name, column_name, data_type, is_nullable, collation_name FROM information_schema.columns "
        "WHERE table_schema = %s UNION ALL SELECT tablename, indexname, replace(indexdef, schemaname, ''), '', '' "
        "FROM pg_indexes WHERE schemaname = %s ORDER BY 1, 2",
        (schema_of(url), schema_of(url)),
    ).fetchall()


def test_the_ddl_makes_what_migrate_makes(admin: Admin, fresh: str) -> None:
    """T9: a team that applies the printed DDL itself has the same tables, and nothing is left to migrate."""
    own = fresh + "_own"
    admin.execute(ddl(own))

    try:
        assert columns(admin, fresh) == columns(admin, own)
        assert [] == migrate(own)
        connect(own).close()
    finally:
        admin.execute(f"DROP SCHEMA {schema_of(own)} CASCADE")


@pytest.mark.parametrize(
    ("version", "says"),
    [
        (0, f"older schema .* found=0 needed={VERSION}: run `jobevents migrate"),
        (99, "newer schema .* upgrade jobevents"),
    ],
)
def test_another_version_of_the_schema_names_the_step(admin: Admin, fresh: str, version: int, says: str) -> None:
    """A database that is older or newer than this program is refused, and the message says what to do."""
    recorded = f"{schema_of(fresh)}.job_schema"
    admin.execute(f"DELETE FROM {recorded}; INSERT INTO {recorded} (version) VALUES ({version})")

    with pytest.raises(Misconfigured, match=says):
        connect(fresh)
    with pytest.raises(Misconfigured, match=says):
        open_blobs(fresh)


def test_a_newer_schema_is_not_migrated(admin: Admin, fresh: str) -> None:
    """Going back is nothing that a program could do."""
    admin.execute(f"UPDATE {schema_of(fresh)}.job_schema SET version = 99 WHERE version = {VERSION}")

    with pytest.raises(Misconfigured, match="upgrade jobevents"):
        migrate(fresh)


def test_the_librarys_functions_are_refused(monkeypatch: pytest.MonkeyPatch, admin: Admin, fresh: str) -> None:
    """Functions that insert without the lock lose events: asked for or there, they are refused."""
    monkeypatch.setenv("POSTGRES_ENABLE_DB_FUNCTIONS", "yes")
    with pytest.raises(Misconfigured, match="POSTGRES_ENABLE_DB_FUNCTIONS"):
        connect(fresh)
    monkeypatch.delenv("POSTGRES_ENABLE_DB_FUNCTIONS")
    admin.execute(
        f"CREATE FUNCTION {schema_of(fresh)}.es_insert_events_text() RETURNS void LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO job_events DEFAULT VALUES; END'"
    )

    with pytest.raises(Misconfigured, match="es_insert_events_text: drop it"):
        connect(fresh)


# Set-up and errors


def refused(url: str) -> JobEventsError:
    """Return the error of opening a log."""
    with pytest.raises(JobEventsError) as caught:
        connect(url).close()
    return caught.value


def test_no_server_there(postgres: Cluster) -> None:
    """The message names host and port, at once."""
    error = refused("postgresql://ann:secret@127.0.0.1:1/music")

    assert Unavailable is type(error)
    assert "cannot connect host=127.0.0.1 port=1 dbname=music" in str(error)


def test_an_unknown_host() -> None:
    """A name that nobody knows is told from a server that does not answer."""
    assert "host is unknown host=nowhere.invalid" in str(refused("postgresql://ann:secret@nowhere.invalid/music"))


@pytest.mark.parametrize(
    ("user", "kind", "says"),
    [
        ("secured:wrong", PermissionDenied, "correct user and password"),
        ("secured", PermissionDenied, "correct user and password"),
        ("barred", PermissionDenied, "pg_hba.conf"),
        ("nobody", PermissionDenied, "database refuses this user"),
    ],
)
def test_a_user_who_may_not_connect(postgres: Cluster, user: str, kind: type[JobEventsError], says: str) -> None:
    """Wrong password, none, a user who is barred or unknown: trying again does not help."""
    error = refused(postgres.url(user))

    assert kind is type(error)
    assert says in str(error)


def test_the_password_is_used(postgres: Cluster, fresh: str, admin: Admin) -> None:
    """A password in the URL, percent-encoded, opens the database."""
    schema = schema_of(fresh)
    admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO secured; GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO secured")
    password = PASSWORD.replace(" ", "%20")

    with connect(postgres.url(f"secured:{password}", schema=schema)) as jobs:
        job_id = jobs.submit("render")

    with connect(fresh) as jobs:
        assert "queued" == jobs.get(job_id).state
    assert PermissionDenied is type(refused(postgres.url("secured:other", schema=schema)))


def test_a_database_that_is_not_there(postgres: Cluster) -> None:
    """The message has the command that makes it."""
    error = refused(postgres.url(database="music"))

    assert Misconfigured is type(error)
    assert "`createdb --encoding=UTF8 music`" in str(error)


def test_a_database_in_another_encoding(postgres: Cluster, admin: Admin) -> None:
    """A database that cannot hold every text is refused before anything is made."""
    admin.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")

    with pytest.raises(Misconfigured, match=r"not in UTF-8 .*encoding=LATIN1"):
        migrate(postgres.url(database="latin"))


def test_a_user_without_rights_on_the_tables(postgres: Cluster, fresh: str, admin: Admin) -> None:
    """What has to be granted is named."""
    admin.execute(f"GRANT USAGE ON SCHEMA {schema_of(fresh)} TO guest")

    error = refused(postgres.url("guest", schema=schema_of(fresh)))

    assert PermissionDenied is type(error)
    assert f"GRANT it ALL on schema {schema_of(fresh)}" in str(error)


def test_a_database_that_is_read_only(fresh: str) -> None:
    """A replica can be read; a write is refused, and the message says where to go."""
    with closing(opened(f"{fresh}&options=-c%20default_transaction_read_only=on")) as log:
        with pytest.raises(PermissionDenied, match="target_session_attrs=read-write"):
            log.append([queued("a")])

        assert [] == log.read("a")


def test_tables_that_went_away(admin: Admin, fresh: str) -> None:
    """A table dropped under a running program is Misconfigured, with the command that makes it."""
    with closing(opened(fresh)) as log:
        admin.execute(f"DROP TABLE {schema_of(fresh)}.job_runs")

        with pytest.raises(Misconfigured, match="jobevents migrate"):
            log.append([queued("a")], rows=[fold([queued("a")])])


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cret@h/db?schmea=x",
        "postgresql://ann:s3cret@h/db?password=s3cret&nope=1",
        "postgresql://ann:s3cr%et@h/db",
        "postgresql://ann:s3cret@h/db?schema=a-b",
        "postgresql://ann:s3cret@h/db?timeout_s=soon",
        "postgresql://ann:s3cret@127.0.0.1:1/db",
        "postgresqll://ann:s3cret@h/db",
    ],
)
def test_no_message_holds_the_password(url: str) -> None:
    """Whatever is wrong with a URL, its password is not repeated."""
    for call in (connect, wiring.open_blobs, wiring.migrate):
        with pytest.raises(JobEventsError) as caught:
            call(url)  # type: ignore[operator]

        assert "s3cr" not in str(caught.value)


def test_options_of_the_url() -> None:
    """T6, T7: ours are taken out, libpq's go on to it, and the arguments of `connect` win."""
    target = parse("postgres://ann@h1:1,h2:2/db?schema=a&poll_interval_s=-1&pool_size=3&sslmode=require", schema="b")

    assert ("b", 1.0, 30.0, 3) == (target.schema, target.poll_interval_s, target.timeout_s, target.pool_size)
    assert ("h1,h2", "1,2", "require") == tuple(target.conninfo[key] for key in ("host", "port", "sslmode"))


def test_options_of_postgres_alone() -> None:
    """A schema for a log that has none is a mistake."""
    with pytest.raises(Misconfigured, match="Postgres"):
        connect("memory://", schema="x")


def test_more_threads_than_connections(fresh: str) -> None:
    """Thirty threads take turns at two connections."""
    with connect(f"{fresh}&pool_size=2") as jobs, ThreadPoolExecutor(30) as pool:
        ids = list(pool.map(lambda n: jobs.submit("render", {"n": n}), range(60)))

        assert {"queued"} == {status.state for status in pool.map(jobs.get, ids)}


def test_close_leaves_nothing(admin: Admin, fresh: str) -> None:
    """Closed twice, from any thread, no thread, session or waiting feed is left; and then it says that it is closed."""
    before = threading.active_count()
    log = opened(f"{fresh}&application_name=closing")
    feed = log.subscribe()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: log.append([queued(f"job-{n}")]), range(8)))
        log.close()
        pool.submit(log.close).result()

    assert before == threading.active_count()
    assert [] == list(feed)
    with pytest.raises(Unavailable, match="closed"):
        log.read("job-1")
    until(lambda: not admin.execute("SELECT 1 FROM pg_stat_activity WHERE application_name = 'closing'").fetchall())


def test_tracking_is_in_the_transaction(postgres_url: str) -> None:
    """A position that is not beyond the last one refuses the events that came with it."""
    from eventsourcing.persistence import StoredEvent, Tracking

    with closing(PostgresRecorder.open(postgres_url)) as recorder:
        recorder.insert_events([StoredEvent("a", 1, "t", b"{}")], tracking=Tracking("view", 5))
        with pytest.raises(IntegrityError):
            recorder.insert_events([StoredEvent("a", 2, "t", b"{}")], tracking=Tracking("view", 5))

        assert (1, 5) == (len(recorder.select_events("a")), recorder.max_tracking_id("view"))


_WITHOUT = """
import sys
sys.modules["psycopg"] = None
from jobevents import connect
try:
    connect("postgresql://h/db")
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_missing_package_is_named() -> None:
    """Without psycopg the message has the command that installs it."""
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("Misconfigured")
    assert "python -m pip install 'jobevents[postgres]'" in done.stdout
