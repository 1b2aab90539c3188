"""The shape of a TrainJob in Trainer 2.3.

Source: Trainer 2.3 `pkg/apis/trainer/v1alpha1/trainjob_types.go` and the CustomResourceDefinition made from it.
"""

from __future__ import annotations

import re

from trainjob_local.apiserver.schema import Field, Rule
from trainjob_local.apiserver.schemas.pod_patch import ENV, POD_SPEC_PATCH, RESOURCES, TEMPLATE_METADATA

__all__ = ["TRAINJOB"]

_MANAGERS = ("trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue")
_NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_URI = "^[A-Za-z][A-Za-z0-9+.-]*://.+$"
_TIME = Field("string", "v1.Time")
_COUNT = Field("integer", "int32", minimum=0)
_ARGUMENTS = Field("array", "[]string", max_items=128, items=Field("string", "string", max_length=1_048_576))


def _name(most: int = 253, *, immutable: bool = False) -> Field:
    return Field("string", "string", min_length=1, max_length=most, immutable=immutable)


def _initializer(go: str) -> Field:
    storage_uri = Field(
        "string",
        "string",
        max_length=2048,
        rules=(
            Rule(
                f"self == '' || self.matches('{_URI}')",
                "storageUri may be empty, or it must be a valid URI (scheme://...)",
                lambda uri: uri == "" or re.match(_URI, uri) is not None,
            ),
        ),
    )
    secret = Field("object", "v1.LocalObjectReference", {"name": Field("string", "string", default="")})
    return Field("object", go, {"storageUri": storage_uri, "env": ENV, "secretRef": secret})


_INITIALIZER = Field(
    "object",
    "v1alpha1.Initializer",
    {"dataset": _initializer("v1alpha1.DatasetInitializer"), "model": _initializer("v1alpha1.ModelInitializer")},
    immutable=True,
)
_TRAINER = Field(
    "object",
    "v1alpha1.Trainer",
    {
        "image": Field("string", "string", max_length=500),
        "command": _ARGUMENTS,
        "args": _ARGUMENTS,
        "env": ENV,
        "numNodes": Field("integer", "int32"),
        "numProcPerNode": Field("integer", "int32"),
        "resourcesPerNode": RESOURCES,
    },
    immutable=True,
)
_RUNTIME_REF = Field(
    "object",
    "v1alpha1.RuntimeRef",
    {
        "name": _name(),
        "apiGroup": Field("string", "string", max_length=253, default="trainer.kubeflow.org"),
        "kind": Field("string", "string", max_length=253, default="ClusterTrainingRuntime"),
    },
    ("name",),
    immutable=True,
)


def _template(go: str, spec: Field) -> Field:
    return Field("object", go, {"metadata": TEMPLATE_METADATA, "spec": spec})


_JOB = _template(
    "v1alpha1.JobTemplatePatch",
    Field(
        "object",
        "v1alpha1.JobSpecPatch",
        {"template": _template("v1alpha1.PodTemplatePatch", POD_SPEC_PATCH)},
    ),
)
_REPLICATED_JOBS = Field(
    "array",
    "[]v1alpha1.ReplicatedJobPatch",
    keys=("name",),
    max_items=100,
    items=Field("object", "v1alpha1.ReplicatedJobPatch", {"name": _name(), "template": _JOB}, ("name",)),
)
_JOBSET = _template(
    "v1alpha1.JobSetTemplatePatch",
    Field("object", "v1alpha1.JobSetSpecPatch", {"replicatedJobs": _REPLICATED_JOBS}),
)
_RUNTIME_PATCHES = Field(
    "array",
    "[]v1alpha1.RuntimePatch",
    keys=("manager",),
    max_items=16,
    items=Field(
        "object",
        "v1alpha1.RuntimePatch",
        {
            "manager": _name(immutable=True),
            "time": _TIME,
            "trainingRuntimeSpec": Field("object", "v1alpha1.TrainingRuntimeSpecPatch", {"template": _JOBSET}),
        },
        ("manager",),
    ),
)
_SPEC = Field(
    "object",
    "v1alpha1.TrainJobSpec",
    {
        "runtimeRef": _RUNTIME_REF,
        "initializer": _INITIALIZER,
        "trainer": _TRAINER,
        "runtimePatches": _RUNTIME_PATCHES,
        "suspend": Field("boolean", "bool", default=False),
        "activeDeadlineSeconds": Field("integer", "int64", minimum=1, immutable=True),
        "managedBy": Field(
            "string",
            "string",
            max_length=253,
            default=_MANAGERS[0],
            immutable=True,
            rules=(
                Rule(
                    f"self in ['{_MANAGERS[0]}', '{_MANAGERS[1]}']",
                    f"ManagedBy must be {_MANAGERS[0]} or {_MANAGERS[1]} if set",
                    lambda manager: manager in _MANAGERS,
                ),
            ),
        ),
    },
    ("runtimeRef",),
)
_CONDITION = Field(
    "object",
    "v1.Condition",
    {
        "type": Field("string", "string", max_length=316),
        "status": Field("string", "v1.ConditionStatus", enum=("True", "False", "Unknown")),
        "reason": _name(1024),
        "message": Field("string", "string", max_length=32768),
        "lastTransitionTime": _TIME,
        "observedGeneration": Field("integer", "int64", minimum=0),
    },
    ("lastTransitionTime", "message", "reason", "status", "type"),
)
_JOB_STATUS = Field(
    "object",
    "v1alpha1.JobStatus",
    {"name": _name(), **dict.fromkeys(("active", "failed", "ready", "succeeded", "suspended"), _COUNT)},
    ("active", "failed", "name", "ready", "succeeded", "suspended"),
)
_STATUS = Field(
    "object",
    "v1alpha1.TrainJobStatus",
    {
        "conditions": Field("array", "[]v1.Condition", keys=("type",), max_items=8, items=_CONDITION),
        "jobsStatus": Field("array", "[]v1alpha1.JobStatus", keys=("name",), max_items=100, items=_JOB_STATUS),
        "trainerStatus": Field(
            "object",
            "v1alpha1.TrainerStatus",
            {
                "estimatedRemainingSeconds": _COUNT,
                "lastUpdatedTime": _TIME,
                "metrics": Field("array", "[]v1alpha1.Metric", max_items=256, items=Field("any")),
                "progressPercentage": _COUNT,
            },
        ),
    },
)
_METADATA_NAMES = (
    "annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName generation "
    "labels "
    "managedFields name namespace ownerReferences resourceVersion selfLink uid"
)

TRAINJOB = Field(
    "object",
    "v1alpha1.TrainJob",
    {
        "apiVersion": Field("string", "string"),
        "kind": Field("string", "string"),
        "metadata": Field("object", "v1.ObjectMeta", {name: Field("any") for name in _METADATA_NAMES.split()}),
        "spec": _SPEC,
        "status": _STATUS,
    },
    rules=(
        Rule(
            f"self.metadata.name.matches('{_NAME}')",
            "metadata.name must match RFC 1035 DNS label format",
            lambda job: re.search(_NAME, job["metadata"].get("name", "")) is not None,
        ),
        Rule(
            "size(self.metadata.name) <= 63",
            "metadata.name must be no more than 63 characters",
            lambda job: len(job["metadata"].get("name", "")) <= 63,
        ),
    ),
    note="TrainJob, trainer.kubeflow.org/v1alpha1, as in Trainer 2.3",
)
"""A whole TrainJob."""
