"""What the API answers, beside what the layers below have already: the shapes of pages, lists and counts."""

from datetime import datetime

import msgspec

from jobevents.errors import Corrupt
from jobevents.events import AnyEvent
from jobevents.job import Job
from jobevents.log import Record
from jobevents.overview import LimitSeen, QueueSeen, ScheduleSeen
from jobevents.pauses import Pause
from jobevents.reaper import WorkerSeen
from jobevents.status import Status
from jobevents.store import JobLog
from projections.health import Health
from projections.lost import Lost
from projections.parked import Parked
from projections.reader import LeftOut
from projections.starts import Start


class JobSeen(Job, omit_defaults=True):
    """All that is known of a job, and whether anybody is known to work on it."""

    lost: Lost | None = None  # how the worker of a job that runs is lost; left out while it lives


class JobPage(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    """A page of jobs: the items and the ten keys of PageMeta beside them (behaviour S34), then what more there is to say."""

    items: list[Status]  # newest first, service fields included
    page: int  # this and the next nine: as in PageMeta, for the items that are shown
    per_page: int
    total: int
    total_pages: int
    has_prev: bool
    has_next: bool
    prev_page: int
    next_page: int
    from_: int
    to: int
    left_out: list[LeftOut]  # jobs of the page that could not be read, or are gone
    cursor: str  # give it as `cursor` to go on after this page; "" when nothing older is there
    lost: list[Lost] = []  # running jobs of the page that nobody is known to work on


class JobSlice(msgspec.Struct, frozen=True):
    """Some jobs, newest first, and where to go on: every job that is there throughout is seen exactly once."""

    items: list[Status]
    left_out: list[LeftOut]
    cursor: str  # "" when nothing older is there
    lost: list[Lost] = []  # running jobs among them that nobody is known to work on


class JobsFound(msgspec.Struct, frozen=True):
    """Jobs that a search finds, newest first, and how far was looked: no answer costs more than its budget."""

    items: list[Status]
    left_out: list[LeftOut]
    cursor: str  # "" when all were looked through, else where to go on, also where nothing was found yet
    looked: int  # jobs that were looked through
    down_to: datetime | None  # when the last of them was made; None: there was none
    lost: list[Lost] = []  # running jobs among them that nobody is known to work on


class Unreadable(msgspec.Struct, frozen=True):
    """An event that this version cannot show."""

    job_id: str
    version: int
    type: str
    why: str

    @classmethod
    def of(cls, record: Record, error: Corrupt) -> "Unreadable":
        """Return what is told of a stored event; nothing of its bytes, which have no names by which they could be masked."""
        return cls(record.job_id, record.version, record.type, str(error).partition(" data=")[0])


class EventList(msgspec.Struct, frozen=True):
    """Events of one job, in order."""

    items: list[AnyEvent]  # as the log has them, each with its type and chain
    version: int  # of the last one, read or not; give it as `after` to go on
    has_more: bool
    unreadable: list[Unreadable]  # those between them that this version cannot read, such as of a newer one


class LogLines(msgspec.Struct, frozen=True):
    """Log lines of one job, in order across its attempts."""

    items: list[JobLog]
    last_seq: int  # of the last one; give it as `after_seq` to go on
    has_more: bool


class StartList(msgspec.Struct, frozen=True):
    """The starts of one job."""

    items: list[Start]  # newest first
    lost: Lost | None = None  # how the worker of the one that is under way is lost; null while it lives


class TableSize(msgspec.Struct, frozen=True):
    """What one table takes, with its indexes."""

    table: str  # "" for the whole file or database
    rows: int | None  # null: not counted
    size_bytes: int | None  # null: not measured
    is_estimate: bool  # the rows: as the database last counted them


class QueueList(msgspec.Struct, frozen=True):
    """The queues, and what is paused."""

    items: list[QueueSeen]
    paused: list[Pause]  # queues and kinds of jobs
    limits: list[LimitSeen] = []  # kinds of jobs of which only so many run at once; none where the kinds are not known


class Storage(msgspec.Struct, frozen=True):
    """What the log takes."""

    items: list[TableSize]  # events, the row of each job, log lines, and last all of the file or database


class WorkerList(msgspec.Struct, frozen=True):
    """The workers."""

    items: list[WorkerSeen]  # the living first


class ScheduleList(msgspec.Struct, frozen=True):
    """The periodic jobs."""

    items: list[ScheduleSeen]
    reason: str  # why there are none to show; "" for nothing to say


class ViewSeen(msgspec.Struct, frozen=True):
    """One view of the projector."""

    health: Health  # as its projector last wrote it
    lag_events: int  # places between what is stored and the log's end now
    lag_s: float  # age of the oldest event that waits; 0 when none does
    troubles: list[str]  # what is bad about it now, and what to do
    idle_since: datetime | None  # nobody has projected into it since; null while somebody does


class ProjectorSeen(msgspec.Struct, frozen=True):
    """The projector."""

    items: list[ViewSeen]  # none when no projector ever ran
    head: int  # last place in the log now; 0 for a log that has no places


class ParkedList(msgspec.Struct, frozen=True):
    """Jobs that a view could not take."""

    items: list[Parked]  # without the stored bytes
    has_more: bool


class StateCount(msgspec.Struct, frozen=True):
    """How many jobs of a queue are in a state."""

    queue: str
    state: str
    jobs: int


class SeriesBar(msgspec.Struct, frozen=True):
    """One step of a time series."""

    at: datetime  # when it begins
    created: int  # jobs created in it
    ended: dict[str, int]  # state -> jobs that ended so in it
    duration_ms: dict[str, int]  # state -> what the last attempts of those took together


class Stats(msgspec.Struct, frozen=True):
    """How many jobs there are, and what came and went."""

    states: dict[str, int]  # state -> jobs now; the six are always there
    queues: list[StateCount]  # the same by queue
    since: datetime  # begin of the series
    step_s: int  # seconds of a bar
    series: list[SeriesBar]  # oldest first, each step once
    counted_at: datetime  # the counts may be as old as a few seconds
    lost: int = 0  # of those that are running: nobody is known to work on them


class Filter(msgspec.Struct, frozen=True):
    """Whether this log can find jobs by something."""

    available: bool
    reason: str  # why not, and what can be done; "" when it can


class Features(msgspec.Struct, frozen=True):
    """What this server can do, and what the caller may."""

    version: str  # of jobevents
    filters: dict[str, Filter]  # parameter of /api/jobs -> whether it can be used
    as_of: dict[str, Filter]  # place -> whether it can be shown as of an instant
    streams: dict[str, Filter]  # what can be followed as it happens
    per_page_max: int
    has_registry: bool  # the server knows the kinds of jobs
    status_is_exact: bool  # a job's status is its status.json to the byte; False: its values are masked as all others
    caller: str  # who is asking
    roles: list[str]  # what they may do


class Liveness(msgspec.Struct, frozen=True):
    """The process answers."""

    status: str  # "ok"


class Readiness(msgspec.Struct, frozen=True):
    """The log and the views can be read."""

    status: str  # "ready"
