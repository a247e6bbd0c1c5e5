"""The files that pages load: read once, served under a name that changes with what they hold, so that browsers keep them."""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from jobevents.errors import NotFound
from jobevents.ids import shown

STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class Asset(msgspec.Struct, frozen=True):
    """One file."""

    body: bytes
    media_type: str


class Assets(msgspec.Struct, frozen=True):
    """All files of a directory, under one name for what they hold together: so scripts may import each other by name."""

    version: str  # a hash over all
    files: Mapping[str, Asset]  # by their path below the directory

    def find(self, path: str) -> Asset:
        """Return the file at `{version}/{name}`.

        Raises:
            NotFound: there is none, or it is of another version.
        """
        version, _, name = path.partition("/")
        asset = self.files.get(name)
        if asset is None or version != self.version:
            raise NotFound(f"no such file path={shown(path)}; load the page again")
        return asset


@cache
def assets(directory: Path = STATIC) -> Assets:
    """Read the files of a directory, and keep them."""
    files: dict[str, Asset] = {}
    whole = hashlib.blake2b(digest_size=8)
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.suffix in _TYPES:
            name, body = path.relative_to(directory).as_posix(), path.read_bytes()
            files[name] = Asset(body, _TYPES[path.suffix])
            whole.update(f"{name}\0{len(body)}\0".encode() + body)
    return Assets(whole.hexdigest(), files)
