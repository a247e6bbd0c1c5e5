"""The benchmarks: that each runs, and that the harness tells the truth. Nothing here depends on how fast anything is."""

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import __main__ as command
from benchmarks import peers
from benchmarks.figures import by_place, judge, spread, times_as_fast
from benchmarks.measure import measure
from benchmarks.model import AtLeast, Contender, Done, Place, Reading, Repeat, Result, Row, Setting, Sizes, Under, Work
from benchmarks.report import as_json, read_figures, show_comparison, show_row
from benchmarks.rows import HOLDS, ROWS
from benchmarks.tally import Tally

ONE = Sizes(3, 3, 3)


@contextmanager
def counting(setting: Setting) -> Iterator[Repeat]:
    """A contender that says when it is got ready, and when it is timed."""
    log = setting.own.parent / "order"

    def repeat() -> Work:
        with log.open("a") as file:
            file.write(f"{setting.own.name} ")
        return lambda: setting.size

    yield repeat


@contextmanager
def crashing(setting: Setting) -> Iterator[Repeat]:
    """A contender that fails when it is timed for the second time."""
    times: list[int] = []

    def work() -> int:
        times.append(1)
        if len(times) > 1:
            raise ValueError("out of order")
        return setting.size

    yield lambda: work


@contextmanager
def printing(setting: Setting) -> Iterator[Repeat]:
    """A contender that prints."""

    def work() -> int:
        print("hello")
        return setting.size

    yield lambda: work


@contextmanager
def losing(setting: Setting) -> Iterator[Repeat]:
    """A contender that measures itself, and loses one of its jobs and doubles another."""
    tally = Tally(setting.own / "tally")
    for number in (0, 1, 1):
        tally.record(number)
    yield lambda: lambda: Done(1, figure=0.25, settle=lambda: tally.verdict(submitted=4, waiting=1))
    tally.close()


@contextmanager
def reading(setting: Setting) -> Iterator[Repeat]:
    """A contender that needs what was prepared."""
    yield lambda: lambda: len((setting.prepared / "made").read_text())


def making(setting: Setting) -> None:
    """Prepare for `reading`, once."""
    with (setting.prepared / "made").open("a") as file:
        file.write("x" * setting.size)


def contender(target: str, name: str = "ours", prepare: str = "") -> Contender:
    return Contender(name, f"tests.test_benchmarks:{target}", "for a test", prepare=prepare)


def row(*contenders: Contender) -> Row:
    return Row("some", "one operation", "of some size", "none", "for a test", ONE, contenders)


def result(name: str, *figures: float, peak_mb: float = 30.0, error: str = "") -> Result:
    readings = tuple(Reading(figure, figure) for figure in figures)
    return Result(contender("counting", name), 3, readings, peak_mb, error)


def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def printed(one: Console) -> str:
    assert isinstance(one.file, io.StringIO)
    return one.file.getvalue()


# The rows that take a machine of servers and processes take minutes at any size: of these one of each kind, the others by hand,
# as the one that takes a browser, which tests of its own have.
SLOW = ("cloud-", "sqlite-", "postgres-", "list-paint")
ONE_EACH = {"cloud-append-16", "sqlite-jobs", "postgres-jobs", "sqlite-latency"}
RUN = [
    one for one in ROWS if not one.name.startswith(SLOW) or one.name in ONE_EACH or "JOBEVENTS_ALL_ROWS" in os.environ
]


@pytest.mark.parametrize("one", RUN, ids=[one.name for one in RUN])
@pytest.mark.slow
def test_every_row_runs(one: Row, tmp_path: Path) -> None:
    """At a tiny size, every contender gives a figure, and no job is lost or run twice; peers with a home of their own aside."""
    own = one._replace(contenders=tuple(c for c in one.contenders if not c.needs))

    [(_, results)] = measure([own], "tiny", tmp_path)

    assert {} == {r.contender.name: r.error for r in results if r.error and not r.is_missing}
    assert all(r.readings or r.is_missing for r in results)
    assert {(0, 0)} >= {tuple(r.verdict) for r in results if r.verdict is not None}


def test_rows_say_what_they_are() -> None:
    """Every row says what, how much, how durable and why, and has ours beside a limit; its names are its own."""
    names = [one.name for one in ROWS]

    assert len(set(names)) == len(names)
    assert [] == [one.name for one in ROWS if not all((one.what, one.size, one.durability, one.why))]
    assert [] == [one.name for one in ROWS if not {"ours", "limit"} <= {c.name for c in one.contenders}]


def test_what_must_hold_is_measured() -> None:
    """Each ratio that must hold is between contenders that are there."""
    places = {Place(one.name, c.name) for one in ROWS for c in one.contenders}

    named = {
        place for hold in HOLDS for place in ((hold.fast, hold.than) if isinstance(hold, AtLeast) else (hold.place,))
    }

    assert set() == named - places


def test_repetitions_take_turns(tmp_path: Path) -> None:
    """After one repetition each that is not counted, contenders repeat A B A B."""
    [(_, results)] = measure([row(contender("counting", "a"), contender("counting", "b"))], "small", tmp_path)

    order = (tmp_path / "some" / "order").read_text().split()

    assert ["a", "b"] + ["a", "b"] * 5 == order
    assert [5, 5] == [len(one.readings) for one in results]


def test_a_crash_is_told(tmp_path: Path) -> None:
    """A contender whose process dies is reported with its error, and the others are measured all the same."""
    [(_, results)] = measure([row(contender("crashing"), contender("counting", "limit"))], "small", tmp_path)

    assert ["ValueError: out of order", ""] == [one.error for one in results]
    assert [0, 5] == [len(one.readings) for one in results]


def test_jobs_that_are_lost_or_run_twice_are_told(tmp_path: Path) -> None:
    """A row of jobs gives an account of them; those of ours that are lost or run twice are an error."""
    out = console()
    lossy = row(contender("losing"))

    wrong = command.run([lossy], [], "tiny", tmp_path, console=out)

    assert ["some/ours: 1 jobs lost, 1 run twice"] == wrong
    assert "lost 1, doubled 1" in printed(out)
    assert "250 ms" in printed(out)


def test_a_tally_waits_for_calls(tmp_path: Path) -> None:
    """Calls of any process are seen in their order; those that do not come are told of."""
    with closing(Tally(tmp_path / "tally")) as tally, closing(Tally(tmp_path / "tally")) as other:
        tally.record(7)
        other.record(3)

        tally.wait_for(2, 1)

        assert [7, 3] == [number for number, _ in tally.calls()]
        assert [3] == [number for number, _ in tally.calls(after=1)]
        with pytest.raises(TimeoutError, match="2 of 3 jobs were handled"):
            tally.wait_for(3, 0.001)


def test_a_module_that_is_not_there_is_told(tmp_path: Path) -> None:
    """So is one that cannot even be set up."""
    missing = Contender("ours", "benchmarks.nowhere:ours", "for a test")

    [(_, results)] = measure([row(missing)], "tiny", tmp_path)

    assert "ModuleNotFoundError: No module named 'benchmarks.nowhere'" == results[0].error


def test_what_a_contender_prints_is_no_answer(tmp_path: Path) -> None:
    """A contender may print as it likes."""
    [(_, results)] = measure([row(contender("printing"))], "tiny", tmp_path)

    assert (1, "") == (len(results[0].readings), results[0].error)


def test_data_is_prepared_once(tmp_path: Path) -> None:
    """Contenders of the same preparation and size share what it made."""
    both = (
        contender("reading", "a", "tests.test_benchmarks:making"),
        contender("reading", "b", "tests.test_benchmarks:making"),
    )

    list(measure([row(*both)], "tiny", tmp_path))

    assert "xxx" == (tmp_path / "tests.test_benchmarks.making-3" / "made").read_text()


def test_a_missing_peer_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A peer that is not installed is no failure: its row says what brings it."""
    monkeypatch.setattr(peers, "DIRECTORY", tmp_path / "none")
    absent = contender("counting", "peer")._replace(needs="no_such_library")

    [(_, results)] = measure([row(absent)], "tiny", tmp_path)

    assert results[0].is_missing
    assert "no_such_library is not installed: `python -m benchmarks --peers` brings it" == results[0].error


def test_a_ratio_is_of_neighbours() -> None:
    """A machine that is slow for a while slows both, which the ratio does not show."""
    assert 2.0 == times_as_fast(result("a", 1.0, 10.0, 1.0), result("b", 2.0, 20.0, 2.0))


@pytest.mark.parametrize(("times", "holds"), [(0.8, True), (1.0, True), (1.1, False)])
def test_at_least(times: float, holds: bool) -> None:
    """A ratio holds from its bound on."""
    found = by_place("some", [result("ours", 1.0), result("limit", 1.0)])

    verdict = judge(AtLeast(Place("some", "ours"), times, Place("some", "limit")), found)

    assert verdict is not None
    assert (1.0, holds) == (verdict.found, verdict.holds)


@pytest.mark.parametrize(("by", "found"), [("pairs", 2.0), ("fastest", 2.0), ("median", 2.0), ("p99", 0.5)])
def test_at_least_by_quantiles(by: str, found: float) -> None:
    """Where each repetition is one of many, their middle and their hundredth slowest are compared, each with its own."""
    hold = AtLeast(Place("some", "ours"), 1, Place("some", "peer"), by)  # type: ignore[arg-type]  # one of the three

    verdict = judge(hold, by_place("some", [result("ours", 1.0, 1.0, 4.0), result("peer", 2.0, 2.0, 2.0)]))

    assert verdict is not None
    assert (found, found >= 1) == (verdict.found, verdict.holds)


@pytest.mark.parametrize(("what", "found"), [("seconds", 1.0), ("median", 2.0), ("most", 4.0), ("peak_mb", 30.0)])
def test_under(what: str, found: float) -> None:
    """A bound of time is held against the fastest repetition or the middle one, one of memory against the peak."""
    hold = Under(Place("some", "ours"), what, found + 1)  # type: ignore[arg-type]  # one of the three

    verdict = judge(hold, by_place("some", [result("ours", 2.0, 1.0, 4.0)]))

    assert verdict is not None
    assert (found, True) == (verdict.found, verdict.holds)


def test_no_figure_does_not_hold() -> None:
    """What must hold does not when a contender gave no figure; it is not judged when its row was not asked for."""
    hold = AtLeast(Place("some", "ours"), 1, Place("some", "limit"))

    verdict = judge(hold, by_place("some", [result("ours", error="broken"), result("limit", 1.0)]))

    assert verdict is not None
    assert not verdict.holds
    assert judge(hold, {}) is None


def test_a_table_shows_ours_beside_the_others() -> None:
    """Each row prints figures with units, and how ours compares."""
    out = console()

    show_row(out, row(), [result("ours", 2e-6), result("limit", 1e-6), result("peer", error="broken")])

    text = printed(out)
    assert "2 us" in text
    assert "0.5 x" in text
    assert "no figure: broken" in text


def test_a_comparison_calls_only_what_left_both_spreads(tmp_path: Path) -> None:
    """Figures are kept as JSON; a change within the spread of either run is not called one."""
    kept = tmp_path / "before.json"
    before = by_place("some", [result("ours", 1.0, 2.0), result("limit", 1.0, 2.0)])
    kept.write_text(json.dumps(as_json({}, before, [])))
    out = console()

    show_comparison(out, read_figures(kept), by_place("some", [result("ours", 1.5, 2.5), result("limit", 3.0, 4.0)]))

    ours, limit = (line for line in printed(out).splitlines() if line.startswith("some/"))
    assert "more" not in ours
    assert "more" in limit


def test_spread() -> None:
    """The median and both ends."""
    assert (2.0, 1.0, 9.0) == spread([9.0, 1.0, 2.0])


@pytest.mark.parametrize(("crashes", "code"), [(True, 1), (False, 0)])
def test_check_exits_1(crashes: bool, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With --check a contender without a figure is an error, as is what does not hold."""
    monkeypatch.setattr(command, "ROWS", [row(contender("crashing" if crashes else "counting"))])
    monkeypatch.setattr(command, "HOLDS", [])

    found = command.main(["--scale", "tiny", "--check", "--directory", str(tmp_path)])

    assert code == found


def test_an_unknown_row_is_a_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the rows that there are."""
    assert 2 == command.main(["nothing"])

    assert "no such row: nothing; there are append-one" in capsys.readouterr().err


def test_figures_can_be_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """--json keeps the host, the versions and every repetition."""
    monkeypatch.setattr(command, "ROWS", [row(contender("counting"))])
    monkeypatch.setattr(command, "HOLDS", [])
    kept = tmp_path / "figures.json"

    command.main(["--scale", "tiny", "--json", str(kept), "--directory", str(tmp_path)])

    found = json.loads(kept.read_text())
    assert f"CPython {sys.version.split()[0]}" == found["host"]["python"]
    assert [("some", "ours", 1)] == [(one["row"], one["contender"], len(one["figures"])) for one in found["results"]]
