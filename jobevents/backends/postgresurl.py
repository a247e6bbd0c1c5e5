"""The URL of a Postgres log: what libpq is told, our own options, and how the URL is shown, which is without its password."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from jobevents.boundary import hide_password
from jobevents.errors import Misconfigured

POLL_INTERVAL_S: Final = 1.0  # behaviour T7: how late a commit is seen at most, when its notification was lost
TIMEOUT_S: Final = 30.0  # as long as a write to a SQLite file waits
POOL_SIZE: Final = 10  # connections a process: Postgres allows 100 in all, if it is not told otherwise

_OURS = ("schema", "poll_interval_s", "timeout_s", "pool_size")
# A server that vanished without a word is given up after about 25 s; https://www.postgresql.org/docs/current/libpq-connect.html
_CARE: Mapping[str, str] = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
    "application_name": "jobevents",
    "client_encoding": "UTF8",
}


class Target(NamedTuple):
    """Which database is meant, and how to go about it."""

    conninfo: Mapping[str, str]  # libpq's keywords
    shown: str  # the URL without its password
    schema: str  # where our tables are
    poll_interval_s: float  # how often to look for commits that nobody told of
    timeout_s: float  # how long a call tries before it is Unavailable
    pool_size: int  # connections lent to threads at once, at most

    def __repr__(self) -> str:
        return f"Target({self.shown!r})"  # it may stand in a traceback


def parse(url: str, *, schema: str = "", poll_interval_s: float = 0) -> Target:
    """Return what a URL names; `schema` and `poll_interval_s` win over its own, "" and 0 leave them.

    Raises:
        Misconfigured: it cannot be read, or an option is none. The message never holds the password.
    """
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    ours = {key: value for key, value in query if key in _OURS}
    theirs = {key: value for key, value in query if key not in _OURS}
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    for key in theirs:
        if key not in known:
            raise Misconfigured(
                f"unknown option in the URL option={key} url={hide_password(url)}: use {', '.join(_OURS)} or one of libpq's"
            )
    rest = parts._replace(scheme="postgresql", query=urlencode(theirs, quote_via=quote), fragment="").geturl()
    try:
        conninfo = {key: str(value) for key, value in conninfo_to_dict(rest).items() if value is not None}
    except psycopg.Error:
        raise _unreadable() from None
    if "@" in conninfo.get("host", "") or not re.fullmatch("[0-9,]*", conninfo.get("port", "")):
        raise _unreadable()  # a password's own @ or / is taken for the end of it: the rest must not be shown as a host
    named = schema or ours.get("schema") or "public"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,39}", named):
        raise Misconfigured(f"schema name is invalid schema={named!r}: use 1 to 40 letters, digits and _")
    interval_s = poll_interval_s or _number("poll_interval_s", ours, 0)
    return Target(
        conninfo={**_CARE, **conninfo},
        shown=_shown(conninfo, named),
        schema=named,
        poll_interval_s=interval_s if interval_s > 0 else POLL_INTERVAL_S,
        timeout_s=_number("timeout_s", ours, TIMEOUT_S),
        pool_size=max(1, int(_number("pool_size", ours, POOL_SIZE))),
    )


def where(target: Target) -> str:
    """Return host, port and database for a message."""
    host = target.conninfo.get("host") or target.conninfo.get("hostaddr") or "local socket"
    return f"host={host} port={target.conninfo.get('port', '5432')} dbname={database(target)}"


def database(target: Target) -> str:
    """Return the database's name; libpq's own default is the user's."""
    return target.conninfo.get("dbname") or target.conninfo.get("user") or "default"


def _unreadable() -> Misconfigured:
    return Misconfigured(
        "URL cannot be read: write postgresql://user:password@host:port/database, with the special characters of "
        "each part percent-encoded"
    )


def _shown(conninfo: Mapping[str, str], schema: str) -> str:
    user = quote(conninfo.get("user", ""), safe="")
    host = conninfo.get("host", "")
    place = f"{quote(host, safe='') if host.startswith('/') else host}{':' + conninfo['port'] if 'port' in conninfo else ''}"
    query = "" if schema == "public" else f"?schema={schema}"
    return f"postgresql://{user + '@' if user else ''}{place}/{quote(conninfo.get('dbname', ''), safe='')}{query}"


def _number(name: str, options: Mapping[str, str], default: float) -> float:
    text = options.get(name, "")
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not abs(number) < 86_400:
        raise Misconfigured(f"{name} must be a number value={text!r}")
    return number
