"""The webhooks of Trainer for training runtimes.

They require that the replicated job of each known step has one replica and a container with the required name.
Source: Trainer 2.3 `pkg/webhooks/{trainingruntime,clustertrainingruntime}_webhook.go`,
`manifests/base/webhook/patch_validating.yaml`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from trainjob_local.apiserver import Operation, Reader, Registry, Stage, StatusError
from trainjob_local.controllers.composition import ANCESTOR_LABEL, containers_of
from trainjob_local.objects import Json

__all__ = ["register_webhooks", "runtime_problems"]

_CONTAINERS = {
    "trainer": "node",
    "dataset-initializer": "dataset-initializer",
    "model-initializer": "model-initializer",
}
_UNSUPPORTED = {"mpi": "MPI", "flux": "Flux"}
_VALIDATION_DISABLED = ("trainer.kubeflow.org/webhook-validation", "disabled")
_GO_ORDER = ("name", "image", "command", "args", "ports", "envFrom", "env", "resources", "volumeMounts")


def register_webhooks(registry: Registry) -> None:
    """Register the webhooks for training runtimes with a registry."""

    def validate_namespaced(operation: Operation, new: Json, _old: Json | None, _reader: Reader) -> Json:
        if operation is not Operation.DELETE:
            _check_policy("trainingruntime", new)
        if operation is Operation.CREATE:
            _check_runtime("trainingruntime", new)
        return new

    def validate_clusterwide(operation: Operation, new: Json, _old: Json | None, _reader: Reader) -> Json:
        if operation is not Operation.DELETE:
            _check_policy("clustertrainingruntime", new)
            _check_runtime("clustertrainingruntime", new)
        return new

    registry.add_admission("trainingruntimes", validate_namespaced, stage=Stage.VALIDATING)
    registry.add_admission("clustertrainingruntimes", validate_clusterwide, stage=Stage.VALIDATING)


def runtime_problems(runtime: Json) -> Iterator[str]:
    """Yield the error messages of the webhook for a runtime."""
    jobs = ((runtime["spec"].get("template") or {}).get("spec") or {}).get("replicatedJobs") or []
    for index, job in enumerate(jobs):
        template = job.get("template") or {}
        step = ((template.get("metadata") or {}).get("labels") or {}).get(ANCESTOR_LABEL)
        if step not in _CONTAINERS:
            continue
        field = f"spec.template.spec.replicatedJobs[{index}]"
        if job.get("replicas", 1) != 1:
            yield f"{field}.replicas: Invalid value: {job['replicas']}: always must be 1"
        containers = containers_of(job)
        if _CONTAINERS[step] not in [one["name"] for one in containers]:
            text = json.dumps([_in_go_order(one) for one in containers], separators=(",", ":"), ensure_ascii=False)
            where = f"{field}.template.spec.template.spec.containers: Invalid value: {text}"
            yield f"{where}: must contain the required container for the ancestor: {step}"


def _check_runtime(webhook: str, runtime: Json) -> None:
    label, value = _VALIDATION_DISABLED
    if (runtime["metadata"].get("labels") or {}).get(label) == value:
        return
    problems = list(runtime_problems(runtime))
    if problems:
        raise _denied(webhook, problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")


def _check_policy(webhook: str, runtime: Json) -> None:
    """Refuse a runtime whose policy the controllers ignore: its TrainJobs would run wrongly.

    The real webhook accepts it.
    """
    policies = (runtime.get("spec") or {}).get("mlPolicy") or {}
    for policy, noun in _UNSUPPORTED.items():
        if policy in policies:
            text = f"spec.mlPolicy.{policy}: Forbidden: the laptop cluster runs no {noun}: use a real cluster"
            raise _denied(webhook, text)


def _denied(webhook: str, text: str) -> StatusError:
    name = f"validator.{webhook}.trainer.kubeflow.org"
    return StatusError(403, "Forbidden", f'admission webhook "{name}" denied the request: {text}')


def _in_go_order(container: Json) -> Json:
    """Return a container with its keys in the order of Go's struct fields."""
    known = {"resources": {}, **container}
    return {key: known[key] for key in (*(key for key in _GO_ORDER if key in known), *known)}
