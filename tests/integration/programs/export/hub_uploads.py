"""The upload API of the Hugging Face hub, as an extension of the loopback hub.

It has the requests that `create_commit` sends without Xet. Large files go to LFS storage first; then a commit changes
the repository's folder in one step.

Source: the requests of huggingface_hub 1.27 (`_commit_api.py`, `lfs.py`) and the Git LFS batch API.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import yaml

from tests.support.faulty_server import Fault, with_upload_faults
from trainjob_local.demo.hub import HubHandler, HubServer, Repository

_PREUPLOAD = re.compile(r"/api/(?P<kind>models|datasets)/(?P<name>[^/]+/[^/]+)/preupload/(?P<revision>[^/]+)")
_COMMIT = re.compile(r"/api/(?P<kind>models|datasets)/(?P<name>[^/]+/[^/]+)/commit/(?P<revision>[^/]+)")
_BATCH = re.compile(r"/(?:(?P<kind>datasets)/)?(?P<name>[^/]+/[^/]+)\.git/info/lfs/objects/batch")


@dataclass
class Uploads:
    """The uploads so far; `hook` is called before and after each request that writes."""

    token: str
    hook: Callable[[str, bool], None] = lambda path, after: None
    lfs: dict[str, bytes] = field(default_factory=dict)
    commits: list[dict[str, Any]] = field(default_factory=list)
    cards: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)


class UploadHandler(HubHandler):
    uploads: ClassVar[Uploads]

    def do_POST(self) -> None:  # noqa: N802 - the library's name
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.uploads.hook(path, False)
        with self.uploads.lock:
            self._handle_post(path, body)

    def do_PUT(self) -> None:  # noqa: N802
        """Store an LFS file; the URLs of LFS storage are signed, so the request has no token."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.uploads.hook(self.path, False)
        self.uploads.lfs[hashlib.sha256(body).hexdigest()] = body
        self.uploads.hook(self.path, True)
        self.send_json({})

    def _handle_post(self, path: str, body: bytes) -> None:
        if self.headers.get("Authorization") != f"Bearer {self.uploads.token}":
            self.send_hub_error(HTTPStatus.FORBIDDEN, "", "You don't have the rights to write here")
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._validate_card(json.loads(body)["content"])
        elif match := _PREUPLOAD.fullmatch(path):
            self._send_upload_modes(match, json.loads(body))
        elif _BATCH.fullmatch(path):
            self._send_lfs_batch(json.loads(body))
        elif match := _COMMIT.fullmatch(path):
            self._commit(match, [json.loads(line) for line in body.splitlines()])
        else:
            self.send_hub_error(HTTPStatus.NOT_FOUND, "EntryNotFound", f"nothing at {path}")

    def _create(self, request: dict[str, Any]) -> None:
        folder = self.root / "models" / request["organization"] / request["name"]
        folder.mkdir(parents=True)
        self.send_json({"url": f"http://{self.headers['Host']}/{request['organization']}/{request['name']}", "id": "0"})

    def _validate_card(self, card: str) -> None:
        """Check a card's front matter as the hub does, for the fields that our cards have.

        The parsed front matter is appended to `cards`.
        """
        found = yaml.safe_load(card.split("---\n")[1])
        self.uploads.cards.append(found)
        names = [found.get("base_model", "a/b"), *found.get("datasets", ())]
        wrong = [name for name in names if not re.fullmatch(r"[\w.-]+/[\w.-]+", name)]
        if wrong or not all(isinstance(tag, str) for tag in found["tags"]):
            self.send_hub_error(HTTPStatus.BAD_REQUEST, "", f"not a name: {wrong}")
        else:
            self.send_json({"errors": [], "warnings": []})

    def _send_upload_modes(self, match: re.Match[str], request: dict[str, Any]) -> None:
        if repository := self.find_repository(match):
            self.send_json({"files": [self._upload_mode(repository, file) for file in request["files"]]})

    def _upload_mode(self, repository: Repository, file: dict[str, Any]) -> dict[str, Any]:
        large = file["path"].endswith(".safetensors")
        path = repository.path(file["path"])
        oid = None
        if path is not None:
            content = path.read_bytes()
            blob = b"blob %d\0%b" % (len(content), content)
            oid = hashlib.sha256(content).hexdigest() if large else hashlib.sha1(blob).hexdigest()  # noqa: S324 - git
        return {"path": file["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": False, "oid": oid}

    def _send_lfs_batch(self, request: dict[str, Any]) -> None:
        host = self.headers["Host"]
        found = []
        for wanted in request["objects"]:
            exists = wanted["oid"] in self.uploads.lfs
            upload = {"actions": {"upload": {"href": f"http://{host}/lfs/{wanted['oid']}"}}}
            found.append({**wanted, **({} if exists else upload)})
        self.send_json({"transfer": "basic", "objects": found})

    def _commit(self, match: re.Match[str], lines: list[dict[str, Any]]) -> None:
        if not (repository := self.find_repository(match)):
            return
        for line in lines:
            self._apply(repository.folder, line["key"], line["value"])
        self.uploads.commits.append({line["value"].get("path", ""): line["key"] for line in lines[1:]})
        self.uploads.hook(self.path, True)
        url = f"http://{self.headers['Host']}/{repository.name}/commit/{repository.commit()}"
        self.send_json({"commitUrl": url, "commitOid": repository.commit(), "success": True})

    def _apply(self, folder: Path, key: str, value: dict[str, Any]) -> None:
        path = folder / value.get("path", "")
        if key == "deletedFile":
            path.unlink()
        elif key != "header":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.uploads.lfs[value["oid"]] if key == "lfsFile" else base64.b64decode(value["content"]))


def upload_hub(
    root: Path, uploads: Uploads, faulty: re.Pattern[str] | None = None, faults: list[Fault] | None = None
) -> HubServer:
    """Return a hub that serves downloads and uploads, the first of which have faults."""
    handler = type("Handler", (UploadHandler,), {"uploads": uploads})
    return HubServer(root, handler=with_upload_faults(handler, faulty, faults) if faulty and faults else handler)
