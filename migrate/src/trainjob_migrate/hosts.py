"""Host names of a v1 job's pods, and the TrainJob's host names that replace them.

The name of the TrainJob is not known here: operators and `trainjob run` create the TrainJob of a file under a name of
their own. So a host name refers to the variable `JOBSET_NAME`. Kubernetes replaces `$(JOBSET_NAME)` in a container's
command, args and env, and nowhere else (Kubernetes 1.36 core/v1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainjob.spec.base import iterate_texts
from trainjob_migrate.draft import Draft
from trainjob_migrate.field_records import Path

_NAME = "JOBSET_NAME"
_REFERENCE = f"$({_NAME})"
NAME_VARIABLE: dict[str, Any] = {
    "name": _NAME,
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}},
}
"""Variable with the TrainJob's name, which its JobSet has, too."""
_LAUNCHER = f"{_REFERENCE}-launcher-0-0.{_REFERENCE}"
_CONTAINERS = ("containers", "initContainers")
_EXPANDED_FIELDS = ("command", "args", "env")  # Kubernetes expands variables in these fields of a container
_OTHER_NAMES = ("name", "image", "hostname", "subdomain")
_NO_EXPANSION = (
    "it contains a host name, which depends on the TrainJob's name, and Kubernetes expands variables only in command, "
    "args and env: put the host into a variable of env, and let a shell read that variable here"
)


def host_reference(rank: int) -> str:
    """Return the host name of a node, for a container with the variable `JOBSET_NAME`.

    JobSet names the host within the pods' subdomain, which has the name of the job.
    """
    return f"{_REFERENCE}-node-0-{rank}.{_REFERENCE}"


def add_name_variable(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container or `spec.trainer` with the variable `JOBSET_NAME` if it needs it.

    It is the first variable, because Kubernetes expands only references to earlier ones.
    """
    env = container.get("env") or []
    texts = (text for field in _EXPANDED_FIELDS for _, _, text in iterate_texts(container.get(field), ""))
    if not isinstance(env, list) or not any(_REFERENCE in text for text in texts):
        return dict(container)
    return {**container, "env": [NAME_VARIABLE, *env]}


def convert_hosts(draft: Draft, path: Path, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod spec with the TrainJob's host names.

    Host names in fields in which Kubernetes expands no variables are refused.
    """
    converted = dict(spec)
    for field, value in spec.items():
        if field in _CONTAINERS and isinstance(value, list):
            converted[field] = [_convert_container(draft, (*path, field, n), each) for n, each in enumerate(value)]
        elif field not in _OTHER_NAMES:
            refuse_hosts(draft, (*path, field), value)
    return converted


def _convert_container(draft: Draft, path: Path, container: Any) -> Any:
    if not isinstance(container, Mapping):
        return container
    converted = dict(container)
    for field, value in container.items():
        if field == "env" and isinstance(value, list):
            converted[field] = [_convert_variable(draft, (*path, field, n), each) for n, each in enumerate(value)]
        elif field in _EXPANDED_FIELDS:
            converted[field] = draft.rename_hosts(value)
        elif field not in _OTHER_NAMES:
            refuse_hosts(draft, (*path, field), value)
    return converted


def _convert_variable(draft: Draft, path: Path, variable: Any) -> Any:
    """Return a variable with the TrainJob's host names.

    A Secret that is called like a host keeps its name.
    """
    if not isinstance(variable, Mapping):
        return variable
    if variable.get("name") == _NAME:
        draft.fields.mark_refused(path, "the TrainJob sets it to its own name: use another name")
    if "value" not in variable:
        return variable
    return {**variable, "value": draft.rename_hosts(variable["value"], variable.get("name"))}


def refuse_hosts(draft: Draft, path: Path, value: Any) -> None:
    """Refuse a field that contains host names, and in which Kubernetes expands no variables."""
    if any(draft.host_pattern.search(text) for _, _, text in iterate_texts(value, "")):
        draft.fields.mark_refused(path, _NO_EXPANSION)


def set_host_names(draft: Draft, first_ranks: Mapping[str, int], *, has_service: bool = False) -> None:
    """Set how a draft finds and replaces host names of v1.

    The draft gets a finding for each host name that is replaced.

    Args:
        draft: the draft.
        first_ranks: by kind of replicas, such as `worker`, the rank of its first pod among the TrainJob's nodes.
        has_service: whether the job also has a host NAME-launcher and a Service NAME, as MPI jobs do.
    """
    draft.has_one_kind = set(first_ranks.values()) == {0}
    name = re.escape(draft.source_name)
    # The hosts of an MPIJob also have a subdomain: the job's name, or NAME-worker of older MPI Operators.
    subdomain = rf"\.{name}(?:-worker)?(?![\w-])"
    host = rf"(?<![\w.-]){name}-(?P<kind>{'|'.join(first_ranks)})-(?P<index>\d+)(?![\w-])(?:{subdomain})?"
    launcher = rf"(?<![\w.-]){name}-(?P<launcher>launcher){subdomain}"
    before = r"(?P<before>(?:tcp|grpc|https?)://|(?i:addr|host|endpoint|url|server|master)[=\s]\s*['\"]?)"
    end = r"\.[a-z0-9-]+\.svc\b"
    service = rf"{before}{name}(?=$|[:/,\s'\"]|{end})|(?<![\w./-]){name}(?=:\d{{4,5}}\b|{end})"
    draft.host_pattern = re.compile("|".join((host, launcher, service) if has_service else (host,)))

    def replace_host(found: re.Match[str]) -> str:
        groups = found.groupdict("")
        new = _LAUNCHER if groups.get("launcher") else _REFERENCE
        if kind := groups["kind"]:
            new = host_reference(first_ranks[kind] + int(groups["index"]))
        before = groups.get("before", "")
        draft.add_finding(
            "hosts",
            f"The job refers to the host {found[0].removeprefix(before)}.",
            "This host is a Service of the old operator. A TrainJob has no Service with this name.",
            f"It is replaced by {new}. Kubernetes inserts the TrainJob's name.",
        )
        return f"{before}{new}"

    def rename_hosts(value: Any, before: object = "") -> Any:
        if isinstance(value, list):
            return [rename_hosts(word, previous) for previous, word in zip(["", *value], value, strict=False)]
        if not isinstance(value, str):
            return value
        option = re.split(r"[^A-Za-z]", str(before))[-1]
        return draft.host_pattern.sub(replace_host, f"{option} {value}")[len(option) + 1 :]

    draft.rename_hosts = rename_hosts
