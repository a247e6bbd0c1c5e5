"""The registry: kinds of jobs, their handlers and rules, and params that fit or are refused."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from jobevents.commands import Submission
from jobevents.errors import Conflict, InvalidValue, Misconfigured
from jobevents.registry import JobDefinition, Registry
from jobevents.retries import Exponential
from jobevents.store import RunFilter
from jobevents.wiring import connect


class Song(msgspec.Struct):
    """Params of a render."""

    number: int
    tags: list[str] = []


class Everything(msgspec.Struct):
    """Params that all have defaults."""

    song: int = 7


@pytest.fixture
def registry() -> Registry:
    """A registry without jobs."""
    return Registry()


def define(registry: Registry, name: str = "render", **rules: Any) -> JobDefinition:
    """Register a handler that does nothing, and return its definition."""
    registry.job(name, **rules)(lambda ctx: None)
    definition = registry.get(name)
    assert definition is not None
    return definition


def test_a_job_has_the_rules_of_m4_by_default(registry: Registry) -> None:
    """Behaviour M4: queue default, 5 min, grace 30 s, one try, 1 s to 5 min, no limit, enqueue, replayable, 30 and 7 days."""
    one = define(registry)

    assert ("default", 300, 30, 1, 0, "enqueue", True) == (
        one.queue,
        one.timeout_s,
        one.stop_grace_s,
        one.max_attempts,
        one.max_concurrent,
        one.on_busy,
        one.replayable,
    )
    assert Exponential(base_s=1, most_s=300) == one.backoff
    assert (timedelta(days=30), timedelta(days=7)) == (one.retain, one.retain_logs)
    assert (None, None, None) == (one.schedule, one.params, one.logs)


def test_a_handler_stays_the_function_it_is(registry: Registry) -> None:
    """It can be called by tests and other code; the first line of its docstring describes the job."""

    @registry.job("render")
    def render(ctx: Any) -> int:
        """Render a song.

        And more.
        """
        return 7 + int(ctx)

    definition = registry.get("render")
    assert definition is not None
    assert 8 == render(1)
    assert (render, "Render a song.", False) == (definition.handler, definition.description, definition.is_async)


def test_a_coroutine_function_is_known(registry: Registry) -> None:
    """As a function or as an object with such a call."""

    async def render(_: Any) -> None:
        """Do nothing."""

    class Renderer:
        """A handler with a state."""

        async def __call__(self, _: Any) -> None:
            """Do nothing."""

    registry.job("one")(render)
    registry.job("two")(Renderer())

    assert [True, True] == [definition.is_async for definition in registry]


def test_a_name_is_registered_once(registry: Registry) -> None:
    """Behaviour M4: the second handler of a name is refused, and the first one stays."""
    first = define(registry)

    with pytest.raises(Misconfigured, match="registered already name='render'"):
        define(registry)

    assert [first] == list(registry)


@pytest.mark.parametrize(
    "rules",
    [
        {"queue": ""},
        {"max_attempts": 0},
        {"max_attempts": True},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"stop_grace": -1},
        {"max_concurrent": -1},
        {"on_busy": "wait"},
        {"schedule": "daily"},
        {"logs": "sometimes"},
        {"retain": timedelta(-1)},
    ],
    ids=str,
)
def test_a_rule_that_cannot_work_is_refused(registry: Registry, rules: dict[str, Any]) -> None:
    """When it is registered, not when a job runs; the message names the rule."""
    with pytest.raises(Misconfigured, match=next(iter(rules))):
        define(registry, **rules)


@pytest.mark.parametrize(("timeout", "expected"), [(5, 5.0), (timedelta(minutes=2), 120.0), (None, None)])
def test_a_time_is_seconds_or_a_timedelta(registry: Registry, timeout: Any, expected: float | None) -> None:
    """And no timeout at all is None."""
    assert expected == define(registry, timeout=timeout).timeout_s


def test_params_become_the_struct(registry: Registry) -> None:
    """What was stored as JSON comes back as what the handler wants; none given are its defaults."""
    definition = define(registry, params=Song)

    assert Song(7, ["a"]) == definition.decode({"number": 7, "tags": ["a"]})
    assert Song(7) == definition.decode(Song(7))
    assert Everything() == define(registry, "all", params=Everything).decode(None)


@pytest.mark.parametrize(
    ("params", "path"),
    [({"number": "7"}, "$.number"), ({"number": 7, "tags": ["a", 1]}, "$.tags[1]"), (None, ""), ([1], "")],
)
def test_params_that_do_not_fit_are_refused_with_the_path(registry: Registry, params: Any, path: str) -> None:
    """The message names job, Struct and place."""
    definition = define(registry, params=Song)

    with pytest.raises(InvalidValue, match="params do not fit Song job=render") as refused:
        definition.decode(params)

    assert path == refused.value.path


def test_a_submission_gets_the_values_of_its_job(registry: Registry) -> None:
    """Where it names none; a kind that is not registered passes as it is: another program may know it."""
    define(registry, queue="slow", max_attempts=5)

    named = registry.complete(Submission(name="render", queue="fast", max_attempts=1))
    unnamed = registry.complete(Submission(name="render"))

    assert (("fast", 1), ("slow", 5)) == ((named.queue, named.max_attempts), (unnamed.queue, unnamed.max_attempts))
    assert Submission(name="mix") == registry.complete(Submission(name="mix"))


def _no_wait(attempt: int, job_id: str) -> float:
    raise ZeroDivisionError


@pytest.mark.parametrize("backoff", [_no_wait, lambda attempt, job_id: -1.0, lambda attempt, job_id: float("nan")])
def test_a_backoff_that_fails_is_replaced(registry: Registry, backoff: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A failed try must be recorded whatever the user's backoff does: the default's wait is taken, with a warning."""
    definition = define(registry, backoff=backoff)

    waits = [definition.retry_in(attempt, "job-1") for attempt in (1, 2, 3)]

    assert [1, 2, 4] == waits
    assert 3 == len(caplog.records)


def test_params_of_a_run_again_are_checked_as_those_of_a_first(registry: Registry) -> None:
    """What does not fit the job's Struct makes no job."""
    define(registry, params=Song)
    with connect("memory://") as jobs:
        jobs.use(registry)
        job_id = jobs.submit("render", Song(7))
        jobs.cancel(job_id)

        with pytest.raises(InvalidValue, match="params do not fit Song job=render"):
            jobs.rerun(job_id, as_new=True, params={"number": "seven"})

        assert 1 == jobs.store.list(RunFilter()).total
        assert {"number": 8, "tags": []} == jobs.job(jobs.rerun(job_id, as_new=True, params=Song(8))).params


def test_a_job_may_refuse_to_be_replayed(registry: Registry) -> None:
    """Behaviour M11: as a new run; the same run may be run again, and other kinds as they like."""
    define(registry, replayable=False)
    define(registry, "mix")
    with connect("memory://") as jobs:
        jobs.use(registry)
        ids = [jobs.submit(name) for name in ("render", "mix")]
        for job_id in ids:
            jobs.cancel(job_id)

        with pytest.raises(Conflict, match="not to be run again as new ones name=render"):
            jobs.rerun(ids[0], as_new=True)

        assert ids[0] == jobs.rerun(ids[0])
        assert ids[1] != jobs.rerun(ids[1], as_new=True)
