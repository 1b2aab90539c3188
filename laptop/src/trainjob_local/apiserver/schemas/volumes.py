"""A pod's volumes and where they are mounted.

Source: k8s.io/api 0.36 `core/v1/types.go`. What is inside of kinds that name a vendor's disk is kept as it is.
"""

from __future__ import annotations

from trainjob_local.apiserver.schema import Field
from trainjob_local.apiserver.schemas.placement import LABEL_SELECTOR
from trainjob_local.apiserver.schemas.shapes import (
    ANY,
    BOOLEAN,
    INT32,
    INT64,
    QUANTITY,
    STRING,
    STRINGS,
    TEXTS,
    array_of,
    record,
    text,
)

__all__ = ["FIELD_REF", "MOUNTS", "RESOURCE_FIELD_REF", "VOLUMES"]

_VENDORS = (
    "awsElasticBlockStore azureDisk azureFile cephfs cinder fc flexVolume flocker gcePersistentDisk gitRepo "
    "glusterfs iscsi photonPersistentDisk portworxVolume quobyte rbd scaleIO storageos vsphereVolume"
)
FIELD_REF = record("v1.ObjectFieldSelector", "fieldPath", apiVersion=STRING, fieldPath=STRING)
"""A field of the pod itself."""
RESOURCE_FIELD_REF = record(
    "v1.ResourceFieldSelector", "resource", containerName=STRING, divisor=QUANTITY, resource=STRING
)
"""A resource of a container."""
_NAME = text("")
_ITEMS = array_of(record("v1.KeyToPath", "key path", key=STRING, mode=INT32, path=STRING))
_POD_FIELDS = array_of(
    record(
        "v1.DownwardAPIVolumeFile",
        "path",
        fieldRef=FIELD_REF,
        mode=INT32,
        path=STRING,
        resourceFieldRef=RESOURCE_FIELD_REF,
    )
)
_SOURCES = array_of(
    record(
        "v1.VolumeProjection",
        clusterTrustBundle=record(
            "v1.ClusterTrustBundleProjection",
            "path",
            labelSelector=LABEL_SELECTOR,
            name=STRING,
            optional=BOOLEAN,
            path=STRING,
            signerName=STRING,
        ),
        configMap=record("v1.ConfigMapProjection", items=_ITEMS, name=_NAME, optional=BOOLEAN),
        downwardAPI=record("v1.DownwardAPIProjection", items=_POD_FIELDS),
        podCertificate=record(
            "v1.PodCertificateProjection",
            "keyType signerName",
            certificateChainPath=STRING,
            credentialBundlePath=STRING,
            keyPath=STRING,
            keyType=STRING,
            maxExpirationSeconds=INT32,
            signerName=STRING,
            userAnnotations=STRINGS,
        ),
        secret=record("v1.SecretProjection", items=_ITEMS, name=_NAME, optional=BOOLEAN),
        serviceAccountToken=record(
            "v1.ServiceAccountTokenProjection", "path", audience=STRING, expirationSeconds=INT64, path=STRING
        ),
    )
)
_AMOUNTS = Field("map", "v1.ResourceList", items=QUANTITY)
_DATA_SOURCE = {"apiGroup": STRING, "kind": STRING, "name": STRING}
_CLAIM_TEMPLATE = record(
    "v1.PersistentVolumeClaimTemplate",
    "spec",
    metadata=record(
        "v1.ObjectMeta", annotations=STRINGS, finalizers=TEXTS, labels=STRINGS, name=STRING, namespace=STRING
    ),
    spec=record(
        "v1.PersistentVolumeClaimSpec",
        accessModes=TEXTS,
        dataSource=record("v1.TypedLocalObjectReference", "kind name", **_DATA_SOURCE),
        dataSourceRef=record("v1.TypedObjectReference", "kind name", namespace=STRING, **_DATA_SOURCE),
        resources=record("v1.VolumeResourceRequirements", limits=_AMOUNTS, requests=_AMOUNTS),
        selector=LABEL_SELECTOR,
        storageClassName=STRING,
        volumeAttributesClassName=STRING,
        volumeMode=STRING,
        volumeName=STRING,
    ),
)
VOLUMES = array_of(
    record(
        "v1.Volume",
        "name",
        **dict.fromkeys(_VENDORS.split(), ANY),
        name=STRING,
        configMap=record("v1.ConfigMapVolumeSource", defaultMode=INT32, items=_ITEMS, name=_NAME, optional=BOOLEAN),
        csi=record(
            "v1.CSIVolumeSource",
            "driver",
            driver=STRING,
            fsType=STRING,
            nodePublishSecretRef=record("v1.LocalObjectReference", name=_NAME),
            readOnly=BOOLEAN,
            volumeAttributes=STRINGS,
        ),
        downwardAPI=record("v1.DownwardAPIVolumeSource", defaultMode=INT32, items=_POD_FIELDS),
        emptyDir=record("v1.EmptyDirVolumeSource", medium=STRING, sizeLimit=QUANTITY),
        ephemeral=record("v1.EphemeralVolumeSource", volumeClaimTemplate=_CLAIM_TEMPLATE),
        hostPath=record("v1.HostPathVolumeSource", "path", path=STRING, type=STRING),
        image=record("v1.ImageVolumeSource", pullPolicy=STRING, reference=STRING),
        nfs=record("v1.NFSVolumeSource", "path server", path=STRING, readOnly=BOOLEAN, server=STRING),
        persistentVolumeClaim=record(
            "v1.PersistentVolumeClaimVolumeSource", "claimName", claimName=STRING, readOnly=BOOLEAN
        ),
        projected=record("v1.ProjectedVolumeSource", defaultMode=INT32, sources=_SOURCES),
        secret=record("v1.SecretVolumeSource", defaultMode=INT32, items=_ITEMS, optional=BOOLEAN, secretName=STRING),
    ),
    keys=("name",),
    max_items=128,
    immutable=True,
)
"""A pod's volumes, as far as a TrainJob may patch them."""
MOUNTS = array_of(
    record(
        "v1.VolumeMount",
        "mountPath name",
        mountPath=STRING,
        mountPropagation=STRING,
        name=STRING,
        readOnly=BOOLEAN,
        recursiveReadOnly=STRING,
        subPath=STRING,
        subPathExpr=STRING,
    ),
    keys=("name",),
    max_items=128,
)
"""A container's volume mounts, as far as a TrainJob may patch them."""
