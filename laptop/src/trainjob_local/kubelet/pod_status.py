"""The status of a pod as its kubelet reports it; pure functions over plain dicts.

Source: Kubernetes 1.36 `pkg/kubelet/status/generate.go`, `pkg/kubelet/kubelet_pods.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from trainjob_local.objects import Json, format_timestamp

__all__ = [
    "build_pod_conditions",
    "build_pod_status",
    "has_succeeded",
    "initial_container_status",
    "lost_state",
    "qos_class",
    "terminated_state",
    "waiting_state",
]

_QOS_RESOURCES = ("cpu", "memory")
_LOST = "The container could not be located when the pod was terminated: the node was restarted"


def qos_class(spec: Json) -> str:
    """Return the quality-of-service class of a pod, which matters if its node lacks resources.

    Source: Kubernetes `pkg/apis/core/v1/helper/qos`.
    """
    guaranteed = True
    has_resources = False
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        has_resources = has_resources or any(name in {**limits, **requests} for name in _QOS_RESOURCES)
        guaranteed = guaranteed and all(
            name in limits and requests.get(name) == limits[name] for name in _QOS_RESOURCES
        )
    return "Guaranteed" if guaranteed else "Burstable" if has_resources else "BestEffort"


def waiting_state(reason: str, message: str = "") -> Json:
    """Return the state of a container that does not run yet."""
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def terminated_state(exit_code: int, reason: str, message: str, started: datetime, finished: datetime) -> Json:
    """Return the state of a container that has ended."""
    found: Json = {
        "exitCode": exit_code,
        "reason": reason,
        "startedAt": format_timestamp(started),
        "finishedAt": format_timestamp(finished),
    }
    return {"terminated": {**found, "message": message} if message else found}


def lost_state(state: Mapping[str, Json], now: datetime) -> Json:
    """Return the state of a container that ran when its node went down.

    The exit code is 137, which a kubelet reports for such a container.
    """
    end = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": _LOST, "finishedAt": format_timestamp(now)}
    return {"terminated": {**end, "startedAt": state.get("running", {}).get("startedAt", format_timestamp(now))}}


def initial_container_status(container: Json, state: Json) -> Json:
    """Return the initial status of a container."""
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def has_succeeded(status: Json) -> bool:
    """Return whether a container has ended with exit code 0."""
    found = status["state"].get("terminated")
    return bool(found) and found["exitCode"] == 0


def build_pod_conditions(
    phase: str,
    init: Sequence[Json],
    main: Sequence[Json],
    previous: Sequence[Json],
    now: datetime,
    *,
    volumes_mounted: bool,
) -> list[Json]:
    """Return the conditions of a pod on a node.

    A condition whose status did not change keeps its time. Conditions of other types are retained.

    Args:
        phase: the pod's phase.
        init: the status of each init container.
        main: the status of each other container.
        previous: the current conditions.
        now: the current time.
        volumes_mounted: whether all volumes are mounted.
    """
    done = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")
    initialized = all(has_succeeded(status) for status in init)
    ready = phase == "Running" and all(status["ready"] for status in main)
    wanted = (
        ("PodReadyToStartContainers", volumes_mounted and phase in ("Pending", "Running"), ""),
        ("PodScheduled", True, ""),
        ("Initialized", initialized, "ContainersNotInitialized"),
        ("Ready", ready, done),
        ("ContainersReady", ready, done),
    )
    known = {condition["type"]: condition for condition in previous}
    own = [_condition(kind, holds, reason, known.pop(kind, {}), now) for kind, holds, reason in wanted]
    return [*own, *known.values()]


def _condition(kind: str, holds: bool, reason: str, known: Json, now: datetime) -> Json:
    status = str(holds)
    since = known["lastTransitionTime"] if known.get("status") == status else format_timestamp(now)
    found = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
    return found if holds or not reason else {**found, "reason": reason}


def build_pod_status(
    phase: str, started: datetime, init: Sequence[Json], main: Sequence[Json], conditions: Sequence[Json]
) -> Json:
    """Return the complete status of a pod on a node."""
    found: Json = {
        "phase": phase,
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
        "startTime": format_timestamp(started),
        "conditions": list(conditions),
        "containerStatuses": list(main),
    }
    return {**found, "initContainerStatuses": list(init)} if init else found
