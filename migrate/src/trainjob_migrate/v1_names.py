"""Names of v1 on which a program relies: those of pods, hosts, Services, labels, containers, files and API objects.

Sources: training-operator 1.9 pkg/apis/kubeflow.org/v1/common_types.go and pkg/controller.v1; mpi-operator 0.8
pkg/controller.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainjob.spec.redaction import redact
from trainjob.status.nested_fields import get_str
from trainjob_migrate.draft import Draft
from trainjob_migrate.field_records import Path, format_path, get_value, iterate_leaves
from trainjob_migrate.hosts import NAME_VARIABLE
from trainjob_migrate.identity import OPERATOR_LABEL_PREFIX

_PROGRAM_FIELDS = {"command", "args", "env", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"}
V1_OBJECTS = re.compile(
    r"(?i:(?<![\w-])(?:pytorch|mpi|xgboost|jax)jobs?(?![\w-]))|\bkubeflow\.org/v(?:1|2beta1)\b|\bTrainingClient\b|"
    r"\breplicaStatuses\b|\btraining\.kubeflow\.org/|\bvolcano\.sh/task-index\b|\bmpi_role_type\b|"
    r"\b(?:pytorch|mpi|xgboost|jax|tf)[-_]?job[-_](?:name|role)\b|\b(?:pytorch|mpi)-replica-(?:type|index)\b"
)
"""Pattern of objects of the API, and of labels that the old operators set."""
# The name of the pod, which is its host name; hosts of other pods; an address at which a Master meets its Workers.
_HOSTS = (
    r"\$[({]?HOSTNAME\b|(?<![\w./-])(?:/usr)?(?:/bin/)?hostname(?![\w.=:-]| +-[iI])|\bgethostname\(|\bgetfqdn\(|"
    r"\bplatform\.node\(|\bos\.uname\(|\buname -n\b|/etc/hostname\b|['\"]HOSTNAME['\"]|^metadata\.name$|"
    r"-(?:master|worker|launcher|chief|ps)-(?:\d|[$%{\"'<\[+])|_(?:MASTER|WORKER|LAUNCHER)_\d+_(?:SERVICE|PORT)|"
    r"(?:\btcp://|--(?:master|rdzv)[-_](?:addr|endpoint)[= ]\s*['\"]?|\bMASTER_ADDR=['\"]?)"
    r"(?!127\.|0\.0\.0\.0)\d{1,3}(?:\.\d{1,3}){3}\b"
)
_NAMES = re.compile(f"{_HOSTS}|{V1_OBJECTS.pattern}")
_OPERATOR_FILES = re.compile(
    r"/etc/mpi/(?!hostfile\b)[\w.-]*|/opt/kube(?:/[\w.-]*)?|\bdiscover_hosts\.sh\b|\bkubexec\.sh\b"
)
_WHY = (
    "A TrainJob has other names: its pods are NAME-node-0-INDEX-SUFFIX, its hosts NAME-node-0-INDEX, with one headless "
    "Service for all of them, and its training container is node. It has no labels, fields and conditions of v1 jobs. "
    "Rank 0 can be on any machine."
)
_DONE = (
    "Nothing. Change the program if it needs them. The host of a pod is "
    "$(JOBSET_NAME)-node-0-$(JOB_COMPLETION_INDEX).$(JOBSET_NAME). Kubernetes sets JOB_COMPLETION_INDEX. Take "
    f"JOBSET_NAME from {NAME_VARIABLE['valueFrom']['fieldRef']['fieldPath']}, and select pods by this label."
)


def report_v1_names(draft: Draft, path: Path, spec: Mapping[str, Any], *, main: str) -> None:
    """Report the names of v1 in a pod template.

    Files of the MPI operators that the Trainer does not mount are refused.

    Args:
        draft: the draft.
        path: path of the spec in the source.
        spec: the spec of the pod template.
        main: name of the training container.
    """
    redacted = redact(spec)
    own = rf"(?<![\w.-]){re.escape(draft.source_name)}-(?:launcher|worker)(?![\w-])"
    places = []
    for leaf in iterate_leaves(spec):
        text = get_value(spec, leaf)
        if not isinstance(text, str) or not _may_name_objects(leaf, text):
            continue
        where = (*path, *leaf)
        if "launcher" in draft.shape.roles and (file := _OPERATOR_FILES.search(text)):
            reason = f"it refers to {file[0]}, which the Trainer does not mount here; remove it, and set -np"
            draft.fields.mark_refused(where, reason)
        remaining = draft.host_pattern.sub("", text)
        variable = get_str(get_value(spec, leaf[:4]), "name") if leaf[2:3] == ("env",) else ""
        names_container = re.fullmatch(re.escape(main), text) if "container" in variable.lower() else None
        if found := names_container or _NAMES.search(remaining) or re.search(own, remaining):
            shown = _line_around(found) if get_value(redacted, leaf) == text else found[0]
            places.append(f"{format_path(where)}{f' ({variable})' if variable else ''}: {shown}")
    if places:
        draft.add_finding("names", f"Names of v1 are used: {'; '.join(places)}.", _WHY, _DONE)


def _may_name_objects(leaf: Path, text: str) -> bool:
    """Return whether a text is a part of a program, or a field that a program reads.

    `trainjob_migrate.container` converts or refuses labels of the Training Operator in variables.
    """
    if leaf[-1] == "fieldPath":
        return OPERATOR_LABEL_PREFIX not in text
    return not _PROGRAM_FIELDS.isdisjoint(map(str, leaf)) and leaf[-1] != "name" and "valueFrom" not in leaf


def _line_around(found: re.Match[str]) -> str:
    """Return the line of a match, or the match alone if the line is long."""
    begin, end = found.string.rfind("\n", 0, found.start()) + 1, found.string.find("\n", found.start())
    line = " ".join(found.string[begin : end if end >= 0 else len(found.string)].split())
    return line if len(line) <= 80 else found[0]
