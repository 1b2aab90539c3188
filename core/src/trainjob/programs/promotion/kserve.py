"""Services of KServe: which model they serve, and whether the new one is ready.

The condition `Ready` alone does not show it. It belongs to the pods that serve now, so it stays true while a Deployment
with the new model starts, and its `observedGeneration` counts another object's generations. A change is therefore
recognized by a mark that was read before: the name of the newest revision with Knative, and the Deployment's template
of pods without it.

Source: KServe 0.16, pkg/apis/serving/v1beta1/inference_service_status.go (`PropagateStatus`, `PropagateRawStatus`,
`PropagateModelStatus`) and pkg/controller/v1alpha1/llmisvc/workload_single_node.go (`propagateDeploymentStatus`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from trainjob.errors import PromotionError
from trainjob.programs.promotion.cluster_api import ChangedMeanwhile, ClusterApi
from trainjob.programs.promotion.record import Served

__all__ = ["InferenceService", "KServeService", "LLMInferenceService", "RolloutFailed"]

Json = dict[str, Any]
_DEPLOYMENTS = ("/apis/apps/v1", "deployments")
_WITHOUT_KNATIVE = ("RawDeployment", "Standard")
_MODE_ANNOTATION = "serving.kserve.io/deploymentMode"
_FAILED = ("BlockedByFailedLoad", "InvalidSpec")
_WATCH_SECONDS = 10  # then both objects are read again, because only one is watched


class RolloutFailed(Exception):
    """Error for a model that the service cannot serve; the text is the service's reason."""


class KServeService:
    """Base class of the two kinds of services.

    Args:
        api: client of the cluster.
        name: name of the service.
    """

    kind: str
    group: str
    plural: str
    deployment_suffix: str
    smoke_path: str
    """Path of a request that a service answers if it has loaded its model; `{name}` is the service's."""

    def __init__(self, api: ClusterApi, name: str) -> None:
        self._api, self.name = api, name
        self._watched: tuple[str, str, Json] | None = None

    def exists(self) -> bool:
        """Return whether there is such a service."""
        return self._api.get(self.group, self.plural, self.name) is not None

    def read(self) -> Served:
        """Return the model that the service's spec names.

        Raises:
            PromotionError: the service does not exist, names no model, or cannot be read.
        """
        return self._read_spec(self._get())

    def read_marks(self) -> dict[str, str]:
        """Return the states by which the next change of the model is recognized."""
        found, deployment = self._get(), self._get_deployment()
        return {
            "revision": _get_predictor(found).get("latestCreatedRevision", ""),
            "template": _hash_template(deployment),
        }

    def check(self, wanted: Served) -> None:
        """Refuse a request that the service cannot fulfil.

        Raises:
            PromotionError: the service does not exist, or has no canary.
        """
        found = self._get()
        self._read_spec(found)
        if wanted.percent is not None and not _uses_knative(found):
            reason = f"{self} has no Knative, so KServe ignores a canary percentage"
            raise PromotionError(reason, hint="omit canary_percent")

    def apply(self, wanted: Served, check: Callable[[], None]) -> None:
        """Make the spec name a model; a spec that names it stays unchanged.

        Args:
            wanted: the model.
            check: function that is called between reading and writing; an error of it prevents the change.

        Raises:
            ChangedMeanwhile: `check` raises it.
            PromotionError: the API server refuses the request or does not answer.
        """
        while True:
            found = self._get()
            check()
            if self._read_spec(found) == wanted:
                return
            with contextlib.suppress(ChangedMeanwhile):  # also by KServe's controller, which writes the status
                self._api.merge(self.group, self.plural, found, {"spec": self._to_spec(found, wanted)})
                return

    def describe_wait(self, wanted: Served, marks: Mapping[str, str]) -> str:
        """Return what the service still waits for; empty if it serves a model.

        Args:
            wanted: the model.
            marks: states before the change; empty if the spec did not have to change.

        Raises:
            RolloutFailed: the service reports that it cannot serve the model.
            PromotionError: the service cannot be read.
        """
        found = self._get()
        if self._read_spec(found) != wanted:
            raise RolloutFailed("somebody else has changed the service's model")
        self._watched = (self.group, self.plural, found)
        if _uses_knative(found):
            return _describe_revision(found, wanted, marks.get("revision", ""))
        deployment = self._get_deployment()
        if waited := _describe_deployment(deployment, marks.get("template", "")):
            self._watched = (*_DEPLOYMENTS, deployment) if deployment else self._watched
            # Its failures may be those of old pods, so they are shown, and only the time limit decides.
            return f"{waited} ({failure})" if (failure := _get_failure(found)) else waited
        return _describe_condition(found)

    def wait_for_change(self) -> None:
        """Wait until what `describe_wait` has read changes, or for some seconds."""
        if self._watched:
            self._api.wait_for_change(*self._watched, _WATCH_SECONDS)

    @property
    def url(self) -> str:
        """URL of the new revision if Knative has one for it, and the service's else.

        Raises:
            PromotionError: the service has no URL.
        """
        status = self._get().get("status") or {}
        tagged = [
            each.get("url")
            for each in _get_predictor({"status": status}).get("traffic") or ()
            if each.get("tag") == "latest"
        ]
        for url in (*tagged, (status.get("address") or {}).get("url"), status.get("url")):
            if url:
                return str(url).rstrip("/")
        raise PromotionError(f"{self} has no URL in its status", hint="look at its conditions with kubectl describe")

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    def _get(self) -> Json:
        found = self._api.get(self.group, self.plural, self.name)
        if found is None:
            hint = (
                f"create it with its first model in the namespace {self._api.namespace}; a promotion replaces the model"
            )
            raise PromotionError(f"there is no {self}", hint=hint)
        return found

    def _get_deployment(self) -> Json | None:
        return self._api.get(*_DEPLOYMENTS, self.name + self.deployment_suffix)

    def _read_spec(self, found: Json) -> Served:
        raise NotImplementedError

    def _to_spec(self, found: Json, wanted: Served) -> Json:
        raise NotImplementedError


class InferenceService(KServeService):
    """An `InferenceService` whose predictor has one model with a `storageUri`."""

    kind, group, plural = "InferenceService", "/apis/serving.kserve.io/v1beta1", "inferenceservices"
    deployment_suffix = "-predictor"
    smoke_path = "/v1/models/{name}"

    def _read_spec(self, found: Json) -> Served:
        predictor = found["spec"].get("predictor") or {}
        uri = (predictor.get("model") or {}).get("storageUri")
        if not uri:
            reason = f"{self} has no spec.predictor.model.storageUri, which a promotion replaces"
            raise PromotionError(reason, hint="describe its model there, instead of a storage key or an older form")
        return Served(uri, predictor.get("canaryTrafficPercent"))

    def _to_spec(self, found: Json, wanted: Served) -> Json:  # noqa: ARG002
        return {"predictor": {"model": {"storageUri": wanted.model}, "canaryTrafficPercent": wanted.percent}}


class LLMInferenceService(KServeService):
    """An `LLMInferenceService`, and its model or one of its LoRA adapters.

    Args:
        api: client of the cluster.
        name: name of the service.
        adapter: name of the adapter; empty for the model itself.
    """

    kind, group, plural = "LLMInferenceService", "/apis/serving.kserve.io/v1alpha1", "llminferenceservices"
    deployment_suffix = "-kserve"
    smoke_path = "/v1/models"

    def __init__(self, api: ClusterApi, name: str, adapter: str = "") -> None:
        super().__init__(api, name)
        self._adapter = adapter

    def _read_spec(self, found: Json) -> Served:
        if not self._adapter:
            return Served(str(found["spec"]["model"]["uri"]))
        uris = [each["uri"] for each in _list_adapters(found) if each.get("name") == self._adapter]
        return Served(str(uris[0]) if uris else "")

    def _to_spec(self, found: Json, wanted: Served) -> Json:
        if not self._adapter:
            return {"model": {"uri": wanted.model}}
        rows = _list_adapters(found)
        kept = [row if row.get("name") != self._adapter else {**row, "uri": wanted.model} for row in rows]
        if not any(row.get("name") == self._adapter for row in rows):
            kept.append({"name": self._adapter, "uri": wanted.model})
        return {"model": {"lora": {"adapters": [row for row in kept if row["uri"]]}}}


def _list_adapters(found: Json) -> list[Json]:
    return (found["spec"]["model"].get("lora") or {}).get("adapters") or []


def _uses_knative(found: Json) -> bool:
    annotations = found["metadata"].get("annotations") or {}
    mode = (found.get("status") or {}).get("deploymentMode") or annotations.get(_MODE_ANNOTATION, "")
    return bool(_get_predictor(found).get("latestCreatedRevision")) and mode not in _WITHOUT_KNATIVE


def _get_predictor(found: Json) -> Json:
    predictor: Json = ((found.get("status") or {}).get("components") or {}).get("predictor") or {}
    return predictor


def _hash_template(deployment: Json | None) -> str:
    if deployment is None:
        return ""
    return hashlib.sha256(json.dumps(deployment["spec"]["template"], sort_keys=True).encode()).hexdigest()[:16]


def _describe_revision(found: Json, wanted: Served, mark: str) -> str:
    predictor = _get_predictor(found)
    created = predictor.get("latestCreatedRevision")
    if mark and created == mark:
        return "a new revision"
    if failure := _get_failure(found):
        raise RolloutFailed(failure)
    if predictor.get("latestReadyRevision") != created:
        return f"the revision {created} to become ready"
    share = sum(each.get("percent") or 0 for each in predictor.get("traffic") or () if each["revisionName"] == created)
    if share != (100 if wanted.percent is None else wanted.percent):
        return f"the requests for the revision {created}"
    return _describe_condition(found)


def _describe_deployment(deployment: Json | None, mark: str) -> str:
    """Return what a Deployment still waits for.

    Source: `kubectl rollout status` (Kubernetes 1.36, staging/src/k8s.io/kubectl/pkg/polymorphichelpers).
    """
    if deployment is None:
        return "its Deployment"
    status, wanted = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
    if mark and _hash_template(deployment) == mark:
        return "new pods in its Deployment"
    if status.get("observedGeneration", 0) < deployment["metadata"]["generation"]:
        return "its Deployment to change"
    for condition in status.get("conditions") or ():
        if condition["type"] == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded":
            raise RolloutFailed(condition.get("message") or "its Deployment makes no progress")
    counts = [status.get(name, 0) for name in ("updatedReplicas", "replicas", "availableReplicas")]
    return "" if counts == [wanted] * 3 else f"its pods: {counts[2]} of {wanted} are available, {counts[0]} are new"


def _describe_condition(found: Json) -> str:
    for condition in (found.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Ready":
            if condition["status"] == "True":
                return ""
            return f"Ready: {condition.get('reason') or ''} {condition.get('message') or ''}".strip()
    return "its condition Ready"


def _get_failure(found: Json) -> str:
    model = (found.get("status") or {}).get("modelStatus") or {}
    if model.get("transitionStatus") not in _FAILED:
        return ""
    failure = model.get("lastFailureInfo") or {}
    return (
        ": ".join(text for text in (failure.get("reason"), failure.get("message")) if text) or model["transitionStatus"]
    )
