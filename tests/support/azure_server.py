"""Azure Blob Storage on loopback.

It has the REST API's put blob, put block, put block list, get, head, delete and list blobs. A request needs a shared
access signature, which is compared and not computed.

Source: Blob service REST API, version 2022-11-02. The tests in tests/integration/programs/test_azurite.py run the same
programs on Azurite, which is Microsoft's own emulator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import unquote
from xml.sax.saxutils import escape

from tests.support.object_server import ObjectHandler, ObjectServer, Query, Response, StoredObject, xml_response

__all__ = ["AzureServer"]

_META = "x-ms-meta-"
_ACCOUNT = "account"


class _Handler(ObjectHandler):
    signature = ""

    def parse_key(self, path: str, query: Query) -> str:
        self.signature = query.get("sig", [""])[0]
        return unquote(path).strip("/").removeprefix(f"{_ACCOUNT}/")

    def parse_method(self, query: Query) -> str:
        return "POST" if query.get("comp") == ["blocklist"] else self.command

    def check_access(self, key: str) -> Response | None:
        if self.signature != self.store.signature:
            return _error(403, "AuthenticationFailed")
        return None if key.split("/", maxsplit=1)[0] in self.store.buckets else _error(404, "ContainerNotFound")

    def handle_object_request(self, key: str, query: Query, body: bytes) -> Response:
        blocks = self.store.uploaded_blocks.setdefault(key, {})
        if query.get("comp") == ["list"]:
            return self._list(key, query.get("prefix", [""])[0])
        if query.get("comp") == ["block"]:
            blocks[query["blockid"][0]] = body
            return 201, b"", {}
        if self.command == "PUT":
            if query.get("comp") == ["blocklist"]:
                names = re.findall(r"<(?:Latest|Uncommitted)>([^<]+)</", body.decode())
                body = b"".join(blocks[name] for name in names)
            self.store.objects[key] = StoredObject(body, self.parse_metadata(_META))
            return 201, b"", {"ETag": _etag(self.store.objects[key])}
        if self.command == "DELETE":
            return (202, b"", {}) if self.store.objects.pop(key, None) else _error(404, "BlobNotFound")
        return self._get(key)

    def _get(self, key: str) -> Response:
        found = self.store.objects.get(key)
        if found is None:
            return _error(404, "BlobNotFound")
        if self.headers.get("If-Match", _etag(found)) != _etag(found):
            return _error(412, "ConditionNotMet")
        metadata_headers = {f"{_META}{name}": value for name, value in found.metadata.items()}
        return self.content_response(found.data, {"ETag": _etag(found), **metadata_headers})

    def _list(self, container: str, prefix: str) -> Response:
        blobs = "".join(
            f"<Blob><Name>{escape(key.split('/', 1)[1])}</Name><Properties><Etag>{_etag(found)[1:-1]}</Etag>"
            f"<Last-Modified>Thu, 01 Jan 2026 00:00:00 GMT</Last-Modified>"
            f"<Content-Length>{len(found.data)}</Content-Length></Properties></Blob>"
            for key, found in sorted(self.store.objects.items())
            if key.startswith(f"{container}/{prefix}")
        )
        return xml_response("EnumerationResults", f"<Blobs>{blobs}</Blobs><NextMarker/>")


@dataclass
class AzureServer(ObjectServer):
    scheme: ClassVar[str] = "az"
    handler: ClassVar[type[ObjectHandler]] = _Handler
    signature: str = "signature-of-the-test"

    def __post_init__(self) -> None:
        self.uploaded_blocks: dict[str, dict[str, bytes]] = {}

    @property
    def url(self) -> str:
        return f"{super().url}/{_ACCOUNT}"

    def credentials(self, *, valid: bool) -> dict[str, str]:
        token = f"sv=2022-11-02&sig={self.signature if valid else 'another-signature-of-the-test'}"
        return {"AZURE_STORAGE_CONNECTION_STRING": f"BlobEndpoint={self.url};SharedAccessSignature={token}"}


def _etag(stored: StoredObject) -> str:
    return f'"0x{stored.md5.hex()[:15].upper()}"'


def _error(status: int, code: str) -> Response:
    _, body, headers = xml_response("Error", f"<Code>{code}</Code><Message>{code} of the test</Message>")
    return status, body, {**headers, "x-ms-error-code": code}
