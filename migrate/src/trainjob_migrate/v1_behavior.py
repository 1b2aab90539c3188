"""Programs that rely on behavior of the old operators: names of pods and hosts, labels, files, API objects.

The table `_TEXT_RULES` has the patterns by which such a program is recognized in the texts of a container. Sources:
training-operator 1.9 pkg/apis/kubeflow.org/v1/common_types.go and pkg/controller.v1; mpi-operator 0.8 pkg/controller.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.spec.redaction import redact
from trainjob.status.nested_fields import get_mapping
from trainjob_migrate.container import find_container
from trainjob_migrate.draft import Draft, Finding
from trainjob_migrate.field_records import Path, format_path, get_value, iterate_leaves
from trainjob_migrate.hosts import EXPANDED_FIELDS, rename_hosts_of_program
from trainjob_migrate.identity import OPERATOR_LABEL_PREFIX
from trainjob_migrate.mpi_files import HOSTFILE_VOLUME
from trainjob_migrate.ordinals import OWN_HOST

_PROGRAM = ("command", "args")
_PROGRAM_FIELDS = (*_PROGRAM, "env", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_POD_NAMES = (
    "Pods of the Training Operator are called like their hosts, such as NAME-worker-0. A TrainJob's pod is called "
    "NAME-node-0-INDEX-SUFFIX and its host NAME-node-0-INDEX, and NAME can have another number of dashes."
)
_NAME_SOURCE = "JOBSET_NAME is a variable from metadata.labels['jobset.sigs.k8s.io/jobset-name']."
_POD_NAMES_ADVICE = (
    "Nothing. Change the program if it uses the name as an address, or parts of it: the index is in the variable "
    f"JOB_COMPLETION_INDEX, and the host is {OWN_HOST}. {_NAME_SOURCE}"
)
# Volumes that the old operators add: training-operator 1.9 pkg/controller.v1/mpi/mpijob.go; mpi-operator 0.8
# pkg/controller/mpi_job_controller.go.
_OPERATOR_VOLUMES = ("mpi-job-config", "mpi-job-kubectl", "ssh-auth")
_HOSTFILE = "/etc/mpi/hostfile"
# Labels that JobSet and the Job controller set on a TrainJob's pods.
_TRAINJOB_LABELS = ("jobset.sigs.k8s.io/", "batch.kubernetes.io/", "job-name", "controller-uid")
_LABEL = re.compile(r"metadata\.labels\[['\"]([^'\"]+)['\"]\]")
_OPERATOR_FILES = re.compile(r"/etc/mpi/[\w.-]*|/opt/kube(?:/[\w.-]*)?|\bdiscover_hosts\.sh\b|\bkubexec\.sh\b")


@dataclass(frozen=True)
class _TextRule:
    """A pattern in the texts of a container, and the finding that reports it.

    Attributes:
        topic: topic of the finding.
        pattern: the pattern.
        what: what the program does; follows the name of the field.
        why: the consequence.
        done: what the user has to do.
    """

    topic: str
    pattern: re.Pattern[str]
    what: str
    why: str
    done: str


_TEXT_RULES = (
    _TextRule(
        "pod-name",
        re.compile(
            r"\$[({]?HOSTNAME\b|(?<![\w./-])(?:/usr)?(?:/bin/)?hostname(?![\w.=:-]| +-[iI])|\bgethostname\(|"
            r"\bgetfqdn\(|\bplatform\.node\(|\bos\.uname\(|\buname -n\b|/etc/hostname\b|['\"]HOSTNAME['\"]"
        ),
        "reads the host name of its pod",
        _POD_NAMES,
        _POD_NAMES_ADVICE,
    ),
    _TextRule(
        "hosts",
        re.compile(
            r"-(?:master|worker|launcher|chief|ps)-(?:\d|[$%{\"'<\[+])|_(?:MASTER|WORKER|LAUNCHER)_\d+_(?:SERVICE|PORT)"
        ),
        "seems to contain or build a host name of a pod",
        "The old operators create a Service for each pod. A TrainJob has one headless Service, and other host names.",
        "Nothing. If it is a host of this job, replace it by $(JOBSET_NAME)-node-0-INDEX.$(JOBSET_NAME). "
        f"{_NAME_SOURCE}",
    ),
    _TextRule(
        "labels",
        re.compile(
            r"\btraining\.kubeflow\.org/|\b(?:pytorch|mpi|xgboost|jax|tf)[-_]?job[-_](?:name|role)\b|"
            r"\b(?:pytorch|mpi)-replica-(?:type|index)\b|\bmpi_role_type\b"
        ),
        "contains a label of the old operator",
        "Pods of a TrainJob do not have this label.",
        "Nothing. Select the pods by jobset.sigs.k8s.io/jobset-name, whose value is the TrainJob's name, or by a label "
        "of your own in template.metadata.labels.",
    ),
    _TextRule(
        "address",
        re.compile(
            r"(?:\btcp://|--(?:master|rdzv)[-_](?:addr|endpoint)[= ]\s*['\"]?|\bMASTER_ADDR=['\"]?)"
            r"(?!127\.|0\.0\.0\.0)\d{1,3}(?:\.\d{1,3}){3}\b"
        ),
        "meets the other nodes at a fixed address",
        "A Master of its own can be bound to a machine. A TrainJob's nodes have one template, so the pod with rank 0 "
        "can be on another machine than this address.",
        "Nothing. Replace the address by $(JOBSET_NAME)-node-0-0.$(JOBSET_NAME), or bind all pods to this machine. "
        f"{_NAME_SOURCE}",
    ),
    _TextRule(
        "api",
        re.compile(
            r"(?i)(?<![\w-])(?:pytorch|mpi|xgboost|jax)jobs?(?![\w-])|\bkubeflow\.org/v(?:1|2beta1)\b|\bTrainingClient\b|"
            r"\breplicaStatuses\b"
        ),
        "refers to v1 jobs in the Kubernetes API",
        "After the migration, the job is a TrainJob, with other fields and conditions.",
        "Nothing. Change the program, or remove this reference.",
    ),
)


def describe_references(path: Path, text: str) -> list[Finding]:
    """Return findings about a text outside a job that refers to v1 jobs or their labels.

    Args:
        path: path of the text in its object.
        text: the text.
    """
    return [
        Finding(rule.topic, f"{format_path(path)} {rule.what}: {found[0]}", rule.why, rule.done)
        for rule in _TEXT_RULES
        if rule.topic in ("api", "labels") and (found := rule.pattern.search(text))
    ]


def check_v1_behavior(draft: Draft, path: Path, template: Mapping[str, Any], *, main: str, role: str) -> None:
    """Report what a pod template takes from the old operator, and refuse what cannot work.

    Args:
        draft: the draft.
        path: path of the template in the source.
        template: the pod template.
        main: name of the training container.
        role: the replicated job that gets the template.
    """
    spec = template.get("spec")
    if not isinstance(spec, Mapping):
        return
    volumes = {str(one.get("name")) for one in _list_mappings(spec.get("volumes"))} | draft.added_volumes
    for field in ("containers", "initContainers"):
        for number, container in enumerate(_list_mappings(spec.get(field))):
            if container:
                where = (*path, "spec", field, number)
                draft.name_variables = find_name_variables(container)
                _refuse_missing_volumes(draft, where, container, volumes)
                is_launcher = role == "launcher" and field == "containers" and container.get("name") == main
                _check_texts(draft, where, container, has_hostfile=is_launcher or _mounts_hostfile(container))
                _report_name_variables(draft, where, container)
                _report_missing_labels(draft, where, container, template)
    draft.name_variables = find_name_variables(find_container(template, main)[1])
    _check_field_references(draft, (*path, "spec"), spec, main)


def _mounts_hostfile(container: Mapping[str, Any]) -> bool:
    mounts = _list_mappings(container.get("volumeMounts"))
    return any((one.get("name"), one.get("mountPath")) == (HOSTFILE_VOLUME, "/etc/mpi") for one in mounts)


def _refuse_missing_volumes(draft: Draft, path: Path, container: Mapping[str, Any], volumes: set[Any]) -> None:
    for field, noun in (("volumeMounts", "mounts"), ("volumeDevices", "uses")):
        for number, mount in enumerate(_list_mappings(container.get(field))):
            name = str(mount.get("name"))
            if name in _OPERATOR_VOLUMES and name not in volumes:
                reason = f"it {noun} the volume {name} of the old operator, which a TrainJob does not have: remove it"
                draft.fields.mark_refused((*path, field, number), reason)
            elif name not in volumes:
                draft.fields.mark_refused(
                    (*path, field, number), "the pod has no volume of this name: add it to volumes"
                )


def _check_texts(draft: Draft, path: Path, container: Mapping[str, Any], *, has_hostfile: bool) -> None:
    fields = {field: container[field] for field in _PROGRAM_FIELDS if field in container}
    redacted = redact(fields)
    for leaf in iterate_leaves(fields):
        text = get_value(fields, leaf)
        if not isinstance(text, str) or "valueFrom" in leaf or leaf[-1] == "name":
            continue
        where = (*path, *leaf)
        files = [file for file in _OPERATOR_FILES.findall(text) if not (has_hostfile and file == _HOSTFILE)]
        if files and "launcher" in draft.shape.roles:
            reason = f"it refers to {files[0]}, which the Trainer does not mount here; remove it, and set -np"
            draft.fields.mark_refused(where, reason)
        remaining = draft.rename_hosts(text) if leaf[0] in EXPANDED_FIELDS else draft.host_pattern.sub("", text)
        for rule in _TEXT_RULES:
            if found := rule.pattern.search(remaining):
                line = _line_around(found) if get_value(redacted, leaf) == text else found[0]
                what = f"{format_path(where)} {rule.what}: {line}"
                draft.add_finding(rule.topic, what, rule.why, rule.done)


def _line_around(found: re.Match[str]) -> str:
    """Return the line of a match, or the match alone if the line is long."""
    begin, end = found.string.rfind("\n", 0, found.start()) + 1, found.string.find("\n", found.start())
    line = " ".join(found.string[begin : end if end >= 0 else len(found.string)].split())
    return line if len(line) <= 80 else found[0]


def _report_name_variables(draft: Draft, path: Path, container: Mapping[str, Any]) -> None:
    program = {field: rename_hosts_of_program(draft, container[field]) for field in _PROGRAM if field in container}
    remaining = {**container, **program}
    for number, variable in enumerate(_list_mappings(container.get("env"))):
        if _get_field_path(variable.get("valueFrom")) != "metadata.name":
            continue
        name = str(variable.get("name"))
        reference = re.compile(rf"\$[({{]?{re.escape(name)}\b|\b{re.escape(name)}['\"]")
        readers = [
            format_path((*path, *leaf))
            for leaf in iterate_leaves(remaining)
            if isinstance(text := get_value(remaining, leaf), str) and reference.search(text)
        ]
        where = f"; {', '.join(readers)} reads it" if readers else ""
        what = f"The variable {name} ({format_path((*path, 'env', number))}) is the name of the pod{where}."
        draft.add_finding("pod-name", what, _POD_NAMES, _POD_NAMES_ADVICE)


def _check_field_references(draft: Draft, path: Path, spec: Mapping[str, Any], main: str) -> None:
    """Report volumes with the pod's name, and refuse labels of the old operator in sidecars.

    `trainjob_migrate.container` refuses these labels in the training container.
    """
    for leaf in iterate_leaves(spec):
        value = get_value(spec, leaf)
        if leaf[-1:] != ("fieldPath",) or not isinstance(value, str):
            continue
        if value == "metadata.name" and leaf[0] == "volumes":
            what = f"{format_path((*path, *leaf))} writes the name of the pod to a file."
            draft.add_finding("pod-name", what, _POD_NAMES, _POD_NAMES_ADVICE)
        elif OPERATOR_LABEL_PREFIX in value and leaf[0] == "containers" and _name_at(spec, leaf) != main:
            reason = f"pods of a TrainJob have no labels {OPERATOR_LABEL_PREFIX}…; read JOB_COMPLETION_INDEX"
            draft.fields.mark_refused((*path, *leaf), reason)


def find_name_variables(container: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of a container's variables that hold the name of the pod."""
    return frozenset(
        str(variable.get("name"))
        for variable in _list_mappings(container.get("env"))
        if _get_field_path(variable.get("valueFrom")) == "metadata.name"
    )


def _report_missing_labels(draft: Draft, path: Path, container: Mapping[str, Any], template: Mapping[str, Any]) -> None:
    """Report variables from labels that a TrainJob's pods do not have.

    They would be empty. Labels with the prefix of the Training Operator are converted or refused.
    """
    own = get_mapping(template, "metadata", "labels")
    for number, variable in enumerate(_list_mappings(container.get("env"))):
        found = _LABEL.fullmatch(str(_get_field_path(variable.get("valueFrom"))))
        label = found[1] if found else ""
        if label and label not in own and not label.startswith((*_TRAINJOB_LABELS, OPERATOR_LABEL_PREFIX)):
            draft.add_finding(
                "labels",
                f"The variable {variable.get('name')} ({format_path((*path, 'env', number))}) reads the label {label}, "
                "which the pod template does not have.",
                "If the old operator sets this label, the variable is empty in pods of a TrainJob.",
                "Nothing. The index of a pod is in batch.kubernetes.io/job-completion-index, the name of the TrainJob "
                "in jobset.sigs.k8s.io/jobset-name.",
            )


def _name_at(spec: Mapping[str, Any], leaf: Path) -> Any:
    return get_value(spec, (*leaf[:2], "name")) if "name" in get_value(spec, leaf[:2]) else None


def _get_field_path(source: Any) -> Any:
    reference = source.get("fieldRef") if isinstance(source, Mapping) else None
    return reference.get("fieldPath") if isinstance(reference, Mapping) else None


def _list_mappings(value: Any) -> list[Mapping[str, Any]]:
    return [one if isinstance(one, Mapping) else {} for one in value] if isinstance(value, list) else []
