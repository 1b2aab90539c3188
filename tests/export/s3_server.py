"""An S3-compatible object store on loopback: the REST API's put, multipart, get, head, delete and list, in memory.

Path style addresses. Signatures are not checked, the access key is. `hook` is called around every request, to look or
to interrupt.
Source: Amazon S3 API Reference, version 2006-03-01.
"""

from __future__ import annotations

import hashlib
import re
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


@dataclass
class Stored:
    data: bytes
    headers: dict[str, str]

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'  # noqa: S324 - what S3 does


@dataclass
class S3Server:
    """A context manager; `objects` is what is stored, by `bucket/key`."""

    buckets: tuple[str, ...] = ("models",)
    access_key: str = "access-key-of-the-test"
    hook: Callable[[str, str, bool], None] = lambda method, key, after: None
    objects: dict[str, Stored] = field(default_factory=dict)
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    pending: dict[str, dict[str, str]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __enter__(self) -> S3Server:
        handler = type("Handler", (_Handler,), {"store": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        return {"ACCESS_KEY_ID": self.access_key, "SECRET_ACCESS_KEY": "secret-key-of-the-test"}

    def below(self, prefix: str) -> dict[str, bytes]:
        """The contents of the objects below `bucket/prefix/`."""
        found = {key: value.data for key, value in self.objects.items() if key.startswith(f"{prefix}/")}
        return {key.removeprefix(f"{prefix}/"): data for key, data in found.items()}

    def writes(self) -> list[tuple[str, str]]:
        return [(method, key) for method, key in self.requests if method not in {"GET", "HEAD"}]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: S3Server

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        key, query = unquote(parts.path).strip("/"), parse_qs(parts.query, keep_blank_values=True)
        self.store.hook(self.command, key, False)
        with self.store.lock:
            self.store.requests.append((self.command, key))
            answer = self._refusal(key) or self._operation(key, query, body)
        self.store.hook(self.command, key, True)
        self._send(*answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the library's names

    def _refusal(self, key: str) -> Any:
        if f"Credential={self.store.access_key}/" not in self.headers.get("Authorization", ""):
            return _error(403, "InvalidAccessKeyId")
        if key.split("/", maxsplit=1)[0] not in self.store.buckets:
            return _error(404, "NoSuchBucket")
        return None

    def _operation(self, key: str, query: dict[str, list[str]], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        upload = query.get("uploadId", [""])[0]
        if self.command == "PUT" and upload:
            self.store.parts[upload][int(query["partNumber"][0])] = body
            return 200, b"", {"ETag": Stored(body, {}).etag}
        if self.command == "PUT":
            return self._put(key, body, self._kept_headers())
        if self.command == "POST" and "uploads" in query:
            upload = uuid.uuid4().hex
            self.store.parts[upload], self.store.pending[upload] = {}, self._kept_headers()
            return _xml("InitiateMultipartUploadResult", f"<Key>{escape(key)}</Key><UploadId>{upload}</UploadId>")
        if self.command == "POST" and upload:
            return self._complete(key, upload, body)
        if self.command == "DELETE":
            self.store.objects.pop(key, None)
            return 204, b"", {}
        return self._list(key, query.get("prefix", [""])[0]) if "list-type" in query else self._get(key)

    def _kept_headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items() if name.lower().startswith("x-amz-meta-")}

    def _put(self, key: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes, dict[str, str]]:
        self.store.objects[key] = Stored(body, headers)
        return 200, b"", {"ETag": self.store.objects[key].etag}

    def _complete(self, key: str, upload: str, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        numbers = [int(number) for number in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
        parts, headers = self.store.parts.pop(upload), self.store.pending.pop(upload)
        self._put(key, b"".join(parts[number] for number in numbers), headers)
        return _xml("CompleteMultipartUploadResult", f"<Key>{escape(key)}</Key><ETag>&quot;x&quot;</ETag>")

    def _get(self, key: str) -> tuple[int, bytes, dict[str, str]]:
        found = self.store.objects.get(key)
        if found is None:
            return _error(404, "NoSuchKey")
        headers = {"ETag": found.etag, "Last-Modified": DATE, **found.headers}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not asked:
            return 200, found.data, headers
        first, last = int(asked[1]), min(int(asked[2] or len(found.data) - 1), len(found.data) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(found.data)}"
        return 206, found.data[first : last + 1], headers

    def _list(self, bucket: str, prefix: str) -> tuple[int, bytes, dict[str, str]]:
        keys = sorted(key.split("/", 1)[1] for key in self.store.objects if key.startswith(f"{bucket}/{prefix}"))
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.store.objects[f'{bucket}/{key}'].data)}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;0&quot;</ETag></Contents>"
            for key in keys
        )
        return _xml("ListBucketResult", f"<Name>{bucket}</Name><IsTruncated>false</IsTruncated>{entries}")

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def _xml(name: str, inside: str) -> tuple[int, bytes, dict[str, str]]:
    text = f'<?xml version="1.0" encoding="UTF-8"?><{name}>{inside}</{name}>'
    return 200, text.encode(), {"Content-Type": "application/xml"}


def _error(status: int, code: str) -> tuple[int, bytes, dict[str, str]]:
    _, body, headers = _xml("Error", f"<Code>{code}</Code><Message>{code}</Message>")
    return status, body, headers
