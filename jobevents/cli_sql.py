"""The command `sql`: queries and named reports over all of history."""

import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from jobevents import console, files
from jobevents.cli_options import Url, open_jobs
from jobevents.errors import InvalidValue
from jobevents.opening import extra

if TYPE_CHECKING:
    from projections.query import Answer

SHOWN = 1000  # rows of a table on a terminal
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_duration = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)").fullmatch

Format = Literal["table", "csv", "json", "parquet"]


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command("sql")(sql)


def sql(
    query: Annotated[
        str, typer.Argument(help="A SELECT over events, jobs, attempts and logs; - reads it from a pipe.")
    ] = "",
    *,
    url: Url,
    report: Annotated[
        str,
        typer.Option(
            "--report",
            metavar="NAME",
            help="A named one, without a query: failures-per-day, stuck (running for longer than --within), durations and waits "
            "(of attempts, by kind of job), retries, guard-savings (late outcomes that were refused), sla (how many had "
            "succeeded --within so long of being due).",
        ),
    ] = "",
    within: Annotated[str, typer.Option("--within", help="Of the reports stuck and sla: 90s, 5m, 1.5h, 2d.")] = "",
    format: Annotated[
        Format | None,
        typer.Option("--format", help="Default: by the name of --out; a table at a terminal, JSON lines in a pipe."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write, replaced whole: .csv, .jsonl, .parquet.")
    ] = None,
    zone: Annotated[
        str, typer.Option("--zone", help="Whose days and hours are meant, such as Europe/Helsinki.")
    ] = "UTC",
    memory_mb: Annotated[
        int, typer.Option("--memory-mb", min=32, max=2**20, help="For what is sorted, grouped and joined.")
    ] = 256,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Ask anything of all history: DuckDB's SQL over events, jobs, attempts and logs, as of now. Nothing is ever written.

    CSV is safe to open in a spreadsheet: a text that it would run has an apostrophe in front.
    """
    with extra("analytics"):
        import projections.query as queries

    if bool(query) == bool(report):
        raise InvalidValue("give a query, or --report with a name")
    if query == "-":
        query = sys.stdin.read()
    chosen = _format(format, out, as_json)
    with open_jobs(url) as jobs, console.progress() as bar:
        task = bar.add_task("reading events", total=0)

        def on_progress(position: int, last: int) -> None:
            bar.update(task, completed=position, total=last)

        if report:
            answer = queries.report(
                jobs, report, within=_within(within), zone=zone, memory_mb=memory_mb, on_progress=on_progress
            )
        else:
            if within:
                raise InvalidValue("--within is of a report")
            answer = queries.query(jobs, query, zone=zone, memory_mb=memory_mb, on_progress=on_progress)
        with answer:
            told = _write(answer, chosen, out)
            unreadable = dict(answer.unreadable)
    if told:
        console.note(told, to_err=True)
    for job_id, why in unreadable.items():
        console.note(f"{job_id} is shown only as far as it could be folded: {why}", to_err=True)


def _format(asked: Format | None, out: Path | None, as_json: bool) -> Format:
    if asked == "table" and out is not None:
        raise InvalidValue("a table is for a terminal: give --format csv, json or parquet")
    if asked is not None or as_json:
        return asked or "json"
    if out is None:
        return "json" if console.wants_json(False) else "table"
    by_name: dict[str, Format] = {
        ".csv": "csv", ".jsonl": "json", ".json": "json", ".ndjson": "json", ".parquet": "parquet",
    }  # fmt: skip
    found = by_name.get(out.suffix)
    if found is None:
        raise InvalidValue(f"cannot tell the format from the name file={out}: give --format csv, json or parquet")
    return found


def _within(text: str) -> timedelta | None:
    if not text:
        return None
    found = _duration(text)
    if found is None:
        raise InvalidValue(f"--within is no time value={text!r}: write 90s, 5m, 1.5h or 2d")
    return timedelta(**{_UNITS[found[2]]: float(found[1])})


def _write(answer: "Answer", format: Format, out: Path | None) -> str:
    """Write the rows where they are wanted; a file is written beside, and renamed when it is whole."""
    if out is None:
        if format == "table":
            return _print_table(answer)
        if format == "parquet":
            raise InvalidValue("Parquet goes to a file: give --out")
        sys.stdout.flush()
        _write_rows(answer, format, Path("-"))
        return ""
    part = files.beside(out)
    try:
        count = _write_rows(answer, format, part)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return f"{count} rows in {out}"


def _write_rows(answer: "Answer", format: Format, path: Path) -> int:
    from projections import formats

    file = sys.stdout.buffer if str(path) == "-" else path.open("xb")
    try:
        if format == "parquet":
            return formats.write_parquet(answer.batches(), answer.schema, file)
        if format == "csv":
            return formats.write_csv(answer.batches(), answer.columns, file)
        return formats.write_json_lines(answer.batches(), answer.columns, file, json_columns=answer.json_columns)
    finally:
        file.flush()
        if file is not sys.stdout.buffer:
            file.close()


def _print_table(answer: "Answer") -> str:
    from projections.csvtext import as_text
    from projections.tables import rows_of

    rows: list[list[Text]] = []
    more = 0
    for batch in answer.batches():
        room = SHOWN - len(rows)
        for row in rows_of(batch.slice(0, room)) if room > 0 else []:
            rows.append([console.plain(as_text(value), 200) for value in row])
        more += max(0, batch.num_rows - max(0, room))
    if not rows:
        return "no rows"
    console.print_table([console.plain(name).plain for name in answer.columns], rows)
    return f"{more} more rows: write them with --out, or see fewer with LIMIT" if more else ""
