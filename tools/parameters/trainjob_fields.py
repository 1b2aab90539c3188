"""Generator of docs/reference/trainjob-fields.md: each field of a TrainJob's API, and how a request says it.

The case `test_fields` of the conformance suite compares the table with the API of each Trainer.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATH = Path("docs/reference/trainjob-fields.md")
VERSIONS = ("2.0", "2.1", "2.2", "2.3")
POD_TEMPLATE = "spec.runtimePatches[].trainingRuntimeSpec.template.spec.replicatedJobs[].template.spec.template"
# Fields whose value is passed on as a whole: the schema of the newest Trainer checks what is below them.
WHOLE = frozenset(
    [
        "affinity",
        "tolerations",
        "volumes",
        "schedulingGates",
        "imagePullSecrets",
        "seccompProfile",
        "appArmorProfile",
        "seLinuxOptions",
        "windowsOptions",
        "capabilities",
        "sysctls",
        "configMapKeyRef",
        "fieldRef",
        "fileKeyRef",
        "resourceFieldRef",
        "secretKeyRef",
        "claims",
    ]
)
PATCH = "`runtime_patches`"
_IN_RUNTIME = "refused: Trainer 2.2 has it as a patch; here set it in a training runtime"
_FILE_REFUSED = "refused: no Trainer passes it on"
_NO_EFFECT = "refused: it has no effect"
_ENV = "env[].{name,value,valueFrom.{configMapKeyRef,fieldRef,resourceFieldRef,secretKeyRef}}"
_FILE_ENV = "env[].valueFrom.fileKeyRef"
_MOUNTS = "volumeMounts[].{mountPath,mountPropagation,name,readOnly,recursiveReadOnly,subPath,subPathExpr}"
_SHARED_CONTEXT = "appArmorProfile,runAsGroup,runAsNonRoot,runAsUser,seLinuxOptions,seccompProfile,windowsOptions"
_POD_CONTEXT = (
    f"securityContext.{{{_SHARED_CONTEXT},fsGroup,fsGroupChangePolicy,seLinuxChangePolicy,supplementalGroups[],"
    "supplementalGroupsPolicy,sysctls[]}"
)
_CONTEXT = (
    f"securityContext.{{{_SHARED_CONTEXT},allowPrivilegeEscalation,capabilities,privileged,procMount,"
    "readOnlyRootFilesystem}"
)


@dataclass(frozen=True)
class Row:
    """Fields that a request says in the same way.

    Attributes:
        fields: path below that of the section; `{a,b}` means several.
        how: field of a request, or `refused` and the reason.
        since: first Trainer with the fields.
        before: first Trainer without them; empty if the newest has them.
    """

    fields: str
    how: str
    since: str = "2.0"
    before: str = ""

    @property
    def versions(self) -> tuple[str, ...]:
        """The Trainers with the fields."""
        return tuple(each for each in VERSIONS if self.since <= each and (not self.before or each < self.before))


_POD_ROWS = (
    Row("affinity", "`placement.affinity`"),
    Row(f"containers[].{_CONTEXT}", "`placement.container_security_context`; of other containers " + PATCH),
    Row("containers[].name", "the container that runs the step; others by " + PATCH),
    Row(f"containers[].{_MOUNTS}", f"`volumes`, `workspace`: path, name, `read_only`, `sub_path`; else {PATCH}"),
    Row(f"containers[].{{{_ENV},{_FILE_ENV}}}", f"{PATCH}, of sidecars; else `env`"),
    Row("imagePullSecrets[]", "`placement.image_pull_secrets`"),
    Row(f"initContainers[].{{name,{_CONTEXT},{_MOUNTS},{_ENV},{_FILE_ENV}}}", PATCH),
    Row("nodeSelector", "`placement.node_selector`"),
    Row("schedulingGates[]", PATCH),
    Row(_POD_CONTEXT, "`placement.security_context`"),
    Row("serviceAccountName", "`placement.service_account_name`"),
    Row("terminationGracePeriodSeconds", "`placement.termination_grace_period_seconds`", since="2.3"),
    Row("tolerations[]", "`placement.tolerations`"),
    Row("volumes[]", "`volumes`, `workspace`"),
)
SECTIONS: Mapping[str, tuple[Row, ...]] = {
    "spec": (
        Row("runtimeRef.{name,kind}", "`runtime`"),
        Row("runtimeRef.apiGroup", "always `trainer.kubeflow.org`: no Trainer has another"),
        Row("trainer.image", "`image`"),
        Row("trainer.{command[],args[]}", "`command`, `args`, or the program of a step"),
        Row(f"trainer.{_ENV}", "`env`"),
        Row(f"{{trainer,initializer.dataset,initializer.model}}.{_FILE_ENV}", _FILE_REFUSED, since="2.1"),
        Row("trainer.numNodes", "`num_nodes`"),
        Row("trainer.numProcPerNode", "`num_proc_per_node`"),
        Row("trainer.resourcesPerNode.{limits,requests}", "`resources_per_node`, `resources`"),
        Row("trainer.resourcesPerNode.claims[]", "refused: no Trainer passes them on; use a runtime with the claims"),
        Row("initializer.{dataset,model}.storageUri", "`initializer`; `dataset` and `model_initializer` of `FineTune`"),
        Row(f"initializer.{{dataset,model}}.{_ENV}", "`env` and the fields of the initializer"),
        Row("initializer.{dataset,model}.secretRef.name", "`secret` of the initializer"),
        Row("suspend", "`suspend`"),
        Row("managedBy", "`managed_by`"),
        Row("activeDeadlineSeconds", "`deadline`", since="2.2"),
        Row("labels", "`labels` are on TrainJob and pods", before="2.2"),
        Row("annotations", "`annotations` are on TrainJob and pods", before="2.2"),
    ),
    "spec.runtimePatches[]": (
        Row("manager", f"`manager` of {PATCH}", since="2.2"),
        Row("time", "refused: the Trainer sets it", since="2.2"),
    ),
    "spec.runtimePatches[].trainingRuntimeSpec.template": (
        Row("metadata.{annotations,labels}", PATCH, since="2.2"),
        Row("metadata.{finalizers[],name,namespace}", _NO_EFFECT, since="2.2"),
        Row("spec.replicatedJobs[].name", f"the jobs of the step; others by {PATCH}", since="2.2"),
        Row("spec.replicatedJobs[].template.metadata.{annotations,labels}", PATCH, since="2.2"),
        Row("spec.replicatedJobs[].template.metadata.{finalizers[],name,namespace}", _NO_EFFECT, since="2.2"),
    ),
    POD_TEMPLATE: (
        Row("metadata.labels", "`labels`", since="2.2"),
        Row("metadata.annotations", "`annotations`", since="2.2"),
        Row("metadata.finalizers[]", PATCH, since="2.2"),
        Row("metadata.{name,namespace}", _NO_EFFECT, since="2.2"),
    ),
    f"{POD_TEMPLATE}.spec": tuple(Row(row.fields, row.how, max(row.since, "2.2")) for row in _POD_ROWS),
    "spec.podTemplateOverrides[]": (
        Row("targetJobs[].name", "the jobs of the step", since="2.1", before="2.2"),
        Row("metadata.labels", "`labels`", since="2.1", before="2.2"),
        Row("metadata.annotations", "`annotations`", since="2.1", before="2.2"),
        Row("metadata.{finalizers[],name,namespace}", _IN_RUNTIME, since="2.1", before="2.2"),
    ),
    "spec.podTemplateOverrides[].spec": (
        Row("affinity", "`placement.affinity`", since="2.1", before="2.2"),
        Row("imagePullSecrets[]", "`placement.image_pull_secrets`", since="2.1", before="2.2"),
    ),
    "spec.podSpecOverrides[]": (Row("targetJobs[].name", "the jobs of the step", before="2.1"),),
    "spec.{podSpecOverrides[],podTemplateOverrides[].spec}": (
        Row("containers[].name", "the container that runs the step", before="2.2"),
        Row(f"containers[].{_MOUNTS}", "`volumes`, `workspace`: path, name, `read_only`, `sub_path`", before="2.2"),
        Row(f"containers[].{{{_ENV},{_FILE_ENV}}}", "`env`", before="2.2"),
        Row(f"initContainers[].{{name,{_MOUNTS},{_ENV},{_FILE_ENV}}}", _IN_RUNTIME, before="2.2"),
        Row("nodeSelector", "`placement.node_selector`", before="2.2"),
        Row("schedulingGates[]", _IN_RUNTIME, before="2.2"),
        Row("serviceAccountName", "`placement.service_account_name`", before="2.2"),
        Row("tolerations[]", "`placement.tolerations`", before="2.2"),
        Row("volumes[]", "`volumes`, `workspace`", before="2.2"),
    ),
    "status": (
        Row(
            "conditions[].{lastTransitionTime,message,observedGeneration,reason,status,type}",
            "phase, reason and message of the step",
        ),
        Row("jobsStatus[].{active,failed,name,ready,succeeded,suspended}", "phase of the step"),
        Row(
            "trainerStatus.{estimatedRemainingSeconds,lastUpdatedTime,metrics[].name,metrics[].value,"
            "progressPercentage}",
            "progress and metrics of the step",
            since="2.2",
        ),
    ),
}
"""Rows by the path of the part of a TrainJob."""
_INTRODUCTION = """# Fields of a TrainJob

<!-- Written by tools/parameters/trainjob_fields.py: run `make reference`. -->

Find each field of the TrainJob API in Trainer 2.0 to 2.3, and the parameter of a step that sets it. A case of the
conformance suite compares this page with the API of each Trainer.

* A name such as `placement.affinity` is a [parameter](parameters.md) of every step.
* `runtime_patches` is a parameter, too: patches of any job and container of the runtime, with the names of the API.
* Trainer 2.0 has no `fileKeyRef`, which is newer than its Kubernetes.
* A refused field gets an error with the reason, before anything is sent.
* The [`manifest`](parameters.md#trainjobmanifest) of a `TrainJobManifest` can have all fields.
"""


def list_rows() -> Iterator[tuple[str, Row]]:
    """Yield the path of each field in each Trainer, and its row."""
    for section, rows in SECTIONS.items():
        for row in rows:
            for path in expand(f"{section}.{row.fields}"):
                yield path, row


def list_fields(version: str) -> list[str]:
    """Return the fields that the table has for a Trainer."""
    return sorted(path for path, row in list_rows() if version in row.versions and _exists(path, version))


def _exists(path: str, version: str) -> bool:
    """Return whether a Trainer has a path of a row that has several."""
    only = {"podSpecOverrides": "2.0", "podTemplateOverrides": "2.1"}
    name = path.split(".")[1].removesuffix("[]")
    is_too_new = version == "2.0" and path.endswith(".fileKeyRef")  # of the API of Kubernetes 1.34
    return only.get(name, version) == version and not is_too_new


def list_schema_fields(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the paths of the fields in an OpenAPI schema.

    What is in a field that is passed on as a whole is left out.
    """
    for name, field in schema.get("properties", {}).items():
        inner = field.get("items", field)
        below = f"{path}.{name}{'[]' if field.get('type') == 'array' else ''}"
        if name in WHOLE or not inner.get("properties"):
            yield below
        else:
            yield from list_schema_fields(inner, below)


def expand(pattern: str) -> list[str]:
    """Return the paths that a pattern with `{a,b}` means; braces may be nested."""
    innermost = re.search(r"\{([^{}]*)\}", pattern)
    if innermost is None:
        return [pattern]
    start, end = innermost.span()
    parts = [pattern[:start] + choice + pattern[end:] for choice in innermost[1].split(",")]
    return list(dict.fromkeys(itertools.chain.from_iterable(map(expand, parts))))


def render_page() -> str:
    """Return the page."""
    lines = [_INTRODUCTION]
    for section, rows in SECTIONS.items():
        lines += [f"## `{section}`\n", "| Field | Trainer | In a request |\n|---|---|---|"]
        lines += [f"| `{row.fields}` | {_format_versions(row)} | {row.how[:1].upper()}{row.how[1:]} |" for row in rows]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _format_versions(row: Row) -> str:
    first, *_, last = (*row.versions, row.versions[-1])
    return first if first == last else f"{first} to {last}"
