"""What this project asks of a cluster: TrainJobs, their pods, events and logs, and claims. Plain dicts in and out."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from trainjob.cluster.backoff import persist
from trainjob.cluster.connection import Connection
from trainjob.cluster.installed import TRAINER_API, InstalledTrainer
from trainjob.cluster.requests import Door
from trainjob.cluster.watch import Feed, Resource, list_pages
from trainjob.errors import Conflict, NotFound, PermissionDenied
from trainjob.status.pods import JOBSET_LABEL

MANAGED = "app.kubernetes.io/managed-by=trainjob"
_TRAINJOBS = Resource("trainjobs", TRAINER_API, MANAGED)
_JOBSETS = Resource("jobsets", "/apis/jobset.x-k8s.io/v1alpha2", "")
_PODS = Resource("pods", "/api/v1", JOBSET_LABEL)


def _name(found: Mapping[str, Any]) -> str:
    return str(found["metadata"]["name"])


def _trainjob_of(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["labels"][JOBSET_LABEL])


class Cluster:
    """One cluster, seen with one connection's rights; safe to use from several threads.

    Reads, deletes and patches are asked again through short outages; creation is not, as a lost answer needs the
    care of [trainjob.run.submit][].

    Attributes:
        namespace: where to work when a caller names no namespace.
        server: the API server's URL.
    """

    def __init__(self, connection: Connection | None = None, *, patience: float = 60.0) -> None:
        """Open a connection.

        Args:
            connection: how to reach the cluster; None finds it as kubectl would.
            patience: seconds to keep asking while the cluster can't answer.

        Raises:
            NoClusterConfigured: there is nothing to connect with.
        """
        self._door = Door(connection or Connection())
        self._patience = patience
        self._feeds: dict[tuple[str, str], Feed] = {}
        self._lock = threading.Lock()
        self.namespace, self.server = self._door.namespace, self._door.server
        self._trainer = InstalledTrainer(self._ask, self.server)

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

    def create_trainjob(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Create a TrainJob; unknown fields are an error, as the API server would drop them silently.

        Raises:
            AdmissionRefused: the API server or a webhook refuses it.
            Conflict: the name exists.
            ClusterError: anything else; the job may exist all the same when there was no answer.
        """
        namespace = job["metadata"]["namespace"]
        return self._door.ask(
            "POST",
            _TRAINJOBS.path(namespace),
            doing=f"create trainjobs in namespace {namespace}",
            query={"fieldValidation": "Strict"},
            body=job,
        )

    def get_trainjob(self, name: str, namespace: str) -> dict[str, Any] | None:
        """The TrainJob, or None when there is none of that name."""
        return self._get(_TRAINJOBS, name, namespace)

    def list_trainjobs(self, namespace: str, selector: str = MANAGED) -> list[dict[str, Any]]:
        """The TrainJobs that match a label selector.

        Raises:
            NotFound: Kubeflow Trainer is not installed.
            ClusterError: the cluster can't be asked.
        """
        try:
            return self._list(_TRAINJOBS, namespace, selector)
        except NotFound as error:  # a namespace that does not exist has an empty list
            raise self._trainer.missing() from error

    def delete_trainjob(self, name: str, namespace: str, uid: str) -> bool:
        """Delete exactly this TrainJob; what is below it goes right after it (background).

        Not in the foreground: Trainers up to 2.3 look at no deletionTimestamp and make the JobSet anew while it goes,
        so that the training starts again; and 2.3 does not let go of a TrainJob whose runtime is gone.

        Returns:
            False when it was gone already, or its name belongs to another TrainJob by now.

        Raises:
            ClusterError: it could not be deleted.
        """
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        return self._delete(_TRAINJOBS, name, namespace, options)

    def has_remains(self, name: str, namespace: str) -> bool:
        """Whether a JobSet or pods of a TrainJob of this name are still there, also when it itself is gone.

        Who may not look at JobSets is told by the pods alone: JobSets go first.

        Raises:
            ClusterError: the cluster can't be asked.
        """
        with contextlib.suppress(PermissionDenied):
            if self._get(_JOBSETS, name, namespace) is not None:
                return True
        return bool(self.list_pods(name, namespace))

    def suspend_trainjob(self, name: str, namespace: str, *, suspend: bool = True) -> None:
        """Suspend (its pods go, the job stays) or resume a TrainJob."""
        self._ask(
            "PATCH",
            _TRAINJOBS.path(namespace, name),
            doing=f"patch trainjob {name} in namespace {namespace}",
            body={"spec": {"suspend": suspend}},
        )

    # -- what belongs to them -------------------------------------------------------------------------------------

    def list_pods(self, trainjob: str, namespace: str) -> list[dict[str, Any]]:
        """The pods of a TrainJob, those of its initializers included."""
        return self._list(_PODS, namespace, f"{JOBSET_LABEL}={trainjob}")

    def get_pod(self, name: str, namespace: str) -> dict[str, Any] | None:
        """The pod, or None when there is none of that name."""
        return self._get(_PODS, name, namespace)

    def list_events(self, namespace: str, field_selector: str) -> list[dict[str, Any]]:
        """Core events of a namespace; `field_selector` such as `involvedObject.name=tune,type=Warning`."""
        path, doing = f"/api/v1/namespaces/{namespace}/events", f"list events in namespace {namespace}"
        return list_pages(self._ask, path, doing=doing, query={"fieldSelector": field_selector})[0]

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
        return self._door.open(
            "GET",
            f"/api/v1/namespaces/{namespace}/pods/{pod}/log",
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
        return self._door.ask("POST", _CLAIMS.path(namespace), doing=doing, body=claim)

    def delete_claim(self, name: str, namespace: str, uid: str) -> bool:
        """Delete exactly this claim; False when it was gone already or its name belongs to another by now."""
        return self._delete(_CLAIMS, name, namespace, {"preconditions": {"uid": uid}})

    # -- watching -------------------------------------------------------------------------------------------------

    def trainjob_feed(self, namespace: str) -> Feed:
        """The shared list+watch of our TrainJobs in a namespace, keyed by their names."""
        return self._feed(_TRAINJOBS, namespace, _name)

    def pod_feed(self, namespace: str) -> Feed:
        """The shared list+watch of training pods in a namespace, keyed by their TrainJobs' names."""
        return self._feed(_PODS, namespace, _trainjob_of)

    def _feed(self, resource: Resource, namespace: str, key: Callable[[Mapping[str, Any]], str]) -> Feed:
        with self._lock:
            known = (resource.plural, namespace)
            if known not in self._feeds:
                self._feeds[known] = Feed(self._door, resource, namespace, key)
            return self._feeds[known]

    # -- shared by all --------------------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        return persist(lambda: self._door.ask(method, path, **arguments), patience=self._patience)

    def _get(self, resource: Resource, name: str, namespace: str) -> dict[str, Any] | None:
        doing = f"get {resource.plural} in namespace {namespace}"
        try:
            return self._ask("GET", resource.path(namespace, name), doing=doing)
        except NotFound:
            return None

    def _list(self, resource: Resource, namespace: str, selector: str) -> list[dict[str, Any]]:
        doing = f"list {resource.plural} in namespace {namespace}"
        path, query = resource.path(namespace), {"labelSelector": selector}
        return list_pages(self._ask, path, doing=doing, query=query)[0]

    def _delete(self, resource: Resource, name: str, namespace: str, options: Mapping[str, Any]) -> bool:
        doing = f"delete {resource.plural} in namespace {namespace}"
        try:
            self._ask("DELETE", resource.path(namespace, name), doing=doing, body=options)
        except (NotFound, Conflict):
            return False
        return True

    def close(self) -> None:
        """End the watches and close pooled connections."""
        with self._lock:
            for feed in self._feeds.values():
                feed.close()
            self._feeds.clear()
        self._door.close()


_CLAIMS = Resource("persistentvolumeclaims", "/api/v1", "")


def connect(connection: Connection | None = None) -> Cluster:
    """Open a cluster of one's own; see [Cluster][]."""
    return Cluster(connection)


def shared_cluster(connection: Connection | None = None) -> Cluster:
    """The process's one [Cluster][] for a connection, so that all who wait share its watches.

    A forked child gets its own, as threads and sockets do not survive a fork.
    """
    return _shared(connection or Connection(), os.getpid())


@functools.lru_cache(maxsize=64)
def _shared(connection: Connection, _process: int) -> Cluster:
    return Cluster(connection)
