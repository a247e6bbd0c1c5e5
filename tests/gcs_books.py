"""The strict proxy keeping books of what is stored, for tests with more objects than the emulator can list.

With its objects in files the emulator reads all of a bucket for each list and lets no write pass meanwhile: half a second at
7,000 objects. Here lists and generations are answered from what passed through, so that only bytes are the emulator's.
"""

import base64
import json
import threading
from bisect import bisect_left, insort
from http.client import HTTPException
from urllib.parse import quote

from tests.gcs_proxy import GcsProxy, Reply, Request

_PAGE = 1000  # GCS: entries a page, at most


class BookkeepingProxy(GcsProxy):
    """The proxy of buckets that nobody else writes to."""

    def __init__(self) -> None:
        self._books = threading.Lock()
        self._names_in: dict[str, list[str]] = {}  # bucket -> names in order: by code point is by UTF-8 byte, too
        self._objects: dict[tuple[str, str], dict[str, str]] = {}  # (bucket, name) -> name, generation, size
        self._doubted: set[tuple[str, str]] = set()  # objects of which it is not known what came of a request
        super().__init__()

    def _answer(self, request: Request) -> Reply:
        if request.kind != "list" or self._badly_faked(request) or not self._has_bucket(request.bucket):
            try:
                return super()._answer(request)
            except (OSError, HTTPException):  # such as a timeout: it may have been done
                self._doubted.add((request.bucket, request.name))
                raise
        for bucket, name in list(self._doubted):
            self._look_up(bucket, name)
        body = json.dumps(self._listed(request)).encode()
        return Reply(200, [("Content-Type", "application/json; charset=UTF-8")], body)

    def _remember(self, request: Request, reply: Reply) -> None:
        super()._remember(request, reply)
        if request.kind in ("upload", "resume") and reply.status == 200 and reply.body:
            self._enter(json.loads(reply.body))
        elif request.kind == "delete" and reply.status in (200, 204):
            self._strike(request.bucket, request.name)

    def _enter(self, made: dict[str, str]) -> None:
        with self._books:
            if (made["bucket"], made["name"]) not in self._objects:
                insort(self._names_in.setdefault(made["bucket"], []), made["name"])
            self._objects[made["bucket"], made["name"]] = {key: made[key] for key in ("name", "generation", "size")}

    def _strike(self, bucket: str, name: str) -> None:
        with self._books:
            if self._objects.pop((bucket, name), None):
                names = self._names_in[bucket]
                del names[bisect_left(names, name)]

    def _look_up(self, bucket: str, name: str) -> None:
        """Enter what the emulator has, where the books may be wrong."""
        self._doubted.discard((bucket, name))
        reply = self.ask("GET", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}")
        if reply.status == 200:
            self._enter(json.loads(reply.body))
        else:
            self._strike(bucket, name)

    def _generation(self, request: Request) -> str | None:
        if (request.bucket, request.name) in self._doubted:
            self._look_up(request.bucket, request.name)
        with self._books:
            found = self._objects.get((request.bucket, request.name))
        return found["generation"] if found else None

    def _has_bucket(self, bucket: str) -> bool:
        return bucket in self._names_in or super()._has_bucket(bucket)

    def _listed(self, request: Request) -> dict[str, object]:
        """Return a page: objects, and for a delimiter the directories, which count as entries, too."""
        query = request.query
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = base64.b64decode(query.get("pageToken", "")).decode()
        most = min(int(query.get("maxResults", _PAGE)), _PAGE)
        items: list[dict[str, str]] = []
        directories: list[str] = []
        with self._books:
            names = self._names_in.get(request.bucket, [])
            for place in range(bisect_left(names, max(prefix, query.get("startOffset", ""), after)), len(names)):
                name = names[place]
                if not name.startswith(prefix):
                    break
                head, found, _ = name.removeprefix(prefix).partition(delimiter) if delimiter else (name, "", "")
                directory = prefix + head + found if found else ""
                if name == after or directory == after != "" or directory in directories[-1:]:
                    continue
                if len(items) + len(directories) == most:
                    last = max(directories[-1:] + [item["name"] for item in items[-1:]])
                    token = base64.b64encode(last.encode()).decode()
                    return {"items": items, "prefixes": directories, "nextPageToken": token}
                if found:
                    directories.append(directory)
                else:
                    items.append(self._objects[request.bucket, name])
        return {"items": items, "prefixes": directories}
