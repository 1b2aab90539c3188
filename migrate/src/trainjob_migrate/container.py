"""Conversion of a pod template's containers.

The training container becomes `spec.trainer`; the others are moved as sidecars.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob.spec.redaction import is_credential
from trainjob_migrate.draft import Draft
from trainjob_migrate.environment import convert_label_source
from trainjob_migrate.field_records import EMPTY_VALUES, Path
from trainjob_migrate.identity import OPERATOR_LABEL_PREFIX, OPERATOR_PORTS, contains_operator_label

_MAX_VARIABLES = 128  # limit of spec.trainer.env (Trainer 2.2 and later)
_RUNTIME_FIELDS: Mapping[str, type] = {
    "envFrom": list,
    "imagePullPolicy": str,
    "lifecycle": dict,
    "livenessProbe": dict,
    "ports": list,
    "readinessProbe": dict,
    "resizePolicy": list,
    "restartPolicy": str,
    "restartPolicyRules": list,
    "startupProbe": dict,
    "stdin": bool,
    "stdinOnce": bool,
    "terminationMessagePath": str,
    "terminationMessagePolicy": str,
    "tty": bool,
    "volumeDevices": list,
    "workingDir": str,
}
_TRAINER: Mapping[str, type] = {"image": str, "command": list, "args": list}


def find_container(template: Any, name: str) -> tuple[int, Mapping[str, Any]]:
    """Return the index of the container with a name, and the container.

    Returns:
        The index and the container; -1 and an empty mapping if no container has the name.
    """
    spec = template.get("spec") if isinstance(template, Mapping) else None
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    for number, container in enumerate(containers if isinstance(containers, list) else []):
        if isinstance(container, Mapping) and container.get("name") == name:
            return number, container
    return -1, {}


def convert_containers(draft: Draft, path: Path, containers: Any, *, main: str, role: str) -> None:
    """Add the containers of a template to the draft.

    The arguments are those of `trainjob_migrate.pod_template.convert_template`.
    """
    place, _ = find_container({"spec": {"containers": containers}}, main)
    if place < 0:
        draft.fields.mark_refused(path, f"the training container must have the name {main}")
        return
    for number, container in enumerate(containers):
        if number == place:
            if not (isinstance(container.get("image"), str) and container["image"]):
                draft.fields.mark_refused((*path, number, "image"), "the container that trains needs one")
            _main(draft, (*path, number), container, role)
        elif isinstance(container, Mapping):
            _sidecar(draft, (*path, number), container, role)


def _sidecar(draft: Draft, path: Path, container: Mapping[str, Any], role: str) -> None:
    if container.get("name") in (None, draft.shape.roles[role]):
        draft.fields.mark_refused(
            (*path, "name"), f"the training container is called {draft.shape.roles[role]}: use another name"
        )
    draft.add_part(
        path,
        ("pod", "spec", "containers"),
        [container],
        patchable=False,
        role=role,
        reason="it has no variables of the training, such as RANK, and the job ends when it has ended, too",
    )
    if contains_operator_label(container):
        reason = f"pods of a TrainJob have no labels {OPERATOR_LABEL_PREFIX}…; read JOB_COMPLETION_INDEX"
        draft.fields.mark_refused(path, reason)


def _main(draft: Draft, path: Path, container: Mapping[str, Any], role: str) -> None:
    for field, value in container.items():
        where = (*path, field)
        if field == "name":
            draft.fields.mark_converted(where, "spec.trainer", "a TrainJob's training container is called node")
        elif value in EMPTY_VALUES:
            continue
        elif field in _TRAINER:
            _trainer_field(draft, where, field, value, role)
        elif field == "env":
            _variables(draft, where, value, role)
        elif field == "resources":
            _resources(draft, where, value, role)
        elif field == "volumeMounts" and _are_mappings(value):
            once = len({str(mount.get("name")) for mount in value}) == len(value)
            reason = "" if once else "a patch mounts each volume once"
            patchable = draft.can_patch and once
            draft.add_part(where, ("container", field), value, patchable=patchable, role=role, reason=reason)
        elif field == "securityContext" and isinstance(value, Mapping):
            draft.add_part(where, ("container", field), value, patchable=draft.can_patch, role=role)
        else:
            _convert_runtime_field(draft, where, field, value, container, role)


def _trainer_field(draft: Draft, path: Path, field: str, value: Any, role: str) -> None:
    if not isinstance(value, _TRAINER[field]):
        return
    reason = draft.field_reasons.get(field, "")
    if role != draft.shape.trainer:
        draft.add_part(path, ("container", field), value, patchable=False, role=role, reason=reason)
        return
    draft.fields.mark_converted(path, f"spec.trainer.{field}", reason)
    draft.trainer.setdefault(field, value)


def _variables(draft: Draft, path: Path, variables: Any, role: str) -> None:
    """Record each variable on its own.

    `draft.environment` holds the variables that the conversion itself sets.
    """
    if not _are_mappings(variables):
        return
    names = [variable.get("name") for variable in variables]
    kept: list[tuple[Path, Any, str]] = []
    for number, variable in enumerate(variables):
        where, name = (*path, number), variable.get("name")
        if not isinstance(name, str):
            continue
        if name in draft.reserved:
            draft.fields.mark_dropped(where, draft.reserved[name])
        elif name in names[number + 1 :]:
            draft.fields.mark_dropped(where, "a later variable of the same name takes precedence")
        elif OPERATOR_LABEL_PREFIX in str(variable.get("valueFrom")):
            kept += _convert_label_variable(draft, where, variable)
        else:
            kept.append((where, variable, ""))
            _check_secret(draft, name, variable.get("value"))
    max_variables = _MAX_VARIABLES - len(draft.environment) - 1  # one may be that with the TrainJob's name
    if len(kept) <= max_variables and draft.shape.has_uniform_pods:
        for where, _, reason in kept:
            draft.fields.mark_converted(where, "spec.trainer.env", reason)
        draft.trainer["env"] = [variable for _, variable, _ in kept]
        return
    moved = f"a TrainJob has at most {_MAX_VARIABLES} variables" if draft.shape.has_uniform_pods else ""
    for where, variable, reason in kept:
        draft.add_part(where, ("container", "env"), [variable], patchable=False, role=role, reason=reason or moved)


def _convert_label_variable(draft: Draft, path: Path, variable: Any) -> list[tuple[Path, Any, str]]:
    """Return the path, the new variable and the reason; nothing if the variable is refused."""
    converted = convert_label_source(draft, variable["valueFrom"])
    if converted:
        source, reason = converted
        return [(path, {**variable, "valueFrom": source}, reason)]
    has_rank = any(one["name"] == "RANK" for one in draft.environment)
    advice = f"read {'RANK' if has_rank else 'JOB_COMPLETION_INDEX'}"
    draft.fields.mark_refused(path, f"pods of a TrainJob have no labels {OPERATOR_LABEL_PREFIX}…; {advice}")
    return []


def _check_secret(draft: Draft, name: str, value: Any) -> None:
    if isinstance(value, str) and value and is_credential(name, value):
        draft.add_finding(
            "credential",
            f"The variable {name} holds a credential as plain text.",
            "All users with permission to read the job can read it, and tools that print manifests show it.",
            f"It is copied unchanged. Put it into a Secret, and use valueFrom.secretKeyRef for {name}.",
        )


def _resources(draft: Draft, path: Path, resources: Any, role: str) -> None:
    if not isinstance(resources, Mapping) or not all(isinstance(value, Mapping | list) for value in resources.values()):
        return
    if "claims" in resources or not draft.shape.has_uniform_pods:
        reason = "claims refer to the pod's resourceClaims" if "claims" in resources else ""
        draft.add_part(path, ("container", "resources"), resources, patchable=False, role=role, reason=reason)
        return
    known = {key: value for key, value in resources.items() if key in ("limits", "requests")}
    for key in known:
        draft.fields.mark_converted((*path, key), f"spec.trainer.resourcesPerNode.{key}")
    draft.trainer["resourcesPerNode"] = known


def _convert_runtime_field(
    draft: Draft, path: Path, field: str, value: Any, container: Mapping[str, Any], role: str
) -> None:
    expected_type = _RUNTIME_FIELDS.get(field)
    if expected_type is None or not isinstance(value, expected_type):
        return
    if field == "ports":
        _ports(draft, path, value, role)
    elif field == "imagePullPolicy" and value == _usual_pull_policy(container.get("image")):
        draft.fields.mark_dropped(path, "it is the default of Kubernetes for this image")
    else:
        draft.add_part(path, ("container", field), value, patchable=False, role=role)


def _ports(draft: Draft, path: Path, ports: Any, role: str) -> None:
    for number, port in enumerate(ports if _are_mappings(ports) else []):
        if port.get("name") in OPERATOR_PORTS:
            draft.fields.mark_dropped(
                (*path, number), "the port of the Training Operator's rendezvous; the Trainer declares its own"
            )
        else:
            reason = "pods reach it at the hosts of the TrainJob, because there is no Service for each pod"
            draft.add_part((*path, number), ("container", "ports"), [port], patchable=False, role=role, reason=reason)


def _usual_pull_policy(image: Any) -> str:
    """Return the default pull policy of an image.

    It is Always for the tag `latest` or no tag, else IfNotPresent (Kubernetes 1.36 pkg/apis/core/v1/defaults.go).
    """
    last = str(image).rpartition("/")[2]
    tag = last.partition(":")[2]
    return "IfNotPresent" if "@" in last or tag not in ("", "latest") else "Always"


def _are_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
