"""A search of the list as a command and as SQL, to be taken elsewhere. Pure."""

from collections.abc import Iterator
from datetime import datetime
from shlex import quote

from jobevents.status import State
from projections.api.search import Search, instant, length, write
from projections.ui.words import iso, json_text

_COLUMNS = {
    "worker": ("worker",),
    "actor": ("triggered_by", "canceled_by"),
    "error": ("error_kind || ': ' || error",),
    "": ("job_id", "name", "title", "error", "progress_message"),
}


def as_command(search: Search) -> str:
    """Return the command that lists the same."""
    options = {"--state": search.state, "--job": search.command, "--queue": search.queue}
    listed = Search(state=search.state, command=search.command, queue=search.queue)
    if search == listed:
        return " ".join(["jobevents list", *(f"{name} {quote(value)}" for name, value in options.items() if value)])
    text = write(search)
    return f"jobevents list {'-- ' if text.startswith('-') else ''}{quote(text)}"


def as_sql(search: Search, now: datetime) -> str:
    """Return the query over `jobs`, as `jobevents sql` and the page for SQL have that table, that finds the same."""
    where = " AND ".join(_clauses(search, now))
    return f"SELECT * FROM jobs{' WHERE ' + where if where else ''} ORDER BY created_at DESC"  # noqa: S608  # quoted below


def _clauses(search: Search, now: datetime) -> Iterator[str]:
    for key in ("state", "command", "queue", "id", "root", "worker", "actor", "error"):
        if value := getattr(search, key):
            yield _clause(key, value)
    for sign, text in ((">=", search.after), ("<=", search.before)):
        if text:
            yield f"created_at {sign} TIMESTAMPTZ {_text(iso(instant(text, now)))}"
    if search.duration:
        wanted = length(search.duration)
        yield f"coalesce(duration_ms, epoch_ms(now()) - epoch_ms(started_at)) {wanted.relation} {wanted.ms}"
    for place, value in search.args:
        yield _clause(f"args.{place}", value)
    for word in search.words:
        yield _clause("", word)
    for one in search.choices:
        either = " OR ".join(_clause(one.key, value) for value in one.values)
        if one.is_not:  # what is NULL has no such value
            yield f"NOT coalesce({either}, false)"
        else:
            yield f"({either})"


def _clause(key: str, value: str) -> str:
    """Return what holds where a job has one value."""
    match key:
        case "state" if value == "other":
            return f"state NOT IN ({', '.join(_text(state) for state in State)})"
        case "state" | "queue" | "command":
            return f"{'name' if key == 'command' else key} = {_text(value)}"
        case "id":
            return f"starts_with(job_id, {_text(value)})"
        case "root":
            return f"{_text(value)} IN (job_id, replay_of, root_id)"
        case "worker" | "actor" | "error" | "":
            return _within(value, *_COLUMNS[key])
        case _:
            parts = key.removeprefix("args.").split(".")
            keys = "".join(f"[{part}]" if part.isdigit() else f".{json_text(part)}" for part in parts)
            return f"contains(lower(params ->> {_text('$' + keys)}), {_text(value.lower())})"


def _within(part: str, *columns: str) -> str:
    found = " OR ".join(f"contains(lower({column}), {_text(part.lower())})" for column in columns)
    return f"({found})" if len(columns) > 1 else found


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
