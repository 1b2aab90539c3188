"""Descriptions of a TrainJob's fields, for `kubectl explain` and the custom resource definition.

Fields of Kubernetes' own types have the descriptions of the package `kubernetes`, which has none for objects.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from trainjob.trainjob_schema import load_trainjob_schema
from trainjob_local.apiserver.kubernetes_types import load_json_fields, load_messages
from trainjob_local.apiserver.type_schemas import describe_fields

__all__ = ["describe_trainjob"]

Json = dict[str, Any]

_JOBSET = "spec.runtimePatches.trainingRuntimeSpec.template"
_JOB = f"{_JOBSET}.spec.replicatedJobs"
_POD = f"{_JOB}.template.spec.template"
_TEXTS = {
    "": "A training on one or more nodes, from a training runtime.",
    "spec": "What to train, and on how many nodes.",
    "spec.runtimeRef": "The training runtime on which the TrainJob is based.",
    "spec.runtimeRef.name": "Name of the runtime.",
    "spec.runtimeRef.apiGroup": "API group of the runtime.",
    "spec.runtimeRef.kind": "Kind of the runtime: ClusterTrainingRuntime or TrainingRuntime.",
    "spec.trainer": "The training: it replaces fields of the runtime's container node.",
    "spec.trainer.image": "Image of the container.",
    "spec.trainer.command": "Command of the container.",
    "spec.trainer.args": "Arguments of the command.",
    "spec.trainer.env": "Variables of the container.",
    "spec.trainer.numNodes": "Number of nodes.",
    "spec.trainer.numProcPerNode": "Number of processes on each node.",
    "spec.trainer.resourcesPerNode": "Resources of the container on each node.",
    "spec.initializer": "Jobs that fetch dataset and model before the training, on runtimes that have them.",
    **{
        f"spec.initializer.{kind}{field}": text
        for kind in ("dataset", "model")
        for field, text in {
            "": f"Source of the {kind}.",
            ".storageUri": f"Address of the {kind}, such as hf://organization/name.",
            ".env": "Variables of the initializer.",
            ".secretRef": "Secret whose keys become variables of the initializer.",
            ".secretRef.name": "Name of the secret.",
        }.items()
    },
    "spec.runtimePatches": "Changes to the runtime; each manager has one entry.",
    "spec.runtimePatches.manager": "Name of who makes the changes, below a domain.",
    "spec.runtimePatches.time": "Time of the last change, which the Trainer sets.",
    "spec.runtimePatches.trainingRuntimeSpec": "The changes.",
    _JOBSET: "Changes to the JobSet.",
    f"{_JOBSET}.metadata": "Labels and annotations of the JobSet.",
    f"{_JOBSET}.spec": "Changes to the spec of the JobSet.",
    _JOB: "Changes to the replicated jobs of the runtime, by name.",
    f"{_JOB}.name": "Name of the replicated job.",
    f"{_JOB}.template": "Changes to the Job.",
    f"{_JOB}.template.metadata": "Labels and annotations of the Job.",
    f"{_JOB}.template.spec": "Changes to the spec of the Job.",
    _POD: "Changes to the pods.",
    f"{_POD}.metadata": "Labels and annotations of the pods.",
    f"{_POD}.spec": "Changes to the spec of the pods.",
    "spec.suspend": "Whether the TrainJob has no pods until it is resumed.",
    "spec.activeDeadlineSeconds": "Seconds after which the TrainJob is ended as failed.",
    "spec.managedBy": "Controller that acts on the TrainJob.",
    "status": "What the Trainer knows about the training.",
    "status.conditions": "Conditions: Suspended, Complete and Failed.",
    "status.jobsStatus": "Counters of the Jobs of each replicated job.",
    "status.trainerStatus": "Progress that the training has reported.",
    "status.trainerStatus.progressPercentage": "Progress in percent.",
    "status.trainerStatus.estimatedRemainingSeconds": "Estimated seconds until the end.",
    "status.trainerStatus.lastUpdatedTime": "Time of the report.",
    "status.trainerStatus.metrics": "Metrics by name.",
}
# Types of Kubernetes below these fields.
_TYPES = {
    f"{_POD}.spec": "api/core/v1.PodSpec",
    **dict.fromkeys(
        ("spec.trainer.env", "spec.initializer.dataset.env", "spec.initializer.model.env"), "api/core/v1.EnvVar"
    ),
    "spec.trainer.resourcesPerNode": "api/core/v1.ResourceRequirements",
}


@functools.cache
def describe_trainjob() -> Json:
    """Return the OpenAPI schema of a TrainJob with descriptions."""
    return _describe(load_trainjob_schema(), "", "")


def _describe(schema: Mapping[str, Any], path: str, kind: str) -> Json:
    """Return a schema with descriptions.

    Args:
        schema: schema of a field.
        path: path of the field, without marks of lists.
        kind: key of its type in the table of Kubernetes' own types; empty for another type.
    """
    kind = _TYPES.get(path, kind)
    described = dict(schema)
    if path in _TEXTS:
        described["description"] = _TEXTS[path]
    if items := schema.get("items"):
        described["items"] = {key: value for key, value in _describe(items, path, kind).items() if key != "description"}
    if properties := schema.get("properties"):
        types, texts = _read_type(kind)
        described["properties"] = {
            name: _describe(inner, f"{path}.{name}".lstrip("."), types.get(name, ""))
            | ({"description": texts[name]} if name in texts else {})
            for name, inner in properties.items()
        }
    return described


def _read_type(kind: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return types of a type's fields or of their elements, and descriptions, by name."""
    if kind not in load_messages():
        return {}, {}
    types = {name: field.type.removeprefix("[]").removeprefix("{}") for name, field in load_json_fields(kind).items()}
    return types, describe_fields(kind.rpartition(".")[2])
