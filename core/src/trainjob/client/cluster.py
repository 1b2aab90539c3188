"""What this project asks of a cluster: TrainJobs, their pods, events and logs, and claims. Plain dicts in and out."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from trainjob.client.backoff import persist
from trainjob.client.bounded_executor import BoundedExecutor
from trainjob.client.connection import Connection
from trainjob.client.diagnostics_cache import DiagnosticsCache
from trainjob.client.http_client import HttpClient
from trainjob.client.informer import SharedInformer
from trainjob.client.installed_trainer import TRAINER_API, InstalledTrainer
from trainjob.client.platform import PlatformInspector
from trainjob.client.resources import EVENTS, Resource, everything
from trainjob.client.response_checks import check_deletion
from trainjob.client.runtimes import Runtimes
from trainjob.errors import Conflict, NotFound, PermissionDenied
from trainjob.status.pods import JOBSET_LABEL
from trainjob.status.reading import text

MANAGED = "app.kubernetes.io/managed-by=trainjob"
_LIVE_LOGS, _ENDED_LOGS = 200, 16  # threads; each has a connection of its own, too
_CONCLUSIONS = 32  # threads
_TRAINJOBS = Resource("trainjobs", TRAINER_API, MANAGED)
_JOBSETS = Resource("jobsets", "/apis/jobset.x-k8s.io/v1alpha2", "")
_PODS = Resource("pods", "/api/v1", JOBSET_LABEL, spec_kept=("restartPolicy", "volumes"))
_CLAIMS = Resource("persistentvolumeclaims", "/api/v1", "")
_NAMESPACES = Resource("namespaces", "/api/v1", "", namespaced=False)


def _name(found: Mapping[str, Any]) -> str:
    return text(found, "metadata", "name")


def _trainjob_of(pod: Mapping[str, Any]) -> str:
    return text(pod, "metadata", "labels", JOBSET_LABEL)


class Cluster:
    """One cluster, seen with one connection's rights; safe to use from several threads.

    Reads, deletes and patches are asked again through short outages; creation is not, as a lost answer needs the
    care of [trainjob.lifecycle.submit][].

    Attributes:
        namespace: where to work when a caller names no namespace.
        server: the API server's URL.
        diagnostics: Warning events and Kueue Workloads, shared by all waiters that diagnose a pending job.
        platform: what the cluster has for TrainJobs.
        runtimes: the training runtimes.
        live_logs: the threads that follow logs of running containers.
        ended_logs: those that read logs of ended ones, which takes them a moment.
        conclusions: the threads on which the outcomes of ended jobs are gathered.
    """

    def __init__(self, connection: Connection | None = None, *, patience: float = 60.0) -> None:
        """Open a connection.

        Args:
            connection: how to reach the cluster; None finds it as kubectl would.
            patience: seconds to keep asking while the cluster can't answer.

        Raises:
            NoClusterConfigured: there is nothing to connect with.
        """
        self._http = HttpClient(connection or Connection())
        self._patience = patience
        self._informers: dict[tuple[Resource, str], SharedInformer] = {}
        self._lock = threading.Lock()
        self.namespace, self.server = self._http.namespace, self._http.server
        self._trainer = InstalledTrainer(self._ask, self.server)
        self.runtimes = Runtimes(self._ask)
        self.platform = PlatformInspector(self._http.request, self.server, self._trainer, self.runtimes)
        self.diagnostics = DiagnosticsCache(self._http.request)
        self.live_logs, self.ended_logs = BoundedExecutor("log", _LIVE_LOGS), BoundedExecutor("ended-log", _ENDED_LOGS)
        self.conclusions = BoundedExecutor("conclusion", _CONCLUSIONS)

    # -- TrainJobs ------------------------------------------------------------------------------------------------

    def trainjob_spec_fields(self, *, fresh: bool = False) -> frozenset[str]:
        """The fields that a TrainJob's spec has here, by which Trainers differ; read once and kept.

        Args:
            fresh: read them anew; somebody may have upgraded the Trainer.

        Returns:
            The fields; empty when the server does not tell (its OpenAPI document may be withheld).

        Raises:
            NotFound: Kubeflow Trainer is not installed.
            ClusterError: the cluster can't be asked.
        """
        return self._trainer.spec_fields(fresh=fresh)

    @property
    def known_spec_fields(self) -> frozenset[str]:
        """What [trainjob_spec_fields][] said last; empty when nobody has asked for it, or the server did not tell."""
        return self._trainer.known

    def create_trainjob(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Create a TrainJob; unknown fields are an error, as the API server would drop them silently.

        Raises:
            AdmissionRefused: the API server or a webhook refuses it.
            Conflict: the name exists.
            ClusterError: anything else; the job may exist all the same when there was no answer.
        """
        namespace = job["metadata"]["namespace"]
        return self._http.request(
            "POST",
            _TRAINJOBS.path(namespace),
            doing=f"create trainjobs in namespace {namespace}",
            query={"fieldValidation": "Strict"},
            body=job,
            check=_TRAINJOBS.check,
        )

    def get_trainjob(self, name: str, namespace: str) -> dict[str, Any] | None:
        """The TrainJob, or None when there is none of that name."""
        return self._get(_TRAINJOBS, name, namespace)

    def list_trainjobs(self, namespace: str | None, selector: str = MANAGED) -> list[dict[str, Any]]:
        """The TrainJobs that match a label selector.

        Args:
            namespace: where; None for all namespaces.
            selector: ours by default; empty for everybody's.

        Raises:
            NotFound: Kubeflow Trainer is not installed.
            ClusterError: the cluster can't be asked.
        """
        try:
            return self.list_objects(_TRAINJOBS, namespace, selector)
        except NotFound as error:  # a namespace that does not exist has an empty list
            raise self._trainer.missing() from error

    def delete_trainjob(self, name: str, namespace: str, uid: str | None, version: str = "") -> bool:
        """Delete exactly this TrainJob; what is below it goes right after it (background).

        Not in the foreground: Trainers up to 2.3 look at no deletionTimestamp and make the JobSet anew while it goes,
        so that the training starts again; and 2.3 does not let go of a TrainJob whose runtime is gone.

        Args:
            name: its name.
            namespace: where it is.
            uid: its uid; None, while the answer to its creation is not there yet, means whichever has the name.
            version: its resourceVersion, where it must not have changed since it was read.

        Returns:
            False when it was gone already, its name belongs to another TrainJob by now, or it has changed.

        Raises:
            ClusterError: it could not be deleted.
        """
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        wanted = {"uid": uid, "resourceVersion": version or None}
        if given := {name: value for name, value in wanted.items() if value is not None}:
            options["preconditions"] = given
        return self._delete(_TRAINJOBS, name, namespace, options)

    def has_remains(self, name: str, namespace: str) -> bool:
        """Whether a JobSet or pods of a TrainJob of this name are still there, also when it itself is gone.

        Who may not look at JobSets is told by the pods alone: JobSets go first.

        Raises:
            ClusterError: the cluster can't be asked.
        """
        return self.get_jobset(name, namespace) is not None or bool(self.list_pods(name, namespace))

    def get_jobset(self, name: str, namespace: str) -> dict[str, Any] | None:
        """The JobSet of a TrainJob of this name, or None where there is none, or no right to look.

        Raises:
            ClusterError: the cluster can't be asked.
        """
        with contextlib.suppress(PermissionDenied):
            return self._get(_JOBSETS, name, namespace)
        return None

    def patch_trainjob(
        self, name: str, namespace: str, uid: str, *, version: str = "", suspend: bool | None = None, **marks: Any
    ) -> dict[str, Any]:
        """Change exactly this TrainJob.

        Args:
            name: its name.
            namespace: where it is.
            uid: its uid.
            version: its resourceVersion, where it must not have changed since it was read.
            suspend: suspend it (its pods go, it stays) or let it go on; None leaves that as it is.
            **marks: `labels` and `annotations` to add; those that are None go.

        Returns:
            It, as it is then.

        Raises:
            NotFound: it is gone.
            Conflict: its name belongs to another TrainJob by now, or it has changed.
            ClusterError: it could not be changed.
        """
        metadata = {"uid": uid, **({"resourceVersion": version} if version else {}), **marks}
        spec = {} if suspend is None else {"spec": {"suspend": suspend}}
        doing = f"patch trainjob {name} in namespace {namespace}"
        return self._ask(
            "PATCH",
            _TRAINJOBS.path(namespace, name),
            doing=doing,
            body={"metadata": metadata, **spec},
            check=_TRAINJOBS.check,
        )

    # -- what belongs to them -------------------------------------------------------------------------------------

    def list_pods(self, trainjob: str, namespace: str) -> list[dict[str, Any]]:
        """The pods of a TrainJob, those of its initializers included."""
        return self.list_objects(_PODS, namespace, f"{JOBSET_LABEL}={trainjob}")

    def get_pod(self, name: str, namespace: str) -> dict[str, Any] | None:
        """The pod, or None when there is none of that name."""
        return self._get(_PODS, name, namespace)

    def list_events(self, namespace: str, field_selector: str) -> list[dict[str, Any]]:
        """Core events of a namespace; `field_selector` such as `involvedObject.name=tune,type=Warning`."""
        doing = f"list events in namespace {namespace}"
        return self._all(EVENTS.path(namespace), doing, {"fieldSelector": field_selector})

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
        """A container's log as an open urllib3 response; each line starts with its RFC 3339 time. Close it.

        Args:
            pod: the pod's name.
            namespace: the pod's namespace.
            container: the container's name.
            follow: keep the stream open while the container runs.
            previous: the instance before the last restart.
            since: only lines from this time on; the API knows whole seconds only.
            tail: only the last lines, this many.
            read_seconds: longest silence before the stream counts as broken.

        Raises:
            ClusterError: there is no log, or not yet.
        """
        return self._http.open(
            "GET",
            f"{_PODS.path(namespace, pod)}/log",
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

    # -- claims ---------------------------------------------------------------------------------------------------

    def get_claim(self, name: str, namespace: str) -> dict[str, Any] | None:
        """The PersistentVolumeClaim, or None."""
        return self._get(_CLAIMS, name, namespace)

    def create_claim(self, claim: Mapping[str, Any]) -> dict[str, Any]:
        """Create a PersistentVolumeClaim.

        Raises:
            Conflict: the name exists.
            ClusterError: anything else.
        """
        namespace = claim["metadata"]["namespace"]
        doing = f"create persistentvolumeclaims in namespace {namespace}"
        return self._http.request("POST", _CLAIMS.path(namespace), doing=doing, body=claim, check=_CLAIMS.check)

    def delete_claim(self, name: str, namespace: str, uid: str) -> bool:
        """Delete exactly this claim; False when it was gone already or its name belongs to another by now."""
        return self._delete(_CLAIMS, name, namespace, {"preconditions": {"uid": uid}})

    # -- any kind -------------------------------------------------------------------------------------------------

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
        path = replace(resource, namespaced=namespace is not None).path(namespace or "")
        return self._all(path, f"list {resource.plural} in {where}", {"labelSelector": selector})

    # -- namespaces -----------------------------------------------------------------------------------------------

    def list_namespaces(self) -> list[str]:
        """The names of all namespaces.

        Raises:
            ClusterError: the cluster can't be asked, or does not allow it, as to most people.
        """
        found = everything(self._ask, _NAMESPACES.path(""), doing="list namespaces", query={}, check=_NAMESPACES.check)
        return [_name(one) for one in found]

    # -- watching -------------------------------------------------------------------------------------------------

    def trainjob_informer(self, namespace: str, selector: str = MANAGED) -> SharedInformer:
        """The shared list+watch of a namespace's TrainJobs that match a label selector, keyed by their names.

        Args:
            namespace: where.
            selector: ours by default, which all who wait for what they made share; empty for everybody's.
        """
        return self._informer(replace(_TRAINJOBS, selector=selector), namespace, _name)

    def pod_informer(self, namespace: str) -> SharedInformer:
        """The shared list+watch of training pods in a namespace, keyed by their TrainJobs' names."""
        return self._informer(_PODS, namespace, _trainjob_of)

    def labelled_pod_informer(self, namespace: str, selector: str) -> SharedInformer:
        """The shared list+watch of a namespace's pods that match a label selector, keyed by their names."""
        return self._informer(replace(_PODS, selector=selector), namespace, _name)

    def _informer(self, resource: Resource, namespace: str, key: Callable[[Mapping[str, Any]], str]) -> SharedInformer:
        with self._lock:
            known = (resource, namespace)
            if known not in self._informers:
                self._informers[known] = SharedInformer(self._http, resource, namespace, key)
            return self._informers[known]

    # -- shared by all --------------------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        return persist(lambda: self._http.request(method, path, **arguments), patience=self._patience)

    def _get(self, resource: Resource, name: str, namespace: str) -> dict[str, Any] | None:
        doing = f"get {resource.plural} in namespace {namespace}"
        try:
            return self._ask("GET", resource.path(namespace, name), doing=doing, check=resource.check)
        except NotFound:
            return None

    def _all(self, path: str, doing: str, query: Mapping[str, Any]) -> list[dict[str, Any]]:
        return everything(self._ask, path, doing=doing, query=query)

    def _delete(self, resource: Resource, name: str, namespace: str, options: Mapping[str, Any]) -> bool:
        doing = f"delete {resource.plural} in namespace {namespace}"
        try:
            self._ask("DELETE", resource.path(namespace, name), doing=doing, body=options, check=check_deletion)
        except (NotFound, Conflict):
            return False
        return True

    def touch(self) -> None:
        """Send the least request there is, so that a connection is open for the next one.

        Raises:
            ClusterError: the cluster can't be asked now; it is not tried again.
        """
        self._http.request("GET", "/version", doing="get the API server's version")

    def close(self) -> None:
        """End the watches and close pooled connections."""
        with self._lock:
            for informer in self._informers.values():
                informer.close()
            self._informers.clear()
        self._http.close()
