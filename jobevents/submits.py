"""Submitting jobs: one, several, or one in a transaction of the caller's; the submitting half of Jobs."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from jobevents import boundary, commands, tracing
from jobevents.commands import Submission, Submitted
from jobevents.emit import By, Emitter
from jobevents.errors import InvalidValue, Misconfigured
from jobevents.inbox import Intake

if TYPE_CHECKING:
    from jobevents.registry import Registry


class Submits:
    """The submitting half of Jobs, which makes what stands here."""

    registry: "Registry | None"
    _emitter: Emitter
    _intake: Intake | None
    _actor: str
    _scrub: boundary.Scrub

    def use(self, registry: "Registry") -> None:
        """Have `submit` take from the registry what it is not told, and refuse params that do not fit; a runner does so too."""
        self.registry = registry

    def submit(
        self,
        name: str,
        params: Any = None,
        *,
        id: str | None = None,  # the public name
        title: str = "",
        queue: str | None = None,
        key: str | None = None,
        at: datetime | str | None = None,
        delay: timedelta | float | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        external: bool = False,
        trigger: str = "manual",
        connection: object = None,
        actor: str | None = None,
        reason: str = "",
    ) -> str:
        """Queue a job and return its id; `submit_or_find` also says whether the job is new.

        Args:
            name: which kind of job; its id starts with it.
            params: JSON value for the handler, at most 64 KiB.
            id: the job's id, for callers that have one; submitting the same job again is that job.
            key: idempotency key: while a job with this name and key is unfinished, its id is returned instead.
            at: not before; an aware datetime or ISO 8601 text with a zone.
            delay: not before; seconds or a timedelta from now.
            max_attempts: tries before it stays failed.
            external: the caller's own task queue delivers it.
            trigger: what led to it: schedule, manual, retry, replay or event.
            connection: to the log's database, of the caller: the job is there when its transaction has committed, and never if
                not. One of psycopg or sqlite3, of SQLAlchemy or Django over them. The transaction is not held up, nor does it
                hold up others (but in SQLite, where each does). A key that another job gets before the commit leaves this one
                skipped, with the reason.

        Raises:
            InvalidValue: something cannot be stored; nothing was written.
            KeyTaken: the unfinished job with this key has other params.
            Conflict: another job has this id. Gone: it was deleted.
            Unavailable, PermissionDenied, Corrupt, AppendUnknown: what the log says.
        """
        wanted = Submission(
            name=name,
            params=params,
            id=id,
            title=title,
            queue=queue,
            key=key,
            at=at,
            delay=delay,
            priority=priority,
            max_attempts=max_attempts,
            external=external,
            trigger=trigger,
        )
        if connection is not None:
            return self._at_inbox().submit(connection, self._completed(wanted), self._by(actor, reason))
        return self.submit_or_find(wanted, actor=actor, reason=reason).job_id

    def submit_or_find(self, wanted: Submission, *, actor: str | None = None, reason: str = "") -> Submitted:
        """Queue a job, or find the one that has its id or holds its key, and say which.

        Raises: as `submit`.
        """
        self._drain_own()
        return commands.submit(self._emitter, self._completed(wanted), self._by(actor, reason))

    def submit_many(
        self, wanted: Sequence[Submission | Mapping[str, Any]], *, actor: str | None = None, reason: str = ""
    ) -> list[str]:
        """Queue several jobs in one transaction, all or none; each a Submission or a dict with its fields.

        Raises: as `submit`.
        """
        try:
            asked = [one if isinstance(one, Submission) else Submission(**one) for one in wanted]
        except TypeError as error:
            raise InvalidValue(f"not a submission: {error}") from error
        self._drain_own()
        answers = commands.submit_many(self._emitter, [self._completed(one) for one in asked], self._by(actor, reason))
        return [answer.job_id for answer in answers]

    def _at_inbox(self) -> Intake:
        if self._intake is None:
            raise Misconfigured(
                "this log is in no database that a transaction of yours could be of: leave out connection"
            )
        return self._intake

    def _drain_own(self) -> None:
        if self._intake is not None:
            self._intake.drain_own()

    def _completed(self, wanted: Submission) -> Submission:
        scrubbed = msgspec.structs.replace(wanted, params=self._scrub(wanted.params))
        return scrubbed if self.registry is None else self.registry.complete(scrubbed)

    def by(self, actor: str | None, reason: str) -> By:
        """Return who writes, where a call does not say, and why."""
        return self._by(actor, reason)

    def _by(self, actor: str | None, reason: str) -> By:
        return By(actor=self._actor if actor is None else actor, reason=reason, trace=tracing.current())
