"""The unmodified Kubernetes client behind a few short words; every body is a plain dict, every answer has its code."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import kubernetes
from kubernetes.client.rest import ApiException

Object = dict[str, Any]

HOLD = "example.org/hold"
"""A finalizer that nobody acts on."""

KINDS = {
    "Namespace": ("v1", "namespaces"),
    "Node": ("v1", "nodes"),
    "Pod": ("v1", "pods"),
    "Event": ("v1", "events"),
    "Secret": ("v1", "secrets"),
    "Service": ("v1", "services"),
    "ConfigMap": ("v1", "configmaps"),
    "ServiceAccount": ("v1", "serviceaccounts"),
    "ResourceQuota": ("v1", "resourcequotas"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "Job": ("batch/v1", "jobs"),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", "jobsets"),
    "Role": ("rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", "rolebindings"),
    "TrainJob": ("trainer.kubeflow.org/v1alpha1", "trainjobs"),
    "TrainingRuntime": ("trainer.kubeflow.org/v1alpha1", "trainingruntimes"),
    "ClusterTrainingRuntime": ("trainer.kubeflow.org/v1alpha1", "clustertrainingruntimes"),
    "Workflow": ("argoproj.io/v1alpha1", "workflows"),
    "Workload": ("kueue.x-k8s.io/v1beta2", "workloads"),
    "LocalQueue": ("kueue.x-k8s.io/v1beta2", "localqueues"),
    "ClusterQueue": ("kueue.x-k8s.io/v1beta2", "clusterqueues"),
    "ResourceFlavor": ("kueue.x-k8s.io/v1beta2", "resourceflavors"),
    "AdmissionCheck": ("kueue.x-k8s.io/v1beta2", "admissionchecks"),
    "MultiKueueConfig": ("kueue.x-k8s.io/v1beta2", "multikueueconfigs"),
    "MultiKueueCluster": ("kueue.x-k8s.io/v1beta2", "multikueueclusters"),
    "WorkloadPriorityClass": ("kueue.x-k8s.io/v1beta2", "workloadpriorityclasses"),
}


def path_of(kind: str, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
    """The URL path of a kind's collection, an object or its subresource; no namespace: cluster-wide."""
    version, plural = KINDS[kind]
    parts = ["/api" if version == "v1" else "/apis", version]
    parts += ["namespaces", namespace] if namespace else []
    return "/".join([*parts, plural, *filter(None, (name, subresource))])


@dataclass(frozen=True)
class Answer:
    """What the API server said.

    Attributes:
        code: HTTP status.
        body: the JSON, or text where it is none.
        headers: lower-case names.
    """

    code: int
    body: Any
    headers: Mapping[str, str]

    @property
    def ok(self) -> bool:
        return 200 <= self.code < 300

    @property
    def message(self) -> str:
        """A refusal's text."""
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else str(self.body)

    @property
    def reason(self) -> str:
        """A refusal's machine-readable reason; empty where the server gives none."""
        return str(self.body.get("reason", "")) if isinstance(self.body, dict) else ""


class Client:
    """Asks one API server with one identity."""

    def __init__(self, api: kubernetes.client.ApiClient) -> None:
        self.api = api

    @classmethod
    def of(cls, kubeconfig: str) -> Client:
        """The current context of a kubeconfig file."""
        return cls(kubernetes.config.new_client_from_config(kubeconfig))

    def as_bearer(self, token: str) -> Client:
        """The same server, for the bearer of a token; an empty one is nobody."""
        configuration = kubernetes.client.Configuration()
        configuration.host, configuration.ssl_ca_cert = self.api.configuration.host, self.api.configuration.ssl_ca_cert
        configuration.api_key = {"BearerToken": f"Bearer {token}"} if token else {}
        return Client(kubernetes.client.ApiClient(configuration))

    def close(self) -> None:
        self.api.close()
        self.api.rest_client.pool_manager.clear()

    def ask(
        self, method: str, path: str, body: Object | None = None, *, content_type: str = "", **query: Any
    ) -> Answer:
        """One request; a refusal is an answer too, not an exception."""
        headers = {"Accept": "application/json", "Content-Type": content_type or _content_type(method)}
        try:
            response = self._call(method, path, body, headers, query)
        except ApiException as error:
            return Answer(error.status, _parsed(error.body), _lower(error.headers))
        return Answer(response.status, _parsed(response.data), _lower(response.getheaders()))

    def send(self, method: str, path: str, text: bytes, content_type: str = "application/json", **query: Any) -> Answer:
        """One request whose body goes out as it is."""
        headers = {"Accept": "application/json", "Content-Type": content_type}
        self.api.update_params_for_auth(headers, [], ["BearerToken"])
        url = f"{self.api.configuration.host}{path}{'?' if query else ''}{urlencode(query)}"
        response = self.api.rest_client.pool_manager.request(method, url, body=text, headers=headers, retries=False)
        return Answer(response.status, _parsed(response.data), _lower(response.headers))

    def _call(self, method: str, path: str, body: Any, headers: dict[str, str], query: Mapping[str, Any]) -> Any:
        return self.api.call_api(
            path,
            method,
            query_params=[(name, _word(value)) for name, value in query.items()],
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _return_http_data_only=True,
            _request_timeout=(10, 120),  # longer than any stream
        )

    # -- what must succeed ------------------------------------------------------------------------------------------

    def create(self, item: Object, namespace: str | None = None, **query: Any) -> Object:
        """Create it with strict field validation; a refusal fails the test with its text."""
        path = path_of(item["kind"], namespace or item["metadata"].get("namespace"))
        return self._must("POST", path, item, **{"fieldValidation": "Strict", **query})

    def get(self, kind: str, namespace: str | None, name: str) -> Object:
        """The object, which must exist."""
        return self._must("GET", path_of(kind, namespace, name))

    def find(self, kind: str, namespace: str | None, name: str) -> Object | None:
        """The object, or None."""
        answer = self.ask("GET", path_of(kind, namespace, name))
        return answer.body if answer.code != 404 else None

    def list(self, kind: str, namespace: str | None, **query: Any) -> list[Object]:
        """All that match."""
        return list(self._must("GET", path_of(kind, namespace), None, **query)["items"])

    def patch(self, kind: str, namespace: str | None, name: str, change: Object, subresource: str = "") -> Object:
        """A JSON merge patch."""
        return self._must("PATCH", path_of(kind, namespace, name, subresource), change)

    def delete(self, kind: str, namespace: str | None, name: str, **options: Any) -> Object:
        """Delete it; `propagationPolicy="Foreground"` and the like."""
        return self._must("DELETE", path_of(kind, namespace, name), options or None)

    def hold(self, kind: str, namespace: str | None, name: str) -> Object:
        """As a node that does not answer, or another controller: deleted it stays, marked, until it is let go."""
        return self.patch(kind, namespace, name, {"metadata": {"finalizers": [HOLD]}})

    def let_go(self, kind: str, namespace: str | None, name: str) -> Object:
        """Nobody's finalizer keeps it any more."""
        return self.patch(kind, namespace, name, {"metadata": {"finalizers": None}})

    def _must(self, method: str, path: str, body: Object | None = None, **query: Any) -> Object:
        answer = self.ask(method, path, body, **query)
        assert answer.ok, f"{method} {path}: {answer.code} {answer.reason} {answer.message}"
        found: Object = answer.body
        return found

    # -- what happens over time -------------------------------------------------------------------------------------

    def stream(self, path: str, *, seconds: float = 60, **query: Any) -> Iterator[Object]:
        """The events of a watch, or until it ends by itself; never longer than `seconds`."""
        headers = {"Accept": "application/json"}
        query = {"watch": True, "timeoutSeconds": max(1, int(seconds)), **query}
        try:
            response = self._call("GET", path, None, headers, query)
        except ApiException as error:
            raise AssertionError(f"watch {path}: {error.status} {error.body!r}") from error
        try:
            pending = b""
            for chunk in response.stream(amt=None):
                *lines, pending = (pending + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines)
        finally:
            response.release_conn()
            response.close()

    def follow(
        self, kind: str, namespace: str | None, name: str = "", *, seconds: float = 100, **query: Any
    ) -> Iterator[tuple[str, Object]]:
        """What is there (as ADDED), then every change; fails when the time is over."""
        if name:
            query["fieldSelector"] = f"metadata.name={name}"
        path, deadline = path_of(kind, namespace), time.monotonic() + seconds
        found = self._must("GET", path, None, **query)
        yield from (("ADDED", item) for item in found["items"])
        version = found["metadata"]["resourceVersion"]
        while (left := deadline - time.monotonic()) > 0:
            for event in self.stream(path, seconds=left, resourceVersion=version, **query):
                assert event["type"] != "ERROR", event["object"]
                version = event["object"]["metadata"]["resourceVersion"]
                yield event["type"], event["object"]
        raise AssertionError(f"{path} {query}: the expected did not happen within {seconds} s")

    def until(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        accept: Callable[[Object], Any],
        *,
        seconds: float = 100,
        **query: Any,
    ) -> Object:
        """The first state that is accepted; with an empty name, of any object that the query selects."""
        last: Object = {}
        try:
            for change, item in self.follow(kind, namespace, name, seconds=seconds, **query):
                last = item
                if change != "DELETED" and accept(item):
                    return item
        except AssertionError as error:
            raise AssertionError(f"{error}; last seen: {json.dumps(last.get('status', last))[:2000]}") from None
        raise AssertionError("unreachable: follow ends by failing")

    def until_gone(self, kind: str, namespace: str | None, name: str, *, seconds: float = 100) -> None:
        """Returns when the object that has this name now is gone."""
        path, query = path_of(kind, namespace), {"fieldSelector": f"metadata.name={name}"}
        found = self._must("GET", path, None, **query)
        if not found["items"]:
            return
        events = self.stream(path, seconds=seconds, resourceVersion=found["metadata"]["resourceVersion"], **query)
        assert any(event["type"] == "DELETED" for event in events), f"{kind} {name} is still there after {seconds} s"

    def follow_log(self, namespace: str, pod: str) -> Iterator[str]:
        """Yield the lines of a container's log while they are written, to its end."""
        path = path_of("Pod", namespace, pod, "log")
        response = self._call("GET", path, None, {}, {"follow": True})
        line = b""
        for byte in response.stream(1, decode_content=False):
            line += byte
            if byte == b"\n":
                yield line.decode()
                line = b""
        if line:
            yield line.decode()

    def log(self, namespace: str, pod: str, **query: Any) -> str:
        """A container's log as text."""
        answer = self.ask("GET", path_of("Pod", namespace, pod, "log"), **query)
        assert answer.ok, f"log of {pod}: {answer.code} {answer.message}"
        return answer.body if isinstance(answer.body, str) else json.dumps(answer.body)


def _content_type(method: str) -> str:
    return "application/merge-patch+json" if method == "PATCH" else "application/json"


def _word(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _parsed(data: Any) -> Any:
    text = data.decode(errors="replace") if isinstance(data, bytes) else (data or "")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in (headers or {}).items()}
