"""Values that nobody is to read, taken out by the names of the arguments that carry them, before anything is answered. Pure.

Names are looked at in params, results, fields, details of errors and attributes of log lines, at every depth; of URLs among
those values the password is taken out, whatever their name. Text that people or libraries wrote (titles, errors, tracebacks,
log lines) has no names, and is left as it is: `scrub=` keeps secrets out of it.
"""

import fnmatch
import re
import unicodedata
from collections.abc import Collection, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from jobevents.assertions import RunChanges, RunError
from jobevents.events import Event, JobAnnotated, JobImported, JobQueued, JobRecorded, JobSucceeded, TransitionRefused
from jobevents.job import Job
from jobevents.status import Status, is_reserved
from jobevents.store import JobLog

E = TypeVar("E", bound=Event)
S = TypeVar("S", bound=Status)

MASKED: Final = "[masked]"
SECRETS: Final = (
    "*password*",
    "*passwd*",
    "*passphrase*",
    "*secret*",
    "*token*",
    "*api_key*",
    "*apikey*",
    "*access_key*",
    "*accesskey*",
    "*private_key*",
    "*privatekey*",
    "*authorization*",
    "*credential*",
    "*cookie*",
    "*pwd*",
    "pass",
    "*_pass",
    "*bearer*",
    "auth",
    "*_auth",
)
_PASSWORD: Final = re.compile(r"(?<=://)([^\s/?#@:]*):[^\s/?#]*(?=@)")  # of a URL
_RECORD: Final = " record="  # before a foreign record, in the detail of its refusal


class Mask:
    """Takes values out by their names. Safe for threads."""

    def __init__(self, patterns: Collection[str] | None = None) -> None:
        """Mask what is named so.

        The bytes of a status are the kit's, and whoever polls them takes them as they are: they are masked where somebody has
        said what is to be, and not by names of ours that nobody chose.

        Args:
            patterns: `*` stands for any text, `?` for any character; case does not matter, and `-` is `_`. None: names
                of secrets, but nothing in a status's own bytes, which are exactly those of status.json.
        """
        self._has_urls = patterns is None or bool(patterns)  # with none named, everything is shown
        self.covers_status = bool(patterns)
        said = [fnmatch.translate(_plain(one)) for one in (SECRETS if patterns is None else patterns)]
        self._matches = re.compile("|".join(said) or r"(?!)").match

    def names(self, name: str) -> bool:
        """Tell whether a value of this name is masked."""
        return self._matches(_plain(name)) is not None

    def value(self, value: Any) -> Any:
        """Return a JSON value with what it masks taken out; an empty one, which tells nothing, is left."""
        if isinstance(value, Mapping):
            return {key: self._named(key, one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(one) for one in value]
        if isinstance(value, str) and self._has_urls and "://" in value:
            return _PASSWORD.sub(rf"\1:{MASKED}", value)
        return value

    def event(self, event: E) -> E:
        """Return an event as it may be read; its chain is still that of the stored one."""
        match event:
            case JobQueued():
                return msgspec.structs.replace(event, params=self.value(event.params))
            case JobSucceeded():
                return msgspec.structs.replace(event, result=self.value(event.result))
            case JobAnnotated():
                return msgspec.structs.replace(event, fields=self.value(event.fields))
            case JobRecorded():
                run = self._run(event.run) if event.run is not None else None
                return msgspec.structs.replace(event, changes=self._record(event.changes), run=run)
            case JobImported():
                return msgspec.structs.replace(event, record=self._record(event.record))
            case TransitionRefused() if _RECORD in event.detail:
                return msgspec.structs.replace(event, detail=self._detail(event.detail))
        return event

    def job(self, job: Job) -> Job:
        """Return a job as it may be read."""
        return msgspec.structs.replace(
            job,
            params=self.value(job.params),
            result=self.value(job.result),
            fields=self._record(job.fields),
            run_error=self._error(job.run_error) if job.run_error is not None else None,
        )

    def status(self, status: S) -> S:
        """Return a record as it may be read, service fields included."""
        own = [name for name in status.__struct_fields__ if not is_reserved(name)]
        masked = {name: self._named(name, getattr(status, name)) for name in own}
        return msgspec.structs.replace(status, **masked) if masked else status

    def line(self, line: JobLog) -> JobLog:
        """Return a log line as it may be read."""
        return msgspec.structs.replace(line, attrs=self.value(line.attrs)) if line.attrs else line

    def _named(self, name: Any, value: Any) -> Any:
        if self.names(str(name)):
            return value if value is None or value == "" else MASKED
        return self.value(value)

    def _record(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Mask service fields; the keys of every record are no arguments."""
        return {key: one if is_reserved(key) else self._named(key, one) for key, one in record.items()}

    def _run(self, run: RunChanges) -> RunChanges:
        changed = {name: getattr(run, name) for name in ("params", "result")}
        masked = {name: one if one is UNSET else self.value(one) for name, one in changed.items()}
        error = self._error(run.error) if isinstance(run.error, RunError) else run.error
        return msgspec.structs.replace(run, **masked, error=error)

    def _error(self, error: RunError) -> RunError:
        return msgspec.structs.replace(error, fields=self.value(error.fields))

    def _detail(self, detail: str) -> str:
        why, _, record = detail.partition(_RECORD)
        try:
            found = msgspec.json.decode(record)
        except (msgspec.MsgspecError, RecursionError):  # cut short: whatever it names is not to be told apart
            return f"{why}{_RECORD}{MASKED}"
        return f"{why}{_RECORD}{msgspec.json.encode(self.value(found)).decode()}"


def _plain(name: str) -> str:
    """Return a name as it is compared: one that only looks the same, by its characters, is the same."""
    normal = unicodedata.normalize("NFKC", name)
    return unicodedata.normalize("NFKC", normal.casefold()).replace("-", "_").replace(" ", "_")
