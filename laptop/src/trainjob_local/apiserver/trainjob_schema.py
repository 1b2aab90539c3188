"""The schema of a TrainJob in Trainer 2.3.

Limits, defaults, immutability and CEL rules are in no published Python package. The generated models of
`kubeflow-trainer-api` on PyPI have names and types only. This schema does not check affinity, tolerations, volumes
and security contexts in a runtime patch of a pod; real control planes do.

Source: Trainer 2.3 `pkg/apis/trainer/v1alpha1/trainjob_types.go` and the CustomResourceDefinition made from it.
"""

from __future__ import annotations

import re

from trainjob_local.apiserver.schema import (
    BOOLEAN,
    INT32,
    LABELS,
    MAP,
    QUANTITY,
    STRING,
    STRINGS,
    Field,
    Rule,
    array_of,
    record,
)

__all__ = ["TRAINJOB"]

_MANAGERS = ("trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue")
_NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_URI = "^[A-Za-z][A-Za-z0-9+.-]*://.+$"
_TIME = Field("string", "date-time")
_COUNT = Field("integer", "int32", minimum=0)
_ARGUMENTS = array_of(Field("string", max_length=1_048_576), max_items=128)


def _name(most: int = 253, *, immutable: bool = False) -> Field:
    return Field("string", min_length=1, max_length=most, immutable=immutable)


def _template(spec: Field) -> Field:
    metadata = record(annotations=LABELS, labels=LABELS, finalizers=STRINGS, name=STRING, namespace=STRING)
    return record(metadata=metadata, spec=spec)


_KEY_OF = record("key", key=STRING, name=Field("string", default=""), optional=BOOLEAN)
_ENV = array_of(
    record(
        "name",
        name=STRING,
        value=STRING,
        valueFrom=record(
            configMapKeyRef=_KEY_OF, fieldRef=MAP, fileKeyRef=MAP, resourceFieldRef=MAP, secretKeyRef=_KEY_OF
        ),
    ),
    keys=("name",),
    max_items=128,
)
_NAMED = Field("map", required=("name",))
_AMOUNTS = Field("map", items=QUANTITY)
_STORAGE_URI = Field(
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
_SOURCE = record(storageUri=_STORAGE_URI, env=_ENV, secretRef=record(name=Field("string", default="")))
_INITIALIZER = Field("object", properties={"dataset": _SOURCE, "model": _SOURCE}, immutable=True)
_TRAINER = Field(
    "object",
    properties={
        "image": Field("string", max_length=500),
        "command": _ARGUMENTS,
        "args": _ARGUMENTS,
        "env": _ENV,
        "numNodes": INT32,
        "numProcPerNode": INT32,
        "resourcesPerNode": record(limits=_AMOUNTS, requests=_AMOUNTS, claims=array_of(_NAMED, keys=("name",))),
    },
    immutable=True,
)
_RUNTIME_REF = Field(
    "object",
    properties={
        "name": _name(),
        "apiGroup": Field("string", max_length=253, default="trainer.kubeflow.org"),
        "kind": Field("string", max_length=253, default="ClusterTrainingRuntime"),
    },
    required=("name",),
    immutable=True,
)
_CONTAINERS = array_of(
    record(
        "name",
        name=_name(),
        env=_ENV,
        volumeMounts=array_of(Field("map", required=("mountPath", "name")), keys=("name",), max_items=128),
        securityContext=MAP,
    ),
    keys=("name",),
    max_items=64,
    immutable=True,
)
_POD_SPEC = record(
    affinity=MAP,
    containers=_CONTAINERS,
    imagePullSecrets=array_of(MAP, keys=("name",), max_items=64, immutable=True),
    initContainers=_CONTAINERS,
    nodeSelector=LABELS,
    schedulingGates=array_of(_NAMED, keys=("name",), max_items=16),
    securityContext=Field("map", immutable=True),
    serviceAccountName=Field("string", max_length=253, immutable=True),
    terminationGracePeriodSeconds=Field("integer", "int64", minimum=0, immutable=True),
    tolerations=array_of(MAP, max_items=128),
    volumes=array_of(MAP, keys=("name",), max_items=128, immutable=True),
)
_JOB = record("name", name=_name(), template=_template(record(template=_template(_POD_SPEC))))
_JOBSET = _template(record(replicatedJobs=array_of(_JOB, keys=("name",), max_items=100)))
_RUNTIME_PATCH = record(
    "manager", manager=_name(immutable=True), time=_TIME, trainingRuntimeSpec=record(template=_JOBSET)
)
_MANAGED_BY = Field(
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
)
_SPEC = record(
    "runtimeRef",
    runtimeRef=_RUNTIME_REF,
    initializer=_INITIALIZER,
    trainer=_TRAINER,
    runtimePatches=array_of(_RUNTIME_PATCH, keys=("manager",), max_items=16),
    suspend=Field("boolean", default=False),
    activeDeadlineSeconds=Field("integer", "int64", minimum=1, immutable=True),
    managedBy=_MANAGED_BY,
)
_CONDITION = record(
    "lastTransitionTime message reason status type",
    type=Field("string", max_length=316),
    status=Field("string", enum=("True", "False", "Unknown")),
    reason=_name(1024),
    message=Field("string", max_length=32768),
    lastTransitionTime=_TIME,
    observedGeneration=Field("integer", "int64", minimum=0),
)
_COUNTERS = ("active", "failed", "ready", "succeeded", "suspended")
_JOB_STATUS = record("active failed name ready succeeded suspended", name=_name(), **dict.fromkeys(_COUNTERS, _COUNT))
_STATUS = record(
    conditions=array_of(_CONDITION, keys=("type",), max_items=8),
    jobsStatus=array_of(_JOB_STATUS, keys=("name",), max_items=100),
    trainerStatus=record(
        estimatedRemainingSeconds=_COUNT,
        lastUpdatedTime=_TIME,
        metrics=array_of(MAP, max_items=256),
        progressPercentage=_COUNT,
    ),
)
_METADATA_NAMES = (
    "annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName generation "
    "labels managedFields name namespace ownerReferences resourceVersion selfLink uid"
)

TRAINJOB = Field(
    "object",
    properties={
        "apiVersion": STRING,
        "kind": STRING,
        "metadata": record(**dict.fromkeys(_METADATA_NAMES.split(), Field("any"))),
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
"""Schema of a whole TrainJob, with metadata and status."""
