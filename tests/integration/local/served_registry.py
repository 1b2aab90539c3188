"""Registry that the test process serves, with the unmodified client and plain HTTP requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kubernetes import client

from trainjob_local.apiserver import ApiServer, LogSource, Registry

ADMIN_TOKEN = "the-admin-token"
TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True)
class Response:
    """A response that was read completely."""

    code: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def message(self) -> str:
        return str(self.json["message"])


@dataclass
class ServedRegistry:
    """A served registry with its clients."""

    registry: Registry
    server: ApiServer
    clients: list[client.ApiClient] = field(default_factory=list)

    def create_client(self, token: str = ADMIN_TOKEN) -> client.ApiClient:
        """Return the unmodified kubernetes client with a bearer token.

        It is closed with the server.
        """
        configuration = client.Configuration(host=self.server.url)
        configuration.api_key = {"BearerToken": f"Bearer {token}", "authorization": f"Bearer {token}"}
        opened = client.ApiClient(configuration)
        self.clients.append(opened)
        return opened

    @contextlib.contextmanager
    def open_request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        token: str = ADMIN_TOKEN,
    ) -> Iterator[http.client.HTTPResponse]:
        """Send one request over a new connection, and yield the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        sent = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
        headers = {"Content-Type": content_type, **({"Authorization": f"Bearer {token}"} if token else {})}
        connection.request(method, path, sent, headers)
        response = connection.getresponse()
        try:
            yield response
        finally:
            response.close()
            connection.close()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        token: str = ADMIN_TOKEN,
    ) -> Response:
        """Send one request and return the response."""
        with self.open_request(method, path, body, content_type=content_type, token=token) as response:
            return Response(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read().decode())

    def watch_events(self, path: str, count: int | None = None) -> list[Any]:
        """Return the first `count` events of a watch, or all until it ends."""
        with self.open_request("GET", path) as response:
            lines: list[Any] = []
            while len(lines) != count and (line := response.readline()):
                lines.append(json.loads(line))
            return lines


@contextlib.contextmanager
def serve_registry(
    registry: Registry | None = None, *, log_source: LogSource | None = None, port: int = 0
) -> Iterator[ServedRegistry]:
    """Serve a registry, by default a new one, until the block ends."""
    before = set(threading.enumerate())
    opened = registry or Registry()
    server = ApiServer(opened, admin_token=ADMIN_TOKEN, log_source=log_source, port=port)
    server.start()
    served = ServedRegistry(opened, server)
    try:
        yield served
    finally:
        for one in served.clients:
            one.rest_client.pool_manager.clear()
            one.close()
        server.stop()
        opened.close()
        left = {thread.name for thread in set(threading.enumerate()) - before}
        assert not left & {"apiserver", "collector"}


def trainjob(name: str, **spec: Any) -> dict[str, Any]:
    """Return a TrainJob that the schema accepts."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec},
    }


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    """Return a pod that the API server accepts."""
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


def owned_config_map(name: str, owner: dict[str, Any], *, block_owner_deletion: bool = True) -> dict[str, Any]:
    """Return a ConfigMap that another object owns."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": block_owner_deletion,
    }
    return {"metadata": {"name": name, "ownerReferences": [reference]}}
