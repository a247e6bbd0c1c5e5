"""The options of the command line: numbers within bounds, and names of what there is."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import typer

from jobevents import Registry, connect
from projections.reports import REPORTS
from tests.cli import CommandLine, commands
from tests.cli import jobevents as jobevents  # a fixture

REGISTRY = Registry()
HERE = "tests.test_cli_options:REGISTRY"


@REGISTRY.job("render", queue="mix", max_attempts=3)
def render(ctx: object) -> None:
    """Do nothing."""


class Level(msgspec.Struct):
    """Params of `mix`."""

    level: int = 5


@REGISTRY.job("mix", params=Level)
def mix(ctx: object) -> None:
    """Do nothing."""


def numbers() -> Iterator[tuple[str, Any]]:
    """Every option of every command that takes a number (Any: click's, with its bounds)."""
    for name, command in sorted(commands().items()):
        for param in command.params:
            if getattr(param, "type_descriptor", None) and param.type_descriptor.annotation in (int, float):  # type: ignore[attr-defined]  # just asked
                yield name, param


@pytest.mark.parametrize(
    ("name", "param"), list(numbers()), ids=lambda value: value if isinstance(value, str) else value.name
)
def test_a_number_has_bounds(name: str, param: Any) -> None:
    """Each is taken at its bounds, and refused beyond them, before anything is opened; nan is never a number."""
    command = commands()[name]
    step = 1 if param.type_descriptor.annotation is int else 1e-6 * max(1.0, param.max)

    def take(value: object) -> object:
        needed = [x for one in command.params if one.required and one.name != "url" for x in _given(one)]
        args = [*needed, "--url=memory://", f"{param.opts[0]}={value}"]
        args = args if any(one.name == "url" for one in command.params) else [*needed, args[-1]]
        return command.make_context(name, args).params[param.name]

    assert [param.min, param.max] == [take(param.min), take(param.max)]
    for beyond in (param.min - step, param.max + step, "nan", "inf", "-inf"):
        with pytest.raises(typer.BadParameter):
            take(beyond)


def _given(param: Any) -> list[str]:
    return ["x"] if param.param_type_name == "argument" else [f"{param.opts[0]}=x"]


@pytest.mark.parametrize(
    "args",
    [
        ("logs", "song-1", "--after-seq", str(2**63 - 1), "--limit", str(2**63 - 1)),
        ("list", "--page", str(2**63 - 1)),
        ("purge", "--days", "36500", "--log-days", "36500", "--history-days", "36500"),
        ("verify", "--sample", str(2**63 - 1)),
        ("submit", "render", "--delay", "3153600000", "--priority", "-32768", "--max-attempts", "32767"),
        ("parked", "list"),
    ],
    ids=" ".join,
)
def test_a_number_at_its_bound_works(jobevents: CommandLine, args: tuple[str, ...]) -> None:
    """Nothing behind the command line is surprised by it."""
    jobevents("submit", "render", "--id", "song-1", "--create")

    assert 0 == jobevents(*args).code


def test_a_name_of_nothing_is_not_paused(jobevents: CommandLine) -> None:
    """A mistyped queue or kind is refused with what is near, and paused where that is meant."""
    jobevents("submit", "render", "--queue", "mixing", "--create")

    queue, kind = jobevents("pause", "--queue", "mixng"), jobevents("pause", "--job", "rendr")
    forced = jobevents("pause", "--queue", "mixng", "--force")

    assert [2, 2, 0] == [queue.code, kind.code, forced.code]
    assert "did you mean mixing?" in queue.err
    assert "did you mean render?" in kind.err
    assert [0, 0] == [jobevents("pause", "--queue", "mixing").code, jobevents("pause", "--job", "render").code]


def test_submit_takes_what_the_registry_says(jobevents: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by an option or the environment; an option of submit comes first; without it the kind is not known."""
    plain = jobevents("submit", "render", "--create").json["job_id"]
    told = jobevents("submit", "render", "--registry", HERE).json["job_id"]
    monkeypatch.setenv("JOBEVENTS_REGISTRY", HERE)
    own = jobevents("submit", "render", "--max-attempts", "7").json["job_id"]
    unknown = jobevents("submit", "rendr")

    shown = [jobevents("show", job_id).json for job_id in (plain, told, own)]
    assert [("default", 1), ("mix", 3), ("mix", 7)] == [
        (one.get("queue", "default"), one.get("max_attempts", 1)) for one in shown
    ]
    assert 0 == unknown.code
    assert "it has render" in unknown.err


def test_a_retry_and_a_rerun_have_their_time_and_params(jobevents: CommandLine) -> None:
    """As submit has them; a registry checks the params of a new job as it does those of a submit."""
    jobevents("submit", "render", '{"song": 7}', "--id", "song-1", "--create")

    def shown(job_id: str) -> Any:
        return jobevents("show", job_id).json

    later = [jobevents("retry", "song-1", "--at", "2099-08-01T12:30:00+02:00").code, shown("song-1")["scheduled_at"]]
    jobevents("cancel", "song-1")
    again = jobevents("rerun", "song-1", "--as-new", "--params", '{"song": 8}', "--delay", "3600").json["job_id"]
    with_nothing = jobevents("rerun", "song-1", "--as-new", "--params", "null").json["job_id"]
    jobevents("submit", "mix", '{"level": 1}', "--id", "mix-1")
    jobevents("cancel", "mix-1")
    refused = jobevents("rerun", "mix-1", "--as-new", "--params", '{"level": "loud"}', "--registry", HERE)

    assert [0, "2099-08-01T10:30:00Z"] == later
    assert ({"song": 8}, "song-1") == (shown(again)["params"], shown(again)["replay_of"])
    assert shown(again)["scheduled_at"] > shown(again)["created_at"]
    assert None is shown(with_nothing).get("params")
    assert (2, "") == (refused.code, refused.out)
    assert "level" in refused.err


def test_a_running_job_is_canceled_by_force(jobevents: CommandLine) -> None:
    """Asked for without it, it runs on."""
    with connect("sqlite:///jobs.db?synchronous=normal") as jobs:
        job_id = jobs.submit("render")
        with jobs.attempt(job_id):
            asked = jobevents("cancel", job_id).json["outcome"]
            ended = jobevents("cancel", job_id, "--force", "--reason", "it hangs").json["outcome"]
        last = jobs.history(job_id)

    assert ("requested", "canceled") == (asked, ended)
    assert ["CancelRequested", "JobCanceled", "TransitionRefused"] == [event.type for event in last[2:]]


def test_the_help_of_sql_names_every_report(jobevents: CommandLine) -> None:
    """A newcomer does not know what there is."""
    [told] = [param.help or "" for param in commands()["sql"].params if param.name == "report"]

    assert set(REPORTS) == {name for name in re.findall(r"[a-z-]+", told) if name in REPORTS}
