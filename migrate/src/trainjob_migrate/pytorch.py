"""Conversion of a PyTorchJob, for the runtime `torch-distributed`.

Source: training-operator 1.9 pkg/apis/kubeflow.org/v1/pytorch_types.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainjob.manifest import Dialect
from trainjob.spec.redaction import redact
from trainjob_migrate.container import find_container
from trainjob_migrate.draft import Draft
from trainjob_migrate.elastic import convert_elastic
from trainjob_migrate.environment import (
    OPERATOR_VARIABLES,
    RESERVED,
    UNBUFFERED,
    Launch,
    Program,
    build_operator_variables,
    hooks_read_operator_variables,
)
from trainjob_migrate.field_records import Path
from trainjob_migrate.hosts import set_host_names
from trainjob_migrate.pod_template import convert_template
from trainjob_migrate.replicas import Replicas, convert_count, find_replicas, record_unused_template
from trainjob_migrate.run_policy import convert_restarts, convert_run_policy

_CONTAINER = "pytorch"
_SPECS: Path = ("spec", "pytorchReplicaSpecs")
_POLICY: Path = ("spec", "runPolicy")
_ELASTIC: Path = ("spec", "elasticPolicy")
_DEFAULT_RESTART_POLICY = "OnFailure"  # default of the Training Operator
# Fields at their place in the pytorch-operator, before it became a part of the Training Operator.
_FORMER_FIELDS = ("activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "ttlSecondsAfterFinished")
_NUMBER = re.compile(r"[1-9]\d{0,4}")


def convert_pytorch(draft: Draft, job: Mapping[str, Any], launch: Launch) -> None:
    """Convert a PyTorchJob into the draft."""
    spec = job.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    specs = spec.get("pytorchReplicaSpecs")
    master, worker = (find_replicas(specs, _SPECS, role) for role in ("Master", "Worker"))
    kept = worker or master
    if kept is None:
        draft.fields.mark_refused(_SPECS, "the job must have a Master or Workers")
        draft.fields.mark_unchecked(("spec",), _SPECS)
        return
    for field in _FORMER_FIELDS:
        draft.fields.mark_dropped(("spec", field), "the Training Operator reads it only in runPolicy")
    set_host_names(draft, {"master": 0, "worker": 1 if master else 0})
    nodes = (convert_count(draft, master, exactly=1) if master else 0) + (convert_count(draft, worker) if worker else 0)
    draft.trainer["numNodes"] = nodes
    _, container = find_container(kept.template, _CONTAINER)
    processes = _processes(draft, spec, container)
    has_valid_size = all(one.has_valid_count for one in (master, worker) if one)
    known_nodes = nodes if has_valid_size else None
    convert_elastic(draft, _ELASTIC, spec.get("elasticPolicy"), known_nodes)
    _restarts(draft, spec, [replicas for replicas in (worker, master) if replicas])
    convert_run_policy(draft, _POLICY, spec.get("runPolicy"))
    draft.reserved |= dict.fromkeys(RESERVED, "reserved: the Trainer sets it and rejects other values")
    draft.reserved["PYTHONUNBUFFERED"] = "the Training Operator and the TrainJob set it to 1"
    draft.environment.append(UNBUFFERED)
    if master:
        _convert_environment(draft, container, known_nodes, processes, launch, spec)
    elif not spec.get("elasticPolicy"):
        _report_missing_master(draft)
    if master and kept is not master:
        record_unused_template(draft, master, kept, main=_CONTAINER)
    convert_template(draft, (*kept.path, "template"), kept.template, main=_CONTAINER)


def _restarts(draft: Draft, spec: Mapping[str, Any], replicas: list[Replicas]) -> None:
    policies = [one.spec.get("restartPolicy") or _DEFAULT_RESTART_POLICY for one in replicas]
    paths: list[Path] = [(*one.path, "restartPolicy") for one in replicas]
    policy = spec.get("runPolicy")
    limit = policy.get("backoffLimit") if isinstance(policy, Mapping) else None
    if len(set(map(str, policies))) > 1:
        reason = f"the Worker has {policies[0]}, but a TrainJob has one template: make it equal in both"
        draft.fields.mark_refused(paths[1], reason)
    convert_restarts(draft, paths, policies[0], (*_POLICY, "backoffLimit"), limit)


def _processes(draft: Draft, spec: Mapping[str, Any], container: Mapping[str, Any]) -> int:
    """Record the number of processes per node and return it.

    The result is 1 if the field is not a number, as for the Training Operator's WORLD_SIZE.
    """
    elastic = spec.get("elasticPolicy")
    old: Path = (*_ELASTIC, "nProcPerNode")
    path: Path = ("spec", "nprocPerNode")
    given = spec.get("nprocPerNode")
    if given is None and isinstance(elastic, Mapping):
        path, given = old, elastic.get("nProcPerNode")
    draft.fields.mark_dropped(
        old if path != old else ("spec", "nprocPerNode"), "the other field with this meaning takes precedence"
    )
    text = str(given)
    if _NUMBER.fullmatch(text):
        draft.fields.mark_converted(path, "spec.trainer.numProcPerNode")
        draft.trainer["numProcPerNode"] = int(text)
        return int(text)
    resources = container.get("resources")
    with_gpus = _has_gpus(resources)
    if text == "cpu" and with_gpus and draft.dialect is Dialect.V2_2:
        draft.fields.mark_refused(path, "with GPUs the Trainer would start one process per GPU; use a number")
    elif text in ("auto", "gpu", "cpu") and draft.dialect is not Dialect.V2_2:
        draft.fields.mark_converted(path, "spec.trainer.numProcPerNode")
        draft.trainer["numProcPerNode"] = text
    elif text in ("auto", "gpu", "cpu"):
        reason = "omitted: by default one process per GPU of resourcesPerNode, otherwise one per CPU"
        draft.fields.mark_converted(path, "spec.trainer.numProcPerNode", reason)
    if not with_gpus:
        _add_processes_finding(draft, container)
    return 1


def _add_processes_finding(draft: Draft, container: Mapping[str, Any]) -> None:
    program = Program(_texts(container.get("command")), _texts(container.get("args")))
    if program.is_torchrun and not program.has_process_count:
        draft.add_finding(
            "processes",
            "torchrun chooses the number of processes, and the job requests no GPUs.",
            "With the Training Operator it starts one for each CPU of the machine; with the Trainer, one for each CPU "
            "in resourcesPerNode, or one.",
            "Nothing. Set nprocPerNode to a number to get the same number everywhere.",
        )


def _has_gpus(resources: Any) -> bool:
    """Return whether the Trainer counts GPUs in the resources: names that contain `gpu`.

    Source: Trainer 2.3 pkg/runtime/runtime.go.
    """
    amounts = [resources.get(key) for key in ("limits", "requests")] if isinstance(resources, Mapping) else []
    return any("gpu" in name.lower() for one in amounts if isinstance(one, Mapping) for name in one)


def _convert_environment(
    draft: Draft,
    container: Mapping[str, Any],
    nodes: int | None,
    processes: int,
    launch: Launch,
    spec: Mapping[str, Any],
) -> None:
    """Provide the Training Operator's variables if the program may read them.

    They are set in the environment, or torchrun starts the program and sets them. `nodes` is None if the number of
    replicas is refused.
    """
    program = Program(_texts(container.get("command")), _texts(container.get("args")))
    reads_indirectly = program.runs_unknown_commands or hooks_read_operator_variables(container)
    if program.is_torchrun and not program.reads_operator_variables and not reads_indirectly:
        reason = "the Training Operator sets it itself, and torchrun sets it for its processes"
        draft.reserved |= dict.fromkeys(OPERATOR_VARIABLES, reason)
        return
    draft.reserved |= dict.fromkeys(
        OPERATOR_VARIABLES, "the Training Operator sets it itself; see the finding environment"
    )
    what = _describe_program(program)
    why = (
        "The Training Operator sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; the Trainer sets only what torchrun "
        f"reads (PET_NNODES and the like). Unchanged, {_describe_copy(nodes)}"
    )
    obstacle = _find_torchrun_obstacle(program, processes, spec)
    if launch is Launch.TORCHRUN and not obstacle:
        wrapped = program.with_torchrun()
        draft.trainer |= {"command": draft.rename_hosts(list(wrapped.command)), "numProcPerNode": 1}
        if wrapped.args:
            draft.trainer["args"] = draft.rename_hosts(list(wrapped.args))
        draft.field_reasons["command"] = "torchrun starts it and sets RANK and the like"
        command = " ".join(redact(list(wrapped.words)))
        draft.add_finding("environment", what, why, f"torchrun starts it, one process per node: {command}")
        return
    world = (nodes or 1) * processes
    draft.environment += build_operator_variables(world)
    obstacle_note = f" It is not started by torchrun: {obstacle}." if launch is Launch.TORCHRUN else ""
    size = f"WORLD_SIZE is {world}, " if nodes else ""
    done = f"They are set in spec.trainer.env: {size}RANK is the index of the pod.{obstacle_note}"
    draft.add_finding("environment", what, why, done)


def _report_missing_master(draft: Draft) -> None:
    """Report that the pods of v1 do not find each other.

    Source: training-operator 1.9 pkg/controller.v1/pytorch/envvar.go.
    """
    draft.add_finding(
        "environment",
        "The job has neither a Master nor an elasticPolicy.",
        "For such a job, the Training Operator sets no RANK, WORLD_SIZE and MASTER_ADDR, so the pods do not find each "
        "other.",
        "In the TrainJob, torchrun joins all nodes to one training. A program without torchrun finds no variables, as "
        "in v1; add a Master, and `convert` sets them.",
    )


def _describe_copy(nodes: int | None) -> str:
    """Describe the effect of the missing variables on an unchanged copy of the job."""
    if nodes == 1:
        return "a program that reads them would fail."
    trainings = f"{nodes} separate trainings" if nodes else "separate trainings"
    return f"the job would run {trainings} of one process, without an error, or fail because a variable is missing."


def _describe_program(program: Program) -> str:
    if not program.is_known:
        return "The image's entrypoint runs; the job does not show which variables it reads."
    command = " ".join(" ".join(redact(list(program.words))).split())
    short = command if len(command) <= 80 else f"{command[:79]}…"
    if program.is_torchrun and program.reads_operator_variables:
        return f"torchrun runs, and its command contains variables of the Training Operator: {short}"
    if program.is_torchrun:
        return f"torchrun runs, and a script, hook or probe can read variables of the Training Operator: {short}"
    return f"The program is started without torchrun: {short}"


def _find_torchrun_obstacle(program: Program, processes: int, spec: Mapping[str, Any]) -> str:
    """Return the reason why torchrun cannot start the program; empty if it can."""
    if not program.is_known:
        return "the image's entrypoint is not known"
    if program.is_torchrun:
        return "the program is torchrun itself"
    if program.is_expanded_by_kubernetes:
        return "Kubernetes expands the variables before the program starts"
    if processes > 1:
        return f"the job has one process per node, which starts the {processes} processes of nprocPerNode itself"
    specs = spec.get("pytorchReplicaSpecs")
    replicas = [find_replicas(specs, _SPECS, role) for role in ("Master", "Worker")]
    if any(one and one.spec.get("restartPolicy") == "ExitCode" for one in replicas):
        return "restartPolicy ExitCode needs the program's exit code, but torchrun always exits with 1"
    return ""


def _texts(words: Any) -> tuple[str, ...]:
    return tuple(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else ()
