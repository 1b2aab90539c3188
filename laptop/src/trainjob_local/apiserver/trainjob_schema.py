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
    Rule,
    Schema,
    array_of,
    object_of,
)

__all__ = ["TRAINJOB"]

_MANAGERS = ("trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue")
_NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_URI = "^[A-Za-z][A-Za-z0-9+.-]*://.+$"
_TIME = Schema("string", "date-time")
_COUNT = Schema("integer", "int32", minimum=0)
_ARGUMENTS = array_of(Schema("string", max_length=1_048_576), max_items=128)


def _name_schema(max_length: int = 253, *, immutable: bool = False) -> Schema:
    return Schema("string", min_length=1, max_length=max_length, immutable=immutable)


def _template(spec: Schema) -> Schema:
    metadata = object_of(annotations=LABELS, labels=LABELS, finalizers=STRINGS, name=STRING, namespace=STRING)
    return object_of(metadata=metadata, spec=spec)


_KEY_SELECTOR = object_of("key", key=STRING, name=Schema("string", default=""), optional=BOOLEAN)
_ENV = array_of(
    object_of(
        "name",
        name=STRING,
        value=STRING,
        valueFrom=object_of(
            configMapKeyRef=_KEY_SELECTOR,
            fieldRef=MAP,
            fileKeyRef=MAP,
            resourceFieldRef=MAP,
            secretKeyRef=_KEY_SELECTOR,
        ),
    ),
    keys=("name",),
    max_items=128,
)
_NAMED = Schema("map", required=("name",))
_AMOUNTS = Schema("map", items=QUANTITY)
_STORAGE_URI = Schema(
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
_SOURCE = object_of(storageUri=_STORAGE_URI, env=_ENV, secretRef=object_of(name=Schema("string", default="")))
_INITIALIZER = Schema("object", properties={"dataset": _SOURCE, "model": _SOURCE}, immutable=True)
_TRAINER = Schema(
    "object",
    properties={
        "image": Schema("string", max_length=500),
        "command": _ARGUMENTS,
        "args": _ARGUMENTS,
        "env": _ENV,
        "numNodes": INT32,
        "numProcPerNode": INT32,
        "resourcesPerNode": object_of(limits=_AMOUNTS, requests=_AMOUNTS, claims=array_of(_NAMED, keys=("name",))),
    },
    immutable=True,
)
_RUNTIME_REF = Schema(
    "object",
    properties={
        "name": _name_schema(),
        "apiGroup": Schema("string", max_length=253, default="trainer.kubeflow.org"),
        "kind": Schema("string", max_length=253, default="ClusterTrainingRuntime"),
    },
    required=("name",),
    immutable=True,
)
_CONTAINERS = array_of(
    object_of(
        "name",
        name=_name_schema(),
        env=_ENV,
        volumeMounts=array_of(Schema("map", required=("mountPath", "name")), keys=("name",), max_items=128),
        securityContext=MAP,
    ),
    keys=("name",),
    max_items=64,
    immutable=True,
)
_POD_SPEC = object_of(
    affinity=MAP,
    containers=_CONTAINERS,
    imagePullSecrets=array_of(MAP, keys=("name",), max_items=64, immutable=True),
    initContainers=_CONTAINERS,
    nodeSelector=LABELS,
    schedulingGates=array_of(_NAMED, keys=("name",), max_items=16),
    securityContext=Schema("map", immutable=True),
    serviceAccountName=Schema("string", max_length=253, immutable=True),
    terminationGracePeriodSeconds=Schema("integer", "int64", minimum=0, immutable=True),
    tolerations=array_of(MAP, max_items=128),
    volumes=array_of(MAP, keys=("name",), max_items=128, immutable=True),
)
_JOB = object_of("name", name=_name_schema(), template=_template(object_of(template=_template(_POD_SPEC))))
_JOBSET = _template(object_of(replicatedJobs=array_of(_JOB, keys=("name",), max_items=100)))
_RUNTIME_PATCH = object_of(
    "manager", manager=_name_schema(immutable=True), time=_TIME, trainingRuntimeSpec=object_of(template=_JOBSET)
)
_MANAGED_BY = Schema(
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
_SPEC = object_of(
    "runtimeRef",
    runtimeRef=_RUNTIME_REF,
    initializer=_INITIALIZER,
    trainer=_TRAINER,
    runtimePatches=array_of(_RUNTIME_PATCH, keys=("manager",), max_items=16),
    suspend=Schema("boolean", default=False),
    activeDeadlineSeconds=Schema("integer", "int64", minimum=1, immutable=True),
    managedBy=_MANAGED_BY,
)
_CONDITION = object_of(
    "lastTransitionTime message reason status type",
    type=Schema("string", max_length=316),
    status=Schema("string", enum=("True", "False", "Unknown")),
    reason=_name_schema(1024),
    message=Schema("string", max_length=32768),
    lastTransitionTime=_TIME,
    observedGeneration=Schema("integer", "int64", minimum=0),
)
_COUNTERS = ("active", "failed", "ready", "succeeded", "suspended")
_JOB_STATUS = object_of(
    "active failed name ready succeeded suspended", name=_name_schema(), **dict.fromkeys(_COUNTERS, _COUNT)
)
_STATUS = object_of(
    conditions=array_of(_CONDITION, keys=("type",), max_items=8),
    jobsStatus=array_of(_JOB_STATUS, keys=("name",), max_items=100),
    trainerStatus=object_of(
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

TRAINJOB = Schema(
    "object",
    properties={
        "apiVersion": STRING,
        "kind": STRING,
        "metadata": object_of(**dict.fromkeys(_METADATA_NAMES.split(), Schema("any"))),
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
    description="TrainJob, trainer.kubeflow.org/v1alpha1, as in Trainer 2.3",
)
"""Schema of a whole TrainJob, with metadata and status."""
