"""Inspection of what a cluster provides for TrainJobs, without changing it.

Objects are created with dryRun only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from trainjob.client.installed_trainer import TRAINER_API, InstalledTrainer
from trainjob.client.resources import Resource, everything
from trainjob.client.runtimes import KINDS, Runtimes
from trainjob.errors import AdmissionRefused, ClusterError, Conflict, NotFound
from trainjob.status.platform import KUEUE, STORAGE, TRAINER, Objects, Platform
from trainjob.status.reading import rows, table, text
from trainjob.status.rights import RIGHTS, Right
from trainjob.status.verdict import QUEUE_LABEL

T = TypeVar("T")

_NAME = "trainjob-check"
# Every Trainer's webhook refuses this on a runtime without initializers. A missing runtime would not do for this test:
# Kueue's webhook refuses it, too, so the refusal would not show that the Trainer's webhook works.
_WRONG = {"initializer": {"dataset": {"storageUri": "hf://trainjob/check"}}}
_NONE: Mapping[str, Any] = {}
_TRAINJOBS = Resource("trainjobs", TRAINER_API, "")
_CLAIMS = Resource("persistentvolumeclaims", "/api/v1", "")
_CLASSES = Resource("storageclasses", f"/apis/{STORAGE}/v1", "", namespaced=False)
# Readable by all authenticated users since Trainer 2.2 (manifests/base/rbac/public_configmap_role_binding.yaml).
_PUBLIC = "/api/v1/namespaces/kubeflow-system/configmaps/kubeflow-trainer-public"


class PlatformInspector:
    """Inspector of everything that a TrainJob needs from a cluster.

    It sends each request once, and does not repeat a request that fails.
    """

    def __init__(
        self, ask: Callable[..., dict[str, Any]], server: str, trainer: InstalledTrainer, runtimes: Runtimes
    ) -> None:
        """Create an inspector; it sends no request yet.

        Args:
            ask: function that sends one request, as [trainjob.client.http_client.HttpClient.request][] does.
            server: URL of the API server.
            trainer: the installed Trainer.
            runtimes: training runtimes of the cluster.
        """
        self._ask, self._server, self._trainer, self._runtimes = ask, server, trainer, runtimes

    def inspect(self, namespace: str, runtime: str) -> Platform:
        """Return everything that this user can learn about a namespace.

        Args:
            namespace: namespace to inspect.
            runtime: ClusterTrainingRuntime for the trial TrainJobs.

        Raises:
            ClusterError: a request without which there is nothing to report failed, such as the one for the server's
                version.
        """
        version = text(self._ask("GET", "/version", doing="get the API server's version"), "gitVersion")
        served = rows(self._ask("GET", "/apis", doing="list the API groups"), "groups")
        groups = {text(one, "name"): text(one, "preferredVersion", "groupVersion") for one in served}
        fields = self._fields() if TRAINER in groups else None
        queues = self._queues(groups[KUEUE], namespace) if KUEUE in groups else ()
        return Platform(
            server=self._server,
            namespace=namespace,
            version=version,
            user=self._user(),
            groups=frozenset(groups),
            denied=_or_error(lambda: self._denied(namespace, groups)),
            queues=queues,
            classes=self._all(_CLASSES, "") if STORAGE in groups else (),
            claims=self._all(_CLAIMS, namespace),
            spec_fields=fields,
            **({} if fields is None else self._about_the_trainer(namespace, runtime, queues)),
        )

    def _about_the_trainer(self, namespace: str, runtime: str, queues: Objects | ClusterError) -> dict[str, Any]:
        first = "" if isinstance(queues, ClusterError) or not queues else text(queues[0], "metadata", "name")
        answer = self._try(namespace, runtime, spec=_WRONG)
        refusal = answer if isinstance(answer, ClusterError) else None
        # After such an error there are no further trials, because each of them may wait 10 s for a webhook.
        hopeless = refusal if refusal and not isinstance(refusal, AdmissionRefused) else None
        return {
            "trainer": self._version(),
            "refusal": refusal,
            "trial": hopeless or self._try(namespace, runtime),
            "queued": self._try(namespace, runtime, labels={QUEUE_LABEL: first}) if first and not hopeless else None,
            "runtimes": {kind: _or_error(partial(self._runtimes.all, kind, namespace)) for kind in KINDS},
            "jobs": self._all(_TRAINJOBS, namespace),
        }

    def _fields(self) -> frozenset[str] | None:
        try:
            return self._trainer.spec_fields(fresh=True)
        except NotFound:
            return None

    def _version(self) -> str:
        """Return the Trainer's version, or an empty string if it can't be read."""
        found = _or_error(lambda: self._ask("GET", _PUBLIC, doing="get the Trainer's version"))
        return "" if isinstance(found, ClusterError) else text(found, "data", "kubeflow_trainer_version")

    def _user(self) -> str:
        """Return the user's name as the API server knows it.

        It is empty if the request fails, as before Kubernetes 1.28.
        """
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        found = _or_error(lambda: self._ask("POST", path, doing="ask who this is", body=body))
        return "" if isinstance(found, ClusterError) else text(found, "status", "userInfo", "username")

    def _denied(self, namespace: str, groups: Mapping[str, str]) -> list[Right]:
        there = [right for right in RIGHTS if not right.group or right.group in groups]
        return [right for right in there if not self._may(right, "" if right.cluster_wide else namespace)]

    def _may(self, right: Right, namespace: str) -> bool:
        plural, _, subresource = right.resource.partition("/")
        about = {"namespace": namespace, "verb": right.verb, "group": right.group, "resource": plural}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**about, "subresource": subresource}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return table(self._ask("POST", path, doing="ask what is allowed", body=body), "status").get("allowed") is True

    def _try(
        self, namespace: str, runtime: str, *, labels: Mapping[str, str] = _NONE, spec: Mapping[str, Any] = _NONE
    ) -> Any:
        """Create a TrainJob with dryRun, and return the TrainJob or the error.

        All webhooks are called. A TrainJob shows that they admit it.
        """
        reference = {"apiGroup": TRAINER, "kind": KINDS[0], "name": runtime}
        job = {
            "apiVersion": TRAINER_API.removeprefix("/apis/"),
            "kind": "TrainJob",
            "metadata": {"name": _NAME, "namespace": namespace, "labels": dict(labels)},
            "spec": {"runtimeRef": reference, **spec},
        }
        path, doing = _TRAINJOBS.path(namespace), f"create trainjobs in namespace {namespace}"
        try:
            return self._ask("POST", path, doing=doing, query={"dryRun": "All"}, body=job)
        except Conflict:  # a TrainJob of this name exists; the webhooks admitted this one
            return job
        except ClusterError as error:
            return error

    def _queues(self, version: str, namespace: str) -> Objects | ClusterError:
        return self._all(Resource("localqueues", f"/apis/{version}", ""), namespace)

    def _all(self, resource: Resource, namespace: str) -> Objects | ClusterError:
        doing = f"list {resource.plural}"
        return _or_error(
            lambda: everything(self._ask, resource.path(namespace), doing=doing, query={}, check=resource.check)
        )


def _or_error(ask: Callable[[], T]) -> T | ClusterError:
    try:
        return ask()
    except ClusterError as error:
        return error
