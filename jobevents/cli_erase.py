"""The command that erases: what a job said is gone for good, and a receipt says what was removed."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from jobevents import console, wiring_erase
from jobevents.cli_options import AsJson, Url, open_jobs
from jobevents.errors import InvalidValue
from jobevents.reads import checked_id

if TYPE_CHECKING:
    from jobevents.erasing import Erasing, Receipt
    from jobevents.jobs import Jobs


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command("erase")(erase)


def erase(
    url: Url,
    job_id: Annotated[str, typer.Argument(metavar="[JOB]", help="The job.")] = "",
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Finish what was asked for before: on a bucket, an hour later.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without it, only say what is there.")] = False,
    actor: Annotated[str | None, typer.Option("--actor", help="Who asks for it; default: user@host.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; stays in the receipt and on the tombstone.")] = "",
    as_json: AsJson = False,
) -> None:
    """Say what is there of a job, or with --yes remove all of it for good, and print a receipt. The id never comes back.

    The events below the tombstone go, log lines, status, artifacts under jobs/ID/, and parked, rebuilt and archived copies. An
    SQLite file is written anew so that its bytes go, too. Repeatable, also after it was interrupted.
    """
    if bool(job_id) == unfinished:
        raise InvalidValue("name the job, or give --unfinished")
    with open_jobs(url) as jobs:
        work = wiring_erase.erasing(jobs)
        ids = sorted(work.eraser.unfinished()) if unfinished else [checked_id(job_id)]
        receipts = _erase(jobs, work, ids, reason, actor) if yes else [work.look(one) for one in ids]
    if console.wants_json(as_json):
        console.print_json(receipts if unfinished else receipts[0])
        return
    for receipt in receipts:
        _show(receipt, done=yes)
    if unfinished:
        console.note(console.count(len(receipts), "job"), to_err=True)


def _erase(jobs: "Jobs", work: "Erasing", ids: list[str], reason: str, actor: str | None) -> "list[Receipt]":
    receipts = [work.erase(one, jobs.by(actor, reason), scrub=False) for one in ids]
    notes = work.scrub(ids) if receipts else []
    for receipt in receipts:
        receipt.notes = [*notes, *receipt.notes]
    return receipts


def _show(receipt: "Receipt", *, done: bool) -> None:
    what = [f"{receipt.events} events", f"{receipt.lines} log lines"]
    what += [f"{receipt.archived} archived events"] if receipt.archived else []
    what += [f"{count} {kind}" for kind, count in sorted(receipt.blobs.items())]
    verb = "erased" if receipt.is_done else "to be erased"
    console.out.print(console.plain(f"{receipt.job_id}: {', '.join(what)} {verb}"), soft_wrap=True)
    if not done:
        console.note("nothing was removed; do it with --yes", to_err=True)
        return
    console.note(f"the tombstone stays: event {receipt.tombstone}, after chain {receipt.chain or '(not known)'}")
    if receipt.ripe_at is not None:
        console.note(
            f"its events are removed after {console.local(receipt.ripe_at)}: run jobevents erase --unfinished --yes"
        )
    for note in receipt.notes:
        console.note(note)


def erase_old(jobs: "Jobs", days: float, *, yes: bool) -> int:
    """Erase the histories of jobs that were deleted so many days ago, or count them."""
    work = wiring_erase.erasing(jobs)
    found = work.eraser.deleted(jobs.emitter.clock() - timedelta(days=days))
    if not yes:
        return sum(1 for _ in found)
    return len(_erase(jobs, work, list(found), "the time to keep its history was over", "purge"))
