"""Common parts of the object stores on loopback.

The objects are in memory. `hook` is called before and after every request, to observe or to interrupt it.
"""

from __future__ import annotations

import hashlib
import re
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

from typing_extensions import Self

from tests.support.loopback_server import LoopbackServer

Query = dict[str, list[str]]
Response = tuple[int, bytes, dict[str, str]]


@dataclass
class StoredObject:
    data: bytes
    metadata: dict[str, str]
    """The object's metadata, by names without the store's own prefix."""

    @property
    def md5(self) -> bytes:
        return hashlib.md5(self.data).digest()  # noqa: S324 - object stores compute an MD5


@dataclass
class ObjectServer:
    """A store as a context manager; `objects` holds its objects, by `bucket/key`."""

    scheme: ClassVar[str]
    handler: ClassVar[type[ObjectHandler]]
    buckets: tuple[str, ...] = ("models",)
    address: tuple[str, int] = ("127.0.0.1", 0)
    hook: Callable[[str, str, bool], None] = lambda method, key, after: None
    objects: dict[str, StoredObject] = field(default_factory=dict)
    uploaded_parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    upload_keys: dict[str, str] = field(default_factory=dict)
    pending_metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    denies_list_of_uploads: bool = False
    requests: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __enter__(self) -> Self:
        handler = type("Handler", (self.handler,), {"store": self})
        self._server = LoopbackServer(handler, self.address)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def environment(self) -> dict[str, str]:
        """Credentials that the store accepts, as environment variables of a step's secret."""
        return self.credentials(valid=True)

    def credentials(self, *, valid: bool) -> dict[str, str]:
        raise NotImplementedError

    def read_prefix(self, prefix: str) -> dict[str, bytes]:
        """Return the contents of the objects below `bucket/prefix/`."""
        found = {key: value.data for key, value in self.objects.items() if key.startswith(f"{prefix}/")}
        return {key.removeprefix(f"{prefix}/"): data for key, data in found.items()}

    def list_writes(self) -> list[tuple[str, str]]:
        return [(method, key) for method, key in self.requests if method not in {"GET", "HEAD"}]

    def sent_keys(self) -> list[str]:
        """Return the keys of the objects, or of their parts, that were sent."""
        return [key for method, key in self.requests if method in {"PUT", "POST"}]


class ObjectHandler(BaseHTTPRequestHandler):
    """Handler of one connection; subclasses parse and handle the requests of their store."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: Any

    def parse_key(self, path: str, query: Query) -> str:
        """Return `bucket/key`, or the bucket alone."""
        raise NotImplementedError

    def handle_other_request(self, body: bytes) -> Response | None:
        """Return the response to a request that is not for an object.

        Such requests are not recorded, and no hook is called for them.
        """
        return None

    def parse_method(self, query: Query) -> str:
        """Return the request's method in S3's terms."""
        return self.command

    def check_access(self, key: str) -> Response | None:
        """Return the response to a request without access or for a bucket that does not exist."""
        raise NotImplementedError

    def handle_object_request(self, key: str, query: Query, body: bytes) -> Response:
        raise NotImplementedError

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        if other_response := self.handle_other_request(body):
            self._send(*other_response)
            return
        key = self.parse_key(parts.path, query)
        method = self.parse_method(query)
        self.store.hook(method, key, False)
        with self.store.lock:
            self.store.requests.append((method, key))
            response = self.check_access(key) or self.handle_object_request(key, query, body)
        self.store.hook(method, key, True)
        self._send(*response)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the library's names

    def parse_metadata(self, prefix: str) -> dict[str, str]:
        """Return the object's metadata from the request's headers."""
        named = {name.lower(): value for name, value in self.headers.items()}
        return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}

    def handle_multipart_request(
        self, key: str, query: Query, body: bytes, metadata: dict[str, str]
    ) -> Response | None:
        """Handle a request of a multipart upload and return the response; None for other requests.

        Google's XML API has the same requests as S3.
        """
        upload = query.get("uploadId", [""])[0]
        if self.command == "POST" and "uploads" in query:
            upload = uuid.uuid4().hex
            self.store.uploaded_parts[upload], self.store.pending_metadata[upload] = {}, metadata
            self.store.upload_keys[upload] = key
            return xml_response(
                "InitiateMultipartUploadResult", f"<Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
            )
        if upload and upload not in self.store.uploaded_parts:
            return 404, b"<Error><Code>NoSuchUpload</Code><Message>of the test</Message></Error>", {}
        if self.command == "PUT" and upload:
            self.store.uploaded_parts[upload][int(query["partNumber"][0])] = body
            return 200, b"", {"ETag": f'"{StoredObject(body, {}).md5.hex()}"'}
        if self.command == "POST" and upload:
            numbers = [int(number) for number in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
            parts, metadata = self.store.uploaded_parts.pop(upload), self.store.pending_metadata.pop(upload)
            self.store.objects[key] = StoredObject(b"".join(parts[number] for number in numbers), metadata)
            return xml_response("CompleteMultipartUploadResult", f"<Key>{escape(key)}</Key><ETag>&quot;x&quot;</ETag>")
        return None

    def content_response(self, data: bytes, headers: dict[str, str]) -> Response:
        """Return an object's bytes, or the requested range of them."""
        requested_range = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not requested_range:
            return 200, data, headers
        first, last = int(requested_range[1]), min(int(requested_range[2] or len(data) - 1), len(data) - 1)
        return 206, data[first : last + 1], {**headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"}

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def xml_response(name: str, content: str) -> Response:
    text = f'<?xml version="1.0" encoding="UTF-8"?><{name}>{content}</{name}>'
    return 200, text.encode(), {"Content-Type": "application/xml"}
