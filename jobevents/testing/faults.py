"""Stores that fail: the n-th call is refused, loses its reply, or is the last that the process makes.

Run the same work with n = 1, 2, 3 ... until no fault is met any more, and every place where it can break was tried.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeVar

from jobevents.blobs import Blob, BlobEntry, Blobs
from jobevents.errors import Unavailable

T = TypeVar("T")

Fault = Literal["refuse", "lose reply", "die", "die after"]
"""refuse: nothing is done, Unavailable. lose reply: it is done, Unavailable. die: nothing is done, and no call after it
either. die after: it is done, then as die."""


class Died(BaseException):
    """Stands for the end of the process at this call; no `except Exception` keeps it alive."""


class Call(NamedTuple):
    """One call of a store."""

    method: str  # get, put, delete or list
    name: str  # of the object; a listing's prefix


class FailingBlobs:
    """Blobs over others, of which the n-th call fails; without a fault it notes the calls."""

    def __init__(
        self,
        blobs: Blobs,
        *,
        at: int = 0,
        fault: Fault = "refuse",
        before: Callable[[Call], object] | None = None,
    ) -> None:
        """Pass calls on to `blobs`.

        Args:
            at: number of the call that fails, from 1; 0 for none.
            fault: how it fails.
            before: called before every call is passed on: for what others do meanwhile, or for faults of one's own.
        """
        self.calls: list[Call] = []  # all so far, the failed ones too
        self._blobs = blobs
        self._at = at
        self._fault = fault
        self._before = before
        self._is_dead = False

    @property
    def met(self) -> bool:
        """Tell whether the fault was met."""
        return 0 < self._at <= len(self.calls)

    @property
    def min_write_interval_s(self) -> float:
        return self._blobs.min_write_interval_s

    def get(self, name: str, *, if_changed: str | None = None) -> Blob | None:
        return self._pass_on(Call("get", name), lambda: self._blobs.get(name, if_changed=if_changed))

    def put(
        self,
        name: str,
        data: bytes,
        *,
        if_generation: str | None = None,
        content_type: str = "application/octet-stream",
        cache_control: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        return self._pass_on(
            Call("put", name),
            lambda: self._blobs.put(
                name,
                data,
                if_generation=if_generation,
                content_type=content_type,
                cache_control=cache_control,
                metadata=metadata,
            ),
        )

    def delete(self, name: str, *, if_generation: str | None = None) -> bool:
        return self._pass_on(Call("delete", name), lambda: self._blobs.delete(name, if_generation=if_generation))

    def list(self, prefix: str, *, start: str = "", delimiter: str = "") -> Iterator[BlobEntry]:
        return self._pass_on(Call("list", prefix), lambda: self._blobs.list(prefix, start=start, delimiter=delimiter))

    def close(self) -> None:
        self._blobs.close()

    def _pass_on(self, call: Call, do: Callable[[], T]) -> T:
        if self._is_dead:
            raise Died(f"process is dead method={call.method} name={call.name}")
        self.calls.append(call)
        if self._before is not None:
            self._before(call)
        if len(self.calls) != self._at:
            return do()
        if self._fault in ("lose reply", "die after"):
            do()
        if self._fault in ("die", "die after"):
            self._is_dead = True
            raise Died(f"process died method={call.method} name={call.name} call={self._at}")
        raise Unavailable(
            f"fault was injected fault={self._fault!r} method={call.method} name={call.name} call={self._at}"
        )
