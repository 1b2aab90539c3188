"""Where a pod may run and with which rights: affinity, tolerations, security contexts.

Source: k8s.io/api 0.36 `core/v1/types.go`.
"""

from __future__ import annotations

from trainjob_local.apiserver.schemas.shapes import (
    BOOLEAN,
    INT32,
    INT64,
    STRING,
    STRINGS,
    TEXTS,
    array_of,
    record,
)

__all__ = ["AFFINITY", "CONTAINER_SECURITY", "LABEL_SELECTOR", "POD_SECURITY", "TOLERATIONS"]

_NODE_REQUIREMENTS = array_of(
    record("v1.NodeSelectorRequirement", "key operator", key=STRING, operator=STRING, values=TEXTS)
)
_NODE_TERM = record("v1.NodeSelectorTerm", matchExpressions=_NODE_REQUIREMENTS, matchFields=_NODE_REQUIREMENTS)
_NODE_AFFINITY = record(
    "v1.NodeAffinity",
    preferredDuringSchedulingIgnoredDuringExecution=array_of(
        record("v1.PreferredSchedulingTerm", "preference weight", preference=_NODE_TERM, weight=INT32)
    ),
    requiredDuringSchedulingIgnoredDuringExecution=record(
        "v1.NodeSelector", "nodeSelectorTerms", nodeSelectorTerms=array_of(_NODE_TERM)
    ),
)
LABEL_SELECTOR = record(
    "v1.LabelSelector",
    matchExpressions=array_of(
        record("v1.LabelSelectorRequirement", "key operator", key=STRING, operator=STRING, values=TEXTS)
    ),
    matchLabels=STRINGS,
)
"""Selects objects by their labels."""
_POD_TERM = record(
    "v1.PodAffinityTerm",
    "topologyKey",
    labelSelector=LABEL_SELECTOR,
    matchLabelKeys=TEXTS,
    mismatchLabelKeys=TEXTS,
    namespaceSelector=LABEL_SELECTOR,
    namespaces=TEXTS,
    topologyKey=STRING,
)
_POD_TERMS = {
    "preferredDuringSchedulingIgnoredDuringExecution": array_of(
        record("v1.WeightedPodAffinityTerm", "podAffinityTerm weight", podAffinityTerm=_POD_TERM, weight=INT32)
    ),
    "requiredDuringSchedulingIgnoredDuringExecution": array_of(_POD_TERM),
}
AFFINITY = record(
    "v1.Affinity",
    nodeAffinity=_NODE_AFFINITY,
    podAffinity=record("v1.PodAffinity", **_POD_TERMS),
    podAntiAffinity=record("v1.PodAntiAffinity", **_POD_TERMS),
)
"""A pod's affinity."""

TOLERATIONS = array_of(
    record("v1.Toleration", effect=STRING, key=STRING, operator=STRING, tolerationSeconds=INT64, value=STRING),
    max_items=128,
)
"""A pod's tolerations."""

_COMMON_SECURITY = {
    "appArmorProfile": record("v1.AppArmorProfile", "type", localhostProfile=STRING, type=STRING),
    "runAsGroup": INT64,
    "runAsNonRoot": BOOLEAN,
    "runAsUser": INT64,
    "seLinuxOptions": record("v1.SELinuxOptions", level=STRING, role=STRING, type=STRING, user=STRING),
    "seccompProfile": record("v1.SeccompProfile", "type", localhostProfile=STRING, type=STRING),
    "windowsOptions": record(
        "v1.WindowsSecurityContextOptions",
        gmsaCredentialSpec=STRING,
        gmsaCredentialSpecName=STRING,
        hostProcess=BOOLEAN,
        runAsUserName=STRING,
    ),
}
CONTAINER_SECURITY = record(
    "v1.SecurityContext",
    allowPrivilegeEscalation=BOOLEAN,
    capabilities=record("v1.Capabilities", add=TEXTS, drop=TEXTS),
    privileged=BOOLEAN,
    procMount=STRING,
    readOnlyRootFilesystem=BOOLEAN,
    **_COMMON_SECURITY,
)
"""A container's security context."""
POD_SECURITY = record(
    "v1.PodSecurityContext",
    fsGroup=INT64,
    fsGroupChangePolicy=STRING,
    seLinuxChangePolicy=STRING,
    supplementalGroups=array_of(INT64),
    supplementalGroupsPolicy=STRING,
    sysctls=array_of(record("v1.Sysctl", "name value", name=STRING, value=STRING)),
    **_COMMON_SECURITY,
)
"""A pod's security context."""
