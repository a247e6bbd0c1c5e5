"""A wire to a Postgres server that is cut at the n-th parcel, before it arrives or after."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

Side = Literal["asked", "answered"]


class Wire:
    """Passes connections on to a server on this machine; counts what goes over them once it is told to."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._door.getsockname()[1])
        self._lock = threading.Lock()
        self._side: Side = "asked"
        self._left = 0  # parcels until the cut; 0: none is wanted
        self._shut = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)  # ends the accept, where close alone would not
        self._door.close()
        self.shut()

    def cut_at(self, n: int, side: Side, *, for_good: bool = False) -> None:
        """Cut the connection at the n-th parcel from now on a side, which is not passed on any more.

        Args:
            side: what is asked of the server, or what it answers.
            for_good: let no other connection through afterwards.
        """
        with self._lock:
            self._left, self._side, self._for_good = n, side, for_good

    @property
    def is_cut(self) -> bool:
        """Tell whether the cut that was asked for was made."""
        return self._left == 0

    def shut(self) -> None:
        """Cut all connections, and let none through."""
        self._shut = True
        for pair in list(self._pairs):
            self._cut(pair)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                if self._shut:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(self._server)
                except OSError:
                    client.close()
                    continue
                pair = (client, server)
                self._pairs.add(pair)
                for source, sink, side in ((client, server, "asked"), (server, client, "answered")):
                    threading.Thread(target=self._pass_on, args=(pair, source, sink, side), daemon=True).start()

    def _pass_on(
        self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket, side: Side
    ) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 20):
                if self._is_due(side):
                    break
                sink.sendall(data)
        self._cut(pair)

    def _is_due(self, side: Side) -> bool:
        with self._lock:
            if self._left and side == self._side:
                self._left -= 1
                if not self._left:
                    self._shut = self._for_good
                    return True
        return False

    def _cut(self, pair: tuple[socket.socket, socket.socket]) -> None:
        self._pairs.discard(pair)
        for one in pair:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
