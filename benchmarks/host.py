"""What the figures were measured on and with: the machine, the versions, the file system."""

import os
import platform
import sqlite3
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from benchmarks import peers
from benchmarks.model import SCALES, Scale

_DISTRIBUTIONS = ("jobevents", "eventsourcing", "msgspec", "lru-dict", "psycopg")


def describe(scratch: Path, scale: Scale) -> dict[str, str]:
    """Return what there is to know, for people and for comparisons."""
    assert scale in SCALES
    return {
        "scale": scale,
        "commit": _commit(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        **{name: _version(name) for name in _DISTRIBUTIONS},
        "peers": ", ".join(f"{name} {found}" for name, found in peers.versions(peers.DISTRIBUTIONS).items()),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": f"{os.cpu_count()} x {_first_value('/proc/cpuinfo', 'model name') or platform.processor() or 'unknown'}",
        "memory": _first_value("/proc/meminfo", "MemTotal") or "unknown",
        "file system": _file_system(scratch),
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _first_value(path: str, key: str) -> str:
    """Return the value of the first `key : value` line of a file; "" where there is none (other systems than Linux)."""
    try:
        for line in Path(path).read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    except OSError:
        pass
    return ""


def _file_system(directory: Path) -> str:
    """Return the type of the file system that a directory is on; "unknown" where the system does not say."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return sys.platform
    above = [(len(mount[1]), mount[2]) for mount in mounts if directory.resolve().is_relative_to(mount[1])]
    return max(above, default=(0, "unknown"))[1]
