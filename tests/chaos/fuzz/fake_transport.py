"""A transport below the kubernetes client that responds with damaged API objects, without sockets."""

from __future__ import annotations

import copy
import functools
import io
import json
import random
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import urllib3

from tests.chaos.fuzz.fuzzing import paths_of, replace_at
from tests.chaos.fuzz.objects import EVENT, METADATA, POD, RUNNING_TRAINJOB, TRAINJOB

STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "message": "no"}
SUCCESS = {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"name": "tune"}}


def _object(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {**METADATA, "name": name}, **more}


_CONTAINER = {"name": "node", "image": "busybox", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}
_REPLICATED_JOB = {
    "name": "node",
    "template": {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": {"containers": [_CONTAINER], "volumes": []}}},
    },
}
RUNTIME = _object(
    "torch-distributed",
    spec={
        "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
        "template": {"spec": {"replicatedJobs": [_REPLICATED_JOB]}},
    },
)
JOBSET = _object("tune", status={"conditions": [], "restarts": 1, "replicatedJobsStatus": []})
WORKLOAD = _object("w", status={"conditions": [{"type": "QuotaReserved", "status": "False", "message": "no quota"}]})
CLAIM = _object("c", spec={"accessModes": ["ReadWriteMany"], "storageClassName": "fast"}, status={"phase": "Pending"})
EVENTS = [{**EVENT, "metadata": {**METADATA, "name": "e"}}]
GROUPS = [
    {"name": group, "preferredVersion": {"groupVersion": f"{group}/v1"}}
    for group in ("trainer.kubeflow.org", "jobset.x-k8s.io", "kueue.x-k8s.io", "storage.k8s.io")
]
DOCUMENT = {
    "components": {
        "schemas": {
            "TrainJob": {
                "x-kubernetes-group-version-kind": [{"group": "trainer.kubeflow.org", "kind": "TrainJob"}],
                "properties": {"spec": {"properties": {"runtimeRef": {}, "runtimePatches": {}}}},
            }
        }
    }
}
LOG = b"2026-01-01T00:00:00.000000001Z one\n2026-01-01T00:00:01.5Z two\n2026-01-01T00:00:02Z\nlast"
_COLLECTIONS = {
    "trainjobs": TRAINJOB,
    "pods": POD,
    "events": EVENTS[0],
    "workloads": WORKLOAD,
    "localqueues": _object("gpu", status={"conditions": [{"type": "Active", "status": "True"}]}),
    "storageclasses": _object("fast"),
    "persistentvolumeclaims": CLAIM,
    "clustertrainingruntimes": RUNTIME,
    "trainingruntimes": RUNTIME,
    "jobsets": JOBSET,
    "namespaces": _object("team"),
}
_REVIEW = {"status": {"allowed": True, "userInfo": {"username": "me"}}}
_PATH = re.compile(r"/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/[^/]+)?/(?!namespaces/)([^/]+)(?:/([^/]+))?(/log)?")
REPLACEMENTS: list[Any] = [
    None,
    "",
    0,
    -1,
    1.5,
    2**63,
    True,
    [],
    {},
    [None],
    [[]],
    [{}],
    {"": None},
    {"a": 1},
    "x",
    "1",
    "\0",
    "\ud800",
    "2026-01-01T00:00:00Z",
    "9999-99-99T99:99:99Z",
    "a" * 5000,
    "True",
]
_REMOVED = object()
BODIES = [b"", b" \n", b"null", b"[]", b"{}", b'""', b"1", b"\xff\xfe", b"<html>", b"[" * 20_000, b'{"a":' * 5000]
BODIES += [json.dumps(body).encode() for body in (STATUS, SUCCESS, {"metadata": None}, {"items": None}, TRAINJOB, POD)]


@functools.lru_cache(maxsize=256)
def _valid_body(kind: str, name: str | None, *, running: bool) -> tuple[Any, tuple[Any, ...]]:
    """Return a valid body and all places in it."""
    found = _COLLECTIONS.get(kind, _REVIEW)
    if kind == "trainjobs" and running:
        found = RUNNING_TRAINJOB
    body = found if name or kind not in _COLLECTIONS else {"metadata": {"resourceVersion": "5"}, "items": [found]}
    return body, tuple(paths_of(body))


class FakeTransport:
    """Pool manager of urllib3 that responds itself.

    A seed determines all damage. Only the first requests get damaged responses, so that a call that retries ends. More
    than `limit` requests are an error.

    Attributes:
        shown: method, path, status and body of each response, for the message of a failed test.
    """

    def __init__(self, seed: int, *, damaged_requests: int = 8, limit: int = 2000) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no cryptography
        self._limit = limit
        self._damaged_requests, self._share = damaged_requests, self._random.choice((0.15, 0.4, 1.0))
        self._running = self._random.random() < 0.5
        self.shown: list[tuple[str, str, int, bytes]] = []

    def request(self, method: str, url: str, **_: Any) -> urllib3.HTTPResponse:
        """Return the response to one request."""
        if len(self.shown) >= self._limit:
            raise RuntimeError("the call sends requests without an end")
        parts = urlsplit(url)
        damaged = len(self.shown) < self._damaged_requests and self._random.random() < self._share
        status, body = self._respond(method, parts.path, parse_qs(parts.query), damaged=damaged)
        self.shown.append((method, parts.path, status, body[:1000]))
        return urllib3.HTTPResponse(
            io.BytesIO(body), headers={"Content-Type": "application/json"}, status=status, preload_content=False
        )

    def clear(self) -> None:
        """Do nothing, because there are no connections."""

    def _respond(self, method: str, path: str, query: dict[str, list[str]], *, damaged: bool) -> tuple[int, bytes]:
        if damaged and self._random.random() < 0.1:
            code = self._random.choice((400, 401, 403, 404, 409, 410, 422, 429, 500, 503))
            return code, self._random.choice([*BODIES, json.dumps({**STATUS, "code": code}).encode()])
        found = _PATH.fullmatch(path)
        if found and found[3]:
            return 200, self._damage_bytes(LOG) if damaged else LOG
        body, places = self._find_body(method, path, found)
        if "watch" in query:
            events = [{"type": kind, "object": body["items"][0]} for kind in ("ADDED", "MODIFIED", "DELETED")]
            lines = [self._encode(each, tuple(paths_of(each)), damaged=damaged) for each in events]
            return 200, b"\n".join(lines) + b"\n"
        return 200, self._encode(body, places, damaged=damaged)

    def _find_body(self, method: str, path: str, found: re.Match[str] | None) -> tuple[Any, tuple[Any, ...]]:
        fixed = {"/version": {"gitVersion": "v1.36.0"}, "/apis": {"groups": GROUPS}, "/apis/kueue.x-k8s.io": GROUPS[2]}
        if not found:
            body = fixed.get(path, DOCUMENT)
            return body, tuple(paths_of(body))
        name = found[2] or ("created" if method == "POST" else None)
        if method == "DELETE" and self._random.random() < 0.5:
            return SUCCESS, tuple(paths_of(SUCCESS))
        return _valid_body(found[1], name, running=self._running)

    def _encode(self, body: Any, places: tuple[Any, ...], *, damaged: bool) -> bytes:
        choice = self._random.random() if damaged else 1.0
        if choice < 0.15:
            return self._random.choice(BODIES)
        if choice < 0.95:
            for _ in range(self._random.choice((1, 1, 2, 3))):
                value = self._random.choice([*REPLACEMENTS, _REMOVED])
                body = replace_at(body, self._random.choice(places), value, removed=_REMOVED)
        content = json.dumps(body).encode()
        return self._damage_bytes(content) if damaged and choice >= 0.95 else content

    def _damage_bytes(self, content: bytes) -> bytes:
        cut = self._random.randrange(len(content))
        return content[:cut] + self._random.choice((b"", b"\xff", b"\0", b"\n", content[cut + 1 :]))


def client_with(transport: FakeTransport, client: Any) -> Any:
    """Return a copy of a kubernetes client that sends its requests to a transport."""
    copied = copy.copy(client)
    copied.rest_client = copy.copy(client.rest_client)
    copied.rest_client.pool_manager = transport
    return copied
