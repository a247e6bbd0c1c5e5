"""The report: a table a row for people, JSON for later comparisons."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Results, Spread, Verdict, quantile, spread, times_as_fast
from benchmarks.model import AtLeast, Place, Result, Row

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (0.0, "ns"))
_SCALE = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


def show_host(console: Console, host: Mapping[str, str]) -> None:
    """Print what was measured on."""
    for name, value in host.items():
        console.print(f"{name:>13}  {value}", highlight=False)


def show_row(console: Console, row: Row, results: Sequence[Result]) -> None:
    """Print a row: what it is, and each contender beside ours."""
    console.print()
    console.print(f"[bold]{row.name}[/bold]  {row.what}", highlight=False)
    for name, text in (("size", row.size), ("durability", row.durability), ("why", row.why)):
        console.print(f"  {name}: {text}", highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("", "size", "median", "spread", "p99", "CPU", "peak", "ours is", "by CPU", ""):
        table.add_column(heading, justify="left" if heading == "" else "right")
    ours = next((result for result in results if result.contender.name == "ours"), None)
    for result in results:
        table.add_row(*_cells(row, result, ours))
    console.print(table, highlight=False)


def _cells(row: Row, result: Result, ours: Result | None) -> list[str]:
    name, size = result.contender.name, f"{result.size:,}"
    if not result.readings:
        return [name, size, "-", "", "", "", "", "", "", f"no figure: {result.error}"]
    figures = spread([reading.figure for reading in result.readings])
    cpu = spread([reading.cpu_s for reading in result.readings])
    compared = ours is not None and result is not ours
    return [
        name,
        size,
        _shown(figures.median, row.unit),
        f"{_shown(figures.low, row.unit)} .. {_shown(figures.high, row.unit)}",
        _shown(quantile([reading.figure for reading in result.readings], 0.99), row.unit),
        _shown(cpu.median, "s") if row.unit == "s" else "",
        f"{result.peak_mb:.0f} MB",
        _times(times_as_fast(ours, result)) if ours and compared else "",
        _times(times_as_fast(ours, result, cpu=True)) if ours and compared and row.unit == "s" else "",
        f"{_account(result)}{result.contender.what}{f'; then {result.error}' if result.error else ''}",
    ]


def show_verdicts(console: Console, verdicts: Sequence[Verdict]) -> None:
    """Print what must hold, and whether it does."""
    if not verdicts:
        return
    console.print("\n[bold]must hold[/bold]")
    for verdict in verdicts:
        mark = "[green]holds[/green]" if verdict.holds else "[red]FAILS[/red]"
        found = "no figure" if verdict.found is None else f"{verdict.found:.3g}"
        unit = " x" if isinstance(verdict.hold, AtLeast) and verdict.found is not None else ""
        console.print(f"  {mark}  {verdict.text}: {found}{unit}", highlight=False)
    console.print()


def as_json(host: Mapping[str, str], results: Results, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return everything that was measured, as JSON can hold it."""
    return {
        "host": dict(host),
        "results": [
            {
                "row": place.row,
                "contender": place.contender,
                "size": result.size,
                "peak_mb": round(result.peak_mb, 1),
                "error": result.error,
                "verdict": result.verdict and result.verdict._asdict(),
                "figures": [reading.figure for reading in result.readings],
                "cpu_s": [reading.cpu_s for reading in result.readings],
            }
            for place, result in results.items()
        ],
        "must_hold": [{"text": v.text, "found": v.found, "holds": v.holds} for v in verdicts],
    }


def read_figures(path: Path) -> dict[Place, Spread]:
    """Return the figures of an earlier `--json`, those of contenders that gave some."""
    kept = json.loads(path.read_text())["results"]
    return {Place(one["row"], one["contender"]): spread(one["figures"]) for one in kept if one["figures"]}


def show_comparison(console: Console, before: Mapping[Place, Spread], results: Results) -> None:
    """Print what became faster or slower than in an earlier run; only a change beyond both spreads is called one."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("", "before", "now", "now is", ""):
        table.add_column(heading, justify="left" if heading == "" else "right")
    for place, result in results.items():
        if place in before and result.readings:
            then, now = before[place], spread([reading.figure for reading in result.readings])
            table.add_row(str(place), f"{then.median:.3g}", f"{now.median:.3g}", *_change(then, now))
    console.print("\n[bold]compared with the earlier run[/bold] (in the unit of each row)")
    console.print(table, highlight=False)


def _change(then: Spread, now: Spread) -> tuple[str, str]:
    word = ""
    if now.low > then.high:
        word = "[red]more[/red]"
    elif now.high < then.low:
        word = "[green]less[/green]"
    return f"{now.median / then.median:.2f} x", word


def _account(result: Result) -> str:
    verdict = result.verdict
    return "" if verdict is None else f"lost {verdict.lost}, doubled {verdict.doubled}; "


def _shown(figure: float, unit: str) -> str:
    if unit == "bytes":
        return f"{figure:,.0f} B"
    if unit == "cores":
        return f"{figure:.2%}"
    if unit == "$":
        return f"${figure:.3g}"
    if unit == "calls":
        return f"{figure:.3g}"
    name = next(name for least, name in _UNITS if figure >= least)
    return f"{figure * _SCALE[name]:.3g} {name}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3g} x"
