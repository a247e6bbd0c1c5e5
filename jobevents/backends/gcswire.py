"""Objects of a bucket read and written in one request each: the JSON API over the client's credentials, without its library.

An append is one such request, on which the library spends more CPU (1.4 ms) than this and all of the append (0.6 ms). What is
rare goes through the library all the same: large uploads, listings, deletes, settings. Nothing here is tried again, but for a
token that has run out.
"""

import base64
import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import certifi
import google_crc32c
import msgspec
import requests
import urllib3
from google.api_core.exceptions import from_http_status
from google.auth.transport.requests import Request
from requests.adapters import HTTPAdapter

LARGEST = 8 << 20  # bytes in one request; the library sends what is larger piece by piece
_TOLD = 1000  # characters of a refusal that its error keeps


class Damaged(ConnectionError):
    """What came is not what the store says that it sent."""


class Read(NamedTuple):
    """One generation of an object."""

    data: bytes
    headers: Mapping[str, str]  # whatever their case


class GcsWire:
    """The requests of one process. Safe for threads.

    Raises, each of them: what google.api_core has for a status, urllib3 for a connection, google.auth for credentials.
    """

    def __init__(self, client: Any, bucket: str, *, threads: int) -> None:  # google-cloud-storage has no types
        """Ask as the client would: its endpoint, its credentials, the proxies and certificates of the environment."""
        endpoint = client._connection.API_BASE_URL
        self._credentials = client._credentials
        self._pool = _pool(client._http, endpoint, threads)
        # Tokens come from other hosts, for which the environment may name another proxy, or none: the metadata server's.
        self._session = requests.Session()
        self._refresh = Request(self._session)
        self._download = f"{endpoint}/download/storage/v1/b/{quote(bucket, safe='')}/o/"
        self._upload = (
            f"{endpoint}/upload/storage/v1/b/{quote(bucket, safe='')}/o?uploadType=multipart&ifGenerationMatch="
        )

    def read(self, key: str, unless: int | None, timeout_s: float) -> Read | None:
        """Read an object with its checksum; None when it is of the generation `unless`.

        Raises:
            Damaged: the checksum is another.
        """
        condition = "" if unless is None else f"&ifGenerationNotMatch={unless}"
        reply = self._ask("GET", f"{self._download}{quote(key, safe='')}?alt=media{condition}", {}, None, timeout_s)
        if reply.status == 304:
            return None
        _check(reply.data, reply.headers, key)
        return Read(reply.data, reply.headers)

    def write(self, data: bytes, resource: Mapping[str, Any], over: int, timeout_s: float) -> str:
        """Write an object over a generation, 0 for none, with a checksum that the store compares; return the new one.

        Args:
            resource: what the API is to keep of it, its name at least.
        """
        told = msgspec.json.encode({**resource, "crc32c": _crc32c(data)})
        mark = secrets.token_hex(16).encode()
        body = b"".join((
            b"--", mark, b"\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n", told,
            b"\r\n--", mark, b"\r\nContent-Type: ", str(resource["contentType"]).encode(), b"\r\n\r\n", data,
            b"\r\n--", mark, b"--",
        ))  # fmt: skip
        headers = {"Content-Type": f'multipart/related; boundary="{mark.decode()}"'}
        reply = self._ask("POST", f"{self._upload}{over}", headers, body, timeout_s)
        return msgspec.json.decode(reply.data, type=_Made).generation

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()
        self._session.close()

    def _ask(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None, timeout_s: float
    ) -> urllib3.BaseHTTPResponse:
        refresh = partial(self._refresh, timeout=timeout_s)
        reply = self._send(refresh, method, url, headers, body, timeout_s)
        if reply.status == 401:  # the token ran out on its way
            self._credentials.refresh(refresh)
            reply = self._send(refresh, method, url, headers, body, timeout_s)
        if reply.status not in (200, 304):
            raise from_http_status(reply.status, reply.data.decode(errors="replace")[:_TOLD])  # type: ignore[no-untyped-call]
        return reply

    def _send(
        self, refresh: Any, method: str, url: str, headers: dict[str, str], body: bytes | None, timeout_s: float
    ) -> urllib3.BaseHTTPResponse:
        signed = dict(headers)
        self._credentials.before_request(refresh, method, url, signed)
        return self._pool.urlopen(
            method, url, body=body, headers=signed, timeout=timeout_s, retries=False, redirect=False
        )


class _Made(msgspec.Struct):
    generation: str


def _check(data: bytes, headers: Mapping[str, str], key: str) -> None:
    if headers.get("x-goog-stored-content-encoding", "identity") != "identity":
        return  # the sum is of what is stored, and this was unpacked on its way
    for one in headers.get("x-goog-hash", "").split(","):
        name, _, value = one.strip().partition("=")
        if name == "crc32c" and value != _crc32c(data):
            raise Damaged(f"bytes were changed on their way here name={key!r}")


def _crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def _pool(session: requests.Session, url: str, threads: int) -> urllib3.PoolManager:
    """Return what keeps the connections, set up as the session is."""
    found = session.merge_environment_settings(url, {}, None, None, None)
    verify = certifi.where() if found["verify"] is True else found["verify"]
    tls: dict[str, Any] = {"cert_reqs": "CERT_REQUIRED" if verify else "CERT_NONE"}
    if verify:
        tls["ca_cert_dir" if Path(verify).is_dir() else "ca_certs"] = verify
    if cert := found["cert"]:
        tls["cert_file"], tls["key_file"] = (cert, None) if isinstance(cert, str) else cert
    adapter = HTTPAdapter(pool_connections=4, pool_maxsize=threads)
    proxy = requests.utils.select_proxy(url, found["proxies"])
    if proxy:
        return adapter.proxy_manager_for(proxy, **tls)  # type: ignore[no-any-return]
    adapter.init_poolmanager(4, threads, **tls)
    return adapter.poolmanager
