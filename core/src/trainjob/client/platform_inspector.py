"""Inspection of what a cluster provides for TrainJobs, without changes to the cluster.

Objects are created with `dryRun` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from trainjob.client.installed_trainer import TRAINER_API, InstalledTrainer
from trainjob.client.resources import Resource, list_all
from trainjob.client.runtimes import RUNTIME_KINDS, Runtimes
from trainjob.errors import AdmissionRefused, ClusterError, Conflict, NotFound
from trainjob.status.nested_fields import get_list, get_mapping, get_str
from trainjob.status.permissions import PERMISSIONS, Permission
from trainjob.status.platform_facts import KUEUE, STORAGE, TRAINER, Objects, PlatformFacts
from trainjob.status.verdict import QUEUE_LABEL

T = TypeVar("T")

_NAME = "trainjob-check"
# Every Trainer's webhook refuses this on a runtime without initializers. This trial does not use a missing runtime,
# because Kueue's webhook refuses that, too; the refusal would not show that the Trainer's webhook works.
_INVALID_SPEC = {"initializer": {"dataset": {"storageUri": "hf://trainjob/check"}}}
_EMPTY: Mapping[str, Any] = {}
_TRAINJOBS = Resource("trainjobs", TRAINER_API, "")
_CLAIMS = Resource("persistentvolumeclaims", "/api/v1", "")
_QUOTAS, _LIMITS = Resource("resourcequotas", "/api/v1", ""), Resource("limitranges", "/api/v1", "")
_CLASSES = Resource("storageclasses", f"/apis/{STORAGE}/v1", "", namespaced=False)
# Readable by all authenticated users since Trainer 2.2 (manifests/base/rbac/public_configmap_role_binding.yaml).
_VERSION_PATH = "/api/v1/namespaces/kubeflow-system/configmaps/kubeflow-trainer-public"


class PlatformInspector:
    """Inspector of everything that a TrainJob needs from a cluster.

    It sends each request once, and does not repeat a request that fails.
    """

    def __init__(
        self, request: Callable[..., dict[str, Any]], server: str, trainer: InstalledTrainer, runtimes: Runtimes
    ) -> None:
        """Create an inspector; it sends no request yet.

        Args:
            request: function that sends one request, as [trainjob.client.http_client.HttpClient.request][] does.
            server: URL of the API server.
            trainer: the installed Trainer.
            runtimes: training runtimes of the cluster.
        """
        self._request, self._server, self._trainer, self._runtimes = request, server, trainer, runtimes

    def inspect(self, namespace: str, runtime: str) -> PlatformFacts:
        """Return all facts about a cluster and a namespace that this user may read.

        Args:
            namespace: namespace to inspect.
            runtime: ClusterTrainingRuntime for the trial TrainJobs.

        Raises:
            ClusterError: the server's version or its API groups can't be read. The facts have the errors of all other
                requests.
        """
        version = get_str(self._request("GET", "/version", doing="get the API server's version"), "gitVersion")
        served = get_list(self._request("GET", "/apis", doing="list the API groups"), "groups")
        groups = {get_str(group, "name"): get_str(group, "preferredVersion", "groupVersion") for group in served}
        fields = self._get_spec_fields() if TRAINER in groups else None
        kueue = self._inspect_kueue(groups[KUEUE], namespace) if KUEUE in groups else {}
        return PlatformFacts(
            server=self._server,
            namespace=namespace,
            kubernetes_version=version,
            user=self._get_user_name(),
            api_groups=frozenset(groups),
            denied_permissions=_value_or_error(lambda: self._list_denied(namespace, groups)),
            storage_classes=self._list(_CLASSES, "") if STORAGE in groups else (),
            claims=self._list(_CLAIMS, namespace),
            namespace_object=_value_or_error(lambda: self._get_namespace(namespace)),
            resource_quotas=self._list_if_served(_QUOTAS, namespace),
            limit_ranges=self._list_if_served(_LIMITS, namespace),
            spec_fields=fields,
            **kueue,
            **({} if fields is None else self._inspect_trainer(namespace, runtime, kueue.get("queues", ()))),
        )

    def _inspect_trainer(self, namespace: str, runtime: str, queues: Objects | ClusterError) -> dict[str, Any]:
        first = "" if isinstance(queues, ClusterError) or not queues else get_str(queues[0], "metadata", "name")
        result = self._try_create(namespace, runtime, spec=_INVALID_SPEC)
        refusal = result if isinstance(result, ClusterError) else None
        # After an error other than a refusal there are no further trials: each may wait 10 s for a webhook.
        hopeless = refusal if refusal and not isinstance(refusal, AdmissionRefused) else None
        return {
            "trainer_version": self._get_trainer_version(),
            "invalid_trial_error": refusal,
            "trial_result": hopeless or self._try_create(namespace, runtime),
            "queued_trial_result": self._try_create(namespace, runtime, labels={QUEUE_LABEL: first})
            if first and not hopeless
            else None,
            "runtimes": {
                kind: _value_or_error(partial(self._runtimes.list_all, kind, namespace)) for kind in RUNTIME_KINDS
            },
            "jobs": self._list(_TRAINJOBS, namespace),
        }

    def _get_spec_fields(self) -> frozenset[str] | None:
        try:
            return self._trainer.spec_fields(fresh=True)
        except NotFound:
            return None

    def _get_trainer_version(self) -> str:
        """Return the Trainer's version, or an empty string if it can't be read."""
        found = _value_or_error(lambda: self._request("GET", _VERSION_PATH, doing="get the Trainer's version"))
        return "" if isinstance(found, ClusterError) else get_str(found, "data", "kubeflow_trainer_version")

    def _get_user_name(self) -> str:
        """Return the user's name from a SelfSubjectReview.

        It is empty if the request fails. Before Kubernetes 1.28, the API server does not serve this request.
        """
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        found = _value_or_error(lambda: self._request("POST", path, doing="create a SelfSubjectReview", body=body))
        return "" if isinstance(found, ClusterError) else get_str(found, "status", "userInfo", "username")

    def _list_denied(self, namespace: str, groups: Mapping[str, str]) -> list[Permission]:
        served = [each for each in PERMISSIONS if not each.group or each.group in groups]
        return [each for each in served if not self._is_allowed(each, "" if each.cluster_wide else namespace)]

    def _is_allowed(self, permission: Permission, namespace: str) -> bool:
        plural, _, subresource = permission.resource.partition("/")
        attributes = {"namespace": namespace, "verb": permission.verb, "group": permission.group, "resource": plural}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**attributes, "subresource": subresource}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        review = self._request("POST", path, doing="create a SelfSubjectAccessReview", body=body)
        return get_mapping(review, "status").get("allowed") is True

    def _try_create(
        self, namespace: str, runtime: str, *, labels: Mapping[str, str] = _EMPTY, spec: Mapping[str, Any] = _EMPTY
    ) -> Any:
        """Create a TrainJob with dryRun, and return the TrainJob or the error.

        All webhooks are called. A TrainJob shows that they admit it.
        """
        reference = {"apiGroup": TRAINER, "kind": RUNTIME_KINDS[0], "name": runtime}
        job = {
            "apiVersion": TRAINER_API.removeprefix("/apis/"),
            "kind": "TrainJob",
            "metadata": {"name": _NAME, "namespace": namespace, "labels": dict(labels)},
            "spec": {"runtimeRef": reference, **spec},
        }
        path, doing = _TRAINJOBS.collection_path(namespace), f"create trainjobs in namespace {namespace}"
        try:
            return self._request("POST", path, doing=doing, query={"dryRun": "All"}, body=job)
        except Conflict:  # a TrainJob of this name exists; the webhooks admitted this one
            return job
        except ClusterError as error:
            return error

    def _inspect_kueue(self, version: str, namespace: str) -> dict[str, Any]:
        queues = self._list(Resource("localqueues", f"/apis/{version}", ""), namespace)
        if isinstance(queues, ClusterError) or not queues:
            return {"queues": queues}
        shared = {"cluster_queues": "clusterqueues", "flavors": "resourceflavors", "topologies": "topologies"}
        return {
            "queues": queues,
            **{
                name: self._list(Resource(plural, f"/apis/{version}", "", namespaced=False), "")
                for name, plural in shared.items()
            },
        }

    def _get_namespace(self, namespace: str) -> dict[str, Any]:
        return self._request("GET", f"/api/v1/namespaces/{namespace}", doing=f"get namespace {namespace}")

    def _list_if_served(self, resource: Resource, namespace: str) -> Objects | ClusterError:
        """List objects of a kind that the server may not have, as the laptop cluster."""
        found = self._list(resource, namespace)
        return () if isinstance(found, NotFound) else found

    def _list(self, resource: Resource, namespace: str) -> Objects | ClusterError:
        doing = f"list {resource.plural}"
        return _value_or_error(
            lambda: list_all(
                self._request, resource.collection_path(namespace), doing=doing, query={}, check=resource.check
            )
        )


def _value_or_error(request: Callable[[], T]) -> T | ClusterError:
    try:
        return request()
    except ClusterError as error:
        return error
