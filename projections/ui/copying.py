"""A search of the list as a command and as SQL, to be taken elsewhere. Pure."""

from collections.abc import Iterator
from datetime import datetime
from shlex import quote

from jobevents.status import State
from projections.ui.search import Search, instant, length, write
from projections.ui.words import iso, json_text

_WORKER = ("worker",)
_ACTOR = ("triggered_by", "canceled_by")
_ERROR = ("error_kind || ': ' || error",)
_WORDS = ("job_id", "name", "title", "error", "progress_message")


def as_command(search: Search) -> str:
    """Return the command that lists the same."""
    options = {"--state": search.state, "--job": search.command, "--queue": search.queue}
    listed = Search(state=search.state, command=search.command, queue=search.queue)
    if search == listed:
        return " ".join(["jobevents list", *(f"{name} {quote(value)}" for name, value in options.items() if value)])
    return f"jobevents list {quote(write(search))}"


def as_sql(search: Search, now: datetime) -> str:
    """Return the query over `jobs`, as `jobevents sql` and the page for SQL have that table, that finds the same."""
    where = " AND ".join(_clauses(search, now))
    return f"SELECT * FROM jobs{' WHERE ' + where if where else ''} ORDER BY created_at DESC"  # noqa: S608  # quoted below


def _clauses(search: Search, now: datetime) -> Iterator[str]:
    state = "" if search.state == "other" else search.state
    for column, value in (("state", state), ("name", search.command), ("queue", search.queue)):
        if value:
            yield f"{column} = {_text(value)}"
    if search.state == "other":
        yield f"state NOT IN ({', '.join(_text(state) for state in State)})"
    if search.id:
        yield f"starts_with(job_id, {_text(search.id)})"
    for part, columns in ((search.worker, _WORKER), (search.actor, _ACTOR), (search.error, _ERROR)):
        if part:
            yield _within(part, *columns)
    for sign, text in ((">=", search.after), ("<=", search.before)):
        if text:
            yield f"created_at {sign} TIMESTAMPTZ {_text(iso(instant(text, now)))}"
    if search.duration:
        wanted = length(search.duration)
        yield f"coalesce(duration_ms, epoch_ms(now()) - epoch_ms(started_at)) {wanted.relation} {wanted.ms}"
    for place, value in search.args:
        keys = "".join(f"[{key}]" if key.isdigit() else f".{json_text(key)}" for key in place.split("."))
        yield f"contains(lower(params ->> {_text('$' + keys)}), {_text(value.lower())})"
    for word in search.words:
        yield _within(word, *_WORDS)


def _within(part: str, *columns: str) -> str:
    found = " OR ".join(f"contains(lower({column}), {_text(part.lower())})" for column in columns)
    return f"({found})" if len(columns) > 1 else found


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
