"""The states of a job as a picture: where each stands, which ways there are, and the way this job took. Pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

from jobevents.events import Event
from jobevents.job import CANCELED, DELETED, FAILED, NEW, QUEUED, RUNNING, SKIPPED, SUCCEEDED, Job, fold

WIDTH, HEIGHT = 640, 216
BOX: Final = (108, 30)  # width and height of a state's box
OTHER: Final = "other"  # stands for all states of open text

_PLACES: Final = {
    NEW: (22, 100),
    QUEUED: (132, 100),
    RUNNING: (322, 100),
    SUCCEEDED: (560, 36),
    FAILED: (560, 100),
    CANCELED: (560, 164),
    SKIPPED: (322, 172),
    OTHER: (322, 36),
    DELETED: (132, 190),
}
"""Middle of each box."""

_ALWAYS: Final = {
    (NEW, QUEUED): "M30,100 H76",
    (QUEUED, RUNNING): "M186,100 H266",
    (RUNNING, SUCCEEDED): "M376,94 C440,88 450,42 504,37",
    (RUNNING, FAILED): "M376,100 H504",
    (RUNNING, CANCELED): "M376,106 C440,112 450,158 504,163",
    (RUNNING, QUEUED): "M290,85 C270,52 184,52 164,83",
    (QUEUED, SKIPPED): "M170,115 C190,160 220,172 266,172",
    (QUEUED, CANCELED): "M150,115 C170,236 470,222 540,181",
}
"""Ways that are drawn for every job."""

_WHEN_TAKEN: Final = {
    (NEW, RUNNING): "M28,93 C70,16 250,16 306,83",
    (QUEUED, QUEUED): "M112,85 C96,54 148,54 138,83",
    (QUEUED, FAILED): "M152,85 C200,4 440,0 530,83",
    (FAILED, RUNNING): "M506,110 C470,124 420,122 378,109",
    (FAILED, QUEUED): "M530,85 C470,22 230,6 142,83",
    (SUCCEEDED, QUEUED): "M528,21 C400,-14 190,-4 134,83",
    (CANCELED, QUEUED): "M516,179 C420,226 190,222 136,117",
    (SKIPPED, QUEUED): "M266,180 C200,196 150,170 140,117",
    (SKIPPED, RUNNING): "M322,157 V117",
}


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A state."""

    state: str
    label: str
    x: int  # left edge
    y: int  # upper edge
    visited: bool
    current: bool


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """From one state to another."""

    path: str  # of an SVG path
    taken: tuple[int, ...]  # versions of the events by which the job went there
    label: str = ""  # the same, for the picture; "" where it was not taken
    label_x: float = 0
    label_y: float = 0


class Diagram(msgspec.Struct, frozen=True):
    """The picture."""

    boxes: list[Box]
    ways: list[Way]
    told: str  # the path in words
    width: int = WIDTH
    height: int = HEIGHT


def diagram(events: Iterable[Event]) -> Diagram:
    """Return the picture of a job whose history is so far these events, from the first on."""
    job = Job(job_id="")
    taken: dict[tuple[str, str], list[int]] = {}
    told: list[str] = []
    visited = {NEW}
    for event in events:
        before, job = _stand_in(job.state), fold([event], job)
        after = _stand_in(job.state)
        if before == after and not _goes_round(before, event):
            continue
        taken.setdefault((before, after), []).append(event.version)
        visited.add(after)
        told.append(f"{job.state.strip('()')} by event {event.version}")
    current = _stand_in(job.state)
    ways = [_way(path, taken.get(pair, ())) for pair, path in _ALWAYS.items()]
    ways += [_way(_path(pair), versions) for pair, versions in taken.items() if pair not in _ALWAYS]
    boxes = [
        Box(
            state=state,
            label=job.state if state == OTHER == current else state.strip("()"),
            x=x - BOX[0] // 2,
            y=y - BOX[1] // 2,
            visited=state in visited,
            current=state == current,
        )
        for state, (x, y) in _PLACES.items()
        if state != NEW and (state not in (OTHER, DELETED) or state in visited)
    ]
    return Diagram(boxes, ways, "; then ".join(told) or "nothing yet")


def _stand_in(state: str) -> str:
    return state if state in _PLACES else OTHER


def _goes_round(state: str, event: Event) -> bool:
    return state == QUEUED and event.type == "JobRequeued"


def _path(pair: tuple[str, str]) -> str:
    if pair in _WHEN_TAKEN:
        return _WHEN_TAKEN[pair]
    (x1, y1), (x2, y2) = _PLACES[pair[0]], _PLACES[pair[1]]
    down = 15 if y2 > y1 else -15 if y2 < y1 else 0
    return f"M{x1},{y1 + down} L{x2},{y2 - down}"


def _way(path: str, versions: Iterable[int]) -> Way:
    taken = tuple(versions)
    if not taken:
        return Way(path=path, taken=())
    x, y = _middle(path)
    shown = " ".join(f"#{version}" for version in taken[:2]) + (f" +{len(taken) - 2}" if len(taken) > 2 else "")
    return Way(path=path, taken=taken, label=shown, label_x=x, label_y=y)


def _middle(path: str) -> tuple[float, float]:
    """Return the middle of a path of one stroke: M, then H, V, L or C."""
    start, rest = path[1:].split(" ", 1)
    x1, y1 = (float(part) for part in start.split(","))
    kind, numbers = rest[0], [float(part) for part in rest[1:].replace(",", " ").split()]
    if kind == "H":
        return (x1 + numbers[0]) / 2, y1
    if kind == "V":
        return x1, (y1 + numbers[0]) / 2
    if kind == "L":
        return (x1 + numbers[0]) / 2, (y1 + numbers[1]) / 2
    ax, ay, bx, by, x2, y2 = numbers
    return (x1 + 3 * ax + 3 * bx + x2) / 8, (y1 + 3 * ay + 3 * by + y2) / 8
