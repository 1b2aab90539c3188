"""Google Cloud Storage on loopback.

The server has the JSON API's insert, get, delete and list, and the XML API's multipart uploads. It also issues access
tokens. It has a token exchange (RFC 8693) for key files of a workload identity federation, and the metadata server of a
machine with an identity of its own.

Source: Cloud Storage JSON API v1 and XML API references; Google's AIP-4117 for the key file of a federation.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from email import message_from_bytes
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote

from tests.support.object_server import ObjectHandler, ObjectServer, Query, Response, StoredObject

__all__ = ["GcsServer", "StoredObject"]

_TOKEN_EXCHANGE, _SUBJECT = "/token", "/subject"
_REASONS = {401: "authError", 403: "forbidden", 404: "notFound", 412: "conditionNotMet"}
_METADATA = "/computeMetadata/v1/instance/service-accounts/default/token"
_BYTES = {"Content-Type": "application/octet-stream"}
_AUDIENCE = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/p"  # serialized name


class _Handler(ObjectHandler):
    def parse_key(self, path: str, query: Query) -> str:
        """Return the object's key from the URL.

        In the JSON API the object's name is one segment of the path, or a parameter. In the XML API it is in the path.
        """
        before, api, place = path.partition("/storage/v1/b/")
        if not api:
            return unquote(path).strip("/")
        bucket, _, name = place.partition("/o/")
        name = name or query.get("name", [""])[0] if before or name else ""
        return f"{bucket.removesuffix('/o')}/{unquote(name)}".rstrip("/")

    def parse_method(self, query: Query) -> str:
        """Return the request's method; the JSON API reads an object's metadata with GET."""
        return "HEAD" if self.command == "GET" and not {"alt", "prefix"} & query.keys() else self.command

    def check_access(self, key: str) -> Response | None:
        if self.headers.get("Authorization") != f"Bearer {self.store.access_token}":
            return _error(401, "Invalid Credentials")
        if key.split("/", maxsplit=1)[0] not in self.store.buckets:
            return _error(404, "The specified bucket does not exist.")
        return None

    def handle_other_request(self, body: bytes) -> Response | None:
        if self.path == _SUBJECT:
            return 200, self.headers.get("X-Workload", "").encode(), {}
        if self.path.startswith(_METADATA):
            return self._token_response() if self.store.has_identity else _error(404, "no service account")
        return self._exchange_token(parse_qs(body.decode())) if self.path == _TOKEN_EXCHANGE else None

    def handle_object_request(self, key: str, query: Query, body: bytes) -> Response:
        if response := self.handle_multipart_request(key, query, body, self.parse_metadata("x-goog-meta-")):
            return response
        if self.command == "POST":
            return self._insert(key, query["uploadType"][0], body)
        if self.command == "DELETE":
            missing = self.store.objects.pop(key, None) is None
            return _error(404, "No such object") if missing else (204, b"", {})
        return self._list(key, query["prefix"][0]) if "prefix" in query else self._get(key, query)

    def _exchange_token(self, form: Query) -> Response:
        known = form["subject_token"] == [self.store.subject]
        return self._token_response() if known else _error(400, "invalid_grant")

    def _token_response(self) -> Response:
        kind = "urn:ietf:params:oauth:token-type:access_token"
        token = {"access_token": self.store.access_token, "issued_token_type": kind}
        return _json({**token, "token_type": "Bearer", "expires_in": 3600})

    def _insert(self, key: str, kind: str, body: bytes) -> Response:
        description: dict[str, Any] = {}
        if kind == "multipart":
            head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
            # The parts' own headers and the content are split by hand, because the content is bytes, not text.
            boundary = b"--" + message_from_bytes(head).get_boundary(b"").encode()  # type: ignore[union-attr]
            about, content = (part.split(b"\r\n\r\n", 1)[1] for part in body.split(boundary)[1:3])
            description, body = json.loads(about), content.removesuffix(b"\r\n")
        self.store.objects[key] = StoredObject(body, description.get("metadata", {}))
        return _json(_resource(key, self.store.objects[key]))

    def _get(self, key: str, query: Query) -> Response:
        found = self.store.objects.get(key)
        if found is None:
            return _error(404, f"No such object: {key}")
        if self.headers.get("If-Match", _etag(found)) != _etag(found):
            return _error(412, "At least one of the pre-conditions you specified did not hold.")
        if query.get("alt") == ["media"]:
            return self.content_response(found.data, {"ETag": _etag(found), **_BYTES})
        return _json(_resource(key, found))

    def _list(self, bucket: str, prefix: str) -> Response:
        found = sorted((key, one) for key, one in self.store.objects.items() if key.startswith(f"{bucket}/{prefix}"))
        return _json({"kind": "storage#objects", "items": [_resource(key, one) for key, one in found]})


@dataclass
class GcsServer(ObjectServer):
    scheme: ClassVar[str] = "gs"
    handler: ClassVar[type[ObjectHandler]] = _Handler
    access_token: str = "access-token-of-the-test"
    subject: str = "subject-token-of-the-test"
    has_identity: bool = False

    def credentials(self, *, valid: bool) -> dict[str, str]:
        """Return a key file with the URL and the header from which the client gets its token."""
        workload = self.subject if valid else "another-subject-of-the-test"
        source = {"url": f"{self.url}{_SUBJECT}", "headers": {"X-Workload": workload}, "format": {"type": "text"}}
        key_file = {
            "type": "external_account",
            "audience": _AUDIENCE,  # serialized name
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": f"{self.url}{_TOKEN_EXCHANGE}",
            "credential_source": source,
        }
        return {"GOOGLE_CREDENTIALS": json.dumps(key_file)}


def _resource(key: str, stored: StoredObject) -> dict[str, Any]:
    bucket, _, name = key.partition("/")
    return {
        "kind": "storage#object",
        "bucket": bucket,
        "name": name,
        "size": str(len(stored.data)),
        "md5Hash": base64.b64encode(stored.md5).decode(),
        "etag": _etag(stored),
        "updated": "2026-01-01T00:00:00.000Z",
        "contentType": "application/octet-stream",
        "metadata": stored.metadata,
    }


def _etag(stored: StoredObject) -> str:
    """Return an ETag without quotes that changes with the content."""
    return base64.b64encode(stored.md5[:9]).decode()


def _json(value: Any, status: int = 200) -> Response:
    return status, json.dumps(value).encode(), {"Content-Type": "application/json; charset=UTF-8"}


def _error(status: int, message: str) -> Response:
    reason = {"domain": "global", "reason": _REASONS.get(status, "error"), "message": message}
    return _json({"error": {"code": status, "message": message, "errors": [reason]}}, status)
