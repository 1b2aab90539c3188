"""A Kubeflow Model Registry on loopback, made from its published contract.

The server checks every request and every response against `tests/support/model_registry.yaml`, and records
`violations`.

Names are unique as in the real registry: of models, of versions in a model, of artifacts in a version. `hook` is called
before and after every request, to observe it, to send another status or to interrupt it. A redirect leads to
`redirect_url`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from jsonschema import Draft4Validator

from tests.support.loopback_server import LoopbackServer

CONTRACT = Path(__file__).resolve().parent / "model_registry.yaml"
API = "/api/model_registry/v1alpha3/"
TIMES = {"createTimeSinceEpoch": "1767225600000", "lastUpdateTimeSinceEpoch": "1767225600000"}


@cache
def load_contract() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(CONTRACT.read_text())
    return loaded


def schema_violations(schema: str, value: Any) -> list[str]:
    """Return the violations of a value against a schema of the contract."""
    whole = {"$ref": f"#/components/schemas/{schema}", "components": load_contract()["components"]}
    return [error.message for error in Draft4Validator(whole).iter_errors(value)]


@dataclass
class RegistryServer:
    """A registry as a context manager; `objects` contains the registered objects, by kind."""

    token: str = ""
    redirect_url: str = ""
    hook: Callable[[str, str, bool], int] = lambda method, path, after: 0
    objects: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {"registered_model": [], "model_version": [], "model_artifact": []}
    )
    requests: list[tuple[str, str]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __enter__(self) -> RegistryServer:
        handler = type("Handler", (_Handler,), {"registry": self})
        self._server = LoopbackServer(handler)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def url(self) -> str:
        return self._server.url

    def version_properties(self) -> dict[str, dict[str, Any]]:
        """Return the plain values of every version's properties, by model/version."""
        names = {model["id"]: model["name"] for model in self.objects["registered_model"]}
        return {
            f"{names[version['registeredModelId']]}/{version['name']}": {
                name: next(value for key, value in typed.items() if key != "metadataType")
                for name, typed in version.get("customProperties", {}).items()
            }
            for version in self.objects["model_version"]
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: RegistryServer

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = parts.path.removeprefix(API)
        forced = self.registry.hook(self.command, path, False)
        with self.registry.lock:
            self.registry.requests.append((self.command, path))
            status, response = (forced, _error(forced, "as the test wants")) if forced else self._handle(parts, text)
        forced = self.registry.hook(self.command, path, True)
        status, response = (forced, _error(forced, "as the test wants")) if forced else (status, response)
        body = json.dumps(response).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.registry.redirect_url:
            self.send_header("Location", f"{self.registry.redirect_url}{self.path}")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PATCH = do_POST = _serve  # noqa: N815 - the library's names

    def _handle(self, parts: Any, text: bytes) -> tuple[int, dict[str, Any]]:
        kind = "registeredmodelId" if "registered_models" in parts.path else "modelversionId"
        template = re.sub(r"/[1-9][0-9]*(/|$)", rf"/{{{kind}}}\1", parts.path)
        operation = load_contract()["paths"].get(template, {}).get(self.command.lower())
        if operation is None:
            return 404, _error(404, f"no path {parts.path}")
        if self.registry.token and self.headers.get("Authorization") != f"Bearer {self.registry.token}":
            return 401, _error(401, "Unauthorized")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if self.command == "GET":
            wrong = self._query_error(operation, query)
            status, response = (400, _error(400, wrong)) if wrong else self._find(parts.path.removeprefix(API), query)
        else:
            body = json.loads(text)
            wrong = "; ".join(schema_violations(operation["requestBody"], body))
            write = self._update if self.command == "PATCH" else self._create
            status, response = (400, _error(400, wrong)) if wrong else write(parts.path.removeprefix(API), body)
        if wrong:
            self.registry.violations.append(f"{self.command} {self.path}: {wrong}")
        if missing := schema_violations(operation["responses"][str(status)], response):
            self.registry.violations.append(f"the response {status} to {self.command} {self.path}: {missing}")
        return status, response

    def _query_error(self, operation: dict[str, Any], query: dict[str, str]) -> str:
        known = load_contract()["components"]["parameters"]
        wrong = [name for name in query if name not in operation["parameters"]]
        wrong += [name for name in {*query} & {*known} if not re.search(known[name]["pattern"], query[name])]
        return f"the query {', '.join(wrong)}" if wrong else ""

    def _find(self, kind: str, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if "/" in kind:
            _, parent, children = kind.split("/")
            return self._list(parent, children, query)
        for one in self.registry.objects[kind]:
            if one["name"] == query["name"] and one["_parent"] == query.get("parentResourceId", ""):
                return 200, _public_fields(one)
        return 404, _error(404, f"no {kind} found for name={query['name']}")

    def _list(self, parent: str, children: str, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Return a page of one object, so that clients must follow the pages."""
        kind = {"versions": "model_version", "artifacts": "model_artifact"}[children]
        found = [_public_fields(one) for one in self.registry.objects[kind] if one["_parent"] == parent]
        found = found[::-1] if query.get("sortOrder") == "DESC" else found
        start = int(query.get("nextPageToken", "0"))
        token = str(start + 1) if start + 1 < len(found) else ""
        return 200, {"items": found[start : start + 1], "nextPageToken": token, "pageSize": 1, "size": 1}

    def _update(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Replace fields: also all custom properties, as the real registry does."""
        for one in self.registry.objects["registered_model"]:
            if one["id"] == path.split("/")[1]:
                one.update(body)
                return 200, _public_fields(one)
        return 404, _error(404, f"no model found for {path}")

    def _create(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        kind = {"registered_models": "registered_model", "model_versions": "model_version"}.get(path, "model_artifact")
        parent = path.split("/")[1] if "/" in path else body.get("registeredModelId", "")
        above = {"model_version": "registered_model", "model_artifact": "model_version"}.get(kind)
        if above and parent not in [one["id"] for one in self.registry.objects[above]]:
            return 404, _error(404, f"no {above} found for id {parent}")
        if any(one["name"] == body["name"] and one["_parent"] == parent for one in self.registry.objects[kind]):
            return 409, _error(409, f"{kind} {body['name']} exists")
        number = sum(map(len, self.registry.objects.values())) + 1
        made = {"state": "LIVE", **body, "id": str(number), **TIMES, "_parent": parent}
        self.registry.objects[kind].append(made)
        return 201, _public_fields(made)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def _public_fields(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if not name.startswith("_")}


def _error(status: int, message: str) -> dict[str, Any]:
    return {"code": str(status), "message": message}
