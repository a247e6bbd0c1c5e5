"""Objects of S3 as blobs: generations, tokens, and metadata packed into what headers can bring. No requests of its own."""

import base64
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any, Self
from zlib import crc32

import msgspec

from jobevents.backends.conditional import Stored

TOKEN = "jobevents-write"  # noqa: S105 - the metadata key of the write token, no secret
KEPT = "jobevents-metadata"  # the metadata as base64 of JSON, or ASIDE
ASIDE = "*"
_ASIDE_DIRECTORY = ".jobevents-metadata/"
_INLINE_BYTES = 1500  # S3: 2 KB of keys and values, ours among them


class Listed(str):
    """The generation of a listed object, of which S3 tells one half: the other is looked up when it is asked for."""

    _look: Callable[[], str]
    _whole: str

    def __new__(cls, etag: str, look: Callable[[], str]) -> Self:
        made = super().__new__(cls, f"{etag}.")
        made._look = look
        made._whole = ""
        return made

    def __str__(self) -> str:
        """Return it whole; one request, the first time."""
        whole = self._whole = self._whole or self._look()
        return whole

    def __eq__(self, other: object) -> bool:
        return str(self) == (str(other) if isinstance(other, str) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(str(self))


class Found(msgspec.Struct, frozen=True):
    """An object as it was read."""

    data: bytes
    stored: Stored
    metadata: dict[str, str]  # as S3 has it
    stored_at: datetime


class Upload(msgspec.Struct, frozen=True):
    """One write, the same bytes and token at every try."""

    key: str
    data: bytes
    content_type: str
    cache_control: str
    token: str
    kept: str  # the metadata, packed

    def send(
        self, client: Any, bucket: str, condition: Mapping[str, str]
    ) -> str:  # boto3 makes its clients at run time
        """Write on a condition; returns the new generation."""
        metadata = {TOKEN: self.token, **({KEPT: self.kept} if self.kept else {})}
        more = {"CacheControl": self.cache_control} if self.cache_control else {}
        reply = client.put_object(
            Bucket=bucket,
            Key=self.key,
            Body=self.data,
            ContentType=self.content_type,
            Metadata=metadata,
            ChecksumAlgorithm="CRC32",
            **more,
            **condition,
        )
        return f"{unquoted(reply['ETag'])}.{self.token}"


def stored(reply: Mapping[str, Any]) -> Stored:  # Any: boto3's
    """Return what a reply says of an object."""
    token = reply["Metadata"].get(TOKEN, "")
    return Stored(f"{unquoted(reply['ETag'])}.{token}", token, has_more=reply["Metadata"].get(KEPT) == ASIDE)


def new_token(data: bytes) -> str:
    """Return a token of a write, which ends in a checksum of its bytes: of S3's own not every store tells a reader."""
    return f"{secrets.token_hex(8)}{crc32(data):08x}"


def is_whole(data: bytes, token: str) -> bool:
    """Tell whether data are those that a token is of; those of another program are taken as they are."""
    return not token or token[-8:] == f"{crc32(data):08x}"


def etag_of(stored: Stored) -> str:
    """Return the part of a generation that S3 compares."""
    return stored.generation.rpartition(".")[0]


def unquoted(etag: str) -> str:
    """Return an ETag without its quotes."""
    return etag.strip('"')


def packed(metadata: Mapping[str, str]) -> str:
    """Return metadata as a header can bring it; "" for none, ASIDE for too much."""
    if not metadata:
        return ""
    packed = base64.b64encode(msgspec.json.encode(dict(metadata))).decode()
    return packed if len(packed) <= _INLINE_BYTES else ASIDE


def aside_of(key: str, token: str) -> str:
    """Return where the metadata of a write are kept, beside its object: who may write the one may write the other."""
    directory, slash, name = key.rpartition("/")
    return f"{directory}{slash}{_ASIDE_DIRECTORY}{blake2b(name.encode(), digest_size=16).hexdigest()}.{token}"


def is_aside(name: str) -> bool:
    """Tell whether an object holds the metadata of another."""
    return name.startswith(_ASIDE_DIRECTORY) or f"/{_ASIDE_DIRECTORY}" in name


def before(start: str) -> str:
    """Return a text that comes before `start`, and after any name that does: S3 begins after what it is given."""
    if not start:
        return ""
    place = ord(start[-1]) - 1
    place = place if not 0xD800 <= place <= 0xDFFF else 0xD7FF
    return start[:-1] + (chr(place) + "\U0010ffff" if place >= 0x20 else "")
