"""The composition root: a URL becomes Jobs. The one place that knows which backends and views there are; each comes lazily."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from jobevents import boundary, wiring_bus, wiring_dispatch
from jobevents.blobs import Blobs, MemoryBlobs
from jobevents.errors import Corrupt, Misconfigured
from jobevents.opening import (
    POSTGRES,
    check_options,
    checks_of,
    extra,
    no_more,
    open_files,
    open_gcs,
    open_log,
    open_s3,
)
from jobevents.workers import LEASE_S, identity

if TYPE_CHECKING:
    from jobevents.attempt import OnUnreadable
    from jobevents.bus import Bus
    from jobevents.jobs import Jobs
    from jobevents.opening import Capture
    from jobevents.tasks import Dispatch
    from projections.archive import Archive
    from projections.positions import Positions
    from projections.projector import Follower, Projector
    from projections.rebuild import Builder, Rebuilt
    from projections.view import View

CAPTURE_LIMIT = 128 * 2**20  # bytes of a capture, unpacked: it is held in memory, two or three times as large
VIEWS = ("status", "index")  # what a projector keeps, if it is not told otherwise

_BLOB_EXAMPLES = "memory://, file:///var/lib/jobs, sqlite:///data/blobs.db, postgresql://user@host/database, gs://bucket/prefix, s3://bucket/prefix"


def connect(
    url: str,
    *,
    blobs: Blobs | str | None = None,
    bus: "Bus | str | None" = None,
    inline: bool = False,
    actor: str = "",
    clock: Callable[[], datetime] | None = None,
    scrub: boundary.Scrub | None = None,
    tables: tuple[str, str] | None = None,
    schema: str = "",
    poll_interval_s: float = 0,
    on_unreadable: "OnUnreadable | None" = None,
    dispatch: "Dispatch | str | None" = None,
    adopt_deletes: bool = False,
    lease_s: float = LEASE_S,
    claim_s: float = LEASE_S,
    create: bool = True,
) -> "Jobs":
    """Open the jobs behind a URL; a brand-new SQLite file gets its tables, an older one is never migrated unasked.

    Args:
        url: `memory://`, or `sqlite:///relative.db` and `sqlite:////absolute.db`, with `?synchronous=normal` for commits that
            survive a crash of the process but not of the machine, and `?lock_timeout_s=30`; or
            `postgresql://user:password@host:port/database`, with libpq's options, `timeout_s=30` (how long a call tries before
            it is Unavailable) and `pool_size=10`; its tables are made by `migrate` alone; or `gs://bucket/prefix`. The same log
            of objects is kept in files by `file:///directory`, and in memory by `memory://?log=blobs`. `incident.jev`, a file
            that `capture` wrote, is shown as it is, read-only.
        blobs: where projections live: Blobs, or a URL for `open_blobs`; by default memory, files beside the SQLite file, or a
            table beside the log's in Postgres.
        bus: what every event goes out by, at least once: `pubsub://projects/p/topics/t`, or `?topic=` in `url` with its name.
        inline: write status.json in this process after every event, for services that run no projector.
        actor: who writes, where a call does not say.
        clock: aware UTC now; for tests.
        scrub: called on params, fields, errors and results before they are encoded.
        tables: names of the tables of runs and of their log lines, default `("job_runs", "job_run_logs")`.
        schema: of a Postgres database, where the tables are; default `public`, or `?schema=` of the URL.
        poll_interval_s: how late a commit is seen at most when word of it was lost; default 1 s.
        on_unreadable: what an attempt does when the log cannot be read: "raise" (default) or "run".
        dispatch: called with each external job that begins to wait, a `tasks.Task`, to have a task queue of yours deliver
            it; also again with what was lost. Or the URL of such a queue: `cloudtasks://projects/p/locations/l/queues/q?url=
            https://host&service_account=email`.
        adopt_deletes: a status that somebody removed by hand is a deleted job, instead of one to be written again.
        lease_s: seconds after which a worker that gives no sign is dead, and its jobs are lost; 0.1 s to a day.
        claim_s: seconds after which a run that a worker reserved and never began is handed out again.
        create: make a log that is not there; else that is an error.

    Raises:
        Misconfigured: the URL or an option cannot work; the message says what to change.
        Corrupt, PermissionDenied, Unavailable: what the file says.
    """
    # These three bring eventsourcing, a third of the time of an import, which a service that only keeps records never needs.
    from jobevents.emit import Emitter
    from jobevents.jobs import Jobs
    from jobevents.log import EventLog

    check_options(blobs=blobs, claim_s=claim_s, poll_interval_s=poll_interval_s, clock=clock, scrub=scrub)
    named = tables or ("job_runs", "job_run_logs")
    url, topic = wiring_bus.split_topic(url)
    opened = open_log(url, named, create=create, schema=schema, poll_interval_s=poll_interval_s)
    if opened.bucket and blobs:
        raise Misconfigured("a log on blobs has its views beside it: leave out blobs")
    if opened.capture and (blobs or inline or bus or topic):
        raise Misconfigured("a capture is shown as it is: leave out blobs, inline, bus and topic")
    store, prefix = open_blobs(blobs) if isinstance(blobs, str) else (blobs, "") if blobs else opened.beside()
    emitter = Emitter(EventLog(opened.recorder, opened.translate), clock=clock or _utc_now)
    jobs = Jobs(
        emitter,
        runs=opened.keeps.runs,
        run_logs=opened.keeps.run_logs,
        blobs=store,
        leases=opened.keeps.leases,
        desk=opened.keeps.desk,
        retention=opened.bucket.retention if opened.bucket else None,
        pace=opened.bucket.pace if opened.bucket else None,
        prefix=prefix,
        actor=actor,
        scrub=scrub,
        on_unreadable=on_unreadable or "raise",
        adopt_deletes=adopt_deletes,
        lease_s=lease_s,
        claim_s=claim_s,
        poll_interval_s=poll_interval_s,
    )
    if opened.bucket:
        opened.bucket.attach(emitter)
        opened.bucket.recorder.count_in(jobs.counts)
        jobs.at_close(opened.bucket.close)
    if opened.capture:
        _fill(jobs, opened.capture)
    if inline:
        _write_statuses_inline(jobs, store, prefix)
    if bus or topic:
        wiring_bus.publish(jobs, bus or topic)
    if dispatch is not None:
        wiring_dispatch.attach(jobs, dispatch)
    return jobs


def projector(jobs: "Jobs", names: Sequence[str] = (), *, leased: bool = True) -> "Projector":
    """Return a projector into the views with these names, or all: `status` and `index`, kept where the jobs' blobs are.

    Args:
        leased: stand by while another process projects into the same view.

    Raises:
        Misconfigured: there is no such view, or the log has not one sequence.
    """
    from jobevents.lease import RoleLease
    from projections.positions import TrackedPositions
    from projections.projector import Projector

    recorder = tracker(jobs)
    views = [view(jobs, name, TrackedPositions(recorder), prefix=jobs.prefix) for name in names or VIEWS]
    holder = identity()
    roles = {one.name: f"projector-{one.name}" for one in views} if leased else {}
    leases = {name: RoleLease(jobs.blobs, role, holder, prefix=jobs.prefix) for name, role in roles.items()}
    return Projector(
        jobs.log,
        views,
        alarm=recorder,
        blobs=jobs.blobs,
        prefix=jobs.prefix,
        leases=leases,
        holder=holder,
        counts=jobs.counts,
        clock=jobs.emitter.clock,
    )


def rebuild(
    jobs: "Jobs",
    names: Sequence[str] = (),
    *,
    on_progress: Callable[[int, int], None] = lambda _, __: None,
    on_swapped: Callable[[], None] = lambda: None,
    threads: int = 16,
) -> "Rebuilt":
    """Build the views with these names, or all, from the log beside the live ones, then swap them in.

    Args:
        on_progress: called with (position, head of the log) while the build reads the log.
        on_swapped: called for each status that was compared with the live one.
        threads: reads and writes of blobs under way at once: what hides a bucket's latency.

    Raises:
        Misconfigured: there is no such view; or newer code has written the live index.
        Unavailable, PermissionDenied, Corrupt: what the log or the store says; the live views are as good as before.
        Conflict: the live index is written all the time, or another rebuild came first.
    """
    from projections.rebuild import MemoryPositions, build_name

    names = names or VIEWS
    positions = MemoryPositions()
    with builder(jobs, build_name(jobs.emitter.clock()), threads) as made:
        views = [view(jobs, name, positions, prefix=made.root, live=False, made_by=made) for name in names]
        made.project(views, on_progress)
        if "status" in names:
            made.swap_statuses(wiring_bus.live_positions(jobs), on_swapped)
        if "index" in names:
            made.swap_index()
        return made.finish()


def roll_back(jobs: "Jobs", build: str, *, threads: int = 16) -> int:
    """Put back what a rebuild replaced, unless something newer is there; return how many blobs.

    Raises:
        InvalidValue: no build has such a name.
        NotFound: there is no such build, or a later one has taken its place.
        Misconfigured: newer code has written the live index.
        Unavailable, PermissionDenied, Corrupt: what the log or the store says; the same may be asked for again.
        Conflict: the live index is written all the time, or another rebuild came first.
    """
    from projections.rebuild import MemoryPositions

    with builder(jobs, build, threads) as made:
        return made.roll_back([view(jobs, "index", MemoryPositions(), prefix=made.before, live=False)])


def builder(jobs: "Jobs", build: str, threads: int) -> "Builder":
    """Return what makes the build of a name, or takes one back; close it.

    Raises:
        InvalidValue: no build has such a name.
    """
    from projections.rebuild import Builder

    if not jobs.log.ordered:
        kept = archive(jobs)
        everything = partial(kept.histories, jobs.log) if kept else jobs.log.by_job
        return wiring_bus.builder(jobs, build, threads, everything=everything)
    return Builder(jobs.emitter, tracker(jobs), jobs.blobs, jobs.prefix, build, threads=threads)


def tracker(jobs: "Jobs") -> "Follower":
    """Return the log's recorder as what a projector needs of it.

    Raises:
        Misconfigured: the log has not one sequence.
    """
    from projections.projector import Follower

    recorder = jobs.log.recorder
    if not jobs.log.ordered or not isinstance(recorder, Follower):
        raise Misconfigured("this log has no one sequence that a projector could follow; use a log in a database")
    return recorder


def view(
    jobs: "Jobs", name: str, positions: "Positions", *, prefix: str, live: bool = True, made_by: "Builder | None" = None
) -> "View":
    """Return a view kept below a prefix; one that is not live adopts nothing, as there is nothing foreign in it."""
    match name:
        case "status":
            from projections.adoption import Adoption
            from projections.status import StatusView

            made = StatusView(
                jobs.blobs,
                prefix,
                positions=positions,
                adopt=Adoption(jobs.emitter) if live else None,
                adopt_deletes=live and jobs.adopt_deletes,
                counts=jobs.counts,
                threads=made_by.threads if made_by else 16,
                told=made_by.told_by() if made_by else None,
            )
            jobs.at_close(made.close)
            return made
        case "index":
            from projections.indexview import IndexView
            from projections.unplaced import UnplacedIndex

            index = IndexView(jobs.blobs, prefix)
            return index if jobs.log.ordered else UnplacedIndex(index)
        case _:
            raise Misconfigured(f"no such view name={name!r}; use one of {', '.join(VIEWS)}")


def archive(jobs: "Jobs") -> "Archive | None":
    """Return the log's archive; None when nothing was ever archived: one list.

    Raises:
        Misconfigured: there is one, and what reads it is not installed.
    """
    if next(jobs.blobs.list(jobs.blob_name("segments/v1/")), None) is None:
        return None
    with extra("analytics"):
        from projections.archive import Archive

    return Archive(jobs.blobs, jobs.prefix)


def ddl(url: str, tables: tuple[str, str] | None = None) -> str:
    """Return the DDL of a URL's tables, for teams that own theirs.

    Raises:
        Misconfigured: the URL's log has no tables.
    """
    url, _ = wiring_bus.split_topic(url)
    if boundary.split_url(url).scheme in POSTGRES:
        with extra("postgres"):
            from jobevents.backends import postgres

        return postgres.ddl(url, tables=tables or ("", ""))
    if boundary.split_url(url).scheme != "sqlite":
        raise Misconfigured(f"this log has no tables url={boundary.hide_password(url)!r}")
    from jobevents.backends import sql, sqliteschema

    return sqliteschema.ddl(sql.Tables(*tables or ()))


def migrate(url: str, tables: tuple[str, str] | None = None) -> list[int]:
    """Bring a URL's tables to this version's schema, and return the steps applied; none when they are there already.

    Raises:
        Misconfigured: the URL's log has no tables, or they are newer than this version.
        Unavailable, PermissionDenied, Corrupt: what the file says.
    """
    url, _ = wiring_bus.split_topic(url)
    parts = boundary.split_url(url)
    if parts.scheme in POSTGRES:
        with extra("postgres"):
            from jobevents.backends import postgres

        return postgres.migrate(url, tables=tables or ("", ""))
    if parts.scheme != "sqlite":
        raise Misconfigured(f"this log has no tables url={boundary.hide_password(url)!r}")
    from jobevents.backends import sql, sqliteschema, sqliteurl

    path, _, lock_timeout_s = sqliteurl.parse(parts, url)
    return sqliteschema.migrate(path, tables=sql.Tables(*tables or ()), lock_timeout_s=lock_timeout_s)


def open_blobs(url: str) -> tuple[Blobs, str]:
    """Return (blobs, prefix) for a URL: names under `prefix` in a store of `blobs`.

    `memory://`, `file:///directory` (or a plain path), `sqlite:///file.db`, `postgresql://user@host/database` (where `migrate`
    has made the tables), `gs://bucket/prefix`, `s3://bucket/prefix`.

    Raises:
        Misconfigured: the URL names no such store.
    """
    parts = boundary.split_url(url)
    if parts.scheme not in ("sqlite", *POSTGRES):
        no_more(parts, url)
    match parts.scheme:
        case "memory":
            return MemoryBlobs(), ""
        case "" | "file":
            return open_files(parts, url), ""
        case "sqlite":
            from jobevents.backends import sqliteurl
            from jobevents.backends.sqlblobs import SqliteBlobs

            path, _, lock_timeout_s = sqliteurl.parse(parts, url)
            return SqliteBlobs(path, busy_timeout_s=lock_timeout_s), ""
        case "postgresql" | "postgres":
            with extra("postgres"):
                from jobevents.backends import postgres

            return postgres.open_blobs(url), ""
        case "gs":
            return open_gcs(parts, url)
        case "s3":
            return open_s3(parts, url)
        case _:
            raise Misconfigured(
                f"no blobs for this URL url={boundary.hide_password(url)!r}; use one of {_BLOB_EXAMPLES}"
            )


def _fill(jobs: "Jobs", capture: "Capture") -> None:
    """Fill the log of a capture from its file, make its views, and let nothing be written any more."""
    from jobevents.restoring import restore

    with ExitStack() as failing:
        failing.callback(jobs.close)
        report = restore(jobs.emitter, jobs.run_logs, capture.path, at_most=CAPTURE_LIMIT)
        if report.refused:
            why = "; ".join(report.reasons.values())
            raise Corrupt(f"capture holds what its chains do not prove file={capture.path}: {why:.500}")
        capture.seal()
        jobs.is_captured = True
        projector(jobs, leased=False).run_once()
        failing.pop_all()


def check_blobs(jobs: "Jobs") -> list[tuple[str, bool, str]]:
    """Look at what of the set-up of the jobs' bucket would lose events or money: (name, is it well, what was found) of each.

    Nothing where they have none.

    Raises:
        Unavailable, PermissionDenied, Misconfigured: the bucket cannot be used now, or at all.
    """
    return [(check.name, check.is_well, check.found) for check in checks_of(jobs.blobs, jobs.prefix)]


def _write_statuses_inline(jobs: "Jobs", blobs: Blobs, prefix: str) -> None:
    from projections.adoption import Adoption
    from projections.inline import InlineStatus
    from projections.statuswriter import StatusWriter

    adopt = Adoption(jobs.emitter)
    writer = StatusWriter(blobs, prefix, adopt=adopt, adopt_deletes=jobs.adopt_deletes, counts=jobs.counts)
    inline = InlineStatus(writer, blobs.min_write_interval_s)
    jobs.observe(inline, close=inline.close)


def _utc_now() -> datetime:
    return datetime.now(UTC)
