"""Waking those who wait for commits: at once in this process, by NOTIFY in others, by a poll where that got lost.

One connection listens, apart from the others; lost, it is opened again until it stands, and then everybody is woken, since
nobody can tell what was missed.
"""

import contextlib
import os
import selectors
import socket
import threading
from typing import Final

import psycopg

from jobevents.backends import forks
from jobevents.backends.postgresdb import PostgresDatabase, leave
from jobevents.backends.postgressession import Session

_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)  # before the next try to listen again; the last one for ever


class PostgresWake:
    """Sets the listeners' events after commits of any process. One thread while anybody listens, none otherwise."""

    def __init__(self, database: PostgresDatabase, *, channel: str, head: str) -> None:
        """Open nothing yet.

        Args:
            channel: what writers notify.
            head: statement that reads what changes with every commit: the poll.
        """
        self._database = database
        self._channel = channel
        self._head = head
        self._start_afresh()
        forks.watch(self)

    def _start_afresh(self) -> None:
        self.name = f"{os.getpid()}-{os.urandom(4).hex()}"  # what this process says with its own notifications
        self._lock = threading.RLock()
        self._listeners: frozenset[threading.Event] = frozenset()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._bell: socket.socket | None = None  # rung to end the thread
        self._ear: Session | None = None

    @property
    def note(self) -> tuple[str, str]:
        """What is to be notified, with this process's word, which does not wake itself."""
        return self._channel, self.name

    def listen(self, event: threading.Event) -> None:
        """Set `event` after every commit from now on."""
        with self._lock:
            self._listeners |= {event}
            if self._thread is None:
                self._stopping = threading.Event()
                self._bell, heard = socket.socketpair()
                self._thread = threading.Thread(
                    target=self._watch, args=(self._stopping, heard), name="jobevents-listen", daemon=True
                )
                self._thread.start()

    def unlisten(self, event: threading.Event) -> None:
        """Leave `event` alone; the last to go ends the thread and its connection."""
        with self._lock:
            self._listeners -= {event}
            if not self._listeners:
                self._stop()

    def announce(self) -> None:
        """Wake everybody in this process: call it after a commit."""
        for event in self._listeners:
            event.set()

    def close(self) -> None:
        """End the thread and its connection; any number of times."""
        with self._lock:
            self._listeners = frozenset()
            self._stop()

    def before_fork(self) -> None:
        """Nothing: the thread goes on in the parent."""

    def after_fork(self, *, child: bool) -> None:
        """In the child, forget the parent's listeners and its connection."""
        if child:
            if self._ear is not None:
                leave(self._ear)
            if self._bell is not None:
                self._bell.close()
            self._start_afresh()

    def _stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping.set()
        if self._bell is not None:
            self._bell.close()
        thread.join()

    def _watch(self, stopping: threading.Event, bell: socket.socket) -> None:
        failed = 0
        with bell:
            while not stopping.is_set():
                try:
                    self._ear = self._database.connect(self._database.target.timeout_s)
                    with contextlib.closing(self._ear) as connection:
                        connection.execute(f'LISTEN "{self._channel}"')
                        failed = 0
                        self._follow(connection, stopping, bell)
                except (psycopg.Error, OSError):
                    stopping.wait(_PAUSES_S[min(failed, len(_PAUSES_S) - 1)])
                    failed += 1
                finally:
                    self._ear = None

    def _follow(self, connection: Session, stopping: threading.Event, bell: socket.socket) -> None:
        """Wake everybody now, for each notification of another process, and when the poll finds what nobody told of."""
        seen = self._read_head(connection)
        self.announce()  # of what was committed while nobody listened, or until the head was read
        with selectors.DefaultSelector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            selector.register(bell, selectors.EVENT_READ)
            while not stopping.is_set():
                ready = selector.select(self._database.target.poll_interval_s)
                if stopping.is_set():
                    return
                before = seen
                if ready:
                    connection.pgconn.consume_input()
                else:
                    seen = self._read_head(connection)
                if self._was_told(connection) or seen != before:
                    self.announce()

    def _was_told(self, connection: Session) -> bool:
        """Take what has come in, with a poll too, and tell whether another process said something. No I/O."""
        own, told = self.name.encode(), False
        while note := connection.pgconn.notifies():
            told |= note.extra != own
        return told

    def _read_head(self, connection: Session) -> object:
        return connection.send([(self._head, ())])
