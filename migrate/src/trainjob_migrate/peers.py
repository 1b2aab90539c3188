"""Conversion of jobs whose pods run the same program and find each other by variables.

These are XGBoostJobs and JAXJobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainjob.manifest import Dialect
from trainjob.status.reading import table
from trainjob_migrate.draft import Draft, Shape
from trainjob_migrate.environment import PORT, UNBUFFERED
from trainjob_migrate.hosts import renaming
from trainjob_migrate.ledger import Path
from trainjob_migrate.pod_template import convert_template
from trainjob_migrate.replicas import Replicas, claim_same_template, convert_count, replicas_of
from trainjob_migrate.run_policy import convert_restarts, convert_run_policy

_STRICTEST = ("Never", "ExitCode", "OnFailure")
_RESTARTS = "Never"  # default of both kinds
_POLICY: Path = ("spec", "runPolicy")


@dataclass(frozen=True)
class Peers:
    """A kind of such jobs.

    Attributes:
        specs: field of the spec that holds the replicas.
        counts: kinds of replicas in the order of their ranks, with the required number of each; None for any number.
            The first kind is required.
        container: name of the training container.
        shape: the runtime on which they run.
        variables: function that returns the variables that the Training Operator sets besides PYTHONUNBUFFERED, for a
            name and a number of nodes.
        reserved: variables that only the Trainer may set on that runtime.
        why: the variables that the Trainer sets instead, and the effect on a program that reads the old ones.
    """

    specs: str
    counts: Mapping[str, int | None]
    container: str
    shape: Shape
    variables: Callable[[str, int], list[dict[str, Any]]]
    reserved: tuple[str, ...]
    why: str


def convert_peers(draft: Draft, job: Mapping[str, Any], kind: Peers) -> None:
    """Convert such a job into the draft.

    The nodes are its replicas in the order of their ranks.
    """
    spec = table(job, "spec")
    path: Path = ("spec", kind.specs)
    replicas = {role: found for role in kind.counts if (found := replicas_of(spec.get(kind.specs), path, role))}
    first = next(iter(kind.counts))
    if first not in replicas:
        draft.ledger.refused(path, f"a {first} is wanted")
        return
    # Up to 2.1 the Trainer supports torch and MPI only; the variables that are set here are sufficient.
    is_known = draft.dialect is Dialect.V2_2
    draft.shape = kind.shape if is_known else replace(kind.shape, runtime="", policy={"numNodes": 1})
    nodes = 0
    first_ranks = {}
    for role, one in replicas.items():
        first_ranks[role.lower()] = nodes
        nodes += convert_count(draft, one, exactly=kind.counts[role])
    draft.trainer["numNodes"] = nodes
    draft.rename = renaming(draft, first_ranks)
    _restarts(draft, spec, list(replicas.values()))
    convert_run_policy(draft, _POLICY, spec.get("runPolicy"))
    _set_variables(draft, kind, nodes)
    *others, kept = replicas.values()
    convert_template(draft, (*kept.path, "template"), kept.template, main=kind.container)
    for other in others:
        claim_same_template(draft, other, kept)


def _restarts(draft: Draft, spec: Mapping[str, Any], replicas: list[Replicas]) -> None:
    """Claim the restart policies; if they differ, the strictest one applies.

    At worst the job ends although the Training Operator would have restarted a pod.
    """
    policies = {one.path: str(one.spec.get("restartPolicy") or _RESTARTS) for one in replicas}
    known = [policy for policy in _STRICTEST if policy in policies.values()]
    counts = known[0] if known and len(set(policies.values())) > 1 else policies[replicas[0].path]
    for path, policy in policies.items():
        if policy != counts and policy in _STRICTEST:
            draft.ledger.dropped((*path, "restartPolicy"), f"pods of a TrainJob have one: {counts}, the strictest")
            draft.find(
                "restarts",
                "The restart policies of the replicas differ.",
                "The nodes of a TrainJob are pods of one Job, which has one policy for all of them.",
                f"The strictest is taken, {counts}; make them the same for another one.",
            )
    limit = table(spec, "runPolicy").get("backoffLimit")
    paths: list[Path] = [(*path, "restartPolicy") for path, policy in policies.items() if policy == counts]
    convert_restarts(draft, paths, counts, (*_POLICY, "backoffLimit"), limit)


def _set_variables(draft: Draft, kind: Peers, nodes: int) -> None:
    draft.environment += [UNBUFFERED, *kind.variables(draft.name, nodes)]
    names = [variable["name"] for variable in draft.environment]
    draft.reserved |= dict.fromkeys(names, "the Training Operator sets it itself, and so does the TrainJob")
    draft.reserved |= dict.fromkeys(kind.reserved, "the Trainer sets it, and refuses another's")
    told = ", ".join(names)
    draft.find(
        "environment",
        f"The Training Operator sets {told}.",
        kind.why,
        "They are set in spec.trainer.env, as they were, with the hosts of the TrainJob and the Trainer's port "
        f"{PORT}; the Trainer's own are there as well.",
    )
