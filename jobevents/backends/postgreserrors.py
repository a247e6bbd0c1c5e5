"""What an error of Postgres, of its driver, or on the way to it, means to a caller; no message holds a password."""

import re
from typing import Final

import psycopg
from eventsourcing.persistence import IntegrityError, PersistenceError

from jobevents.backends.postgresurl import Target, database, where
from jobevents.errors import (
    Conflict,
    Corrupt,
    InvalidValue,
    JobEventsError,
    Misconfigured,
    PermissionDenied,
    Unavailable,
)

# https://www.postgresql.org/docs/current/errcodes-appendix.html
DIVISION_BY_ZERO: Final = "22012"
_ENDED = (
    "57P01",
    "57P02",
    "57P03",
    "57P04",
    "57P05",
    "25P03",
)  # the server shuts down, starts up, or ended the session
_PASSING = (*_ENDED, "53300", "40001", "40P01", "26000")  # too many connections; deadlock; a plan that was forgotten


class Unsure(Unavailable):
    """The reply to a write was lost, and the database did not come back in time: it may be written or not."""


def is_lost(error: psycopg.Error) -> bool:
    """Tell whether an error ended its connection, so that nobody knows what came of the statement under way."""
    code = error.sqlstate
    return code in _ENDED or (code or "").startswith("08") or (code is None and _is_of_the_way(error))


def is_passing(error: psycopg.Error) -> bool:
    """Tell whether the same may work a moment later, on another connection."""
    if error.sqlstate is None:
        return _is_of_the_way(error) and _of_login(str(error)) is None
    return is_lost(error) or error.sqlstate in _PASSING


def translate(error: BaseException, target: Target) -> JobEventsError:
    """Return our error for one of psycopg, of eventsourcing over it, or of the network; ours comes back as it is.

    Unless it is a Conflict, nothing was written.
    """
    if isinstance(error, JobEventsError):
        return error
    root = _root(error)
    what = f"{where(target)} error={_one_line(root)}"
    if not isinstance(root, psycopg.Error):
        if isinstance(error, IntegrityError):
            return Conflict(f"somebody else wrote first {what}")
        return Unavailable(f"database failed {what}")
    if root.sqlstate is None:
        return _of_connection(root, target, what)
    return _of_state(root.sqlstate, target, what)


def _of_state(code: str, target: Target, what: str) -> JobEventsError:
    match code:
        case "53100":
            return Unavailable(f"disk is full {what}: free some space on the server, then it works again by itself")
        case "55P03":
            return Unavailable(f"database is locked {what}: another transaction holds its lock longer than the limit")
        case "25006" | "42501" | "0LP01":
            return _of_access(code, target, what)
        case "42P01" | "42703" | "3F000" | "42704" | "42883":
            return Misconfigured(
                f"database lacks a table, column or schema {what}: run `jobevents migrate --url {target.shown}`"
            )
        case "XX001" | "XX002":
            return Corrupt(f"database is damaged {what}: it was left as it is; restore a copy")
        case "54000" | "54001" | "54011":
            return InvalidValue(f"value is too large for the database {what}")
    if code.startswith("23"):
        return Conflict(f"somebody else wrote first {what}")
    if code.startswith("22") or code == "42804":
        return InvalidValue(f"value cannot be stored {what}")
    if code.startswith("28"):
        return PermissionDenied(f"database refuses this user {what}: correct user and password in the URL or ~/.pgpass")
    return Unavailable(f"database failed {what}")


def _of_access(code: str, target: Target, what: str) -> JobEventsError:
    if code == "25006":
        return PermissionDenied(
            f"database is read-only {what}: a replica, perhaps; connect to the primary, or name all hosts and add "
            "target_session_attrs=read-write"
        )
    return PermissionDenied(
        f"database may not be used so by this user {what}: GRANT it ALL on schema {target.schema} and its tables, or "
        "connect as their owner"
    )


def _of_connection(error: psycopg.Error, target: Target, what: str) -> JobEventsError:
    """Return our error for one without a code: of the driver itself, or from before the session had begun."""
    if isinstance(error, psycopg.DataError | psycopg.ProgrammingError):
        return InvalidValue(f"value cannot be stored {what}")
    match _of_login(str(error)):
        case "database":
            name = database(target)
            return Misconfigured(f"there is no database {what}: run `createdb --encoding=UTF8 {name}` on its server")
        case "refused":
            return PermissionDenied(
                f"database refuses this user {what}: correct user and password in the URL or ~/.pgpass, or allow it in "
                "pg_hba.conf"
            )
        case "certificate":
            return Misconfigured(f"connection is not trusted {what}: correct sslmode, sslrootcert or the server")
    if re.search(r"could not translate host name|failed to resolve host", str(error)):
        return Unavailable(f"host is unknown {what}: is its name right, and the network there?")
    if re.search(r"connection (failed|is bad|timeout)|multiple connection attempts", str(error), re.IGNORECASE):
        return Unavailable(f"cannot connect {what}: does the server run, and listen there?")
    return Unavailable(f"connection was lost {what}")


def _of_login(text: str) -> str | None:
    """Tell what is wrong with how we come in; None: nothing. Until a session has begun, Postgres gives text and no code."""
    if re.search(r'database "[^"]*" does not exist', text):
        return "database"
    if re.search(r"authentication failed|no password supplied|pg_hba.conf|role \"[^\"]*\" does not exist", text):
        return "refused"
    if re.search(r"permission denied for database|is not permitted to log in", text):
        return "refused"
    return "certificate" if re.search(r"certificate verify failed|root certificate file", text) else None


def _is_of_the_way(error: psycopg.Error) -> bool:
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def _root(error: BaseException) -> BaseException:
    """Return the error under the library's wrappers, which chain it."""
    while isinstance(error, PersistenceError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
