"""The status that KServe 0.16 sets, computed from simulated Knative Services and from Deployments.

The functions follow KServe 0.16.0, Knative Serving 0.44 and Kubernetes' Deployment controller. Each names its source.
Paths without a module are of github.com/kserve/kserve. No program of KServe runs, and there are no pods.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

Object = dict[str, Any]
State = tuple[str, str, str]
"""Status, reason and message of a condition."""

TRUE: State = ("True", "", "")
SOURCE_ANNOTATION = "internal.serving.kserve.io/storage-initializer-sourceuri"
"""Annotation of Deployments' pod templates and of Knative's revisions: the URI that their pods load."""
CRASH_MESSAGE = "the model server ended: cannot load the model"
DOWNLOAD_MESSAGE = "the storage initializer ended: cannot download the model"
# pkg/constants/constants.go, ServiceAnnotationDisallowedList: all other annotations of an InferenceService are copied
# into the pod template. A new annotation is therefore a new revision, or a rollout of the Deployment.
_OWN_ANNOTATIONS = (
    "autoscaling.knative.dev/min-scale",
    "autoscaling.knative.dev/max-scale",
    SOURCE_ANNOTATION,
    "kubectl.kubernetes.io/last-applied-configuration",
)
# pkg/controller/v1alpha1/llmisvc/workload_single_node.go, propagateDeploymentMetadata: an LLMInferenceService passes on
# only these annotations.
_LLM_ANNOTATIONS = ("k8s.v1.cni.cncf.io", "kueue.x-k8s.io")


@dataclass(frozen=True)
class Model:
    """A model with its LoRA adapters.

    Attributes:
        uri: where the model is.
        adapters: name and URI of each adapter.
    """

    uri: str
    adapters: tuple[tuple[str, str], ...] = ()

    @property
    def uris(self) -> tuple[str, ...]:
        return (self.uri, *(uri for _, uri in self.adapters))

    @property
    def label(self) -> str:
        """The URI, followed by `+` and the URI of each adapter."""
        return "+".join(self.uris)


class Conditions:
    """Conditions of an object under Knative's rules: knative.dev/pkg, apis/condition_set.go."""

    def __init__(self, status: Object, dependents: Sequence[str]) -> None:
        self._items: list[Object] = status.setdefault("conditions", [])
        self._dependents = tuple(dependents)

    def get(self, kind: str) -> str:
        """Return the status of a condition; empty if it is not set."""
        return next((str(item["status"]) for item in self._items if item["type"] == kind), "")

    def mark(self, kind: str, state: State) -> None:
        """Set a condition, and condition Ready if it depends on this one."""
        self._set(kind, state)
        if state[0] == "True":
            if unhappy := self._find_unhappy():
                self._set("Ready", unhappy)
            elif kind != "Ready":
                self._set("Ready", TRUE)
        elif state[0] == "False":
            if kind in self._dependents:
                self._set("Ready", state)
        elif any(self.get(one) == "False" for one in self._dependents):
            if self.get("Ready") != "False":
                self._set("Ready", ("False", state[1], state[2]))
        elif kind in self._dependents:
            self._set("Ready", state)

    def initialize(self) -> None:
        """Add the condition Ready, and those on which it depends, if they are not set."""
        if not self.get("Ready"):
            self._set("Ready", ("Unknown", "", ""))
        for kind in self._dependents:
            if not self.get(kind):
                self._set(kind, ("True" if self.get("Ready") == "True" else "Unknown", "", ""))

    def _find_unhappy(self) -> State | None:
        items = [item for item in self._items if item["type"] in self._dependents]
        items.sort(key=lambda item: item["lastTransitionTime"], reverse=True)
        for status in ("False", "Unknown"):
            for item in items:
                if item["status"] == status:
                    return status, item.get("reason", ""), item.get("message", "")
        return None if len(items) == len(self._dependents) else ("Unknown", "", "")

    def _set(self, kind: str, state: State) -> None:
        item = {"type": kind, **_without_empty(status=state[0], reason=state[1], message=state[2])}
        if kind != "Ready" and kind not in self._dependents:
            item["severity"] = "Info"
        old = next((one for one in self._items if one["type"] == kind), None)
        if old is not None and {**item, "lastTransitionTime": old["lastTransitionTime"]} == old:
            return
        rest = [one for one in self._items if one["type"] != kind]
        self._items[:] = sorted([*rest, {**item, "lastTransitionTime": _now()}], key=lambda one: str(one["type"]))


Load = Callable[[Model], tuple[str, bool]]
"""Function that returns how a load goes on, and whether its progress deadline has passed.

The first is `waits`, `ready`, `crashes` or `download_crashes`.
"""


@dataclass
class Revision:
    """A Knative Revision.

    Attributes:
        name: its name, such as `tuned-predictor-00001`.
        model: the model that its pods load.
        pods: `none`, `initializing`, `running`, `ready`, `crashed` or `download_crashed`.
        failure: message of its condition Ready if this is False.
    """

    name: str
    model: Model
    pods: str = "none"
    failure: str = ""


@dataclass
class KnativeService:
    """A Knative Service with its Configuration, Route and Revisions.

    The source is pkg/reconciler of knative.dev/serving 0.44. What happens to the condition Ready and to the traffic
    when there is a new revision:

    * While the revision loads, ConfigurationsReady is Unknown, so the Service's Ready is Unknown. The route still sends
      all traffic to the revision that was ready last (pkg/reconciler/service/service.go, configuration.go).
    * If the revision fails, ConfigurationsReady is False with reason RevisionFailed. The traffic does not change.
    * If the revision is ready, latestReadyRevision is its name before the route has moved the traffic; then RoutesReady
      is Unknown with reason TrafficNotMigrated (checkRoutesNotReady).
    * If a newer revision is not ready, an older one that becomes ready gets the traffic
      (findAndSetLatestReadyRevision).
    """

    name: str
    generation: int = 0
    observed: int = 0
    template: str = ""
    created: str = ""
    targets: list[Object] = field(default_factory=list)
    traffic: list[Object] = field(default_factory=list)
    latest_ready: str = ""
    revisions: list[Revision] = field(default_factory=list)

    def step(self, template: str, targets: list[Object], model: Model, load: Load) -> bool:
        """Do the next thing that the controllers of Knative do; return False if there is none."""
        if (template, targets) != (self.template, self.targets):
            self.template, self.targets, self.generation = template, targets, self.generation + 1
            return True
        if self.observed != self.generation:
            self.observed = self.generation
            return True
        if self.created != self.template:
            self.created = self.template
            self.revisions.append(Revision(f"{self.name}-{len(self.revisions) + 1:05}", model))
            self.traffic = self._route()
            return True
        if self._load_next(load):
            return True
        if self.traffic != (route := self._route()):
            self.traffic = route
            return True
        return False

    def _load_next(self, load: Load) -> bool:
        for revision in reversed(self.revisions):
            if revision.name == self.latest_ready:
                return False
            if revision.failure:
                continue
            if revision.pods == "none":
                revision.pods = "initializing"
                return True
            result, expired = load(revision.model)
            if result == "ready":
                revision.pods, self.latest_ready = "ready", revision.name
                return True
            if result == "crashes":
                revision.pods, revision.failure = "crashed", f"Container failed with: {CRASH_MESSAGE}"
                return True
            if result == "download_crashes":
                # Knative sees only the containers, not the init containers: it reports nothing before the progress
                # deadline, so KServe does not reconcile (pkg/reconciler/revision/reconcile_resources.go).
                revision.pods = "download_crashed"
            if expired:
                revision.failure = "Initial scale was never achieved"
                return True
        return False

    @property
    def waiting(self) -> list[Model]:
        """Models of revisions that load."""
        newer = self.revisions[self._index_of(self.latest_ready) + 1 :]
        return [revision.model for revision in newer if revision.pods == "initializing" and not revision.failure]

    def find(self, name: str) -> Revision:
        """Return a revision."""
        return self.revisions[self._index_of(name)]

    def _index_of(self, name: str) -> int:
        return next((index for index, revision in enumerate(self.revisions) if revision.name == name), -1)

    def _route(self) -> list[Object]:
        """Return the targets of the route, with the name of the latest ready revision."""
        if not self.latest_ready:
            return []
        return [{**target, "revisionName": target.get("revisionName", self.latest_ready)} for target in self.targets]

    @property
    def latest_created(self) -> str:
        return self.revisions[-1].name if self.revisions else ""

    @property
    def conditions(self) -> dict[str, State]:
        """ConfigurationsReady, RoutesReady and Ready; none before the first reconciliation."""
        if not self.observed:
            return {}
        found = {"ConfigurationsReady": self._configurations_ready(), "RoutesReady": self._routes_ready()}
        for status in ("False", "Unknown"):
            for state in found.values():
                if state[0] == status:
                    return {**found, "Ready": state}
        return {**found, "Ready": TRUE}

    def _configurations_ready(self) -> State:
        if self.created != self.template or not self.revisions:
            message = "The Configuration is still working to reflect the latest desired specification."
            return "Unknown", "OutOfDate", message
        latest = self.revisions[-1]
        if latest.failure:
            message = f'Revision "{latest.name}" failed with message: {latest.failure}.'
            return "False", "RevisionFailed", message
        return TRUE if latest.name == self.latest_ready else ("Unknown", "", "")

    def _routes_ready(self) -> State:
        if not self.latest_ready:
            failed = bool(self.revisions) and bool(self.revisions[-1].failure)
            if failed:
                message = f'Configuration "{self.name}" does not have any ready Revision.'
                return "False", "RevisionMissing", message
            message = f'Configuration "{self.name}" is waiting for a Revision to become ready.'
            return "Unknown", "RevisionMissing", message
        if self.traffic != self._route():
            return "Unknown", "TrafficNotMigrated", "Traffic is not yet migrated to the latest revision."
        return TRUE


@dataclass
class Rollout:
    """The rollout of a Deployment: k8s.io/kubernetes, pkg/controller/deployment.

    While new pods load, those of the model before serve, because 25 % of one replica is no pod that may be
    unavailable. So Available stays True. Progressing is True with reason ReplicaSetUpdated until all new pods are
    ready (NewReplicaSetAvailable), or False after the progress deadline of 600 s (ProgressDeadlineExceeded).

    Attributes:
        replicas: number of pods.
        generation: metadata.generation of the Deployment.
        template: the pod template, as JSON.
        target: the model of the pod template.
        serving: the model of the pods that are ready; None for none.
    """

    replicas: int = 1
    generation: int = 0
    template: str = ""
    target: Model | None = None
    serving: Model | None = None
    pods: str = "none"
    observed: int = 0
    progressing: State = ("", "", "")
    _ready_template: str = ""

    def step(self, load: Load) -> bool:
        """Do the next thing that the Deployment controller does; return False if there is none."""
        if self.observed != self.generation:
            # getNewReplicaSet updates the conditions before the Deployment controller sets observedGeneration.
            created = self.progressing[1] == "NewReplicaSetCreated"
            if self.pods == "none" and self.template != self._ready_template and not created:
                self.progressing = ("True", "NewReplicaSetCreated", "Created new replica set")
                return True
            self.observed = self.generation
            if self.template != self._ready_template:
                self.progressing = ("True", "ReplicaSetUpdated", "ReplicaSet is progressing.")
                self.pods = "initializing"
            else:
                self.pods = "ready"
                self._complete()
            return True
        if self.template == self._ready_template or self.progressing[0] == "False":
            return False
        assert self.target is not None
        result, expired = load(self.target)
        if result == "ready":
            self.serving, self._ready_template, self.pods = self.target, self.template, "ready"
            self._complete()
            return True
        # Pods restart, but the Deployment's status stays the same. KServe does not watch pods, so it does not reconcile
        # (SetupWithManager of pkg/controller/v1beta1/inferenceservice/controller.go).
        self.pods = {"crashes": "crashed", "download_crashes": "download_crashed"}.get(result, self.pods)
        if expired:
            self.progressing = ("False", "ProgressDeadlineExceeded", "ReplicaSet has timed out progressing.")
        return expired

    def update(self, template: str, target: Model, replicas: int, generation: int) -> None:
        """Store a changed specification."""
        self.template, self.target, self.replicas, self.generation = template, target, replicas, generation
        self.pods = "none"

    def _complete(self) -> None:
        self.progressing = ("True", "NewReplicaSetAvailable", "ReplicaSet has successfully progressed.")

    @property
    def waiting(self) -> list[Model]:
        """Models of pods that load."""
        loads = self.pods == "initializing" and self.progressing[0] == "True"
        return [self.target] if loads and self.target is not None else []

    @property
    def is_complete(self) -> bool:
        return self.progressing[1] == "NewReplicaSetAvailable"

    @property
    def conditions(self) -> dict[str, State]:
        """The conditions Available and Progressing; none before the first reconciliation."""
        if not self.progressing[0]:
            return {}
        if self.serving is None:
            available = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        else:
            available = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        return {"Available": available, "Progressing": self.progressing}

    def to_status(self) -> Object:
        """Return the status of the Deployment."""
        old = self.replicas if self.serving is not None else 0
        new = 0 if self.pods == "none" else (math.ceil(self.replicas / 4) if old else self.replicas)
        if self.is_complete:
            old, new = 0, self.replicas
        ready = self.replicas if self.serving is not None else 0
        conditions = [
            {"type": kind, **_without_empty(status=state[0], reason=state[1], message=state[2])}
            for kind, state in self.conditions.items()
        ]
        return {
            "observedGeneration": self.observed,
            "replicas": old + new,
            "updatedReplicas": new,
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": old + new - ready,
            "conditions": conditions,
        }


# -- InferenceService --------------------------------------------------------------------------------------------------

ISVC_DEPENDENTS = ("PredictorReady", "IngressReady")


def model_of(item: Object, *, adapters: bool = True) -> Model:
    """Return the model of an InferenceService or LLMInferenceService."""
    if item["kind"] == "InferenceService":
        return Model(item["spec"]["predictor"].get("model", {}).get("storageUri", ""))
    model = item["spec"]["model"]
    found = model.get("lora", {}).get("adapters", []) if adapters else []
    return Model(model["uri"], tuple((one["name"], one["uri"]) for one in found))


def deployment_mode(item: Object, default: str) -> str:
    """Return `Knative` or `Standard`: inferenceservice/utils/utils.go, GetDeploymentMode."""
    names = {"Serverless": "Knative", "RawDeployment": "Standard"}
    annotation = item["metadata"].get("annotations", {}).get("serving.kserve.io/deploymentMode", "")
    chosen = names.get(annotation, annotation)
    return str(item.get("status", {}).get("deploymentMode") or (chosen if chosen in names.values() else default))


def predictor_template(item: Object) -> Object:
    """Return the pod template of a predictor: components/predictor.go.

    The canary percentage and the numbers of replicas are not part of it.
    """
    meta, predictor = item["metadata"], item["spec"]["predictor"]
    model = predictor.get("model", {})
    own = {name: value for name, value in meta.get("annotations", {}).items() if name not in _OWN_ANNOTATIONS}
    fields = ("args", "env", "resources", "image")
    container = {
        "name": "kserve-container",
        "image": "kserve/huggingfaceserver:v0.16.0",
        **{name: model[name] for name in fields if name in model},
    }
    labels = {**meta.get("labels", {}), "app": f"isvc.{meta['name']}-predictor", "component": "predictor"}
    labels["serving.kserve.io/inferenceservice"] = meta["name"]
    annotations = {**own, SOURCE_ANNOTATION: model.get("storageUri", "")}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": {"containers": [container]}}


def llm_template(item: Object, model: Model) -> Object:
    """Return the pod template of an LLMInferenceService: llmisvc/workload_single_node.go.

    The storage initializer is that of an `hf://` or `s3://` URI.
    """
    meta = item["metadata"]
    annotations = {
        name: value for name, value in meta.get("annotations", {}).items() if name.startswith(_LLM_ANNOTATIONS)
    }
    labels = {
        "app.kubernetes.io/component": "llminferenceservice-workload",
        "app.kubernetes.io/name": meta["name"],
        "app.kubernetes.io/part-of": "llminferenceservice",
        "kserve.io/component": "workload",
        "llm-d.ai/role": "both",
    }
    arguments = ["--served-model-name", model_name_of(item)]
    if model.adapters:
        arguments += ["--enable-lora", "--lora-modules", *(f"{name}={uri}" for name, uri in model.adapters)]
    main = {"name": "main", "image": "ghcr.io/llm-d/llm-d-dev:v0.2.2", "args": arguments}
    initializer = {
        "name": "storage-initializer",
        "image": "kserve/storage-initializer:v0.16.0",
        "args": [model.uri, "/mnt/models"],
    }
    spec = {"initContainers": [initializer], "containers": [main]}
    return {"metadata": {"labels": labels, **({"annotations": annotations} if annotations else {})}, "spec": spec}


def model_name_of(item: Object) -> str:
    """Return the name under which requests name the model."""
    return str(item["spec"].get("model", {}).get("name") or item["metadata"]["name"])


def traffic_targets(item: Object, tag_url: Callable[[str], str]) -> list[Object]:
    """Return the traffic in the specification of the Knative Service.

    The source is reconcilers/knative/ksvc_reconciler.go, createKnativeService.
    """
    percent = item["spec"]["predictor"].get("canaryTrafficPercent")
    component = item.get("status", {}).get("components", {}).get("predictor", {})
    rolled_out = component.get("latestRolledoutRevision", "")
    latest: Object = {"latestRevision": True, "percent": 100}
    if item["metadata"].get("annotations", {}).get("serving.kserve.io/enable-tag-routing") == "true":
        latest |= {"tag": "latest", "url": tag_url("latest")}
    if percent is None or not rolled_out:
        return [latest]
    targets = [{**latest, "percent": percent}]
    if percent < 100:
        previous = {"latestRevision": False, "percent": 100 - percent, "revisionName": rolled_out}
        targets.append({**previous, "tag": "prev", "url": tag_url("prev")})
    return targets


def serverless_status(item: Object, service: KnativeService, url: str) -> Object:
    """Return the next status of an InferenceService with Knative.

    While a new revision loads, PredictorReady, LatestDeploymentReady and Ready are Unknown, and RoutesReady is True. If
    it fails, the first three are False, and RoutesReady stays True: inference_service_status.go, PropagateStatus and
    PropagateCrossComponentStatus. IngressReady stays True, because the URL of the predictor is known: the ingress
    reconciler marks it again after createIngress has marked it (ingress_reconciler.go, Reconcile).
    """
    status: Object = copy.deepcopy(item.get("status", {}))
    conditions = Conditions(status, ISVC_DEPENDENTS)
    component = status.setdefault("components", {}).setdefault("predictor", {})
    states = service.conditions
    if states:  # before, the Knative Service has an empty status
        _propagate_revisions(component, service)
        if states["Ready"][0] == "True":
            component["url"], component["address"] = url, {"url": url}
        component["traffic"] = service.traffic
        conditions.mark("PredictorReady", states["Ready"])
        conditions.mark("PredictorRouteReady", states["RoutesReady"])
        conditions.mark("PredictorConfigurationReady", states["ConfigurationsReady"])
        # The generation of the Knative Service, not that of the InferenceService (PropagateStatus).
        status["observedGeneration"] = service.observed
    latest = service.latest_created
    pods = [service.find(latest).pods] if latest else []
    failed = any(state[0] == "False" for state in states.values())
    up_to_date = component.get("latestCreatedRevision") == component.get("latestReadyRevision")
    _propagate_model_status(status, pods, conditions.get("Ready") == "True" and up_to_date, failed)
    _mark_once(conditions, "Stopped")
    for kind, part in (
        ("RoutesReady", "PredictorRouteReady"),
        ("LatestDeploymentReady", "PredictorConfigurationReady"),
    ):
        found = conditions.get(part) or "Unknown"
        conditions.mark(kind, TRUE if found == "True" else (found, f"{part} not ready", ""))
    if conditions.get("PredictorReady") != "True":
        found = "Unknown" if conditions.get("PredictorReady") != "False" else "False"
        if not component.get("url"):
            conditions.mark("IngressReady", (found, "Predictor ingress not created", ""))
    if component.get("url"):
        status["url"], status["address"] = url, {"url": url}
        conditions.mark("IngressReady", TRUE)
    return _with_runtime(item, status, "Knative")


def _propagate_revisions(component: Object, service: KnativeService) -> None:
    """Set the names of the revisions: inference_service_status.go, PropagateStatus."""
    _set_or_omit(component, "latestCreatedRevision", service.latest_created)
    total: dict[str, int] = {}
    for target in service.traffic:
        total[target["revisionName"]] = total.get(target["revisionName"], 0) + target["percent"]
    for target in service.traffic:
        if target["revisionName"] != service.latest_ready or not target["latestRevision"]:
            continue
        if component.get("latestRolledoutRevision") != service.latest_ready:
            if target["percent"] == 100:
                _set_or_omit(component, "previousRolledoutRevision", component.get("latestRolledoutRevision", ""))
                component["latestRolledoutRevision"] = service.latest_ready
        elif service.latest_ready == service.latest_created and target["percent"] < 100:
            # The latest revision had 100 % before, and now its canary percentage is lower: this is a rollback.
            previous = component.get("previousRolledoutRevision", "")
            if total[target["revisionName"]] == 100 and previous:
                component["latestRolledoutRevision"] = previous
    _set_or_omit(component, "latestReadyRevision", service.latest_ready)


def raw_status(item: Object, rollout: Rollout, url: str) -> Object:
    """Return the next status of an InferenceService with a Deployment.

    There are no revisions in it. While new pods load, PredictorReady is Unknown with reason ReplicaSetUpdated. Then no
    ingress is created, so IngressReady and Ready are False: inference_service_status.go, PropagateRawStatus, and
    kube_ingress_reconciler.go, createRawIngress. The old model serves. Until the Deployment controller has seen a
    change of the Deployment, all conditions are those of the old model: Ready is True, and the model is UpToDate.
    """
    status: Object = copy.deepcopy(item.get("status", {}))
    conditions = Conditions(status, ISVC_DEPENDENTS)
    component = status.setdefault("components", {}).setdefault("predictor", {})
    available = rollout.conditions.get("Available", ("", "", ""))
    progressing = rollout.conditions.get("Progressing", ("", "", ""))
    ready: State = available if available[0] == "True" else ("False", "", "")
    if progressing[0] == "False":
        ready = progressing
    elif progressing[0] == "True":
        complete = progressing[1] == "NewReplicaSetAvailable"
        ready = ("True" if complete else "Unknown", progressing[1], progressing[2])
    if available[0] == "False":
        ready = available
    if ready[0] == "True":
        component["url"], ready = url, TRUE  # MarkTrue has no reason
    conditions.mark("PredictorReady", ready)
    # The generation of the Deployment, not that of the InferenceService (PropagateRawStatus).
    status["observedGeneration"] = rollout.observed
    old = ["ready"] if rollout.serving is not None and not rollout.is_complete else []
    pods = [*([rollout.pods] if rollout.pods != "none" else []), *old]  # the newest first, as ListPodsByLabel sorts
    _propagate_model_status(status, pods, conditions.get("Ready") == "True", failed=False)
    _mark_once(conditions, "Stopped")
    if conditions.get("PredictorReady") == "True":
        status["url"], status["address"] = url, {"url": url}
        conditions.mark("IngressReady", TRUE)
    else:
        conditions.mark("IngressReady", ("False", "Predictor ingress not created", ""))
    return _with_runtime(item, status, "Standard")


def _propagate_model_status(status: Object, pods: Sequence[str], loaded: bool, failed: bool) -> None:
    """Set modelStatus: inference_service_status.go, PropagateModelStatus.

    A failure stays in lastFailureInfo after a later model has been loaded.
    """
    found = status.setdefault("modelStatus", {"transitionStatus": "InProgress"})
    found["copies"] = {"failedCopies": 0, "totalCopies": sum(one == "ready" for one in pods)}
    states = found.setdefault("states", {"activeModelState": "", "targetModelState": ""})
    if not pods or pods[0] == "none":
        target = "FailedToLoad" if failed else "Pending"
    elif pods[0] == "initializing" and not failed:
        target = "Loading"
    elif pods[0] == "download_crashed":
        target = "FailedToLoad"
    elif loaded:
        target = "Loaded"
    else:
        target = "FailedToLoad" if pods[0] == "crashed" or failed else "Pending"
    if target == "FailedToLoad" and pods and pods[0].endswith("crashed"):
        message = CRASH_MESSAGE if pods[0] == "crashed" else DOWNLOAD_MESSAGE
        found["lastFailureInfo"] = {"reason": "ModelLoadFailed", "message": message, "exitCode": 1}
    states["targetModelState"] = target
    if target == "Loaded":
        states["activeModelState"] = "Loaded"
    transitions = {"Loaded": "UpToDate", "FailedToLoad": "BlockedByFailedLoad"}
    found["transitionStatus"] = transitions.get(target, "InProgress")


def _with_runtime(item: Object, status: Object, mode: str) -> Object:
    runtime = item["spec"]["predictor"].get("model", {}).get("runtime", "kserve-huggingfaceserver")
    return {**status, "deploymentMode": mode, "clusterServingRuntimeName": runtime}


# -- LLMInferenceService -----------------------------------------------------------------------------------------------


def llm_status(item: Object, rollout: Rollout, url: str) -> Object:
    """Return the next status of an LLMInferenceService.

    Ready depends on the condition Available of the Deployment `NAME-kserve` alone: llmisvc/workload_single_node.go,
    propagateDeploymentStatus. So Ready stays True, with the new observedGeneration, while the old model serves, and
    also if the new one never becomes ready. No field of the status names the model that serves.
    """
    status: Object = copy.deepcopy(item.get("status", {}))
    conditions = Conditions(status, ("WorkloadsReady", "RouterReady"))
    conditions.initialize()
    if status.get("observedGeneration") != item["metadata"]["generation"]:
        # PreProcessReconcile of knative.dev/pkg; overwritten below, before the status is written.
        conditions.mark("Ready", ("Unknown", "NewObservedGenFailure", "unsuccessfully observed a new generation"))
    conditions.mark("PresetsCombined", TRUE)
    available = rollout.conditions.get("Available", ("False", "Progressing", ""))
    conditions.mark("MainWorkloadReady", TRUE if available[0] == "True" else available)
    conditions.mark("WorkloadsReady", TRUE if available[0] == "True" else available)
    if item["spec"].get("router", {}).get("route") is not None:  # without a route, there is no URL
        status["url"], status["addresses"] = url, [{"url": url}]
    for kind in ("InferencePoolReady", "HTTPRoutesReady", "RouterReady"):
        conditions.mark(kind, TRUE)
    status["observedGeneration"] = item["metadata"]["generation"]
    return status


def template_text(template: Object) -> str:
    """Return a pod template as text that can be compared."""
    return json.dumps(template, sort_keys=True)


def _mark_once(conditions: Conditions, kind: str) -> None:
    if not conditions.get(kind):
        conditions.mark(kind, ("False", "", ""))


def _set_or_omit(found: Object, name: str, value: str) -> None:
    if value:
        found[name] = value
    else:
        found.pop(name, None)


def _without_empty(**fields: str) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
