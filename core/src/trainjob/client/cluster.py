"""Client for the TrainJobs, pods, events, logs and claims of a cluster.

Objects are plain dicts.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from trainjob.client.backoff import retry
from trainjob.client.connection import Connection
from trainjob.client.diagnostics_cache import DiagnosticsCache
from trainjob.client.http_client import HttpClient
from trainjob.client.informer import SharedInformer
from trainjob.client.installed_trainer import TRAINER_API, InstalledTrainer
from trainjob.client.platform_inspector import PlatformInspector
from trainjob.client.resources import EVENTS, Resource, list_all
from trainjob.client.response_checks import check_deletion
from trainjob.client.runtimes import Runtimes
from trainjob.errors import Conflict, NotFound, PermissionDenied
from trainjob.status.nested_fields import get_str
from trainjob.status.platform_facts import PlatformFacts
from trainjob.status.pods import JOBSET_LABEL
from trainjob.threads import BoundedExecutor

# A label of this project alone: Helm, Argo CD and admission policies also write app.kubernetes.io/managed-by.
OWN_TRAINJOBS = "trainjob.dev/run-key"
_LIVE_LOG_THREADS, _ENDED_LOG_THREADS = 200, 16  # each thread has its own connection
_OUTCOME_THREADS = 32
_MAX_DELETION_AGE = 60.0  # seconds
_TRAINJOBS = Resource(
    "trainjobs",
    TRAINER_API,
    OWN_TRAINJOBS,
    kept_spec_fields=("suspend", "managedBy", "runtimeRef", "trainer.numNodes"),
)
_JOBSETS = Resource("jobsets", "/apis/jobset.x-k8s.io/v1alpha2", "")
_PODS = Resource(
    "pods",
    "/api/v1",
    JOBSET_LABEL,
    kept_spec_fields=("restartPolicy", "volumes", "initContainers", "containers.resources"),
)
_CLAIMS = Resource("persistentvolumeclaims", "/api/v1", "")
# Kubernetes 1.15 and later (apimachinery, meta/v1/types.go).
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_CONFIG_MAPS = Resource("configmaps", "/api/v1", "")
_NAMESPACES = Resource("namespaces", "/api/v1", "", namespaced=False)


def _object_name(obj: Mapping[str, Any]) -> str:
    return get_str(obj, "metadata", "name")


def _trainjob_of(pod: Mapping[str, Any]) -> str:
    return get_str(pod, "metadata", "labels", JOBSET_LABEL)


class Cluster:
    """Client for one cluster, with the permissions of one connection.

    It is safe to use from several threads. Reads, deletes and patches are retried through short outages, and through
    refusals (401, 403) if such requests worked before. Creation is not retried, because
    [trainjob.lifecycle.submit][] has to handle a lost response.

    Attributes:
        namespace: default namespace, for callers that name no namespace.
        server: URL of the API server.
        identity: identity of the cluster, for processes with other connections.
        diagnostics: Warning events and Kueue Workloads, shared by all waiters that diagnose a pending job.
        runtimes: training runtimes of the cluster.
        live_log_executor: threads that follow the logs of running containers.
        ended_log_executor: threads that read the logs of ended containers, which takes a moment.
        outcome_executor: threads that build the outcomes of ended jobs.
    """

    def __init__(self, connection: Connection | None = None, *, retry_seconds: float = 60.0) -> None:
        """Open a connection to a cluster.

        Args:
            connection: how to reach the cluster; None finds it as kubectl does.
            retry_seconds: seconds for which requests are retried while the API server is unavailable, or refuses
                credentials or requests that worked before, and for which a credential plugin is.

        Raises:
            NoClusterConfigured: no usable connection is configured.
            CredentialPluginFailed: the credential plugin of the kubeconfig gives no credentials.
        """
        self._http = HttpClient(connection or Connection(), retry_seconds=retry_seconds)
        self._retry_seconds = retry_seconds
        self._deleted_at: dict[tuple[str, str], float] = {}  # of the TrainJobs that were just deleted
        self._informers: dict[tuple[Resource, str], SharedInformer] = {}
        self._lock = threading.Lock()
        self.namespace, self.server, self.identity = self._http.namespace, self._http.server, self._http.identity
        self._trainer = InstalledTrainer(self._request_with_retries, self.server)
        self.runtimes = Runtimes(self._request_with_retries)
        self.diagnostics = DiagnosticsCache(self._http.request)
        self.live_log_executor = BoundedExecutor("log", _LIVE_LOG_THREADS)
        self.ended_log_executor = BoundedExecutor("ended-log", _ENDED_LOG_THREADS)
        self.outcome_executor = BoundedExecutor("outcome", _OUTCOME_THREADS)

    def get_server_time(self) -> float:
        """Return the current Unix time of the API server.

        It is computed from the header `Date` of the last response. The clocks of machines differ, and times in the
        cluster's objects are those of the server. Without such a response, it is the time of this machine.
        """
        return self._http.get_server_time()

    def expect_acceptance(self) -> None:
        """Count a refusal of the credentials as temporary.

        Call it if another process has used this connection. Otherwise a 401 of the first request is an error at once,
        and a token may be rotated just before it.
        """
        self._http.expect_acceptance()

    # -- TrainJobs ----------------------------------------------------------------------------------------------------

    def trainjob_spec_fields(self, *, fresh: bool = False) -> frozenset[str]:
        """Return the fields of a TrainJob's spec that the installed Trainer has.

        Versions of the Trainer differ in these fields. The fields are read once and cached.

        Args:
            fresh: read the fields again, because the Trainer may have been upgraded.

        Returns:
            The names of the fields; empty if the server does not publish them (its OpenAPI document may be withheld).

        Raises:
            NotFound: Kubeflow Trainer is not installed.
            ClusterError: the request failed.
        """
        return self._trainer.spec_fields(fresh=fresh)

    @property
    def known_spec_fields(self) -> frozenset[str]:
        """The last result of [trainjob_spec_fields][].

        It is empty if that method was never called, or if the server does not publish the fields.
        """
        return self._trainer.cached_fields

    def create_trainjob(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Create a TrainJob, with an error for unknown fields.

        Without strict validation the API server would drop unknown fields silently.

        Raises:
            AdmissionRefused: the API server or a webhook refuses the TrainJob.
            Conflict: a TrainJob of this name exists.
            ClusterError: the request failed for another reason. Without a response, the TrainJob may still exist.
        """
        namespace = job["metadata"]["namespace"]
        return self._http.request(
            "POST",
            _TRAINJOBS.collection_path(namespace),
            doing=f"create trainjobs in namespace {namespace}",
            query={"fieldValidation": "Strict"},
            body=job,
            check=_TRAINJOBS.check,
        )

    def get_trainjob(self, name: str, namespace: str) -> dict[str, Any] | None:
        """Return the TrainJob, or None if it does not exist."""
        return self._get(_TRAINJOBS, name, namespace)

    def find_known_trainjob(self, name: str, namespace: str, uid: str) -> Mapping[str, Any] | None:
        """Return a TrainJob as its shared informer has last reported it, without a request.

        Returns:
            None if no informer knows it. It may have changed since then, so give its resourceVersion with a change.
        """
        return self.trainjob_informer(namespace).find(name, uid)

    def list_trainjobs(self, namespace: str | None, selector: str = OWN_TRAINJOBS) -> list[dict[str, Any]]:
        """Return the TrainJobs that match a label selector.

        Args:
            namespace: namespace to list; None lists all namespaces.
            selector: label selector; the default selects TrainJobs of this project, an empty one selects all TrainJobs.

        Raises:
            NotFound: Kubeflow Trainer is not installed.
            ClusterError: the list request failed.
        """
        try:
            return self.list_objects(_TRAINJOBS, namespace, selector)
        except NotFound as error:  # the kind is missing; the list of a missing namespace would be empty
            raise self._trainer.not_installed_error() from error

    def delete_trainjob(self, name: str, namespace: str, uid: str | None, resource_version: str = "") -> bool:
        """Delete exactly this TrainJob; the cluster deletes its dependents right after it.

        This is background propagation. Foreground propagation fails in two ways. Trainers up to 2.3 ignore the
        deletionTimestamp and create the JobSet again during the deletion, so that the training starts again. Trainer
        2.3 also does not release a TrainJob whose runtime is gone.

        Args:
            name: name of the TrainJob.
            namespace: namespace of the TrainJob.
            uid: uid of the TrainJob. None deletes any TrainJob of this name, for callers that have no response to its
                creation yet.
            resource_version: resourceVersion of the TrainJob, if it must not have changed since it was read.

        Returns:
            False if the TrainJob was already gone, its name belongs to another TrainJob by now, or it has changed.

        Raises:
            ClusterError: the TrainJob could not be deleted.
        """
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        conditions = {"uid": uid, "resourceVersion": resource_version or None}
        if preconditions := {name: value for name, value in conditions.items() if value is not None}:
            options["preconditions"] = preconditions
        deleted = self._delete(_TRAINJOBS, name, namespace, options)
        if deleted:
            now = time.monotonic()
            for old in [each for each, at in list(self._deleted_at.items()) if at < now - _MAX_DELETION_AGE]:
                self._deleted_at.pop(old, None)
            self._deleted_at[name, namespace] = now
        return deleted

    def was_just_deleted(self, name: str, namespace: str, seconds: float) -> bool:
        """Return whether this client has just deleted a TrainJob of this name.

        Args:
            name: name of the TrainJob.
            namespace: namespace of the TrainJob.
            seconds: age of the deletion in seconds, at most 60.
        """
        return time.monotonic() < self._deleted_at.get((name, namespace), -math.inf) + seconds

    def has_dependents(self, name: str, namespace: str) -> bool:
        """Return whether a JobSet or pods of a TrainJob still exist, even without the TrainJob.

        Without the permission to get JobSets the pods alone decide, because JobSets are deleted first.

        Raises:
            ClusterError: a request failed.
        """
        return self.get_jobset(name, namespace) is not None or bool(self.list_pods(name, namespace))

    def get_jobset(self, name: str, namespace: str) -> dict[str, Any] | None:
        """Return the JobSet of a TrainJob of this name.

        Returns:
            The JobSet; None if it does not exist or the permission to get JobSets is missing.

        Raises:
            ClusterError: the request failed for another reason.
        """
        with contextlib.suppress(PermissionDenied):
            return self._get(_JOBSETS, name, namespace)
        return None

    def patch_trainjob(
        self,
        name: str,
        namespace: str,
        uid: str,
        *,
        resource_version: str = "",
        suspend: bool | None = None,
        **metadata_fields: Any,
    ) -> dict[str, Any]:
        """Change exactly this TrainJob and return it.

        Args:
            name: name of the TrainJob.
            namespace: namespace of the TrainJob.
            uid: uid of the TrainJob.
            resource_version: resourceVersion of the TrainJob, if it must not have changed since it was read.
            suspend: True suspends the TrainJob (its pods are deleted, the TrainJob stays), False resumes it, None
                changes neither.
            **metadata_fields: `labels` and `annotations` to add, where a value of None removes the label or annotation.
                `ownerReferences` replaces the whole list, so give `resource_version` with it.

        Returns:
            The TrainJob after the change.

        Raises:
            NotFound: the TrainJob does not exist.
            Conflict: the name belongs to another TrainJob by now, or the TrainJob has changed.
            ClusterError: the TrainJob could not be changed.
        """
        metadata = {
            "uid": uid,
            **({"resourceVersion": resource_version} if resource_version else {}),
            **metadata_fields,
        }
        spec = {} if suspend is None else {"spec": {"suspend": suspend}}
        doing = f"patch trainjob {name} in namespace {namespace}"
        return self._request_with_retries(
            "PATCH",
            _TRAINJOBS.object_path(namespace, name),
            doing=doing,
            body={"metadata": metadata, **spec},
            check=_TRAINJOBS.check,
        )

    # -- objects of a TrainJob ----------------------------------------------------------------------------------------

    def list_pods(self, trainjob: str, namespace: str) -> list[dict[str, Any]]:
        """Return the pods of a TrainJob, including those of its initializers."""
        return self.list_objects(_PODS, namespace, f"{JOBSET_LABEL}={trainjob}")

    def list_all_trainjob_pods(self, namespace: str | None) -> list[dict[str, Any]]:
        """Return the pods of all TrainJobs of a namespace; None means all namespaces."""
        return self.list_objects(_PODS, namespace, JOBSET_LABEL)

    def get_pod(self, name: str, namespace: str) -> dict[str, Any] | None:
        """Return the pod, or None if it does not exist."""
        return self._get(_PODS, name, namespace)

    def find_pod(self, name: str, namespace: str) -> dict[str, Any] | None:
        """Return the pod, or None if it does not exist; needs only the right to list pods."""
        query = {"fieldSelector": f"metadata.name={name}"}
        found = self._list(_PODS.collection_path(namespace), f"list pods in namespace {namespace}", query)
        return found[0] if found else None

    def annotate_pod(self, name: str, namespace: str, uid: str, annotations: Mapping[str, str]) -> None:
        """Add annotations to exactly this pod.

        Raises:
            NotFound: the pod does not exist.
            Conflict: the name belongs to another pod by now.
            ClusterError: the pod could not be changed.
        """
        self._patch(_PODS, name, namespace, uid, {"metadata": {"annotations": dict(annotations)}})

    def list_events(self, namespace: str, field_selector: str) -> list[dict[str, Any]]:
        """Return the core events of a namespace that match a field selector.

        Args:
            namespace: namespace of the events.
            field_selector: field selector, such as `involvedObject.name=tune,type=Warning`.
        """
        doing = f"list events in namespace {namespace}"
        return self._list(EVENTS.collection_path(namespace), doing, {"fieldSelector": field_selector})

    def open_log(
        self,
        pod: str,
        namespace: str,
        container: str,
        *,
        follow: bool = False,
        previous: bool = False,
        since: datetime | None = None,
        tail: int | None = None,
        read_seconds: float | None = 30.0,
    ) -> Any:
        """Open a container's log and return the urllib3 response, which the caller closes.

        Each line starts with its RFC 3339 time.

        Args:
            pod: name of the pod.
            namespace: namespace of the pod.
            container: name of the container.
            follow: keep the stream open while the container runs.
            previous: read the log of the run before the last restart.
            since: time of the first line; the API uses whole seconds only.
            tail: number of last lines to read; None reads all lines.
            read_seconds: longest silence in seconds before the stream counts as broken; None means no limit.

        Raises:
            ClusterError: the log does not exist, or not yet; or the request failed.
        """
        return self._http.open(
            "GET",
            f"{_PODS.object_path(namespace, pod)}/log",
            doing=f"get pods/log of {pod} in namespace {namespace}",
            query={
                "container": container,
                "follow": follow or None,
                "previous": previous or None,
                "sinceTime": since.strftime("%Y-%m-%dT%H:%M:%SZ") if since else None,
                "tailLines": tail,
                "timestamps": True,
            },
            read_seconds=read_seconds,
        )

    # -- claims -------------------------------------------------------------------------------------------------------

    def get_claim(self, name: str, namespace: str) -> dict[str, Any] | None:
        """Return the PersistentVolumeClaim, or None if it does not exist."""
        return self._get(_CLAIMS, name, namespace)

    def create_claim(self, claim: Mapping[str, Any]) -> dict[str, Any]:
        """Create a PersistentVolumeClaim.

        Raises:
            Conflict: a claim of this name exists.
            ClusterError: the request failed for another reason.
        """
        return self._create(self._http.request, _CLAIMS, claim)

    def delete_claim(self, name: str, namespace: str, uid: str) -> bool:
        """Delete exactly this claim.

        Returns:
            False if the claim was already gone, or its name belongs to another claim by now.
        """
        return self._delete(_CLAIMS, name, namespace, {"preconditions": {"uid": uid}})

    # -- ConfigMaps ---------------------------------------------------------------------------------------------------

    def get_config_map(self, name: str, namespace: str) -> dict[str, Any] | None:
        """Return the ConfigMap, or None if it does not exist."""
        return self._get(_CONFIG_MAPS, name, namespace)

    def create_config_map(self, config_map: Mapping[str, Any]) -> dict[str, Any]:
        """Create a ConfigMap; a temporary error is retried, so the first try may have created it.

        Raises:
            Conflict: a ConfigMap of this name exists.
            ClusterError: the request failed for another reason.
        """
        return self._create(self._request_with_retries, _CONFIG_MAPS, config_map)

    def patch_config_map(self, name: str, namespace: str, uid: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a JSON merge patch to exactly this ConfigMap and return it.

        Raises:
            NotFound: the ConfigMap does not exist.
            Conflict: the name belongs to another ConfigMap by now.
            ClusterError: the ConfigMap could not be changed.
        """
        return self._patch(_CONFIG_MAPS, name, namespace, uid, changes)

    def list_config_maps(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Return the metadata of ConfigMaps, without their data.

        Args:
            namespace: the namespace to list.
            selector: label selector.

        Raises:
            ClusterError: the list request failed or was denied.
        """
        request = partial(self._request_with_retries, accept=_METADATA_ONLY)
        doing, path = f"list configmaps in namespace {namespace}", _CONFIG_MAPS.collection_path(namespace)
        return list_all(request, path, doing=doing, query={"labelSelector": selector})

    def delete_config_map(self, name: str, namespace: str, uid: str) -> bool:
        """Delete exactly this ConfigMap.

        Returns:
            False if the ConfigMap was already gone, or its name belongs to another ConfigMap by now.
        """
        return self._delete(_CONFIG_MAPS, name, namespace, {"preconditions": {"uid": uid}})

    # -- any kind -----------------------------------------------------------------------------------------------------

    def list_objects(self, resource: Resource, namespace: str | None, selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of a namespaced kind, as of one moment.

        Args:
            resource: the kind, for example of a custom resource that only the caller knows.
            namespace: the namespace to list; None lists all namespaces.
            selector: label selector; empty selects every object.

        Raises:
            NotFound: the API server does not serve the kind.
            ClusterError: the list request failed.
        """
        where = "all namespaces" if namespace is None else f"namespace {namespace}"
        path = replace(resource, namespaced=namespace is not None).collection_path(namespace or "")
        return self._list(path, f"list {resource.plural} in {where}", {"labelSelector": selector})

    def get_object(self, resource: Resource, name: str, namespace: str) -> dict[str, Any] | None:
        """Return one object of a namespaced kind, or None if it does not exist.

        Args:
            resource: the kind, for example of a custom resource that only the caller knows.
            name: name of the object.
            namespace: namespace of the object.

        Raises:
            PermissionDenied: the permission to get the kind is missing.
            ClusterError: the request failed.
        """
        return self._get(resource, name, namespace)

    def inspect_platform(self, namespace: str, runtime: str) -> PlatformFacts:
        """Return everything that a TrainJob needs from the cluster, as far as it can be read.

        Args:
            namespace: namespace to inspect.
            runtime: ClusterTrainingRuntime for the trial TrainJobs.

        Raises:
            ClusterUnreachable: the API server does not respond.
            Unauthorized: the API server does not accept the credentials.
        """
        inspector = PlatformInspector(self._http.request, self.server, self._trainer, self.runtimes)
        return inspector.inspect(namespace, runtime)

    # -- namespaces ---------------------------------------------------------------------------------------------------

    def list_namespaces(self) -> list[str]:
        """Return the names of all namespaces.

        Raises:
            ClusterError: the request failed, or the permission is missing, as for most users.
        """
        found = list_all(
            self._request_with_retries,
            _NAMESPACES.collection_path(""),
            doing="list namespaces",
            query={},
            check=_NAMESPACES.check,
        )
        return [_object_name(namespace) for namespace in found]

    # -- informers ----------------------------------------------------------------------------------------------------

    def trainjob_informer(self, namespace: str, selector: str = OWN_TRAINJOBS) -> SharedInformer:
        """Return the shared informer of the TrainJobs in a namespace, keyed by name.

        Of a TrainJob's spec, it keeps `suspend`, `managedBy`, `runtimeRef` and `trainer.numNodes`.

        Args:
            namespace: namespace of the TrainJobs.
            selector: label selector. The default selects TrainJobs of this project, and all their waiters share its
                informer; an empty one selects all TrainJobs.
        """
        return self._informer(replace(_TRAINJOBS, selector=selector), namespace, _object_name)

    def pod_informer(self, namespace: str) -> SharedInformer:
        """Return the shared informer of the training pods in a namespace, keyed by TrainJob name."""
        return self._informer(_PODS, namespace, _trainjob_of)

    def labelled_pod_informer(self, namespace: str, selector: str) -> SharedInformer:
        """Return the shared informer of pods that match a label selector, keyed by name."""
        return self._informer(replace(_PODS, selector=selector), namespace, _object_name)

    @property
    def informers(self) -> list[SharedInformer]:
        """All informers of this cluster that were used."""
        with self._lock:
            return list(self._informers.values())

    def _informer(self, resource: Resource, namespace: str, key: Callable[[Mapping[str, Any]], str]) -> SharedInformer:
        with self._lock:
            cache_key = (resource, namespace)
            if cache_key not in self._informers:
                self._informers[cache_key] = SharedInformer(self._http, resource, namespace, key)
            return self._informers[cache_key]

    # -- requests -----------------------------------------------------------------------------------------------------

    def _request_with_retries(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        return retry(lambda: self._http.request(method, path, **arguments), timeout=self._retry_seconds)

    def _create(self, request: Callable[..., dict[str, Any]], resource: Resource, obj: Any) -> dict[str, Any]:
        namespace = obj["metadata"]["namespace"]
        doing = f"create {resource.plural} in namespace {namespace}"
        return request("POST", resource.collection_path(namespace), doing=doing, body=obj, check=resource.check)

    def _get(self, resource: Resource, name: str, namespace: str) -> dict[str, Any] | None:
        doing = f"get {resource.plural} in namespace {namespace}"
        try:
            return self._request_with_retries(
                "GET", resource.object_path(namespace, name), doing=doing, check=resource.check
            )
        except NotFound:
            return None

    def _patch(
        self, resource: Resource, name: str, namespace: str, uid: str, changes: Mapping[str, Any]
    ) -> dict[str, Any]:
        doing = f"patch {resource.plural} in namespace {namespace}"
        body = {**changes, "metadata": {**changes.get("metadata", {}), "uid": uid}}
        path = resource.object_path(namespace, name)
        return self._request_with_retries("PATCH", path, doing=doing, body=body, check=resource.check)

    def _list(self, path: str, doing: str, query: Mapping[str, Any]) -> list[dict[str, Any]]:
        return list_all(self._request_with_retries, path, doing=doing, query=query)

    def _delete(self, resource: Resource, name: str, namespace: str, options: Mapping[str, Any]) -> bool:
        doing = f"delete {resource.plural} in namespace {namespace}"
        try:
            self._request_with_retries(
                "DELETE", resource.object_path(namespace, name), doing=doing, body=options, check=check_deletion
            )
        except (NotFound, Conflict):
            return False
        return True

    def open_connection(self) -> None:
        """Send a small request, so that a connection is open for the next one.

        Raises:
            ClusterError: the request failed; it is not retried.
        """
        self._http.request("GET", "/version", doing="get the API server's version")

    def close(self) -> None:
        """Close all informers and the pooled connections."""
        with self._lock:
            for informer in self._informers.values():
                informer.close()
            self._informers.clear()
        self._http.close()
