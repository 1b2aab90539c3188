"""The unmodified Kubernetes client with short methods.

Every body is a plain dict, and every response has its status code.
"""

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

FINALIZER = "example.org/hold"
"""A finalizer that no controller removes."""

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
    "LimitRange": ("v1", "limitranges"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "Job": ("batch/v1", "jobs"),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", "jobsets"),
    "Deployment": ("apps/v1", "deployments"),
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
    "Topology": ("kueue.x-k8s.io/v1beta2", "topologies"),
    "AdmissionCheck": ("kueue.x-k8s.io/v1beta2", "admissionchecks"),
    "MultiKueueConfig": ("kueue.x-k8s.io/v1beta2", "multikueueconfigs"),
    "MultiKueueCluster": ("kueue.x-k8s.io/v1beta2", "multikueueclusters"),
    "WorkloadPriorityClass": ("kueue.x-k8s.io/v1beta2", "workloadpriorityclasses"),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions"),
    "InferenceService": ("serving.kserve.io/v1beta1", "inferenceservices"),
    "ServingRuntime": ("serving.kserve.io/v1alpha1", "servingruntimes"),
    "ClusterServingRuntime": ("serving.kserve.io/v1alpha1", "clusterservingruntimes"),
    "LLMInferenceService": ("serving.kserve.io/v1alpha1", "llminferenceservices"),
    "LLMInferenceServiceConfig": ("serving.kserve.io/v1alpha1", "llminferenceserviceconfigs"),
}


def path_of(kind: str, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
    """Return the URL path of a kind's collection, of an object or of its subresource.

    Without a namespace the path is cluster-wide.
    """
    version, plural = KINDS[kind]
    parts = ["/api" if version == "v1" else "/apis", version]
    parts += ["namespaces", namespace] if namespace else []
    return "/".join([*parts, plural, *filter(None, (name, subresource))])


@dataclass(frozen=True)
class Response:
    """A response of the API server.

    Attributes:
        code: HTTP status.
        body: the parsed JSON, or the text if it is not JSON.
        headers: the headers, with lower-case names.
    """

    code: int
    body: Any
    headers: Mapping[str, str]

    @property
    def ok(self) -> bool:
        return 200 <= self.code < 300

    @property
    def message(self) -> str:
        """The message of an error response."""
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else str(self.body)

    @property
    def reason(self) -> str:
        """The machine-readable reason of an error response; empty if the API server gives none."""
        return str(self.body.get("reason", "")) if isinstance(self.body, dict) else ""


class Client:
    """A client of one API server with one identity."""

    def __init__(self, api: kubernetes.client.ApiClient) -> None:
        self.api = api

    @classmethod
    def from_kubeconfig(cls, kubeconfig: str) -> Client:
        """Return a client for the current context of a kubeconfig file."""
        return cls(kubernetes.config.new_client_from_config(kubeconfig))

    def with_token(self, token: str) -> Client:
        """Return a client of the same API server with a bearer token.

        An empty token means an anonymous client.
        """
        configuration = kubernetes.client.Configuration()
        configuration.host, configuration.ssl_ca_cert = self.api.configuration.host, self.api.configuration.ssl_ca_cert
        configuration.api_key = {"authorization": f"Bearer {token}"} if token else {}  # also for kubernetes 30 and 35
        return Client(kubernetes.client.ApiClient(configuration))

    def close(self) -> None:
        self.api.close()
        self.api.rest_client.pool_manager.clear()

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = "",
        accept: str = "application/json",
        **query: Any,
    ) -> Response:
        """Send one request and return the response; an error status raises no exception."""
        headers = {"Accept": accept, "Content-Type": content_type or _content_type(method)}
        try:
            response = self._call(method, path, body, headers, query)
        except ApiException as error:
            return Response(error.status, _parse_body(error.body), _lowercase_names(error.headers))
        return Response(response.status, _parse_body(response.data), _lowercase_names(response.getheaders()))

    def send_raw(
        self, method: str, path: str, body: bytes, content_type: str = "application/json", **query: Any
    ) -> Response:
        """Send one request with an unchanged body, and return the response."""
        headers = {"Accept": "application/json", "Content-Type": content_type}
        self.api.update_params_for_auth(headers, [], ["BearerToken"])
        url = f"{self.api.configuration.host}{path}{'?' if query else ''}{urlencode(query)}"
        response = self.api.rest_client.pool_manager.request(method, url, body=body, headers=headers, retries=False)
        return Response(response.status, _parse_body(response.data), _lowercase_names(response.headers))

    def _call(self, method: str, path: str, body: Any, headers: dict[str, str], query: Mapping[str, Any]) -> Any:
        return self.api.call_api(
            path,
            method,
            query_params=[(name, _query_value(value)) for name, value in query.items()],
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _return_http_data_only=True,
            _request_timeout=(10, 120),  # longer than any stream
        )

    # -- requests that must succeed ---------------------------------------------------------------------------------

    def create(self, item: Object, namespace: str | None = None, **query: Any) -> Object:
        """Create an object with strict field validation; an error response fails the test."""
        path = path_of(item["kind"], namespace or item["metadata"].get("namespace"))
        return self._request_ok("POST", path, item, **{"fieldValidation": "Strict", **query})

    def get(self, kind: str, namespace: str | None, name: str) -> Object:
        """Return an object, which must exist."""
        return self._request_ok("GET", path_of(kind, namespace, name))

    def find(self, kind: str, namespace: str | None, name: str) -> Object | None:
        """Return an object, or None if it does not exist."""
        response = self.request("GET", path_of(kind, namespace, name))
        return response.body if response.code != 404 else None

    def list(self, kind: str, namespace: str | None, **query: Any) -> list[Object]:
        """Return all objects that match the query."""
        return list(self._request_ok("GET", path_of(kind, namespace), None, **query)["items"])

    def patch(self, kind: str, namespace: str | None, name: str, change: Object, subresource: str = "") -> Object:
        """Apply a JSON merge patch."""
        return self._request_ok("PATCH", path_of(kind, namespace, name, subresource), change)

    def delete(self, kind: str, namespace: str | None, name: str, **options: Any) -> Object:
        """Delete an object with options such as `propagationPolicy="Foreground"`."""
        return self._request_ok("DELETE", path_of(kind, namespace, name), options or None)

    def add_finalizer(self, kind: str, namespace: str | None, name: str) -> Object:
        """Add a finalizer, as a controller or an unresponsive node does.

        A deleted object stays, with its deletion timestamp, until [remove_finalizers][] is called.
        """
        return self.patch(kind, namespace, name, {"metadata": {"finalizers": [FINALIZER]}})

    def remove_finalizers(self, kind: str, namespace: str | None, name: str) -> Object:
        """Remove all finalizers from an object."""
        return self.patch(kind, namespace, name, {"metadata": {"finalizers": None}})

    def _request_ok(self, method: str, path: str, body: Object | None = None, **query: Any) -> Object:
        response = self.request(method, path, body, **query)
        assert response.ok, f"{method} {path}: {response.code} {response.reason} {response.message}"
        found: Object = response.body
        return found

    # -- watches and logs -------------------------------------------------------------------------------------------

    def watch_events(self, path: str, *, seconds: float = 60, **query: Any) -> Iterator[Object]:
        """Yield the events of a watch until it ends, for at most `seconds`."""
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

    def list_and_watch(
        self, kind: str, namespace: str | None, name: str = "", *, seconds: float = 100, **query: Any
    ) -> Iterator[tuple[str, Object]]:
        """Yield the existing objects as ADDED, then every change; fail after `seconds`."""
        if name:
            query["fieldSelector"] = f"metadata.name={name}"
        path, deadline = path_of(kind, namespace), time.monotonic() + seconds
        found = self._request_ok("GET", path, None, **query)
        yield from (("ADDED", item) for item in found["items"])
        version = found["metadata"]["resourceVersion"]
        while (left := deadline - time.monotonic()) > 0:
            for event in self.watch_events(path, seconds=left, resourceVersion=version, **query):
                assert event["type"] != "ERROR", event["object"]
                version = event["object"]["metadata"]["resourceVersion"]
                yield event["type"], event["object"]
        raise AssertionError(f"{path} {query}: the expected change did not occur within {seconds} s")

    def wait_for(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        condition: Callable[[Object], Any],
        *,
        seconds: float = 100,
        **query: Any,
    ) -> Object:
        """Wait until `condition` is true for an object, and return the object.

        With an empty name, this can be any object that the query selects.
        """
        last: Object = {}
        try:
            for change, item in self.list_and_watch(kind, namespace, name, seconds=seconds, **query):
                last = item
                if change != "DELETED" and condition(item):
                    return item
        except AssertionError as error:
            raise AssertionError(f"{error}; last seen: {json.dumps(last.get('status', last))[:2000]}") from None
        raise AssertionError("unreachable: list_and_watch ends only with an error")

    def wait_until_deleted(self, kind: str, namespace: str | None, name: str, *, seconds: float = 100) -> None:
        """Wait until the object that has this name now is deleted."""
        path, query = path_of(kind, namespace), {"fieldSelector": f"metadata.name={name}"}
        found = self._request_ok("GET", path, None, **query)
        if not found["items"]:
            return
        events = self.watch_events(path, seconds=seconds, resourceVersion=found["metadata"]["resourceVersion"], **query)
        assert any(event["type"] == "DELETED" for event in events), f"{kind} {name} is still there after {seconds} s"

    def follow_log(self, namespace: str, pod: str) -> Iterator[str]:
        """Yield the lines of a container's log as they are written, to its end."""
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
        """Return a container's log as text."""
        response = self.request("GET", path_of("Pod", namespace, pod, "log"), **query)
        assert response.ok, f"log of {pod}: {response.code} {response.message}"
        return response.body if isinstance(response.body, str) else json.dumps(response.body)


def _content_type(method: str) -> str:
    return "application/merge-patch+json" if method == "PATCH" else "application/json"


def _query_value(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _parse_body(data: Any) -> Any:
    text = data.decode(errors="replace") if isinstance(data, bytes) else (data or "")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _lowercase_names(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in (headers or {}).items()}
