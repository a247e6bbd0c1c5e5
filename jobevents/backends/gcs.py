"""Blobs in a Google Cloud Storage bucket, with retries of our own.

The library's retries repeat an upload without its condition, so that a stale write can land after a newer one, and
take a lost reply for a Conflict with oneself. Here every write carries a condition (one that was given none reads the
generation first) and a random token in its metadata, by which a repeated write knows its own work.
"""

import copy
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import google.auth.exceptions
import msgspec
from google.api_core import exceptions as api_errors
from google.cloud.storage import Client
from requests.adapters import HTTPAdapter

from jobevents import errors
from jobevents.backends import conditional
from jobevents.backends.conditional import Stored
from jobevents.backends.gcserrors import FAILURES, is_bucket_missing, is_transient, status_of, translated
from jobevents.backends.gcswire import LARGEST, GcsWire, Read
from jobevents.backoff import Backoff, Tries
from jobevents.blobs import Blob, BlobEntry, check_metadata, check_name, check_prefix

T = TypeVar("T")

_TOKEN = "jobevents-write"  # noqa: S105 - the metadata key of the write token, no secret
_META = "x-goog-meta-"
_HEADER_KEY = re.compile(r"[a-z0-9][a-z0-9-]*")
_HEADER_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")


class GcsBlobs:
    """Blobs in one bucket; names may also be given as `gs://bucket/name`.

    Requests: `get` one (two when metadata is not plain ASCII with lower-case keys, or another program wrote the
    object), `put` and `delete` one with `if_generation`, else two, `list` one a thousand entries. A put of over 8 MB
    is several. Conflict after a lost reply may mean that our write landed and was replaced since.
    """

    failures = FAILURES
    min_write_interval_s = 1.05  # GCS: 1 write/s per object name, 429 beyond

    def __init__(
        self,
        bucket: str,
        *,
        client: Client | None = None,
        threads: int = 32,
        timeout_s: float = 10.0,
        page_size: int = 1000,
        backoff: Backoff | None = None,
    ) -> None:
        """Connect with application default credentials, or to STORAGE_EMULATOR_HOST without any.

        Args:
            client: used in this process only, and not closed; without it, each process makes its own.
            threads: how many requests at once keep their connections.
            timeout_s: of one request; the backoff's deadline is that of an operation.
            page_size: entries in one reply to a LIST; the store gives 1000 at most.

        Raises:
            Misconfigured: there are no credentials.
        """
        self._name = bucket
        self._client = client
        self._threads = threads
        self._timeout_s = timeout_s
        self._page_size = page_size
        self._backoff = backoff or Backoff()
        self._pid = os.getpid()
        self._bucket, self._wire = self._open()

    def once(self) -> "GcsBlobs":
        """Return the same bucket, over the same connections, where a call is one request that is not tried again.

        For callers with a way of their own to find out what came of a write.
        """
        alike = copy.copy(self)
        alike._backoff = Backoff(deadline_s=self._timeout_s, tries=1)
        return alike

    def settings(self) -> Mapping[str, Any]:  # Any: JSON of the API's resource
        """Return the bucket's own settings, as the JSON API has them: one request.

        Raises:
            PermissionDenied: these credentials may use objects alone.
            Misconfigured: there is no such bucket.
        """

        def read(timeout_s: float) -> Mapping[str, Any]:
            bucket = self._handle().client.bucket(self._name)
            bucket.reload(retry=None, timeout=timeout_s)
            return dict(bucket._properties)

        return self._call(self._backoff.start(), "read the bucket's settings", read, absent_is_bucket=True)

    def get(self, name: str, *, if_changed: str | None = None) -> Blob | None:
        key = self._key(name)
        return self._call(
            self._backoff.start(), f"read {key!r}", lambda timeout_s: self._read(key, if_changed, timeout_s)
        )

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
        upload = _Upload(key, data, content_type, cache_control, kept, _token(kept))
        return self._guarded(key, if_generation, lambda tries, over: self._put_over(tries, upload, over))

    def delete(self, name: str, *, if_generation: str | None = None) -> bool:
        key = self._key(name)
        is_ours = if_generation is None or if_generation.isdecimal()
        if not is_ours and self.look(self._backoff.start(), key) is None:
            return False
        return self._guarded(key, if_generation, lambda tries, over: self._delete_over(tries, key, over))

    def list(self, prefix: str, *, start: str = "", delimiter: str = "") -> Iterator[BlobEntry]:
        """Yield entries as the port says; their names are within the bucket, also for a prefix with `gs://`."""
        prefix, start = self._within(prefix), self._within(start)
        check_prefix(prefix, start)
        return self._entries(prefix, start, delimiter)

    def close(self) -> None:
        """Close the connections made here."""
        self._wire.close()
        if self._client is None:
            self._bucket.client.close()

    def _key(self, name: str) -> str:
        key = self._within(name)
        check_name(key)
        return key

    def _within(self, name: str) -> str:
        return conditional.within(name, "gs://", self._name)

    def _open(self) -> tuple[Any, GcsWire]:  # google-cloud-storage has no types
        client = self._client or _new_client()
        # Made to label traces, it reads the bucket in a thread at first use and again at a 404 (3.17).
        client._bucket_metadata_cache = None
        session = client._http
        for scheme in ("https://", "http://"):
            session.mount(scheme, HTTPAdapter(pool_connections=4, pool_maxsize=self._threads))
        if (
            session.trust_env
        ):  # proxies and certificates of the environment, which requests would look for at each request
            found = session.merge_environment_settings(client._connection.API_BASE_URL, {}, None, None, None)
            session.proxies, session.verify, session.cert = found["proxies"], found["verify"], found["cert"]
            session.trust_env = False
        return client.bucket(self._name), GcsWire(client, self._name, threads=self._threads)

    def _handle(self) -> Any:  # google-cloud-storage has no types
        """Return this process's bucket; a forked child makes its own, as two cannot share a connection."""
        if self._pid != os.getpid():
            if self._client is not None:
                raise errors.Misconfigured(f"client was made before a fork bucket={self._name}; give no client")
            (self._bucket, self._wire), self._pid = self._open(), os.getpid()
        return self._bucket

    def _call(self, tries: Tries, doing: str, request: Callable[[float], T], *, absent_is_bucket: bool = False) -> T:
        """Make one request until it is answered for good; raises our error for the library's."""
        while True:
            try:
                return request(min(self._timeout_s, tries.left_s))
            except FAILURES as error:
                if not (is_transient(error) and tries.pause()):
                    raise translated(error, doing, self._name, absent_is_bucket=absent_is_bucket) from error

    def _read(self, key: str, if_changed: str | None, timeout_s: float) -> Blob | None:
        unless = int(if_changed) if if_changed is not None and if_changed.isdecimal() else None
        self._handle()
        for _ in range(10):
            found = self._wire.read(key, unless, timeout_s)
            if found is None:
                return None
            blob = _from_headers(found.data, found.headers) or self._with_metadata(key, found, timeout_s)
            if blob is not None:
                return blob
        raise errors.Unavailable(f"blob is replaced all the time bucket={self._name} name={key!r}")

    def _with_metadata(self, key: str, found: Read, timeout_s: float) -> Blob | None:
        """Complete what was read by a second request, for the same generation; None when that one is gone."""
        resource = self._handle().blob(key, generation=int(found.headers["x-goog-generation"]))
        try:
            resource.reload(retry=None, timeout=timeout_s)
        except api_errors.NotFound:
            return None
        metadata = {key: value for key, value in (resource.metadata or {}).items() if key != _TOKEN}
        return Blob(found.data, str(resource.generation), metadata, resource.updated)

    def _guarded(self, key: str, if_generation: str | None, write: Callable[[Tries, int], T]) -> T:
        """Write over the generation given, or over whatever there is, read anew each time another writer was first."""
        tries = self._backoff.start()
        if if_generation is None:
            return conditional.over_what_is_there(
                self, tries, key, lambda tries, stored: write(tries, int(stored.generation) if stored else 0)
            )
        if not if_generation.isdecimal():
            raise errors.Conflict(f"no generation of this store name={key!r} expected={if_generation!r}")
        return write(tries, int(if_generation))

    def _put_over(self, tries: Tries, upload: "_Upload", over: int) -> str:
        return conditional.put(
            self,
            tries,
            upload.key,
            upload.token,
            lambda left_s: upload.send(self._handle(), self._wire, over, min(self._timeout_s, left_s)),
        )

    def is_refusal(self, error: Exception) -> bool:
        """Tell whether a condition did not hold: for `conditional`, as the next ones."""
        return status_of(error) == 412

    def is_absent(self, error: Exception) -> bool:
        """Tell whether there is no such object."""
        return status_of(error) == 404 and not is_bucket_missing(error)

    def is_transient(self, error: Exception) -> bool:
        """Tell whether another try may succeed."""
        return is_transient(error)

    def translated(self, error: Exception, doing: str) -> errors.JobEventsError:
        """Return our error for one of a write."""
        return translated(error, doing, self._name, absent_is_bucket=True)

    def _delete_over(self, tries: Tries, key: str, over: int) -> bool:
        if over == 0:
            if self.look(tries, key) is None:
                return False
            raise errors.Conflict(f"blob exists bucket={self._name} name={key!r}")
        return conditional.delete(
            self, tries, key, lambda left_s: self._delete(key, over, min(self._timeout_s, left_s))
        )

    def _delete(self, key: str, over: int, timeout_s: float) -> None:
        self._handle().blob(key).delete(if_generation_match=over, retry=None, timeout=timeout_s)

    def look(self, tries: Tries, key: str) -> Stored | None:
        """Return what an object says of itself: one request."""

        def read(timeout_s: float) -> Stored | None:
            found = self._handle().blob(key)
            try:
                found.reload(retry=None, timeout=timeout_s)
            except api_errors.NotFound as error:
                if is_bucket_missing(error):
                    raise
                return None
            return Stored(str(found.generation), (found.metadata or {}).get(_TOKEN, ""))

        return self._call(tries, f"read {key!r}", read)

    def _entries(self, prefix: str, start: str, delimiter: str) -> Iterator[BlobEntry]:
        token: str | None = None
        while True:
            page = self._page(prefix, start, delimiter, token)
            yield from page.entries
            token = page.next_token
            if not token:
                return

    def _page(self, prefix: str, start: str, delimiter: str, token: str | None) -> "_Page":
        def read(timeout_s: float) -> _Page:
            listing = self._handle().list_blobs(
                prefix=prefix or None,
                start_offset=start or None,
                delimiter=delimiter or None,
                page_token=token,
                page_size=self._page_size,
                fields="items(name,generation,size),prefixes,nextPageToken",
                retry=None,
                timeout=timeout_s,
            )
            found = [BlobEntry(b.name, str(b.generation), b.size or 0) for b in next(listing.pages, ())]
            found += [BlobEntry(directory, "", 0) for directory in listing.prefixes]
            return _Page(sorted(found, key=lambda entry: entry.name.encode()), listing.next_page_token)

        return self._call(self._backoff.start(), f"list {prefix!r}", read, absent_is_bucket=True)


class _Page(msgspec.Struct, frozen=True):
    """One reply to a LIST."""

    entries: list[BlobEntry]  # objects and directories, in byte order
    next_token: str | None  # None at the end


class _Upload(msgspec.Struct, frozen=True):
    """One write, the same bytes and token at every try."""

    key: str
    data: bytes
    content_type: str
    cache_control: str
    metadata: dict[str, str]
    token: str

    def send(self, bucket: Any, wire: GcsWire, over: int, timeout_s: float) -> str:  # google-cloud-storage has no types
        """Write over generation `over`; returns the new one."""
        metadata = {**self.metadata, _TOKEN: self.token}
        if len(self.data) <= LARGEST:
            resource = {"name": self.key, "contentType": self.content_type, "metadata": metadata}
            if self.cache_control:
                resource["cacheControl"] = self.cache_control
            return wire.write(self.data, resource, over, timeout_s)
        blob = bucket.blob(self.key)  # a used one would drop cache_control at its second upload
        blob.cache_control = self.cache_control or None
        blob.metadata = metadata
        blob.upload_from_string(
            self.data,
            content_type=self.content_type,
            if_generation_match=over,
            checksum="crc32c",
            retry=None,
            timeout=timeout_s,
        )
        return str(blob.generation)


def _from_headers(data: bytes, headers: Mapping[str, str]) -> Blob | None:
    """Make the blob of the download alone, when all of its metadata came along exactly."""
    named = {key.lower(): value for key, value in headers.items()}
    metadata = {key.removeprefix(_META): value for key, value in named.items() if key.startswith(_META)}
    count = metadata.pop(_TOKEN, "").partition("-")[0]
    if count != str(len(metadata)) or "last-modified" not in named or "x-goog-generation" not in named:
        return None
    stored_at = parsedate_to_datetime(named["last-modified"]).astimezone(UTC)
    return Blob(data, named["x-goog-generation"], metadata, stored_at)


def _token(metadata: Mapping[str, str]) -> str:
    """Make a write token that tells how many metadata headers a download brings, if headers can bring them."""
    fits = all(_HEADER_KEY.fullmatch(key) and _HEADER_VALUE.fullmatch(value) for key, value in metadata.items())
    return f"{len(metadata) if fits else 'x'}-{secrets.token_hex(8)}"


def _new_client() -> Any:  # google-cloud-storage has no types
    try:
        return Client(project=None)  # objects need no project
    except google.auth.exceptions.DefaultCredentialsError as error:
        raise errors.Misconfigured(
            "no google credentials; run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
        ) from error
