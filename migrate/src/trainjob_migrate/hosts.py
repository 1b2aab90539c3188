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
from trainjob.spec.manifest import HOST_VARIABLE
from trainjob_migrate.draft import Draft
from trainjob_migrate.field_records import Path

_NAME = "JOBSET_NAME"
_REFERENCE = f"$({_NAME})"
NAME_VARIABLE: dict[str, Any] = {
    "name": _NAME,
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}},
}
"""Variable with the TrainJob's name, which its JobSet has, too."""
EXPANDED_FIELDS = ("command", "args", "env")
"""Fields of a container in which Kubernetes expands variables."""
_LAUNCHER = f"{_REFERENCE}-launcher-0-0.{_REFERENCE}"
_OWN_SERVICE = (
    "The MPI Operator creates a Service with the job's name. The Service of a TrainJob has the TrainJob's name."
)
_SERVICE_DOMAIN = r"\.[a-z0-9-]+\.svc\b"
_END_OF_HOST = rf"(?=$|[:/,\s'\"]|{_SERVICE_DOMAIN})"
_OPTION_WITH_HOST = r"(?i:addr|host|endpoint|url|server|master)(?:=|\s+)['\"]?"
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
    texts = (text for field in EXPANDED_FIELDS for _, _, text in iterate_texts(container.get(field), ""))
    if not isinstance(env, list) or not any(_REFERENCE in text for text in texts):
        return dict(container)
    return {**container, "env": [NAME_VARIABLE, *env]}


def refuse_name_variable(draft: Draft, path: Path, env: Any) -> None:
    """Refuse a variable of the job that has the name of `JOBSET_NAME`."""
    for number, variable in enumerate(env if isinstance(env, list) else []):
        if isinstance(variable, Mapping) and variable.get("name") == _NAME:
            draft.fields.mark_refused((*path, number), "the TrainJob sets it to its own name: use another name")


def convert_container_hosts(draft: Draft, path: Path, container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container with the TrainJob's host names.

    Host names in fields in which Kubernetes expands no variables are refused.
    """
    refuse_name_variable(draft, (*path, "env"), container.get("env"))
    renamed = {}
    for field, value in container.items():
        if field == "env" and isinstance(value, list):
            renamed[field] = [rename_hosts_of_variable(draft, one) for one in value]
        elif field in EXPANDED_FIELDS:
            renamed[field] = rename_hosts_of_program(draft, value)
        else:
            refuse_hosts(draft, (*path, field), value)
            renamed[field] = value
    return add_name_variable(renamed)


def rename_hosts_of_program(draft: Draft, words: Any) -> Any:
    """Return a command or args with the hosts of the TrainJob."""
    words = words if isinstance(words, list) else []
    _report_own_service(draft, _OPTION_WITH_HOST, " ".join(map(str, words)))
    return draft.rename_hosts(words)


def rename_hosts_of_variable(draft: Draft, variable: Any) -> Any:
    """Return a variable with the TrainJob's host names in its value.

    A Secret that is called like a host keeps its name.
    """
    if not isinstance(variable, Mapping) or "value" not in variable:
        return variable
    value = draft.rename_hosts(variable["value"])
    if not (draft.has_own_service and isinstance(value, str)):
        return {**variable, "value": value}
    name = re.escape(draft.source_name)
    if not HOST_VARIABLE.search(str(variable.get("name"))):
        _report_own_service(draft, rf"^(?={name}$)", value)
        return {**variable, "value": value}
    new = re.sub(rf"(?:^|(?<=,)|(?<=://)){name}{_END_OF_HOST}", lambda _: _REFERENCE, value)
    if new != value:
        what = f"The variable {variable['name']} refers to the job's own Service, {draft.source_name}."
        draft.add_finding("hosts", what, _OWN_SERVICE, f"It is replaced by {_REFERENCE}.")
    return {**variable, "value": new}


def _report_own_service(draft: Draft, before: str, text: str) -> None:
    """Report the job's own name after a pattern, or as the host of an address."""
    name = re.escape(draft.source_name)
    address = rf"(?<=://){name}{_END_OF_HOST}|(?<![\w./-]){name}(?=:\d|{_SERVICE_DOMAIN})"
    if draft.has_own_service and re.search(rf"{before}{name}{_END_OF_HOST}|{address}", text):
        what = f"In a command, args or env, {draft.source_name} may be the job's own Service."
        draft.add_finding("hosts", what, _OWN_SERVICE, f"Nothing. If it is a host, replace it by {_REFERENCE}.")


def refuse_hosts(draft: Draft, path: Path, value: Any) -> None:
    """Refuse a field that contains host names, and in which Kubernetes expands no variables."""
    if any(draft.host_pattern.search(text) for _, _, text in iterate_texts(value, "")):
        draft.fields.mark_refused(path, _NO_EXPANSION)


def set_host_functions(draft: Draft, first_ranks: Mapping[str, int], *, has_launcher: bool = False) -> None:
    """Set the functions of a draft that find and replace host names of v1.

    The draft gets a finding for each host name that is replaced.

    Args:
        draft: the draft.
        first_ranks: by kind of replicas, such as `worker`, the rank of its first pod among the TrainJob's nodes.
        has_launcher: whether the job also has a host NAME-launcher, as MPI jobs do.
    """
    draft.has_one_kind = set(first_ranks.values()) == {0}
    draft.has_own_service = has_launcher
    source_name = re.escape(draft.source_name)
    host = rf"(?<![\w.-]){source_name}-(?:({'|'.join(first_ranks)})-(\d+)(?![\w-])"
    # The hosts of an MPIJob also have a subdomain: the job's name, or NAME-worker of older MPI Operators.
    subdomain = rf"\.{source_name}(?:-worker)?(?![\w-])"
    pattern = rf"{host}(?:{subdomain})?" + (rf"|launcher{subdomain})" if has_launcher else ")")
    old = re.compile(pattern)

    def replace_host(found: re.Match[str]) -> str:
        new = host_reference(first_ranks[found[1]] + int(found[2])) if found[1] else _LAUNCHER
        draft.add_finding(
            "hosts",
            f"The job refers to the host {found[0]}.",
            "This host is a Service of the old operator for one pod. A TrainJob has no Service with this name.",
            f"It is replaced by {new}. Kubernetes inserts the TrainJob's name.",
        )
        return new

    def rename_hosts(value: Any) -> Any:
        if isinstance(value, list):
            return [rename_hosts(inner) for inner in value]
        return old.sub(replace_host, value) if isinstance(value, str) else value

    draft.rename_hosts = rename_hosts
    draft.host_pattern = old
