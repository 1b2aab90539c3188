"""What a TrainJob may say about pods: env variables, and the part of a pod's spec that runtimePatches may change.

Source: Trainer 2.3 `pkg/apis/trainer/v1alpha1/trainjob_types.go` (PodSpecPatch, ContainerPatch) and k8s.io/api 0.36
`core/v1/types.go`. Below the fields whose names are listed here anything is kept.
"""

from __future__ import annotations

from trainjob.local.apiserver.schema import Field

__all__ = ["ENV", "POD_SPEC_PATCH", "RESOURCES", "TEMPLATE_METADATA"]

STRING = Field("string", "string")
BOOLEAN = Field("boolean", "bool")
STRINGS = Field("map", "map[string]string", items=STRING)
ANY = Field("any")


def _names(go: str, names: str, *, required: tuple[str, ...] = ()) -> Field:
    """Describes an object by the names of its fields; what is in them is kept."""
    return Field("object", go, dict.fromkeys(names.split(), ANY), required)


def _text(least: int, most: int) -> Field:
    return Field("string", "string", min_length=least, max_length=most)


def _selector(names: str, required: tuple[str, ...]) -> Field:
    return _names("", names, required=required)


_VALUE_FROM = Field(
    "object",
    "v1.EnvVarSource",
    {
        "configMapKeyRef": _selector("key name optional", ("key",)),
        "fieldRef": _selector("apiVersion fieldPath", ("fieldPath",)),
        "fileKeyRef": _selector("key optional path volumeName", ("key", "path", "volumeName")),
        "resourceFieldRef": _selector("containerName divisor resource", ("resource",)),
        "secretKeyRef": _selector("key name optional", ("key",)),
    },
)
ENV = Field(
    "array",
    "[]v1.EnvVar",
    keys=("name",),
    max_items=128,
    items=Field("object", "v1.EnvVar", {"name": STRING, "value": STRING, "valueFrom": _VALUE_FROM}, ("name",)),
)
"""A container's environment."""

_AMOUNTS = Field("map", "v1.ResourceList", items=Field("quantity"))
RESOURCES = Field(
    "object",
    "v1.ResourceRequirements",
    {
        "limits": _AMOUNTS,
        "requests": _AMOUNTS,
        "claims": Field(
            "array",
            "[]v1.ResourceClaim",
            keys=("name",),
            items=_names("v1.ResourceClaim", "name request", required=("name",)),
        ),
    },
)
"""A container's resources."""

TEMPLATE_METADATA = Field(
    "object",
    "v1.ObjectMeta",
    {
        "annotations": STRINGS,
        "labels": STRINGS,
        "finalizers": Field("array", "[]string", items=STRING),
        "name": STRING,
        "namespace": STRING,
    },
)
"""Metadata of a template."""

_MOUNTS = Field(
    "array",
    "[]v1.VolumeMount",
    keys=("name",),
    max_items=128,
    items=_names(
        "v1.VolumeMount",
        "mountPath mountPropagation name readOnly recursiveReadOnly subPath subPathExpr",
        required=("mountPath", "name"),
    ),
)
_CONTAINER_SECURITY = _names(
    "v1.SecurityContext",
    "allowPrivilegeEscalation appArmorProfile capabilities privileged procMount readOnlyRootFilesystem runAsGroup "
    "runAsNonRoot "
    "runAsUser seLinuxOptions seccompProfile windowsOptions",
)
_CONTAINERS = Field(
    "array",
    "[]v1alpha1.ContainerPatch",
    keys=("name",),
    max_items=64,
    immutable=True,
    items=Field(
        "object",
        "v1alpha1.ContainerPatch",
        {"name": _text(1, 253), "env": ENV, "volumeMounts": _MOUNTS, "securityContext": _CONTAINER_SECURITY},
        ("name",),
    ),
)
_VOLUME_NAMES = (
    "name awsElasticBlockStore azureDisk azureFile cephfs cinder configMap csi downwardAPI emptyDir ephemeral fc "
    "flexVolume "
    "flocker gcePersistentDisk gitRepo glusterfs hostPath image iscsi nfs persistentVolumeClaim photonPersistentDisk "
    "portworxVolume projected quobyte rbd scaleIO secret storageos vsphereVolume"
)
_POD_SECURITY = _names(
    "v1.PodSecurityContext",
    "appArmorProfile fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot runAsUser seLinuxChangePolicy seLinuxOptions "
    "seccompProfile supplementalGroups supplementalGroupsPolicy sysctls windowsOptions",
)
_INT64 = Field("integer", "int64")
_VOLUMES = Field(
    "array",
    "[]v1.Volume",
    keys=("name",),
    max_items=128,
    immutable=True,
    items=Field(
        "object",
        "v1.Volume",
        {
            **_names("", _VOLUME_NAMES).properties,
            "name": STRING,
            "persistentVolumeClaim": Field(
                "object",
                "v1.PersistentVolumeClaimVolumeSource",
                {"claimName": STRING, "readOnly": BOOLEAN},
                ("claimName",),
            ),
            "emptyDir": _names("v1.EmptyDirVolumeSource", "medium sizeLimit"),
            "hostPath": _names("v1.HostPathVolumeSource", "path type", required=("path",)),
            "nfs": _names("v1.NFSVolumeSource", "path readOnly server", required=("path", "server")),
            "secret": _names("v1.SecretVolumeSource", "defaultMode items optional secretName"),
            "configMap": _names("v1.ConfigMapVolumeSource", "defaultMode items name optional"),
        },
        ("name",),
    ),
)
_TOLERATIONS = Field(
    "array",
    "[]v1.Toleration",
    max_items=128,
    items=Field(
        "object",
        "v1.Toleration",
        {"effect": STRING, "key": STRING, "operator": STRING, "tolerationSeconds": _INT64, "value": STRING},
    ),
)
POD_SPEC_PATCH = Field(
    "object",
    "v1alpha1.PodSpecPatch",
    {
        "affinity": _names("v1.Affinity", "nodeAffinity podAffinity podAntiAffinity"),
        "containers": _CONTAINERS,
        "imagePullSecrets": Field(
            "array",
            "[]v1.LocalObjectReference",
            keys=("name",),
            max_items=64,
            immutable=True,
            items=Field("object", "v1.LocalObjectReference", {"name": Field("string", "string", default="")}),
        ),
        "initContainers": _CONTAINERS,
        "nodeSelector": STRINGS,
        "schedulingGates": Field(
            "array",
            "[]v1.PodSchedulingGate",
            keys=("name",),
            max_items=16,
            items=Field("object", "v1.PodSchedulingGate", {"name": STRING}, ("name",)),
        ),
        "securityContext": Field("object", "v1.PodSecurityContext", _POD_SECURITY.properties, immutable=True),
        "serviceAccountName": Field("string", "string", max_length=253, immutable=True),
        "terminationGracePeriodSeconds": Field("integer", "int64", minimum=0, immutable=True),
        "tolerations": _TOLERATIONS,
        "volumes": _VOLUMES,
    },
)
"""The part of a pod's spec that a runtimePatch may set."""
