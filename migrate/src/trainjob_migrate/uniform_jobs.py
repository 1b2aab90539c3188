"""Conversion of jobs whose pods run the same program and find each other by variables.

These are XGBoostJobs and JAXJobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainjob.manifest import Dialect
from trainjob.status.nested_fields import get_mapping
from trainjob_migrate.draft import Draft, RuntimeShape
from trainjob_migrate.environment import PORT, UNBUFFERED
from trainjob_migrate.field_records import Path
from trainjob_migrate.hosts import set_host_names
from trainjob_migrate.pod_template import convert_template
from trainjob_migrate.replicas import Replicas, convert_count, find_replicas, record_unused_template
from trainjob_migrate.run_policy import convert_restarts, convert_run_policy

_POLICIES_BY_STRICTNESS = ("Never", "ExitCode", "OnFailure")
_DEFAULT_RESTART_POLICY = "Never"  # default of both kinds
_POLICY: Path = ("spec", "runPolicy")


@dataclass(frozen=True)
class UniformJobKind:
    """A kind of such jobs.

    Attributes:
        replica_specs_field: field of the spec that holds the replicas.
        replica_counts: kinds of replicas in the order of their ranks, with the required number of each; None for any
            number. The first kind is required.
        container: name of the training container.
        shape: the runtime on which they run.
        variables: function that returns the variables that the Training Operator sets besides PYTHONUNBUFFERED, for a
            number of nodes.
        reserved: variables that only the Trainer may set on that runtime.
        explanation: the variables that the Trainer sets instead, and the effect on a program that reads the old ones.
    """

    replica_specs_field: str
    replica_counts: Mapping[str, int | None]
    container: str
    shape: RuntimeShape
    variables: Callable[[int], list[dict[str, Any]]]
    reserved: tuple[str, ...]
    explanation: str


def convert_uniform_job(draft: Draft, job: Mapping[str, Any], kind: UniformJobKind) -> None:
    """Convert such a job into the draft.

    The nodes are its replicas in the order of their ranks.
    """
    spec = get_mapping(job, "spec")
    path: Path = ("spec", kind.replica_specs_field)
    replicas = {
        role: found
        for role in kind.replica_counts
        if (found := find_replicas(spec.get(kind.replica_specs_field), path, role))
    }
    first = next(iter(kind.replica_counts))
    if first not in replicas:
        draft.fields.mark_refused(path, f"the job must have a {first}")
        draft.fields.mark_unchecked(("spec",), path)
        return
    # Up to 2.1 the Trainer supports torch and MPI only; the variables that are set here are sufficient.
    is_known = draft.dialect is Dialect.V2_2
    draft.shape = kind.shape if is_known else replace(kind.shape, runtime="", policy={"numNodes": 1})
    nodes = 0
    first_ranks = {}
    for role, one in replicas.items():
        first_ranks[role.lower()] = nodes
        nodes += convert_count(draft, one, exactly=kind.replica_counts[role])
    draft.trainer["numNodes"] = nodes
    set_host_names(draft, first_ranks)
    _restarts(draft, spec, list(replicas.values()))
    convert_run_policy(draft, _POLICY, spec.get("runPolicy"))
    _set_variables(draft, kind, nodes)
    *others, kept = replicas.values()
    for other in others:
        record_unused_template(draft, other, kept, main=kind.container)
    convert_template(draft, (*kept.path, "template"), kept.template, main=kind.container)


def _restarts(draft: Draft, spec: Mapping[str, Any], replicas: list[Replicas]) -> None:
    """Record the restart policies; if they differ, the strictest policy applies.

    At worst the job ends although the Training Operator would have restarted a pod.
    """
    policies = {one.path: str(one.spec.get("restartPolicy") or _DEFAULT_RESTART_POLICY) for one in replicas}
    known = [policy for policy in _POLICIES_BY_STRICTNESS if policy in policies.values()]
    strictest = known[0] if known and len(set(policies.values())) > 1 else policies[replicas[0].path]
    for path, policy in policies.items():
        if policy != strictest and policy in _POLICIES_BY_STRICTNESS:
            draft.fields.mark_dropped(
                (*path, "restartPolicy"), f"pods of a TrainJob have one policy: {strictest}, the strictest"
            )
            draft.add_finding(
                "restarts",
                "The restart policies of the replicas differ.",
                "The nodes of a TrainJob are pods of one Job, which has one policy for all of them.",
                f"The strictest policy applies: {strictest}. For another policy, set the same one in all replicas.",
            )
    limit = get_mapping(spec, "runPolicy").get("backoffLimit")
    paths: list[Path] = [(*path, "restartPolicy") for path, policy in policies.items() if policy == strictest]
    convert_restarts(draft, paths, strictest, (*_POLICY, "backoffLimit"), limit)


def _set_variables(draft: Draft, kind: UniformJobKind, nodes: int) -> None:
    draft.environment += [UNBUFFERED, *kind.variables(nodes)]
    names = [variable["name"] for variable in draft.environment]
    draft.reserved |= dict.fromkeys(names, "the Training Operator and the TrainJob set it themselves")
    draft.reserved |= dict.fromkeys(kind.reserved, "reserved: the Trainer sets it and rejects other values")
    draft.add_finding(
        "environment",
        f"The Training Operator sets {', '.join(names)}.",
        kind.explanation,
        "They are set in spec.trainer.env, with the hosts of the TrainJob and the Trainer's port "
        f"{PORT}. The Trainer's own variables are set, too.",
    )
