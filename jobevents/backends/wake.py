"""Waking those who wait for commits: at once in this process, by a datagram in others, by a poll where neither comes.

Each listening process binds a socket in a directory beside the database; a commit sends a datagram to all of them.
It is a hint and may be lost; where there are no such sockets (Windows, a path too long for one) the poll is all.
"""

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from jobevents.backends import forks
from jobevents.errors import JobEventsError
from jobevents.files import STAMPED_NS

POLL_S: Final = 0.05  # how late a commit is heard of where no datagrams come
HINTED_S: Final = 0.1  # where they do: how late one that got lost is, or a commit of a caller's own connection
_PATH_LIMIT: Final = 100  # bytes in a socket's path: 108 on Linux, 104 on macOS, with the final NUL
_LOOK_S: Final = 0.01  # how often a thread that commits all the time looks for new listeners


class Wake:
    """Sets the listeners' events after commits of any process. One thread while anybody listens, none otherwise."""

    def __init__(
        self, directory: Path, head: Callable[[], object], glance: Callable[[], object] = lambda: None
    ) -> None:
        """Open nothing yet.

        Args:
            directory: for the sockets; made when somebody listens, removed when nobody does.
            head: reads what changes with every commit of any process: the poll.
            glance: reads at less cost what is another whenever the head may be; None: look at the head.
        """
        self._directory = directory
        self._head = head
        self._glance = glance
        self._known: tuple[int, tuple[str, ...]] = (0, ())
        self._nobody_until = 0.0  # until then, no process listens for all we know
        self._start_afresh()
        forks.watch(self)

    def _start_afresh(self) -> None:
        self._lock = threading.RLock()
        self._listeners: frozenset[threading.Event] = frozenset()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._ear: socket.socket | None = None
        self._mouth: socket.socket | None = None
        self._own = ""
        self._closed = False

    def listen(self, event: threading.Event) -> None:
        """Set `event` after every commit from now on."""
        with self._lock:
            self._listeners |= {event}
            if self._thread is None:
                self._stopping = threading.Event()
                self._bind()
                seen = self._read_head()  # here: read by the thread, it may tell of a commit that is to wake
                self._thread = threading.Thread(target=self._watch, args=(seen,), name="jobevents-wake", daemon=True)
                self._thread.start()

    def unlisten(self, event: threading.Event) -> None:
        """Leave `event` alone; the last to go ends the thread and takes the socket away."""
        with self._lock:
            self._listeners -= {event}
            if not self._listeners:
                self._stop()

    def announce(self) -> None:
        """Wake everybody: call it after a commit. Never blocks or fails; where no process listens, a stat in ten milliseconds."""
        for event in self._listeners:
            event.set()
        if time.monotonic() < self._nobody_until:
            return
        others = self._others()
        for path in others:
            self._send(path)
        if not others:
            self._nobody_until = time.monotonic() + _LOOK_S

    def close(self) -> None:
        """End the thread and remove what lies on disk; any number of times."""
        with self._lock:
            self._closed = True
            self._listeners = frozenset()
            self._stop()
            if self._mouth is not None:
                self._mouth.close()
                self._mouth = None

    def before_fork(self) -> None:
        """Nothing: the thread holds nothing between polls that a child could break."""

    def after_fork(self, *, child: bool) -> None:
        """In the child, forget the parent's listeners and socket: its file is the parent's to remove."""
        if child:
            inherited = self._ear, self._mouth
            self._start_afresh()
            for one in inherited:
                if one is not None:
                    one.close()

    def _stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping.set()
        if self._own:
            self._send(self._own)  # so that it need not wait for the poll
        thread.join()
        self._unbind()

    def _watch(self, seen: object) -> None:
        glanced: object = None
        while not self._stopping.is_set():
            if not self._hears():
                glance = self._glance()
                if glance is not None and glance == glanced:
                    continue
                glanced = glance
                head = self._read_head()
                if head == seen:
                    continue
                seen = head
            for event in self._listeners:
                event.set()

    def _hears(self) -> bool:
        """Wait for a datagram or for the time to poll; tell which it was."""
        if self._ear is None:
            self._stopping.wait(POLL_S)
            return False
        try:
            self._ear.recv(1)
        except TimeoutError:
            return False
        except OSError:
            self._stopping.wait(POLL_S)
            return False
        return True

    def _read_head(self) -> object:
        try:
            return self._head()
        except JobEventsError:
            return None  # those who wait read too, and see the error themselves

    def _bind(self) -> None:
        """Bind our socket; without one, the poll does it."""
        path = str(self._directory / f"{os.getpid()}-{os.urandom(4).hex()}.sock")
        if not hasattr(socket, "AF_UNIX") or len(os.fsencode(path)) > _PATH_LIMIT:
            return
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        for _ in range(3):  # another process may remove the empty directory in between
            try:
                self._directory.mkdir(exist_ok=True)
                ear.bind(path)
            except FileNotFoundError:
                continue
            except OSError:
                break
            ear.settimeout(HINTED_S)
            self._ear, self._own = ear, path
            self._sweep()
            return
        ear.close()

    def _unbind(self) -> None:
        ear, path, self._ear, self._own = self._ear, self._own, None, ""
        if ear is not None:
            ear.close()
            Path(path).unlink(missing_ok=True)
            try:
                self._directory.rmdir()
            except OSError:  # others still listen
                return

    def _sweep(self) -> None:
        """Remove the sockets of processes that are gone: `_send` does it to those where nobody answers."""
        for path in self._others():
            self._send(path)

    def _others(self) -> tuple[str, ...]:
        """Return the other sockets; the directory is only read again when it has changed."""
        try:
            changed = os.stat(self._directory).st_mtime_ns  # noqa: PTH116  # a third of the time of Path.stat, at every commit
        except OSError:
            return ()
        known = self._known
        if known[0] != changed:
            try:
                names = os.listdir(self._directory)  # noqa: PTH208  # as above
            except OSError:
                return ()
            found = tuple(str(self._directory / name) for name in names if name.endswith(".sock"))
            known = (changed, found)
            if abs(time.time_ns() - changed) > STAMPED_NS:
                self._known = known
        return tuple(path for path in known[1] if path != self._own)

    def _open_mouth(self) -> socket.socket | None:
        with self._lock:
            if self._mouth is None and hasattr(socket, "AF_UNIX") and not self._closed:
                self._mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._mouth.setblocking(False)
            return self._mouth

    def _send(self, path: str) -> None:
        mouth = self._mouth or self._open_mouth()
        if mouth is None:
            return
        try:
            mouth.sendto(b"\0", path)
        except ConnectionRefusedError:  # its process died
            Path(path).unlink(missing_ok=True)
        except OSError:  # its queue is full: it is awake; or it is gone, or another user's
            return
