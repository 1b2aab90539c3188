"""An S3-compatible object store on loopback.

It has the REST API's put, multipart, get, head, delete and list, with path-style addresses. It checks the access key
but not the signatures.

Source: Amazon S3 API Reference, version 2006-03-01.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import unquote
from xml.sax.saxutils import escape

from tests.support.object_server import ObjectHandler, ObjectServer, Query, Response, StoredObject, xml_response

__all__ = ["S3Server", "StoredObject"]

DATE = "Thu, 01 Jan 2026 00:00:00 GMT"
_META = "x-amz-meta-"


class _Handler(ObjectHandler):
    def parse_key(self, path: str, query: Query) -> str:
        return unquote(path).strip("/")

    def check_access(self, key: str) -> Response | None:
        # A signed address has the key in its query.
        is_signed = "Authorization" in self.headers or "X-Amz-Signature" in self.path
        if not is_signed:
            return None if key.split("/", maxsplit=1)[0] in self.store.public_buckets else _error(403, "AccessDenied")
        if f"Credential={self.store.access_key}" not in self.headers.get("Authorization", "") + self.path:
            return _error(403, "InvalidAccessKeyId")
        if f"/{self.store.region}" not in unquote(self.headers.get("Authorization", "") + self.path):
            status, body, headers = _error(400, "AuthorizationHeaderMalformed")
            named = {"x-amz-bucket-region": self.store.region} if self.store.names_region else {}
            return status, body, {**headers, **named}
        if key.split("/", maxsplit=1)[0] not in self.store.buckets:
            return _error(404, "NoSuchBucket")
        return None

    def handle_object_request(self, key: str, query: Query, body: bytes) -> Response:
        if self.command == "GET" and "uploads" in query:
            return self._list_uploads(query)
        if "/" not in key and "list-type" not in query:
            return xml_response("LocationConstraint", "") if "location" in query else (200, b"", {})
        if self.headers.get("X-Amz-Content-Sha256", "").startswith("STREAMING-"):
            body = _decode_chunks(body)
        metadata = self.parse_metadata(_META)
        if response := self.handle_multipart_request(key, query, body, metadata):
            return response
        if self.command == "DELETE" and "uploadId" in query:
            self.store.uploaded_parts.pop(query["uploadId"][0], None)
            return 204, b"", {}
        if self.command == "PUT":
            self.store.objects[key] = StoredObject(body, metadata)
            return 200, b"", {"ETag": _etag(self.store.objects[key])}
        if self.command == "DELETE":
            self.store.objects.pop(key, None)
            return 204, b"", {}
        return self._list(key, query.get("prefix", [""])[0]) if "list-type" in query else self._get(key)

    def _get(self, key: str) -> Response:
        found = self.store.objects.get(key)
        if found is None:
            return _error(404, "NoSuchKey")
        if self.headers.get("If-Match", _etag(found)) != _etag(found):
            return _error(412, "PreconditionFailed")
        metadata_headers = {f"{_META}{name}": value for name, value in found.metadata.items()}
        return self.content_response(found.data, {"ETag": _etag(found), "Last-Modified": DATE, **metadata_headers})

    def _list_uploads(self, query: Query) -> Response:
        """Return one upload for each page; there is only one bucket."""
        if self.store.denies_list_of_uploads:
            return _error(403, "AccessDenied")
        last = (query.get("key-marker", [""])[0], query.get("upload-id-marker", [""])[0])
        found = sorted(
            (self.store.upload_keys[upload].partition("/")[2], upload) for upload in self.store.uploaded_parts
        )
        pages = [each for each in found if each > last and each[0].startswith(query["prefix"][0])]
        uploads = [f"<Upload><Key>{escape(key)}</Key><UploadId>{upload}</UploadId></Upload>" for key, upload in pages]
        more = "".join(f"<Next{name}Marker>{escape(value)}</Next{name}Marker>" for name, value in _next(pages))
        content = f"<IsTruncated>{str(len(pages) > 1).lower()}</IsTruncated>{more}{''.join(uploads[:1])}"
        return xml_response("ListMultipartUploadsResult", content)

    def _list(self, bucket: str, prefix: str) -> Response:
        found = sorted((key, one) for key, one in self.store.objects.items() if key.startswith(f"{bucket}/{prefix}"))
        entries = "".join(
            f"<Contents><Key>{escape(key.split('/', 1)[1])}</Key><Size>{len(one.data)}</Size>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>{escape(_etag(one))}</ETag></Contents>"
            for key, one in found
        )
        return xml_response("ListBucketResult", f"<Name>{bucket}</Name><IsTruncated>false</IsTruncated>{entries}")


@dataclass
class S3Server(ObjectServer):
    """The store; with an empty `access_key` it accepts every key, but no request without one.

    It accepts signatures for its `region` only if that is not empty, and names the region to others.
    """

    scheme: ClassVar[str] = "s3"
    handler: ClassVar[type[ObjectHandler]] = _Handler
    access_key: str = "access-key-of-the-test"
    public_buckets: tuple[str, ...] = ()
    region: str = ""
    names_region: bool = True

    def credentials(self, *, valid: bool) -> dict[str, str]:
        key = self.access_key if valid else "another-key-of-the-test"
        return {"ACCESS_KEY_ID": key, "SECRET_ACCESS_KEY": "secret-key-of-the-test"}


def _decode_chunks(body: bytes) -> bytes:
    """Return the data of a body in signed chunks.

    Before each chunk is a line with its size in hexadecimal.
    """
    data = b""
    while body:
        line, _, rest = body.partition(b"\r\n")
        size = int(line.partition(b";")[0] or b"0", 16)
        if not size:
            break
        data, body = data + rest[:size], rest[size + 2 :]
    return data


def _next(pages: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [("Key", pages[0][0]), ("UploadId", pages[0][1])] if len(pages) > 1 else []


def _etag(stored: StoredObject) -> str:
    return f'"{stored.md5.hex()}"'


def _error(status: int, code: str) -> Response:
    _, body, headers = xml_response("Error", f"<Code>{code}</Code><Message>{code}</Message>")
    return status, body, headers
