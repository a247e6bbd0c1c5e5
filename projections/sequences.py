"""Change sequences of chunks: where a change goes, what it does there, when a chunk is split or merged.

A rewrite walks a sequence once, reads each chunk that a change falls into, and stores what comes of it; all others stay as
they are. Every chunk but the last holds `Sizes.least` ids or more, so that this many ids in a row lie in two chunks at most.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import msgspec

from jobevents.errors import Misconfigured
from projections.chunks import Chunk, ChunkRef, Chunks, rank

GONE = ""
"""In place of a state's letter: the job is not in the sequence any more."""


class Change(NamedTuple):
    """What became of a job. Changes sort by rank; of one job there is one."""

    rank: str
    job_id: str
    version: int  # of the job as it is now
    state: str  # letter of its state, or GONE


Moves: TypeAlias = dict[str, list[Change]]
"""Letter of a state -> what changes in its sequence, ascending by rank."""

Merge: TypeAlias = Callable[[Chunk, Sequence[Change]], Chunk]
"""Returns a chunk after some changes, ascending by rank, that fall into it; the chunk itself if they change nothing."""


class Sizes(msgspec.Struct, frozen=True):
    """How many ids a chunk holds."""

    least: int = 200  # fewer: it is merged into the next one, unless it is the last
    fill: int = 1500  # when the last one is split, as jobs come in order of time: room is left for stragglers
    most: int = 2000  # more: it is split. A chunk of 2,000 ids of 32 characters is 78 KB

    def __post_init__(self) -> None:
        """Refuse sizes with which the halves of a split would be merged again."""
        if not 0 < 2 * self.least <= self.fill <= self.most:
            raise Misconfigured(f"chunk sizes do not fit {self}; give 0 < 2 * least <= fill <= most")


EMPTY = Chunk([], [])


def merge_all(chunk: Chunk, changes: Sequence[Change], moves: Moves) -> Chunk:
    """Apply changes to a chunk of the sequence of all jobs, and add what follows for those of the states to `moves`.

    An entry keeps the version at which its job came into its state; a change that is not newer does nothing.
    """
    places = {job_id: place for place, job_id in enumerate(chunk.ids)}
    put: dict[int, Change] = {}  # place -> its new entry
    added: list[Change] = []
    for change in changes:
        place = places.get(change.job_id)
        if place is None:
            if change.state != GONE:
                added.append(change)
                moves.setdefault(change.state, []).append(change)
            continue
        before = chunk.states[place]
        if change.version <= chunk.versions[place] or change.state == before:
            continue
        put[place] = change
        moves.setdefault(before, []).append(change._replace(state=GONE))
        if change.state != GONE:
            moves.setdefault(change.state, []).append(change)
    return _changed(chunk, put, added, keep_states=True)


def merge_one(chunk: Chunk, changes: Sequence[Change]) -> Chunk:
    """Apply changes to a chunk of the sequence of one state."""
    places = {job_id: place for place, job_id in enumerate(chunk.ids)}
    put: dict[int, Change] = {}
    added: list[Change] = []
    for change in changes:
        place = places.get(change.job_id)
        if place is not None:
            put[place] = change
        elif change.state != GONE:
            added.append(change)
    return _changed(chunk, put, added, keep_states=False)


def rewrite(
    refs: Sequence[ChunkRef], changes: Sequence[Change], merge: Merge, chunks: Chunks, sizes: Sizes
) -> Iterator[ChunkRef]:
    """Yield the sequence as it is after `changes`, storing each new chunk before it is named.

    One read and about one write for each chunk that a change falls into; memory holds one of them at a time.
    """
    carried = EMPTY  # too small to stand alone: goes into the next chunk
    done = 0
    for number, ref in enumerate(refs):
        is_last = number + 1 == len(refs)
        end = len(changes) if is_last else _end(changes, done, refs[number + 1])
        mine, done = changes[done:end], end
        if not mine and not carried.ids:
            yield ref
            continue
        before = chunks.get(ref)
        after = merge(before, mine)
        if after is before and not carried.ids:
            yield ref
            continue
        after, carried = _joined(carried, after), EMPTY
        if len(after.ids) < sizes.least and not is_last:
            carried = after
        else:
            yield from _stored(after, chunks, sizes, is_last=is_last)
    if not refs:
        yield from _stored(merge(EMPTY, changes), chunks, sizes, is_last=True)


def _end(changes: Sequence[Change], start: int, following: ChunkRef) -> int:
    """Return how far the changes from `start` on fall before the chunk that follows."""
    if start == len(changes):
        return start
    return bisect_left(changes, rank(following.first), start, key=attrgetter("rank"))


def _stored(chunk: Chunk, chunks: Chunks, sizes: Sizes, *, is_last: bool) -> Iterator[ChunkRef]:
    start = 0
    for length in lengths(len(chunk.ids), sizes, is_last=is_last):
        part = slice(start, start + length)
        yield chunks.put(Chunk(chunk.ids[part], chunk.versions[part], chunk.states[part]))
        start += length


def lengths(count: int, sizes: Sizes, *, is_last: bool) -> list[int]:
    """Return the lengths of the chunks that `count` ids make: one, or even parts; full ones at the end of a sequence."""
    if count <= sizes.most:
        return [count] if count else []
    if is_last:
        full, rest = divmod(count, sizes.fill)
        return [sizes.fill] * full + ([rest] if rest else [])
    parts = -(-count // sizes.fill)
    return [count * (part + 1) // parts - count * part // parts for part in range(parts)]


def _joined(left: Chunk, right: Chunk) -> Chunk:
    if not left.ids:
        return right
    return Chunk(left.ids + right.ids, left.versions + right.versions, left.states + right.states)


def _changed(chunk: Chunk, put: dict[int, Change], added: list[Change], *, keep_states: bool) -> Chunk:
    """Return the chunk with the entries of `put` replaced or taken out, and others added in their places."""
    if not put and not added:
        return chunk
    ids, versions, states = list(chunk.ids), list(chunk.versions), list(chunk.states)
    for place in sorted(put, reverse=True):
        change = put[place]
        if change.state == GONE:
            del ids[place], versions[place], states[place : place + 1]
            continue
        versions[place] = change.version
        if keep_states:
            states[place] = change.state
    is_in_order = not ids or not added or rank(ids[-1]) < added[0].rank
    ids += [change.job_id for change in added]
    versions += [change.version for change in added]
    if keep_states:
        states += [change.state for change in added]
    if not is_in_order:
        order = sorted(range(len(ids)), key=list(map(rank, ids)).__getitem__)
        ids, versions = [ids[place] for place in order], [versions[place] for place in order]
        states = [states[place] for place in order] if keep_states else states
    return Chunk(ids, versions, "".join(states))
