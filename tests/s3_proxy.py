"""A strict proxy before moto's S3: it holds the conditions and limits that moto does not, and does what a bad day does.

Faults are those of the proxy for Cloud Storage: queued by a test, used up by the requests they fit.
"""

import base64
import binascii
import contextlib
import struct
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.gcs_proxy import GcsProxy, Reply, Request

_METADATA_BYTES = 2048  # S3: keys and values of user metadata
_OWNER = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
_META = "x-amz-meta-"
_CODES = {
    304: "NotModified",
    400: "InvalidRequest",
    403: "AccessDenied",
    404: "NoSuchKey",
    409: "ConditionalRequestConflict",
    412: "PreconditionFailed",
    500: "InternalError",
    503: "SlowDown",
}


class S3Proxy(GcsProxy):
    """The proxy; `url` is the AWS_ENDPOINT_URL_S3 of whoever is tested."""

    def parse(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Request:
        """Take a request with its bucket in the path apart; what the tested code has no business with is `unknown`."""
        split = urlsplit(target)
        query = dict(parse_qsl(split.query, keep_blank_values=True))
        bucket, _, name = unquote(split.path).lstrip("/").partition("/")
        known = {"PUT": "upload", "GET": "download", "HEAD": "stat", "DELETE": "delete"}
        kind = known.get(method, "unknown") if name and set(query) <= {"x-id"} else "unknown"
        if not name and method == "GET" and query.get("list-type") == "2":
            kind = "list"
        named = {key.lower(): value for key, value in headers.items()}
        return Request(kind, bucket, name, query, method, target, named, body)

    def ask(self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
        """Ask moto itself, as the owner of the bucket."""
        return super().ask(method, target, {"authorization": _OWNER, **(headers or {})}, body)

    def error(self, status: int, message: str) -> Reply:
        """Return an error as S3 says it; the message may name its code."""
        code = message if message[:1].isupper() and message.isalpha() else _CODES.get(status, "InternalError")
        body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        return Reply(status, [("Content-Type", "application/xml")], body.encode())

    def reset(self) -> None:
        """Forget faults, requests and violations; conditions are held."""
        super().reset()
        self.ignores: set[str] = set()  # kinds of requests whose conditions are taken for comments

    def _answer(self, request: Request) -> Reply:
        if request.kind in self.ignores:
            said = {key: value for key, value in request.headers.items() if key not in ("if-match", "if-none-match")}
            return self.ask(request.method, request.target, said, request.body)
        if request.kind == "unknown":
            self.violations.append(f"no business of ours: {request.method} {request.target}")
            return self.error(501, "NotImplemented")
        with self._names[f"{request.bucket}/{request.name}"] if request.name else contextlib.nullcontext():
            return self._refusal(request) or self.ask(request.method, request.target, request.headers, request.body)

    def _refusal(self, request: Request) -> Reply | None:
        """What S3 refuses, whatever moto does."""
        if request.kind == "upload" and (refused := self._bad_upload(request)):
            return refused
        headers = request.headers
        wanted, unwanted = headers.get("if-match"), headers.get("if-none-match")
        if wanted is None and unwanted is None:
            return None
        etag = self._etag(request)
        if request.kind in ("upload", "delete"):
            if unwanted == "*" and etag is not None:
                return self.error(412, "PreconditionFailed")
            if wanted is not None and etag is None:
                return self.error(404, "NoSuchKey")
            return self.error(412, "PreconditionFailed") if wanted not in (None, etag) else None
        if unwanted is not None and unwanted == etag:
            return Reply(304, [("ETag", etag)], b"")
        return None

    def _bad_upload(self, request: Request) -> Reply | None:
        headers = request.headers
        metadata = {key.removeprefix(_META): value for key, value in headers.items() if key.startswith(_META)}
        if sum(len(key) + len(value) for key, value in metadata.items()) > _METADATA_BYTES:
            return self.error(400, "MetadataTooLarge")
        if not all(value.isascii() for value in metadata.values()):
            return self.error(400, "InvalidArgument")
        if len(request.name.encode()) > 1024:
            return self.error(400, "KeyTooLongError")
        said = headers.get("x-amz-checksum-crc32")
        if said is None or "aws-chunked" in headers.get("content-encoding", ""):
            self.violations.append(f"an upload without a checksum: {request.target}")
            return self.error(400, "InvalidRequest")
        if said != base64.b64encode(struct.pack(">I", binascii.crc32(request.body))).decode():
            return self.error(400, "BadDigest")
        return None

    def _etag(self, request: Request) -> str | None:
        reply = self.ask("HEAD", urlsplit(request.target).path)
        return (
            next((value for key, value in reply.headers if key.lower() == "etag"), None)
            if reply.status == 200
            else None
        )
