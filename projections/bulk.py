"""Many reads, writes and deletes of blobs at once: in one commit where the store can do that, else by several threads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, Self, TypeVar, runtime_checkable

from jobevents.blobs import Blob, Blobs
from jobevents.errors import Conflict, NotFound
from projections.statuswriter import Put, PutMany

T = TypeVar("T")
R = TypeVar("R")

THREADS = 16  # calls under way at once: what hides a bucket's latency


@runtime_checkable
class DeleteMany(Protocol):
    """Blobs that remove many objects at the price of one commit."""

    def delete_many(self, names: Sequence[str]) -> int:
        """Remove those of them that are there, whatever their generation, and return how many."""
        ...


class Bulk:
    """Calls of one store in bulk. Results come in the order of what was asked; close it, or use it as a context manager."""

    def __init__(self, blobs: Blobs, threads: int = THREADS) -> None:
        """Begin no thread yet.

        Args:
            threads: calls under way at once; 1: one after the other, in this thread.
        """
        self._blobs = blobs
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="jobevents-bulk") if threads > 1 else None

    def map(self, call: Callable[[T], R], what: Iterable[T]) -> Iterator[R]:
        """Do `call` for each; all of `what` is read at once."""
        return self._pool.map(call, what) if self._pool else map(call, what)

    def get(self, names: Iterable[str]) -> list[Blob | None]:
        """Read blobs; None for what is not there."""
        return list(self.map(partial(get, self._blobs), names))

    def put(self, puts: Sequence[Put], *, content_type: str, cache_control: str) -> list[str | None]:
        """Do each `put`, each name once, and return the new generations: None where the stored one was another."""
        headers = {"content_type": content_type, "cache_control": cache_control}
        if not puts:
            return []
        if isinstance(self._blobs, PutMany):
            return self._blobs.put_many(puts, **headers)
        return list(self.map(partial(_put, self._blobs, headers), puts))

    def delete(self, names: Sequence[str]) -> int:
        """Remove blobs, whatever their generation, and return how many were there."""
        if isinstance(self._blobs, DeleteMany):
            return self._blobs.delete_many(names)
        return sum(self.map(self._blobs.delete, names))

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def get(blobs: Blobs, name: str) -> Blob | None:
    """Return a blob; None when it is not there."""
    try:
        return blobs.get(name)
    except NotFound:
        return None


def _put(blobs: Blobs, headers: Mapping[str, str], put: Put) -> str | None:
    name, data, if_generation, metadata = put
    try:
        return blobs.put(name, data, if_generation=if_generation, metadata=metadata, **headers)
    except Conflict:
        return None
