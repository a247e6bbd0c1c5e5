"""What can be done to a job or to many: what each would append, and why it cannot be done now. Pure."""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from jobevents.job import CANCELED, DELETED, FAILED, QUEUED, RUNNING, SKIPPED, SUCCEEDED, Job
from projections.api.access import Identity, Role

NO_ROUTE: Final = "this server only reads: use the command line"
_FINAL: Final = (SUCCEEDED, FAILED, CANCELED, SKIPPED)


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """A button."""

    name: str
    label: str
    appends: str  # the event that it will append, in words
    method: str
    path: str  # below the API's root
    body: dict[str, bool] = {}  # besides the reason
    reason: str  # what stands in the field for the reason at first
    is_dangerous: bool = False
    takes_time: bool = False  # it can be asked for not before an instant
    takes_params: bool = False  # other ones can be given
    params_fixed: str = ""  # why not
    disabled: str = ""  # why it cannot be pressed


def of_job(
    job: Job, caller: Identity, routes: Collection[tuple[str, str]], *, is_past: bool, is_masked: bool
) -> list[Action]:
    """Return the buttons of a job.

    Args:
        routes: method and path of each route of the API that there is.
        is_past: the page shows the job as it was.
        is_masked: something of its params is not shown.
    """
    state = job.state
    asks = "CancelRequested: its worker is asked to stop" if state == RUNNING else "JobCanceled: it will never start"
    again = "JobRequeued(rerun): from the beginning, its result is given up"
    is_waiting = state == QUEUED
    retry = "it waits until then" if is_waiting else "another try"

    def made(
        name: str,
        label: str,
        appends: str,
        role: Role,
        allowed: Collection[str],
        *,
        method: str = "POST",
        verb: str = "",
        body: dict[str, bool] | None = None,
        is_dangerous: bool = False,
        takes_time: bool = False,
        takes_params: bool = False,
        params_fixed: str = "",
    ) -> Action:
        is_there = (method, f"/api/jobs/{{job_id}}{verb}") in routes
        return Action(
            name=name,
            label=label,
            appends=appends,
            method=method,
            path=f"api/jobs/{job.job_id}{verb}",
            body=body or {},
            reason=f"{label.lower()} by {caller.name or 'somebody'}",
            is_dangerous=is_dangerous,
            takes_time=takes_time,
            takes_params=takes_params,
            params_fixed=params_fixed,
            disabled=_why_not(state, caller, role, allowed, is_there, is_past=is_past),
        )

    known = (QUEUED, RUNNING, *_FINAL)
    by_force = made(
        "force-cancel",
        "Cancel by force",
        "JobCanceled: it has ended at once; its worker may work on, and what that comes to is refused",
        "cancel",
        (RUNNING,),
        verb="/cancel",
        body={"force": True},
        is_dangerous=True,
    )
    open_text = () if state in (*known, DELETED) else (state,)
    return [
        made("cancel", "Cancel", asks, "cancel", (QUEUED, RUNNING), verb="/cancel"),
        *([by_force] if state == RUNNING and job.cancel_requested_at is not None else []),
        made(
            "retry",
            "Reschedule" if is_waiting else "Retry",
            f"JobRequeued(retry): {retry}",
            "retry",
            (QUEUED, FAILED, SKIPPED, *open_text),
            verb="/retry",
            takes_time=True,
        ),
        made("rerun", "Run again", again, "retry", (*_FINAL, *open_text), verb="/rerun", takes_time=True),
        made(
            "rerun-as-new",
            "Run as new job",
            "JobQueued of a new job",
            "retry",
            (*_FINAL, *open_text),
            verb="/rerun",
            body={"as_new": True},
            takes_time=True,
            takes_params=True,
            params_fixed=_params_fixed(caller, is_masked=is_masked),
        ),
        made(
            "delete",
            "Delete",
            "JobDeleted: for good; status and log lines go, the tombstone stays",
            "delete",
            (*known, *open_text),
            method="DELETE",
            is_dangerous=True,
        ),
    ]


def _params_fixed(caller: Identity, *, is_masked: bool) -> str:
    if is_masked:
        return "some of them are masked here, so that they can be given anew by the command line or the API alone"
    return "" if "submit" in caller.roles else _no_role(caller, "submit")


class Bulk(msgspec.Struct, frozen=True):
    """What can be done to many jobs at once."""

    actions: list[Action]
    filter: dict[str, str]  # all matching ones, as the API says it
    not_all: str  # why all matching ones cannot be chosen; "" where they can

    @property
    def why_not(self) -> list[tuple[str, list[str]]]:
        """Why buttons cannot be pressed."""
        return reasons(self.actions)


def of_many(caller: Identity, routes: Collection[tuple[str, str]], filter: dict[str, str], not_all: str) -> Bulk:
    """Return the buttons of a list, where what is done is decided job by job.

    Args:
        filter: what finds all the jobs of the list.
        not_all: why nothing does.
    """
    said: tuple[tuple[str, str, Role, str], ...] = (
        ("cancel", "Cancel", "cancel", "JobCanceled to those that wait, CancelRequested to those that run"),
        ("retry", "Retry", "retry", "JobRequeued(retry) to those that failed or were skipped"),
        ("rerun", "Run again", "retry", "JobRequeued(rerun) to those that have ended"),
        ("delete", "Delete", "delete", "JobDeleted to each, for good"),
    )
    is_there = ("POST", "/api/bulk") in routes
    made = [
        Action(
            name=name,
            label=label,
            appends=appends,
            method="POST",
            path="api/bulk",
            reason=f"{label.lower()} by {caller.name or 'somebody'}",
            is_dangerous=name == "delete",
            disabled="" if is_there and role in caller.roles else _no_role(caller, role) if is_there else NO_ROUTE,
        )
        for name, label, role, appends in said
    ]
    return Bulk(made, filter, not_all)


def _no_role(caller: Identity, role: Role) -> str:
    return f"{caller.name or 'nobody'} has not the role {role}"


class Pair(msgspec.Struct, frozen=True):
    """Two commands that undo each other, or settle something."""

    disabled: str  # why neither can be given
    pause: str = "api/pause"
    resume: str = "api/resume"
    requeue: str = "api/parked/requeue"
    discard: str = "api/parked/discard"


def pair(caller: Identity, routes: Collection[tuple[str, str]], role: Role, path: str) -> Pair:
    """Return two commands, of which one is a POST at a path of the API."""
    if role not in caller.roles:
        return Pair(_no_role(caller, role))
    return Pair("" if ("POST", path) in routes else NO_ROUTE)


def reasons(buttons: Iterable[Action]) -> list[tuple[str, list[str]]]:
    """Return why buttons cannot be pressed, each reason with their labels."""
    found: dict[str, list[str]] = {}
    for one in buttons:
        if one.disabled:
            found.setdefault(one.disabled, []).append(one.label)
    return list(found.items())


def _why_not(
    state: str, caller: Identity, role: Role, allowed: Collection[str], is_there: bool, *, is_past: bool
) -> str:
    if is_past:
        return "this page shows the past: go back to now"
    if state not in allowed:
        return f"not while it is {state.strip('()')}"
    if role not in caller.roles:
        return _no_role(caller, role)
    if not is_there:
        return NO_ROUTE
    return ""
