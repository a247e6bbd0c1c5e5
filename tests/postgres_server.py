"""A Postgres cluster of our own on a free port, every commit on the disk."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from jobevents import devcloud

_INSTALL = "apt-get install postgresql"
_START_S = 30.0
_PLACES = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin")
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "lc_messages": "C",
}
PASSWORD = "correct horse"  # of the user `secured`, the only one who is asked


class NoServer(Exception):
    """There is no server here that could be started; says why, and what brings it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}. Run: {_INSTALL}")


class Cluster:
    """A database cluster in a directory of its own, run by a user who is not root."""

    def __init__(self, at: Path, directory: Path) -> None:
        self._at = at
        self._data = directory / "data"
        self._log = directory / "log"
        self._as: tuple[int, int] | None = None  # ids of user and group
        if os.getuid() == 0:
            owner = _unprivileged()
            shutil.chown(directory, owner.pw_uid, owner.pw_gid)
            self._as = owner.pw_uid, owner.pw_gid
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])

    def url(self, user: str = "postgres", database: str = "postgres", **options: Any) -> str:
        """Return the URL of a database of the cluster."""
        query = "&".join(f"{key}={value}" for key, value in options.items())
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}{'?' if query else ''}{query}"

    def make(self) -> None:
        """Initialise the cluster, and start it."""
        made = subprocess.run(
            self._command("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"),
            capture_output=True,
            text=True,
            cwd="/",
            check=False,
        )
        if made.returncode:
            raise NoServer(f"initdb failed: {made.stderr[-300:]}")
        hba = self._data / "pg_hba.conf"
        hba.write_text(
            "host all secured 127.0.0.1/32 scram-sha-256\nhost postgres barred 127.0.0.1/32 reject\n"
            "host all all 127.0.0.1/32 trust\n"
        )
        self.start()
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE ROLE secured LOGIN PASSWORD {}").format(PASSWORD))
            connection.execute("CREATE ROLE barred LOGIN; CREATE ROLE guest LOGIN")

    def start(self) -> None:
        """Start the server, and return when it takes connections."""
        settings = [word for key, value in _SETTINGS.items() for word in ("-c", f"{key}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command("postgres", "-D", str(self._data), "-p", str(self.port), *settings),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        give_up = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < give_up:
            with contextlib.suppress(psycopg.OperationalError):
                self.connect().close()
                return
            time.sleep(0.02)
        self.stop(signal.SIGQUIT)
        raise NoServer(f"Postgres does not answer: {self._log.read_text(errors='replace')[-500:]}")

    def _command(self, program: str, *args: str) -> list[str]:
        return devcloud.leashed([str(self._at / program), *args], signal.SIGQUIT, self._as)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: by SIGQUIT at once, as if it had crashed."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(_START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def crash(self) -> None:
        """Stop it at once and start it again."""
        self.stop(signal.SIGQUIT)
        self.start()

    def connect(self, **options: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """Open a connection of the superuser that commits each statement."""
        return psycopg.connect(self.url(**options), autocommit=True, connect_timeout=5)


def binaries() -> Path:
    """Return the directory of the programs; raises NoServer without one."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).parent] if on_path else []
    for place in _PLACES:
        found += sorted(Path("/").glob(place[1:]), reverse=True)
    for directory in found:
        if (directory / "initdb").exists() and (directory / "postgres").exists():
            return directory
    raise NoServer("PostgreSQL is not installed")


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoServer("Postgres does not run as root, and there is no user postgres or nobody")
