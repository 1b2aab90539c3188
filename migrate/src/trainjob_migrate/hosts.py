"""Host names of a v1 job's pods, and the TrainJob's host names that replace them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from trainjob_migrate.draft import Draft

_NAME = "JOBSET_NAME"
NAME_VARIABLE: dict[str, Any] = {
    "name": _NAME,
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}},
}
"""Variable with the TrainJob's name, which its JobSet has, too; `host_reference` needs it in an earlier entry."""


def host_name(name: str, rank: int) -> str:
    """Return the host name of a TrainJob's node.

    JobSet names the host within the pods' subdomain, which has the name of the job.
    """
    return f"{name}-node-0-{rank}.{name}"


def host_reference(rank: int) -> str:
    """Return the host name of a node as a variable's value that fits any name of the TrainJob.

    Operators and `trainjob run` create the TrainJob of a file under another name. Kubernetes replaces `$(JOBSET_NAME)`.
    """
    return host_name(f"$({_NAME})", rank)


def create_host_renamer(draft: Draft, first_ranks: Mapping[str, int]) -> Callable[[Any], Any]:
    """Return a function that replaces host names of the v1 job by the TrainJob's in any value.

    Args:
        draft: the draft; it gets a finding for each replaced host name.
        first_ranks: by kind of replicas, such as `worker`, the rank of its first pod among the TrainJob's nodes.
    """
    kinds = "|".join(first_ranks)
    # The hosts of an MPIJob also have the job's name as their subdomain.
    subdomain = rf"(?:\.{re.escape(draft.source_name)}(?![\w-]))?"
    old = re.compile(rf"(?<![\w.-]){re.escape(draft.source_name)}-({kinds})-(\d+)(?![\w-]){subdomain}")

    def replace_host(found: re.Match[str]) -> str:
        new = host_name(draft.name, first_ranks[found[1]] + int(found[2]))
        draft.add_finding(
            "hosts",
            f"The job refers to the host {found[0]}.",
            "This host is a Service of the old operator for one pod. A TrainJob has no Service with this name.",
            f"It is replaced by {new}.",
        )
        return new

    def rename_hosts(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: rename_hosts(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [rename_hosts(inner) for inner in value]
        return old.sub(replace_host, value) if isinstance(value, str) else value

    return rename_hosts
