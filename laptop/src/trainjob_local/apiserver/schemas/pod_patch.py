"""What a TrainJob may say about pods: env variables, and the part of a pod's spec that runtimePatches may change.

Source: Trainer 2.3 `pkg/apis/trainer/v1alpha1/trainjob_types.go` (PodSpecPatch, ContainerPatch) and k8s.io/api 0.36
`core/v1/types.go`.
"""

from __future__ import annotations

from trainjob_local.apiserver.schema import Field
from trainjob_local.apiserver.schemas.placement import AFFINITY, CONTAINER_SECURITY, POD_SECURITY, TOLERATIONS
from trainjob_local.apiserver.schemas.shapes import BOOLEAN, QUANTITY, STRING, STRINGS, TEXTS, array_of, record, text
from trainjob_local.apiserver.schemas.volumes import FIELD_REF, MOUNTS, RESOURCE_FIELD_REF, VOLUMES

__all__ = ["ENV", "POD_SPEC_PATCH", "RESOURCES", "TEMPLATE_METADATA"]

_NAME = text("")
ENV = array_of(
    record(
        "v1.EnvVar",
        "name",
        name=STRING,
        value=STRING,
        valueFrom=record(
            "v1.EnvVarSource",
            configMapKeyRef=record("v1.ConfigMapKeySelector", "key", key=STRING, name=_NAME, optional=BOOLEAN),
            fieldRef=FIELD_REF,
            fileKeyRef=record(
                "v1.FileKeySelector",
                "key path volumeName",
                key=STRING,
                optional=Field("boolean", "bool", default=False),
                path=STRING,
                volumeName=STRING,
            ),
            resourceFieldRef=RESOURCE_FIELD_REF,
            secretKeyRef=record("v1.SecretKeySelector", "key", key=STRING, name=_NAME, optional=BOOLEAN),
        ),
    ),
    keys=("name",),
    max_items=128,
)
"""A container's environment."""

_AMOUNTS = Field("map", "v1.ResourceList", items=QUANTITY)
RESOURCES = record(
    "v1.ResourceRequirements",
    limits=_AMOUNTS,
    requests=_AMOUNTS,
    claims=array_of(record("v1.ResourceClaim", "name", name=STRING, request=STRING), keys=("name",)),
)
"""A container's resources."""

TEMPLATE_METADATA = record(
    "v1.ObjectMeta", annotations=STRINGS, labels=STRINGS, finalizers=TEXTS, name=STRING, namespace=STRING
)
"""Metadata of a template."""

_CONTAINERS = array_of(
    record(
        "v1alpha1.ContainerPatch",
        "name",
        name=text(min_length=1, max_length=253),
        env=ENV,
        volumeMounts=MOUNTS,
        securityContext=CONTAINER_SECURITY,
    ),
    keys=("name",),
    max_items=64,
    immutable=True,
)
POD_SPEC_PATCH = record(
    "v1alpha1.PodSpecPatch",
    affinity=AFFINITY,
    containers=_CONTAINERS,
    imagePullSecrets=array_of(
        record("v1.LocalObjectReference", name=_NAME), keys=("name",), max_items=64, immutable=True
    ),
    initContainers=_CONTAINERS,
    nodeSelector=STRINGS,
    schedulingGates=array_of(record("v1.PodSchedulingGate", "name", name=STRING), keys=("name",), max_items=16),
    securityContext=Field("object", "v1.PodSecurityContext", POD_SECURITY.properties, immutable=True),
    serviceAccountName=text(max_length=253, immutable=True),
    terminationGracePeriodSeconds=Field("integer", "int64", minimum=0, immutable=True),
    tolerations=TOLERATIONS,
    volumes=VOLUMES,
)
"""The part of a pod's spec that a runtimePatch may set."""
