"""Blobs in a bucket of Amazon S3, or of a store that speaks its API and holds its conditions, with retries of our own.

S3 compares what a write replaces by its ETag, a hash of the bytes. A generation is that and a token of the write, kept in the
object's metadata, so that the same bytes written again are another generation. The token is looked at before a conditional
write, the ETag is compared by S3 with the write: two writers can both win in one case alone, that one of them writes the very
bytes that are there, at that moment.

S3 keeps 2 KB of metadata, of ASCII: more of it goes into an object of its own first, in a directory `.jobevents-metadata/`
beside it, which listings here leave out and which goes with what it belongs to.
"""

import base64
import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC
from functools import cache, partial
from typing import Any, TypeVar

import boto3
import botocore.exceptions as library
import botocore.loaders
import botocore.session
import msgspec
from botocore.config import Config

from jobevents import errors
from jobevents.backends import conditional
from jobevents.backends.conditional import Stored
from jobevents.backends.s3errors import FAILURES, is_absent, is_transient, status_of, translated
from jobevents.backends.s3objects import (
    ASIDE,
    KEPT,
    TOKEN,
    Found,
    Listed,
    Upload,
    aside_of,
    before,
    etag_of,
    is_aside,
    is_whole,
    new_token,
    packed,
    stored,
    unquoted,
)
from jobevents.backoff import Backoff, Tries
from jobevents.blobs import ABSENT, Blob, BlobEntry, check_metadata, check_name, check_prefix

T = TypeVar("T")


class S3Blobs:
    """Blobs in one bucket; names may also be given as `s3://bucket/name`.

    Requests: `get` one (two when unchanged, or when its metadata is over 1.5 KB), `put` one with ABSENT, else two, `delete`
    three, `list` one a thousand entries; a `put` over metadata of more than 1.5 KB, or of such, one more each. Conflict after
    a lost reply may mean that our write landed and was replaced since.
    """

    min_write_interval_s = 0.0  # S3: 3,500 writes/s a prefix, no limit on one name
    failures = FAILURES

    def __init__(
        self,
        bucket: str,
        *,
        threads: int = 32,
        timeout_s: float = 10.0,
        page_size: int = 1000,
        backoff: Backoff | None = None,
    ) -> None:
        """Connect as boto3 is configured: by AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL_S3 and the like. No request is made.

        Args:
            threads: how many requests at once keep their connections.
            timeout_s: of one request; the backoff's deadline is that of an operation.
            page_size: entries in one reply to a LIST; the store gives 1000 at most.

        Raises:
            Misconfigured: boto3 is configured wrongly.
        """
        self._name = bucket
        self._threads = threads
        self._timeout_s = timeout_s
        self._page_size = page_size
        self._backoff = backoff or Backoff()
        self._is_known = False  # the bucket has answered
        self._pid = os.getpid()
        self._client = self._open()

    def once(self) -> "S3Blobs":
        """Return the same bucket, over the same connections, where a call is one request that is not tried again.

        For callers with a way of their own to find out what came of a write.
        """
        alike = copy.copy(self)
        alike._backoff = Backoff(deadline_s=self._timeout_s, tries=1)
        return alike

    def get(self, name: str, *, if_changed: str | None = None) -> Blob | None:
        key = self._key(name)
        if_changed = None if if_changed is None else str(if_changed)
        tries = self._backoff.start()
        for _ in range(10):
            found = self._call(tries, f"read {key!r}", partial(self._read, key, if_changed))
            if found is None:
                there = self.look(tries, key)
                if there is None:
                    continue  # deleted meanwhile: a read says so
                if there.generation == if_changed:
                    return None
                if_changed = None  # the same bytes, written again
                continue
            if (kept := self._metadata(tries, key, found)) is not None:
                return Blob(found.data, found.stored.generation, kept, found.stored_at)
        raise errors.Unavailable(f"blob is replaced all the time bucket={self._name} name={key!r}")

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
        key = self._key(name)
        kept = check_metadata(name, metadata)
        tries = self._backoff.start()
        upload = Upload(key, data, content_type, cache_control, new_token(data), packed(kept))
        if upload.kept == ASIDE:
            self._keep_aside(tries, upload, kept)
        if if_generation == ABSENT:
            return self._put_over(tries, upload, None)
        return self._guarded(tries, key, if_generation, lambda tries, over: self._put_over(tries, upload, over))

    def delete(self, name: str, *, if_generation: str | None = None) -> bool:
        key = self._key(name)
        tries = self._backoff.start()
        if if_generation is not None and self.look(tries, key) is None:
            return False
        if if_generation == ABSENT:
            raise errors.Conflict(f"blob exists bucket={self._name} name={key!r}")
        return self._guarded(tries, key, if_generation, lambda tries, over: self._delete_over(tries, key, over))

    def list(self, prefix: str, *, start: str = "", delimiter: str = "") -> Iterator[BlobEntry]:
        """Yield entries as the port says; a generation costs a request when it is asked for.

        Their names are within the bucket, also for a prefix with `s3://`.
        """
        prefix, start = self._within(prefix), self._within(start)
        check_prefix(prefix, start)
        return self._entries(prefix, start, delimiter)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def not_refused(self, name: str) -> Sequence[str]:
        """Try what the store must refuse, on an object that is made for it, and return what it did all the same."""
        key, stale = self._key(name), '"00000000000000000000000000000000"'
        there = {"Bucket": self._name, "Key": key}
        body = {**there, "Body": b"", "ChecksumAlgorithm": "CRC32"}
        attempts: dict[str, Callable[[], object]] = {
            "create of an object that is there": lambda: self._handle().put_object(**body, IfNoneMatch="*"),
            "write over another ETag": lambda: self._handle().put_object(**body, IfMatch=stale),
            "delete of another ETag": lambda: self._handle().delete_object(**there, IfMatch=stale),
        }
        create = next(iter(attempts.values()))
        self._is_done(create)  # now it is there
        return [what for what, attempt in attempts.items() if self._is_done(attempt)]

    def _is_done(self, attempt: Callable[[], object]) -> bool:
        def request() -> bool:
            try:
                attempt()
            except library.ClientError as error:
                if status_of(error) == 412:
                    return False
                raise
            return True

        return self._call(self._backoff.start(), "try its conditions", request)

    # how the bucket is asked, for `conditional`

    def look(self, tries: Tries, key: str) -> Stored | None:
        """Return what an object says of itself: one request."""
        return self._call(tries, f"read {key!r}", lambda: self._head(key))

    def is_refusal(self, error: Exception) -> bool:
        """Tell whether a condition did not hold."""
        return status_of(error) == 412

    def is_absent(self, error: Exception) -> bool:
        """Tell whether there is no such object."""
        return is_absent(error)

    def is_transient(self, error: Exception) -> bool:
        """Tell whether another try may succeed."""
        return is_transient(error)

    def translated(self, error: Exception, doing: str) -> errors.JobEventsError:
        """Return our error for one of a write: what is not there cannot be replaced."""
        if is_absent(error):
            return errors.Conflict(f"cannot {doing} bucket={self._name}: what it was to replace is gone")
        return translated(error, doing, self._name)

    # requests

    def _handle(self) -> Any:  # boto3 makes its clients at run time
        """Return this process's client; a forked child makes its own, as two cannot share a connection."""
        if self._pid != os.getpid():
            self._client, self._pid = self._open(), os.getpid()
        return self._client

    def _open(self) -> Any:  # as above
        config = Config(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=min(5.0, self._timeout_s),
            read_timeout=self._timeout_s,
            max_pool_connections=self._threads,
        )
        try:
            session = botocore.session.get_session()
            session.register_component("data_loader", _loader())
            return boto3.session.Session(botocore_session=session).client("s3", config=config)
        except (library.BotoCoreError, ValueError) as error:
            raise errors.Misconfigured(f"cannot use S3 bucket={self._name} error={error}") from error

    def _call(self, tries: Tries, doing: str, request: Callable[[], T]) -> T:
        """Make one request until it is answered for good; raises our error for the library's."""
        while True:
            try:
                answer = request()
            except FAILURES as error:
                if not (is_transient(error) and tries.pause()):
                    raise translated(error, doing, self._name) from error
            else:
                self._is_known = True
                return answer

    def _read(self, key: str, if_changed: str | None) -> Found | None:
        """Return the object; None when it has the ETag of `if_changed`."""
        etag = (if_changed or "").partition(".")[0]
        more = {"IfNoneMatch": f'"{etag}"'} if etag and etag != ABSENT else {}
        try:
            reply = self._handle().get_object(Bucket=self._name, Key=key, **more)
        except library.ClientError as error:
            if status_of(error) == 304:
                return None
            raise
        with reply["Body"] as body:
            data = body.read()
        if not is_whole(data, reply["Metadata"].get(TOKEN, "")):
            raise ConnectionError(f"bytes were changed on their way here name={key!r}")
        return Found(data, stored(reply), reply["Metadata"], reply["LastModified"].astimezone(UTC))

    def _head(self, key: str) -> Stored | None:
        try:
            return stored(self._handle().head_object(Bucket=self._name, Key=key))
        except library.ClientError as error:
            if status_of(error) != 404:
                raise
            if not self._is_known:  # a reply to HEAD has no body that could tell which of the two is not there
                self._handle().list_objects_v2(Bucket=self._name, MaxKeys=1)
            return None

    def _guarded(
        self, tries: Tries, key: str, if_generation: str | None, write: Callable[[Tries, Stored | None], T]
    ) -> T:
        """Write over the generation given, or over whatever there is."""
        if if_generation is None:
            return conditional.over_what_is_there(self, tries, key, write)
        there = self.look(tries, key)
        if there is None or there.generation != str(if_generation):
            raise errors.Conflict(f"blob is of another generation name={key!r} expected={if_generation!r}")
        return write(tries, there)

    def _put_over(self, tries: Tries, upload: Upload, over: Stored | None) -> str:
        condition = {"IfMatch": f'"{etag_of(over)}"'} if over else {"IfNoneMatch": "*"}

        def send(_: float) -> str:
            made = upload.send(self._handle(), self._name, condition)
            self._is_known = True
            return made

        try:
            generation = conditional.put(self, tries, upload.key, upload.token, send)
        except errors.Conflict:
            if upload.kept == ASIDE:
                self._forget_aside(tries, upload.key, upload.token)
            raise
        if over is not None and over.has_more:
            self._forget_aside(tries, upload.key, over.token)
        return generation

    def _delete_over(self, tries: Tries, key: str, over: Stored | None) -> bool:
        if over is None:
            return False
        condition = f'"{etag_of(over)}"'

        def send(_: float) -> None:
            self._handle().delete_object(Bucket=self._name, Key=key, IfMatch=condition)

        if not conditional.delete(self, tries, key, send):
            return False
        self._forget_aside(tries, key, "")
        return True

    # metadata that S3 has no room for

    def _keep_aside(self, tries: Tries, upload: Upload, kept: Mapping[str, str]) -> None:
        key, body = aside_of(upload.key, upload.token), msgspec.json.encode(kept)
        self._call(tries, "write metadata", lambda: self._handle().put_object(Bucket=self._name, Key=key, Body=body))

    def _forget_aside(self, tries: Tries, key: str, token: str) -> None:
        """Remove the metadata of one write; with an empty token, of all."""

        def remove() -> None:
            client = self._handle()
            root = aside_of(key, token)
            found = [root] if token else [one["Key"] for one in _contents(client, self._name, root)]
            for name in found:
                client.delete_object(Bucket=self._name, Key=name)

        self._call(tries, "delete metadata", remove)

    def _metadata(self, tries: Tries, key: str, found: Found) -> dict[str, str] | None:
        """Return the metadata of what was read; None when the object was replaced meanwhile, which took them along."""
        header = found.metadata.get(KEPT)
        if header == ASIDE:
            token = found.stored.token
            aside = self._call(tries, "read metadata", lambda: self._read_aside(aside_of(key, token)))
            return None if aside is None else msgspec.json.decode(aside, type=dict[str, str])
        if header is not None:
            return msgspec.json.decode(base64.b64decode(header), type=dict[str, str])
        return {name: value for name, value in found.metadata.items() if name != TOKEN}

    def _read_aside(self, key: str) -> bytes | None:
        try:
            found = self._read(key, None)
        except library.ClientError as error:
            if is_absent(error):
                return None
            raise
        return found.data if found else None

    # listings

    def _entries(self, prefix: str, start: str, delimiter: str) -> Iterator[BlobEntry]:
        token = ""
        while True:
            page, token = self._page(prefix, start, delimiter, token)
            yield from (one for one in page if one.name >= start and not is_aside(one.name))
            if not token:
                return

    def _page(self, prefix: str, start: str, delimiter: str, token: str) -> tuple[Sequence[BlobEntry], str]:
        asked = {"Prefix": prefix, "Delimiter": delimiter, "ContinuationToken": token, "StartAfter": before(start)}
        given = {name: value for name, value in asked.items() if value}

        def read() -> tuple[Sequence[BlobEntry], str]:
            reply = self._handle().list_objects_v2(Bucket=self._name, MaxKeys=self._page_size, **given)
            found = [
                BlobEntry(one["Key"], Listed(unquoted(one["ETag"]), partial(self._now, one["Key"])), one["Size"])
                for one in reply.get("Contents", ())
            ]
            found += [BlobEntry(one["Prefix"], "", 0) for one in reply.get("CommonPrefixes", ())]
            found.sort(key=lambda one: one.name.encode())
            return found, reply.get("NextContinuationToken", "")

        return self._call(self._backoff.start(), f"list {prefix!r}", read)

    def _now(self, key: str) -> str:
        there = self.look(self._backoff.start(), key)
        return there.generation if there else ""

    def _key(self, name: str) -> str:
        key = self._within(name)
        check_name(key)
        return key

    def _within(self, name: str) -> str:
        return conditional.within(name, "s3://", self._name)


@cache
def _loader() -> Any:  # botocore has no types
    """Return what reads the library's description of S3, which takes most of the time in which a client is made."""
    return botocore.loaders.create_loader()


def _contents(client: Any, bucket: str, prefix: str) -> Sequence[Any]:  # Any: S3's
    """Return the first thousand objects below a prefix, which no object has as many of."""
    found: Sequence[Any] = client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return found
