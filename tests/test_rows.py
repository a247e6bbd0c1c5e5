"""What the SQL backends put into a row."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from jobevents.backends.sql import RUN_COLUMNS, row_of, time_text
from jobevents.job import Job
from jobevents.store import updated_at

UPDATED = list(RUN_COLUMNS).index("updated_at")


@pytest.mark.parametrize(
    "text",
    [
        "2026-07-26T12:00:31Z",
        "2026-07-26T12:00:31.5Z",
        "2026-07-26T12:00:31.123456Z",
        "2026-07-26T12:00:31.123456789Z",
        "2026-07-26T12:00:31.000000001Z",
        "2026-07-26T12:00:31.1+02:00",
        "2024-02-29T00:00:00.1Z",
        "0001-01-01T00:00:00Z",
        "soon",
        "",
    ],
)
def test_update_time(text: str) -> None:
    """A row says when its job changed as the text of that instant, whichever way it is made."""
    job = Job(job_id="render-1", updated_at=text)

    row = row_of(job)

    assert time_text(updated_at(job)) == row[UPDATED]


def test_one_text_for_an_instant() -> None:
    """One instant has one text, in whatever zone it was given."""
    when = datetime(2026, 7, 26, 12, 0, 31, tzinfo=UTC)

    text = time_text(when.astimezone(timezone(timedelta(hours=2))))

    assert time_text(when) == text
