"""The table of commands: each appends events in the caller's name, and is allowed by its role. No HTTP library."""

from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET

from projections.api import orders
from projections.api.access import Role
from projections.api.commanding import MAX_BULK, Commands
from projections.api.route import Desk, Given, Reply, Route

_OF_JOB: Final = (404, 409)
BULK_ROLES: Final[dict[str, Role]] = {"cancel": "cancel", "retry": "retry", "rerun": "retry", "delete": "delete"}


def _of_job(command: Callable[[Commands, str, Any, str], Any]) -> Callable[[Desk, Given], Reply]:
    def ask(desk: Desk, given: Given) -> Reply:
        return Reply(command(desk.commands, given.job_id, given.body, given.caller.name))

    return ask


def _of_all(command: Callable[[Commands, Any, str], Any]) -> Callable[[Desk, Given], Reply]:
    def ask(desk: Desk, given: Given) -> Reply:
        return Reply(command(desk.commands, given.body, given.caller.name))

    return ask


COMMANDS: Final[tuple[Route, ...]] = (
    Route(
        path="/api/jobs",
        method="POST",
        name="submit_job",
        about="Queue a job.\n\nThe same id again is the same job, and so is a key that an unfinished job holds.",
        ask=_of_all(Commands.submit),
        takes=orders.SubmitOrder,
        answer=orders.Submitted,
        role="submit",
        refusals=_OF_JOB,
    ),
    Route(
        path="/api/jobs/{job_id}/cancel",
        method="POST",
        name="cancel_job",
        about="Cancel a job that has not started, or ask a running one to stop.\n\nBy force, a running one has ended at once: "
        "its worker is asked to stop, may work on, and what that comes to is refused.",
        ask=_of_job(Commands.cancel),
        takes=orders.CancelOrder,
        answer=orders.Done,
        role="cancel",
        refusals=_OF_JOB,
    ),
    Route(
        path="/api/jobs/{job_id}/retry",
        method="POST",
        name="retry_job",
        about="Queue a failed job for another try, or a waiting one for another time.",
        ask=_of_job(Commands.retry),
        takes=orders.RetryOrder,
        answer=orders.Done,
        role="retry",
        refusals=_OF_JOB,
    ),
    Route(
        path="/api/jobs/{job_id}/rerun",
        method="POST",
        name="rerun_job",
        about="Run a finished job again, or a new job like it.\n\nWith params of its own that is a job of the caller's, "
        "which takes the role `submit` besides.",
        ask=_of_job(Commands.rerun),
        role_of=lambda body: "retry" if body.params is UNSET else "submit",
        takes=orders.RerunOrder,
        answer=orders.Done,
        role="retry",
        refusals=_OF_JOB,
    ),
    Route(
        path="/api/jobs/{job_id}",
        method="DELETE",
        name="delete_job",
        about="Delete a job for good: its status and log lines go, its events stay, and it never comes back.",
        ask=_of_job(Commands.delete),
        takes=orders.DeleteOrder,
        answer=orders.Done,
        role="delete",
        refusals=_OF_JOB,
    ),
    Route(
        path="/api/bulk",
        method="POST",
        name="bulk",
        about=f"One command for up to {MAX_BULK} jobs, by ids or by a filter; a dry run unless told otherwise.\n\n"
        "Needs the role of the action. What cannot be done to one job is told, and holds up no other.",
        ask=_of_all(Commands.bulk),
        takes=orders.BulkOrder,
        answer=orders.BulkDone,
        role_of=lambda body: BULK_ROLES[body.action],
        refusals=(404,),
    ),
    Route(
        path="/api/pause",
        method="POST",
        name="pause",
        about="Hand out no more of a queue, or of a kind of job, until it is resumed.",
        ask=_of_all(Commands.pause),
        takes=orders.PauseOrder,
        answer=orders.PauseDone,
        role="pause",
    ),
    Route(
        path="/api/resume",
        method="POST",
        name="resume",
        about="Hand out again what was paused.",
        ask=_of_all(Commands.resume),
        takes=orders.PauseOrder,
        answer=orders.PauseDone,
        role="pause",
    ),
    Route(
        path="/api/parked/requeue",
        method="POST",
        name="requeue_parked",
        about="Have a view try parked events of a job again.",
        ask=_of_all(Commands.requeue_parked),
        takes=orders.ParkedOrder,
        answer=orders.ParkedDone,
        role="admin",
        refusals=_OF_JOB,
    ),
    Route(
        path="/api/parked/discard",
        method="POST",
        name="discard_parked",
        about="Have a view pass parked events of a job over, for good.",
        ask=_of_all(Commands.discard_parked),
        takes=orders.ParkedOrder,
        answer=orders.ParkedDone,
        role="admin",
        refusals=_OF_JOB,
    ),
)
