"""URLs of logs and blobs: what is mistyped in one is told, and never opens another store."""

from pathlib import Path
from typing import Any

import pytest

from jobevents import wiring
from jobevents.errors import Misconfigured
from jobevents.wiring import connect, open_blobs


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


NOWHERE = [
    "sqlite://[x",  # no URL at all
    "http://[x",
    "sqlite:///a\0b.db",
    "sqlite:///a%00b.db",
    "sqlite:///a\nb.db",  # urlsplit takes it out
    "sqlite:///a#b.db",  # a fragment: the file would be `a`
    "sqlite:jobs.db",  # the file would be `obs.db`
    "sqlite:/srv/jobs.db",  # the file would be `srv/jobs.db`, here
    "sqlite:///jobs.db?cache=shared",
    "memory://shared",
    "memory:jobs",
    "",
    None,
    Path("jobs.db"),
    b"memory://",
]


@pytest.mark.parametrize("url", NOWHERE)
@pytest.mark.parametrize("use", [connect, open_blobs, wiring.migrate], ids=lambda use: str(use.__name__))
def test_a_url_that_names_no_store_opens_none(use: Any, url: Any) -> None:
    """It is Misconfigured, whatever is wrong with it, and nothing is made on disk."""
    with pytest.raises(Misconfigured):
        use(url)

    assert [] == list(Path().iterdir())


@pytest.mark.parametrize("url", ["file:///{here}/kit?x=1", "kit#1", "kit?1", "gs://bucket/jobs?x=1", "gs://bucket/a#b"])
def test_no_part_of_a_url_of_blobs_is_left_out(url: str, tmp_path: Path) -> None:
    """An option that there is not, or a fragment, is refused instead of being cut from the name."""
    with pytest.raises(Misconfigured):
        open_blobs(url.format(here=tmp_path))


def test_what_is_percent_encoded_is_part_of_the_name(tmp_path: Path) -> None:
    """A path with a #, a ? and blanks is written with %23, %3F and as it is."""
    connect("sqlite:///a%23b%3F c/ö.db").close()

    assert (tmp_path / "a#b? c" / "ö.db").is_file()


def test_one_url_opens_a_log_and_its_blobs() -> None:
    """Options of a SQLite file are known wherever its URL is given, as in JOBEVENTS_URL."""
    url = "sqlite:///jobs.db?synchronous=normal&lock_timeout_s=5"

    assert [] != wiring.migrate(url)
    with connect(url, blobs=url, inline=True) as jobs:
        job_id = jobs.submit("render")
        assert jobs.blobs.get(f"jobs/{job_id}/status.json").data


@pytest.mark.parametrize("url", ["postgresql://ana:se#cret@host/jobs", "postgresql://ana:secret@[host/jobs"])
def test_no_message_holds_a_password(url: str) -> None:
    """What cannot be read of a URL is shown without what could be its password."""
    with pytest.raises(Misconfigured) as refused:
        connect(url)

    assert "cret" not in str(refused.value)


# options


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"blobs": Path("blobs")}, "blobs must be Blobs or a URL such as file:"),
        ({"claim_s": -1}, "claim_s must be seconds from 0.1"),
        ({"claim_s": 0}, "claim_s must be seconds from 0.1"),
        ({"claim_s": "30"}, "claim_s must be seconds"),
        ({"claim_s": float("nan")}, "claim_s must be seconds"),
        ({"lease_s": -1}, "lease_s must be seconds"),
        ({"poll_interval_s": -1}, "poll_interval_s must be seconds from 0 to"),
        ({"poll_interval_s": True}, "poll_interval_s must be seconds"),
        ({"clock": 7}, "clock must be something to call"),
        ({"scrub": "password"}, "scrub must be something to call"),
        ({"on_unreadable": "skip"}, "on_unreadable must be"),
    ],
)
def test_an_option_that_cannot_work_is_told_at_once(option: dict[str, Any], says: str) -> None:
    """Not when it is used for the first time; no file is made."""
    with pytest.raises(Misconfigured, match=says):
        connect("sqlite:///jobs.db", **option)

    if "on_unreadable" not in option and "lease_s" not in option:
        assert not Path("jobs.db").exists()


def test_a_file_made_here_is_its_owners_alone() -> None:
    """The database, and what SQLite makes beside it; one that is there stays as it is."""
    Path("shared.db").touch(mode=0o644)
    Path("shared.db").chmod(0o664)

    with connect("sqlite:///new.db") as jobs, connect("sqlite:///shared.db", create=True):
        jobs.submit("render")
        modes = {path.name: path.stat().st_mode & 0o777 for path in Path().glob("new.db*") if path.is_file()}

    assert {"new.db", "new.db-wal", "new.db-shm"} == set(modes)
    assert {0o600} == set(modes.values())
    assert 0o664 == Path("shared.db").stat().st_mode & 0o777
