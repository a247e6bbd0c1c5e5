"""`python -m benchmarks [ROW ...] [--scale small|full] [--json FILE] [--compare FILE] [--check] [--peers]`."""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import peers
from benchmarks.figures import Spread, by_place, judge
from benchmarks.host import describe
from benchmarks.measure import ROOT, measure
from benchmarks.model import SCALES, Hold, Place, Result, Row, Scale
from benchmarks.report import as_json, read_figures, show_comparison, show_host, show_row, show_verdicts
from benchmarks.rows import HOLDS, ROWS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows asked for and return the exit code: with --check, 1 when something does not hold or gave no figure."""
    asked = _parser().parse_args(arguments)
    unknown = set(asked.rows) - {row.name for row in ROWS}
    if unknown:
        print(
            f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(r.name for r in ROWS)}", file=sys.stderr
        )
        return 2
    before = read_figures(asked.compare) if asked.compare else None
    rows = [row for row in ROWS if not asked.rows or row.name in asked.rows]
    if asked.peers:
        peers.install({one.needs for row in rows for one in row.contenders if one.needs})
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=asked.directory) as scratch:
        wrong = run(rows, HOLDS, asked.scale, Path(scratch), console=_console(), json_to=asked.json, before=before)
    if asked.check:
        for line in wrong:
            print(line, file=sys.stderr)
    return 1 if asked.check and wrong else 0


def run(
    rows: Sequence[Row],
    holds: Sequence[Hold],
    scale: Scale,
    scratch: Path,
    *,
    console: Console,
    json_to: Path | None = None,
    before: Mapping[Place, Spread] | None = None,
) -> list[str]:
    """Measure rows, print them as they come, and return what is wrong: what does not hold, and who gave no figure."""
    host = describe(scratch, scale)
    show_host(console, host)
    results: dict[Place, Result] = {}
    for row, measured in measure(rows, scale, scratch):
        show_row(console, row, measured)
        results |= by_place(row.name, measured)
    verdicts = [verdict for hold in holds if (verdict := judge(hold, results)) is not None]
    show_verdicts(console, verdicts)
    if before is not None:
        show_comparison(console, before, results)
    if json_to is not None:
        json_to.write_text(json.dumps(as_json(host, results, verdicts), indent=1) + "\n")
    silent = [f"{place}: {result.error}" for place, result in results.items() if result.error and not result.is_missing]
    wrong = [
        f"{place}: {result.verdict.lost} jobs lost, {result.verdict.doubled} run twice"
        for place, result in results.items()
        if place.contender.startswith("ours") and result.verdict is not None and any(result.verdict)
    ]
    return [*silent, *wrong, *(f"does not hold: {verdict.text}" for verdict in verdicts if not verdict.holds)]


def _console() -> Console:
    """Return one that cuts no cell where the output is no terminal."""
    return Console() if sys.stdout.isatty() else Console(width=200)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure; see each row for what and why.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"{', '.join(row.name for row in ROWS)}; all by default")
    parser.add_argument("--scale", choices=SCALES, default="small", help="small: minutes; full: may take an hour")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep all figures")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="say what changed since an earlier --json")
    parser.add_argument("--check", action="store_true", help="exit 1 when something that must hold does not")
    parser.add_argument(
        "--peers",
        action="store_true",
        help="first install what the rows' peers need, each into an environment below .venv-bench",
    )
    parser.add_argument(
        "--directory", type=Path, default=ROOT, help="on the disk to measure; by default that of the checkout"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
