"""SEC-08: passwords and tokens are in no output, log, error, page or repr, while the host is still to be seen."""

import gc
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from jobevents import connect, doctor, wiring
from jobevents.backends import postgresurl
from jobevents.boundary import hide_password
from jobevents.errors import JobEventsError
from projections.api import create_app
from projections.api.doors import Tokens, line_of, read_holders
from projections.api.routes import ROUTES
from projections.ui.pages import PAGES
from tests.api import address, fill, project
from tests.cli import CommandLine
from tests.cli import jobevents as jobevents  # a fixture
from tests.http import client_of
from tests.postgres_server import Cluster

pytest_plugins = ("tests.postgres",)

SECRET = "s3cr3t@/p:w"
QUOTED = quote(SECRET, safe="")
NOWHERE = "127.0.0.1:1"  # where nothing listens
PARTS = ("s3cr3t", "p:w", "p%3Aw")  # of either form of it

COMMANDS = (
    ("list",),
    ("submit", "render"),
    ("project", "--once"),
    ("doctor",),
    ("migrate",),
    ("serve", "--port", "0"),
    ("workers",),
    ("verify",),
)
URLS = (
    f"postgresql://ana:{QUOTED}@{NOWHERE}/jobs?timeout_s=0.1",
    f"postgresql://ana@{NOWHERE}/jobs?timeout_s=0.1&password={QUOTED}",
    f"postgresql://ana@{NOWHERE}/jobs?timeout_s=0.1&sslpassword={QUOTED}",
    f"postgresql://ana:{QUOTED}@{NOWHERE}/jobs?timeout=1",
    f"sqlite:///there/is/none.db?token={QUOTED}",
    f"s3://bucket/jobs?secret_access_key={QUOTED}",
    f"gs://bucket/jobs?api_key={QUOTED}",
    f"nothing://ana:{QUOTED}@host/jobs",
)


def held(text: str) -> list[str]:
    """Return what of the secret is in a text."""
    return [part for part in PARTS if part in text]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("command", [("list",), ("serve", "--port", "0")])
def test_sec_08_no_command_says_it(command: tuple[str, ...], url: str, jobevents: CommandLine, caplog: Any) -> None:
    """Whatever is wrong with the URL, by whatever command, also in what libraries log; what is wrong is said."""
    caplog.set_level(logging.DEBUG)

    told = jobevents(*command, "--url", url)

    assert told.code in (1, 2)
    assert [] == held(told.out + told.err + caplog.text)
    assert "bucket" in told.err or "host" in told.err or "option" in told.err or NOWHERE in told.err


@pytest.mark.parametrize("command", COMMANDS)
def test_sec_08_no_command_says_it_of_a_server_that_is_away(command: tuple[str, ...], jobevents: CommandLine) -> None:
    """Every one of them names the host."""
    told = jobevents(*command, "--url", URLS[0])

    assert told.code in (1, 2)
    assert [] == held(told.out + told.err)
    assert "127.0.0.1" in told.out + told.err


@pytest.mark.parametrize("url", URLS)
def test_sec_08_no_traceback_holds_it(url: str) -> None:
    """Nor that of any error which it was raised from."""
    with pytest.raises(JobEventsError) as caught:
        connect(url)

    assert [] == held("".join(traceback.format_exception(caught.value)))
    assert [] == held(repr(caught.value) + str(vars(caught.value)))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/a?Token=x&b=1", "https://host/a?Token=***&b=1"),
        ("postgresql://a@h/d?sslpassword=x#y", "postgresql://a@h/d?sslpassword=***#y"),
        ("s3://b/p?region=eu&aws_secret_access_key=x", "s3://b/p?region=eu&aws_secret_access_key=***"),
        ("postgresql://ana:x@h/d?schema=s", "postgresql://ana@h/d?schema=s"),
    ],
)
def test_sec_08_what_is_shown_of_a_url(url: str, shown: str) -> None:
    """All of it but what is secret."""
    assert shown == hide_password(url)


def test_sec_08_the_file_of_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobevents: CommandLine) -> None:
    """What is in a file of credentials that cannot be used is not repeated; the file's name is."""
    file = tmp_path / "key.json"
    file.write_text(f'{{"type": "service_account", "private_key": "{SECRET}"')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))

    told = jobevents("list", "--url", "gs://bucket/jobs")

    assert told.code in (1, 2)
    assert [] == held(told.out + told.err)


def test_sec_08_a_token_in_the_wrong_place(tmp_path: Path, jobevents: CommandLine) -> None:
    """A token that somebody wrote into the file of tokens instead of its line is not repeated."""
    file = tmp_path / "tokens.txt"
    file.write_text(f"ana read {SECRET}\n")

    told = jobevents("serve", "--port", "0", "--tokens", str(file), "--url", "memory://")

    assert 2 == told.code
    assert [] == held(told.out + told.err)
    assert "line=1" in told.err


@pytest.fixture(scope="module")
def url(postgres: Cluster) -> Iterator[str]:
    """A log in Postgres whose URL has a password, which a server that trusts everybody takes."""
    made = postgres.url(f"postgres:{QUOTED}", schema="sec08")
    wiring.migrate(made)
    yield made
    with postgres.connect() as connection:
        connection.execute("DROP SCHEMA sec08 CASCADE")


def test_sec_08_nothing_that_is_served_has_it(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither of the log's password nor of the caller's token: every route, with who is known and who is not, and the doctor."""
    caplog.set_level(logging.DEBUG)
    door = Tokens(read_holders(line_of("ana", ["read"], SECRET), "a test"))
    texts: dict[str, str] = {}
    with connect(url) as jobs:
        past = fill(jobs)
        project(jobs)
        with client_of(create_app(jobs, access=door, stream_s=0)) as client:
            for route in (*ROUTES, *PAGES):
                for header in (f"Bearer {SECRET}", f"Basic {QUOTED}", f"Bearer {SECRET}x"):
                    answer = client.request(route.method, address(route.path, past), headers={"Authorization": header})
                    texts[f"{route.name} {header[:6]}"] = answer.text + str(answer.headers)
        texts["doctor"] = str(list(doctor.examine(jobs)))
        texts["repr"] = " ".join(map(repr, (jobs, jobs.log, jobs.log.recorder, jobs.blobs, jobs.presence, door)))
        targets = [one for one in gc.get_objects() if isinstance(one, postgresurl.Target)]
        texts["targets"] = repr(targets)
    texts["log"] = caplog.text

    assert targets
    assert [] == [name for name, text in texts.items() if held(text)]
