"""The hosts of a v1 job's pods, and those of the TrainJob that stand in their place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from trainjob_migrate.draft import Draft


def host_of(name: str, rank: int) -> str:
    """A node of the TrainJob `name`, as JobSet names it: in the pods' subdomain, which is called after the job."""
    return f"{name}-node-0-{rank}.{name}"


def renaming(draft: Draft, first_ranks: Mapping[str, int]) -> Callable[[Any], Any]:
    """Puts hosts of the TrainJob in place of the v1 job's, in any value.

    Args:
        draft: what is being made; a host that is found is told there.
        first_ranks: kind of replicas, such as `worker` -> the rank that its first pod has among the TrainJob's nodes.
    """
    kinds = "|".join(first_ranks)
    # An MPIJob's hosts have the job's name as their subdomain, too.
    subdomain = rf"(?:\.{re.escape(draft.source_name)}(?![\w-]))?"
    old = re.compile(rf"(?<![\w.-]){re.escape(draft.source_name)}-({kinds})-(\d+)(?![\w-]){subdomain}")

    def host(found: re.Match[str]) -> str:
        new = host_of(draft.name, first_ranks[found[1]] + int(found[2]))
        draft.find(
            "hosts",
            f"The job names the host {found[0]}.",
            "It is a Service of the old operator's for one pod; a TrainJob has none of that name.",
            f"{new} stands in its place.",
        )
        return new

    def renamed(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: renamed(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [renamed(inner) for inner in value]
        return old.sub(host, value) if isinstance(value, str) else value

    return renamed
