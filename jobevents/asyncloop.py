"""An event loop in a thread of its own, for coroutine handlers; imported with the first of them, as asyncio takes its time."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any


class LoopThread:
    """An event loop that runs until it is stopped, and beside it a thread that makes blocking calls in order."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="jobevents-loop", daemon=True)
        self._calls = ThreadPoolExecutor(1, thread_name_prefix="jobevents-loop-calls")
        self.uses = 0  # how many use it now: its owner counts
        self._is_stopping = False
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._is_stopping:
            with suppress(
                SystemExit, KeyboardInterrupt
            ):  # raised by a task that a handler began: the loop passes them on
                self._loop.run_forever()
        self._loop.close()

    def run(self, make: Callable[[], Coroutine[Any, Any, Any]], on_task: Callable[[Callable[[], None]], None]) -> Any:
        """Run a coroutine (Any: what it returns) and wait for it, from another thread; raises what it raises.

        Args:
            make: makes the coroutine, in the loop.
            on_task: given, in the loop and before it begins, what cancels it, to be called from any thread.
        """
        done: Future[Any] = Future()

        async def guarded() -> None:
            try:
                done.set_result(await make())
            except BaseException as error:  # noqa: BLE001  # as an exception of the task, some of them would end the loop
                done.set_exception(error)

        def begin() -> None:
            task = self._loop.create_task(guarded())
            task.add_done_callback(lambda _: _see_to(done))
            on_task(lambda: self._call_soon(task.cancel))

        self._call_soon(begin)
        return done.result()

    def send(self, call: Callable[[], None]) -> "Awaitable[None]":
        """Have a blocking call made after those sent before, and return what may be awaited, in any loop, until it is."""
        return Sent(self._calls.submit(call))

    def drain(self) -> None:
        """Wait until everything sent was called."""
        self._calls.submit(lambda: None).result()

    def stop(self) -> None:
        """End both threads as soon as they let us, and wait for neither."""
        self._is_stopping = True
        self._calls.shutdown(wait=False)
        self._call_soon(self._loop.stop)

    def _call_soon(self, call: Callable[[], Any]) -> None:
        with suppress(RuntimeError):  # closed since: there is nobody left to call it for
            self._loop.call_soon_threadsafe(call)


class Sent:
    """A call on its way. Not awaited, it is made all the same."""

    def __init__(self, future: "Future[None]") -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, None]:
        """Wait until it was made, for as long as the caller is not cancelled."""
        yield from asyncio.shield(asyncio.wrap_future(self._future)).__await__()


def _see_to(done: "Future[Any]") -> None:
    """Let nobody wait for a task that was cancelled before it began."""
    if not done.done():
        done.set_exception(asyncio.CancelledError())
