"""The contracts on a database of yours, with one command:

    python -m pytest --pyargs jobevents.testing --jobevents-url postgresql://user@host/database

The URL is one for `connect`. Nothing that is there is touched: each test has a log of its own, in SQLite a file in a new
directory beside the one named, in Postgres a new schema, on blobs (`gs://bucket/prefix`, `file:///directory`) a new prefix;
all are gone afterwards. The account must be allowed to make them. Of what is kept on blobs, the log alone is proved.
"""

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import pytest

from jobevents.errors import Misconfigured
from jobevents.jobs import Jobs
from jobevents.pytest_plugin import OPTION
from jobevents.testing.clock import Clock
from jobevents.wiring import connect, migrate, open_blobs


@pytest.fixture(scope="session")
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL below which each test has a log of its own."""
    url: str = request.config.getoption(OPTION)
    if not url:
        pytest.skip(f"no database to prove: give {OPTION} sqlite:///data/any.db, say")
    parts = urlsplit(url)
    if parts.scheme != "sqlite":
        yield url
        return
    named = Path(unquote(parts.path[1:])).absolute()
    named.parent.mkdir(parents=True, exist_ok=True)
    directory = tempfile.mkdtemp(prefix=f"{named.stem}-contracts-", dir=named.parent)
    yield f"sqlite:///{directory}?{parts.query}"
    shutil.rmtree(directory)


@pytest.fixture
def url(place: str) -> Iterator[str]:
    """The URL of an empty log."""
    parts = urlsplit(place)
    name = f"contract_{secrets.token_hex(6)}"
    match parts.scheme:
        case "memory":
            yield place
        case "sqlite":
            yield f"sqlite:///{parts.path[1:]}/{name}.db?{parts.query}"
        case "postgresql" | "postgres":
            options = {**dict(parse_qsl(parts.query)), "schema": name}
            yield from _schema(urlunsplit(parts._replace(query=urlencode(options))), place, name)
        case "gs" | "file":
            yield from _prefix(urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}")))
        case _:
            raise Misconfigured(f"the contracts know no way to make an empty log scheme={parts.scheme}: subclass them")


def _prefix(url: str) -> Iterator[str]:
    """Yield the URL of an empty prefix, and remove all that is below it in the end."""
    yield url
    blobs, prefix = open_blobs(url)
    for entry in list(blobs.list(f"{prefix}/" if prefix else "")):
        blobs.delete(entry.name)
    blobs.close()
    if urlsplit(url).scheme == "file":
        shutil.rmtree(unquote(urlsplit(url).path), ignore_errors=True)


def _schema(url: str, place: str, name: str) -> Iterator[str]:
    """Yield the URL when its schema is there, and drop that in the end."""
    import psycopg  # of an extra that only these users have

    migrate(url)
    yield url
    with psycopg.connect(urlunsplit(urlsplit(place)._replace(query="")), autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA "{name}" CASCADE'.encode())


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until it is moved."""
    return Clock()


@pytest.fixture
def jobs(url: str, clock: Clock) -> Iterator[Jobs]:
    """The jobs of an empty log."""
    with connect(url, clock=clock) as made:
        yield made
