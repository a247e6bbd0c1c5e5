"""No value leaves whose name is masked: by no route, page or stream, at no depth."""

from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobevents import connect, wiring
from jobevents.events import JobImported, JobRecorded, TransitionRefused
from jobevents.job import fold
from jobevents.jobs import Jobs
from jobevents.records import status_bytes
from jobevents.status import Status
from jobevents.testing.strategies import histories, json_values
from projections.api import create_app
from projections.api.masking import MASKED, Mask
from projections.api.routes import READS
from projections.api.streamroutes import STREAMS
from projections.ui.pages import PAGES
from tests.cli import CommandLine
from tests.cli import jobevents as jobevents  # a fixture
from tests.clock import START
from tests.http import Client, client_of
from tests.test_serve import served

SECRET = "s3cr3t-0451"
NAMES = (
    "password",
    "dbPassword",
    "X-Api-Key",
    "API_KEY",
    "authorization",
    "access token",
    "user_credentials",
    "db_pwd",
    "\uff50assword",
)

_names = st.sampled_from(NAMES)
_plain = st.sampled_from(["song", "user", "items", "depth"])


def hidden() -> st.SearchStrategy[Any]:
    """JSON objects with the secret somewhere, under a masked name, and deeper still."""
    below = st.recursive(st.just(SECRET), lambda inner: st.lists(inner, min_size=1, max_size=2) | _in(_plain, inner))
    named = _in(_names, below)
    around = st.recursive(
        named, lambda inner: _in(_plain, inner) | st.lists(inner, min_size=1, max_size=2), max_leaves=3
    )
    return _in(_plain, around) | named


def _in(names: st.SearchStrategy[str], inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(names, inner, min_size=1, max_size=2)


class Record(Status):
    """A service's own record."""

    api_token: str = ""
    song: str = ""


def run(jobs: Jobs, params: Any, result: Any, attrs: Any, name: str) -> str:
    """Have a job that says the secret wherever a name can be given to it; return its id."""
    job_id = jobs.submit("render", params, title="Song 7")
    with jobs.attempt(job_id) as attempt:
        attempt.annotate(api_token=SECRET, song="7", **{name: SECRET})
        attempt.log("begun", **attrs)
        attempt.result(result)
    wiring.projector(jobs, leased=False).run_once()
    return job_id


def everything(api: Client, job_id: str, *, but: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the text of all that can be read of a job, by route; a job's events and pages at each of its versions."""
    found = {}
    for route in (*READS, *STREAMS, *PAGES):
        path = route.path.replace("{job_id}", job_id)
        known = {one.name for one in route.parameters}
        queries = ["", *(f"?{query}" for query in _QUERIES if query.partition("=")[0] in known)]
        for query in queries if route.name not in but else ():
            answer = api.get(f"{path}{query}".replace("{job}", job_id))
            if query and answer.status_code == 400:
                continue
            assert answer.status_code < 500, (path, query, answer.text)
            found[f"{path}{query}"] = answer.text
    return found


_QUERIES = (
    *(f"version={version}" for version in range(1, 6)),
    *(f"at={version}" for version in range(1, 6)),
    "with={job}",
    "view=json",
    "view=full",
    "as_of=%235",
    "as_of=@5",
    "cursor=",
    "command=render",
    "after=0",
    "all=yes",
    "start=2",
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(hidden(), hidden(), hidden(), st.sampled_from(["password", "api_key", "db_secret"]))
def test_no_masked_value_leaves(params: Any, result: Any, attrs: Any, name: str) -> None:
    """Wherever a masked name stands, its value is in no answer; but for the status, which is status.json to the byte."""
    with connect("memory://") as jobs:
        job_id = run(jobs, params, result, attrs, name)
        with client_of(create_app(jobs, record=Record, stream_s=0)) as api:
            told = everything(api, job_id, but=("job_status",))
            status = api.get(f"/api/jobs/{job_id}/status")
            assert api.get("/api/features").json()["status_is_exact"]
        exact = status_bytes(jobs.job(job_id))

    assert [] == [path for path, text in told.items() if SECRET in text]
    assert 8 <= sum(MASKED in text for text in told.values())
    assert exact + b"\n" == status.content


def test_what_is_named_is_masked_in_the_status_too() -> None:
    """Names that the server is told to mask are masked everywhere, and those of secrets are then not by themselves."""
    with connect("memory://") as jobs:
        job_id = run(jobs, {"song": SECRET, "password": "shown"}, {}, {}, "song_key")
        with client_of(create_app(jobs, record=Record, mask=("song*", "api_*"), stream_s=0)) as api:
            told = everything(api, job_id)
            status = msgspec.json.decode(api.get(f"/api/jobs/{job_id}/status").content)
            params = api.get(f"/api/jobs/{job_id}").json()["params"]

    assert [] == [path for path, text in told.items() if SECRET in text]
    assert (MASKED, MASKED) == (status["song_key"], status["song"])
    assert {"song": MASKED, "password": "shown"} == params


def test_what_the_command_is_told_to_mask(tmp_path: Path) -> None:
    """It is masked beside the names of secrets, and all of it in the status as well, as the features say."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with connect(url) as jobs:
        job_id = run(jobs, {"song": "7", "api_token": SECRET, "n": 1}, None, {}, "n")
    with served("--url", url, "--mask", "so?g", cwd=tmp_path) as (place, _):
        found = {
            path: httpx.get(f"{place}/api{path}", trust_env=False).json()
            for path in (f"/jobs/{job_id}/status", f"/jobs/{job_id}", "/features")
        }

    status, job, features = found.values()
    assert {"song": MASKED, "api_token": MASKED, "n": 1} == job["params"]
    assert (MASKED, MASKED, MASKED, False) == (
        status["song"],
        status["api_token"],
        job["fields"]["song"],
        features["status_is_exact"],
    )


def test_the_command_is_told_one_thing(jobevents: CommandLine) -> None:
    assert 2 == jobevents("serve", "--mask", "x", "--no-mask").code


def test_nothing_masked_is_nothing_masked() -> None:
    """With no names, everything is shown."""
    with connect("memory://") as jobs:
        job_id = run(jobs, {"password": SECRET}, None, {}, "password")
        with client_of(create_app(jobs, mask=(), stream_s=0)) as api:
            found = api.get(f"/api/jobs/{job_id}").json()
            assert api.get("/api/features").json()["status_is_exact"]

    assert {"password": SECRET} == found["params"]


@given(json_values())
def test_what_is_not_named_stays(value: Any) -> None:
    """A value without a masked name is what it was."""
    assert value == Mask(()).value(value)
    assert value == Mask(("no such name",)).value(value) or "no such name" in str(value)


@given(histories())
def test_a_masked_history_is_a_history(events: list[Any]) -> None:
    """Whatever is masked, the events can be folded, to the job as it is with that masked: what is shown agrees."""
    mask = Mask(("*",))

    masked, plain = fold([mask.event(event) for event in events]), mask.job(fold(events))

    assert (plain.state, plain.version, plain.title) == (masked.state, masked.version, masked.title)
    assert (plain.params, plain.result, plain.fields) == (masked.params, masked.result, masked.fields)


@pytest.mark.parametrize("is_cut", [False, True])
def test_records_of_others_are_masked(is_cut: bool) -> None:
    """What others wrote into a status is masked as well, in the refusal of it too, also where that was cut short."""
    record = '{"state":"failed","password":"' + SECRET + ('"' if is_cut else '"}')
    common: Any = {"job_id": "a", "version": 1, "id": "1", "at": START}
    changes = {"title": "Song 7", "attempts": 3, "password": SECRET}
    events = [
        TransitionRefused(**common, start=0, tried="JobRecorded", state="x", detail=f"late record={record}"),
        JobRecorded(**common, state="running", changes=changes),
        JobImported(**common, state="running", record=changes),
    ]

    refused, recorded, imported = (Mask().event(event) for event in events)

    assert SECRET not in str((refused, recorded, imported))
    assert refused.detail.startswith("late record=")  # type: ignore[union-attr]
    assert {**changes, "password": MASKED} == recorded.changes == imported.record  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "name",
    [
        "pwd",
        "dbPwd",
        "pass",
        "DB-PASS",
        "auth",
        "proxy_auth",
        "bearer",
        "bearerToken",
        "\uff30ASSWORD",
        "\uff50wd",
        "pa\u017fsword",
    ],
)
def test_names_that_say_the_same(name: str) -> None:
    """However they are written: in other cases, widths or letters that stand for the same."""
    assert {name: MASKED} == Mask().value({name: SECRET})


@pytest.mark.parametrize("name", ["author", "passed", "compass", "passenger", "authority"])
def test_names_that_only_begin_so(name: str) -> None:
    assert {name: "x"} == Mask().value({name: "x"})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://ana:{SECRET}@db:5432/jobs", f"postgresql://ana:{MASKED}@db:5432/jobs"),
        (f"see https://:{SECRET}@host/a?b=c#d now", f"see https://:{MASKED}@host/a?b=c#d now"),
        (f"amqp://a:p@{SECRET}@host", f"amqp://a:{MASKED}@host"),
        ("https://host:8080/a@b", "https://host:8080/a@b"),
        ("https://ana@host/", "https://ana@host/"),
        ("mailto:ana@host", "mailto:ana@host"),
    ],
)
def test_the_password_of_a_url(url: str, shown: str) -> None:
    """It is taken out of a value of whatever name, and all else of the URL stays; nothing is, where all is to be shown."""
    assert {"target": [shown]} == Mask().value({"target": [url]})
    assert {"target": [url]} == Mask([]).value({"target": [url]})
