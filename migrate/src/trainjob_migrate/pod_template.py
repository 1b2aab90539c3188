"""Conversion of a pod template's fields to a TrainJob or its runtime.

Source of the fields that a TrainJob may patch: Trainer 2.3 pkg/apis/trainer/v1alpha1/trainjob_types.go (PodSpecPatch,
ContainerPatch). The fields are those of Kubernetes 1.36 core/v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from trainjob_migrate.container import convert_containers
from trainjob_migrate.draft import Draft
from trainjob_migrate.field_records import EMPTY_VALUES, Path
from trainjob_migrate.hosts import convert_hosts, refuse_hosts
from trainjob_migrate.identity import OPERATOR_LABEL_PREFIX, SERVER_FIELDS, contains_operator_label
from trainjob_migrate.v1_names import report_v1_names
from trainjob_migrate.value_checks import check_values

_PATCHABLE_FIELDS: Mapping[str, type] = {
    "nodeSelector": dict,
    "tolerations": list,
    "affinity": dict,
    "imagePullSecrets": list,
    "securityContext": dict,
    "serviceAccountName": str,
    "schedulingGates": list,
    "volumes": list,
}
_RUNTIME_FIELDS: Mapping[str, type] = {
    # A TrainJob may patch this field only from Trainer 2.3 on.
    "terminationGracePeriodSeconds": int,
    "activeDeadlineSeconds": int,
    "automountServiceAccountToken": bool,
    "dnsConfig": dict,
    "dnsPolicy": str,
    "enableServiceLinks": bool,
    "hostAliases": list,
    "hostIPC": bool,
    "hostNetwork": bool,
    "hostPID": bool,
    "hostUsers": bool,
    "initContainers": list,
    "nodeName": str,
    "os": dict,
    "overhead": dict,
    "preemptionPolicy": str,
    "priority": int,
    "priorityClassName": str,
    "readinessGates": list,
    "resourceClaims": list,
    "resources": dict,
    "runtimeClassName": str,
    "schedulerName": str,
    "setHostnameAsFQDN": bool,
    "shareProcessNamespace": bool,
    "topologySpreadConstraints": list,
}
_DROPPED = {
    "restartPolicy": "the Training Operator replaces it by the restartPolicy of the replica",
    "hostname": "JobSet names the pods, and the ranks find each other by these names",
    "subdomain": "JobSet gives the pods the subdomain of its headless Service",
}
_JOB_METADATA = ("name", "generateName", "namespace", "ownerReferences", "finalizers", *SERVER_FIELDS)
_OLD_LABEL_ADVICE = (
    f"selects pods by a label {OPERATOR_LABEL_PREFIX}… that only the Training Operator sets; "
    "use a label of your own instead, and set it in template.metadata.labels"
)


def convert_template(draft: Draft, path: Path, template: Mapping[str, Any], *, main: str, role: str = "node") -> None:
    """Convert a pod template into the draft.

    Args:
        draft: the draft; its `environment` replaces variables of the same names.
        path: path of the template in the source.
        template: the pod template.
        main: name of the training container.
        role: the replicated job that gets the template; `spec.trainer` applies only to the role `draft.shape.trainer`.
    """
    _metadata(draft, path, template.get("metadata"), role)
    spec = template.get("spec")
    if not isinstance(spec, Mapping):
        return
    where = (*path, "spec")
    check_values(draft, path, template)
    spec = convert_hosts(draft, where, spec)
    report_v1_names(draft, where, spec, main=main)
    spec = _rename_container(spec, main, draft.shape.roles[role])
    for field, value in spec.items():
        if field != "containers":
            _pod_field(draft, (*where, field), field, value, role)
    convert_containers(draft, (*where, "containers"), spec.get("containers"), main=main, role=role)


def _metadata(draft: Draft, path: Path, metadata: Any, role: str) -> None:
    if not isinstance(metadata, Mapping):
        return
    for field, values in metadata.items():
        where = (*path, "metadata", field)
        if field in _JOB_METADATA:
            draft.fields.mark_dropped(where, "the Job sets the names and owners of its pods")
        elif field in ("labels", "annotations") and isinstance(values, Mapping):
            for key, value in values.items():
                _label(draft, (*where, key), field, key, value, role)


def _rename_container(value: Any, main: str, new: str) -> Any:
    """Return a part of a pod spec whose `resourceFieldRef` names the renamed container.

    Kubernetes starts no container that refers to a container that the pod does not have.
    """
    if isinstance(value, list):
        return [_rename_container(inner, main, new) for inner in value]
    if not isinstance(value, Mapping):
        return value
    renamed = {key: _rename_container(inner, main, new) for key, inner in value.items()}
    reference = renamed.get("resourceFieldRef")
    if isinstance(reference, Mapping) and reference.get("containerName") == main:
        renamed["resourceFieldRef"] = {**reference, "containerName": new}
    return renamed


def _label(draft: Draft, path: Path, field: str, key: str, value: Any, role: str) -> None:
    if key.startswith(OPERATOR_LABEL_PREFIX):
        draft.fields.mark_dropped(path, "a label of the Training Operator; JobSet sets its own labels")
    elif isinstance(value, str):
        refuse_hosts(draft, path, value)
        draft.add_part(path, ("pod", "metadata", field), {key: value}, patchable=draft.can_patch, role=role)


def _pod_field(draft: Draft, path: Path, field: str, value: Any, role: str) -> None:
    expected_type = _PATCHABLE_FIELDS.get(field) or _RUNTIME_FIELDS.get(field)
    if value in EMPTY_VALUES:
        return
    if field in _DROPPED:
        draft.fields.mark_dropped(path, _DROPPED[field])
    elif field == "serviceAccount":
        _service_account(draft, path, value, role)
    elif field == "ephemeralContainers":
        draft.fields.mark_refused(path, "a pod template can't have them; Kubernetes accepts them only for running pods")
    elif expected_type and isinstance(value, expected_type) and isinstance(value, bool) == (expected_type is bool):
        if contains_operator_label(value):
            draft.fields.mark_refused(path, _OLD_LABEL_ADVICE)
            return
        patchable = field in _PATCHABLE_FIELDS and draft.can_patch
        main, init_containers = draft.shape.roles[role], cast(list[Any], value if field == "initContainers" else [])
        if not all(isinstance(container, Mapping) for container in init_containers):
            return
        for number, container in enumerate(init_containers):
            if container.get("name") == main:
                reason = f"the training container is called {main}: use another name"
                draft.fields.mark_refused((*path, number, "name"), reason)
        draft.add_part(path, ("pod", "spec", field), value, patchable=patchable, role=role)


def _service_account(draft: Draft, path: Path, value: Any, role: str) -> None:
    """Convert `serviceAccount`, the old name of `serviceAccountName`.

    If both are given, `serviceAccountName` takes precedence.
    """
    if isinstance(value, str):
        place = ("pod", "spec", "serviceAccountName")
        draft.add_part(path, place, value, patchable=draft.can_patch, role=role, default=True)
