"""Comparison of a Training Operator v1 job and a TrainJob: their pods and their results."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from trainjob.status import Phase, derive_verdict
from trainjob.status.nested_fields import get_int, get_list, get_mapping, get_str, true_conditions
from trainjob_migrate.hosts import NAME_VARIABLE
from trainjob_migrate.nodes import Node, list_trainjob_nodes, list_v1_nodes

__all__ = ["Comparison", "Row", "compare"]

# Training operator 1.9, pkg/controller.v1/pytorch/envvar.go, sets these in every container. torchrun does so for each
# of its processes; the Trainer (2.3, pkg/runtime/framework/plugins/torch/torch.go) does not.
_OPERATOR_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
_PLATFORM_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "JOB_COMPLETION_INDEX", NAME_VARIABLE["name"])
_ARGV = ("command", "args")
_LAUNCHERS = ("torchrun", "torch.distributed", "accelerate", "deepspeed")
_MAX_SHOWN = 4  # ranks listed in a cell if their values differ
# The conditions of a v1 job (pkg/apis/kubeflow.org/v1/common_types.go), final ones first, and a TrainJob's names.
_STATES = ("Failed", "Succeeded", "Suspended", "Restarting", "Running", "Created")
_PHASES = {"Succeeded": Phase.COMPLETE.value}


@dataclass(frozen=True)
class Row:
    """One aspect of both jobs.

    Attributes:
        aspect: name of the aspect, such as `image` or `env NCCL_DEBUG`.
        before: value of the v1 job.
        after: value of the TrainJob.
        same: whether the values agree; None if they need not agree.
        note: meaning of the difference; empty if it needs no explanation.
    """

    aspect: str
    before: str
    after: str
    same: bool | None
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """Both jobs, aspect by aspect.

    Attributes:
        before: kind, namespace and name of the v1 job.
        after: kind, namespace and name of the TrainJob.
        rows: the compared aspects.
    """

    before: str
    after: str
    rows: tuple[Row, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values.

        The keys are `before`, `after` and `rows`; each row has `aspect`, `before`, `after`, `same` and `note`.
        """
        return {**asdict(self), "rows": [asdict(row) for row in self.rows]}


def compare(
    job: Mapping[str, Any],
    pods: Sequence[Mapping[str, Any]],
    train_job: Mapping[str, Any],
    train_pods: Sequence[Mapping[str, Any]],
) -> Comparison:
    """Compare a v1 job with a TrainJob.

    If a job has no pods any more, the values of its spec are used, as far as the spec has them.

    Args:
        job: the v1 job, of any kind.
        pods: pods of the v1 job.
        train_job: the TrainJob.
        train_pods: pods of the TrainJob.
    """
    old, new = list_v1_nodes(job, pods), list_trainjob_nodes(train_job, train_pods)
    rows = [
        _state(job, train_job),
        Row("from start to end", _format_duration(*_job_times(job)), _format_duration(*_job_times(train_job)), None),
        Row(
            "containers ran for",
            _format_duration(*_container_times(old)),
            _format_duration(*_container_times(new)),
            None,
        ),
        _exit_code_row(old, new),
        Row("restarts", _restarts(old), _restarts(new), None),
        Row("pods", _roles(old), _roles(new), len(old) == len(new), _missing_pods_note(pods, train_pods)),
        Row("world size", (before := _world_size(job, old)), (after := _world_size(train_job, new)), before == after),
        *(_row(name, old, new, _field(name)) for name in ("image", "command", "args")),
        *(_row(name, old, new, _amounts(name)) for name in ("requests", "limits")),
        *_environment(old, new),
    ]
    return Comparison(_format_name(job), _format_name(train_job), tuple(rows))


def _format_name(job: Mapping[str, Any]) -> str:
    return f"{get_str(job, 'kind')} {get_str(job, 'metadata', 'namespace')}/{get_str(job, 'metadata', 'name')}"


# -- states, times and exit codes ----------------------------------------------------------------------------------


def _state(job: Mapping[str, Any], train_job: Mapping[str, Any]) -> Row:
    true, verdict = true_conditions(job), derive_verdict(train_job)
    before = next((state for state in _STATES if state in true), "not started")
    note = "; ".join(filter(None, (get_str(true.get("Failed", {}), "message"), verdict.message)))
    return Row("state", before, verdict.phase.value, _PHASES.get(before, before) == verdict.phase.value, note)


def _job_times(job: Mapping[str, Any]) -> tuple[str, str]:
    """Return when a job started and when it ended, according to its own status."""
    true = true_conditions(job)
    ended = next((true[kind] for kind in ("Failed", "Succeeded", "Complete") if kind in true), {})
    began = get_str(job, "status", "startTime") or get_str(job, "metadata", "creationTimestamp")
    return began, get_str(job, "status", "completionTime") or get_str(ended, "lastTransitionTime")


def _container_times(nodes: Sequence[Node]) -> tuple[str, str]:
    """Return the start of the first container and the end of the last one.

    Both are empty unless all containers have ended.
    """
    ends = [get_mapping(node.status, "state", "terminated") for node in nodes]
    if not ends or not all(ends):
        return "", ""
    return min(get_str(end, "startedAt") for end in ends), max(get_str(end, "finishedAt") for end in ends)


def _format_duration(began: str, ended: str) -> str:
    try:
        length = datetime.fromisoformat(ended.replace("Z", "+00:00")) - datetime.fromisoformat(
            began.replace("Z", "+00:00")
        )
    except (ValueError, TypeError):
        return "-"
    return str(timedelta(seconds=int(length.total_seconds())))


def _exit_code_row(old: Sequence[Node], new: Sequence[Node]) -> Row:
    before, after = ([_exit_code(node) for node in side] for side in (old, new))
    same = {*before} == {*after} if all(before) and all(after) else None
    return Row("exit codes", _format_values(before, old), _format_values(after, new), same)


def _restarts(nodes: Sequence[Node]) -> str:
    return str(sum(get_int(node.status, "restartCount") for node in nodes))


def _exit_code(node: Node) -> str:
    """Return the exit code of a node's container; empty if it has not ended."""
    ended = get_mapping(node.status, "state", "terminated") or get_mapping(node.status, "lastState", "terminated")
    return str(get_int(ended, "exitCode")) if ended else ""


# -- values of the pods -------------------------------------------------------------------------------------------


def _roles(nodes: Sequence[Node]) -> str:
    return ", ".join(f"{role} {count}" for role, count in Counter(node.role for node in nodes).items()) or "none"


def _missing_pods_note(pods: Sequence[Any], train_pods: Sequence[Any]) -> str:
    missing = [name for name, there in (("v1 job", pods), ("TrainJob", train_pods)) if not there]
    return f"no pods exist for the {' and the '.join(missing)}: the values are those of its spec" if missing else ""


def _world_size(job: Mapping[str, Any], nodes: Sequence[Node]) -> str:
    """Return how many processes train together.

    The environment of the leader determines the number, and otherwise the spec of the job.
    """
    leader = get_list(nodes[0].container, "env") if nodes else []
    variables = {get_str(one, "name"): get_str(one, "value") for one in leader}
    if size := variables.get("WORLD_SIZE"):
        return size
    count = variables.get("PET_NNODES") or str(_count(job, nodes))
    processes = variables.get("PET_NPROC_PER_NODE") or _processes(get_mapping(job, "spec"))
    if count.isdigit() and processes.isdigit():
        return str(int(count) * int(processes))
    return f"{count} x {processes}"


def _count(job: Mapping[str, Any], nodes: Sequence[Node]) -> int:
    """Return the number of nodes; MPI's launcher counts only if the spec says so."""
    workers = [node for node in nodes if node.role.lower() != "launcher"]
    return get_int(job, "spec", "trainer", "numNodes") or len(workers) + (
        get_mapping(job, "spec").get("runLauncherAsWorker") is True
    )


def _processes(spec: Mapping[str, Any]) -> str:
    given = (get_mapping(spec, "trainer").get("numProcPerNode"), spec.get("slotsPerWorker"), spec.get("nprocPerNode"))
    return str(next((value for value in given if value is not None), 1))


_Getter = Callable[[Mapping[str, Any]], str]
"""Function that returns one value of a container; empty if the container does not have it."""


def _row(aspect: str, old: Sequence[Node], new: Sequence[Node], get_value: _Getter) -> Row:
    """Return the row of one aspect.

    The comparison uses the real values; the shown values have secrets replaced.
    """
    before, after = ([get_value(node.container) for node in side] for side in (old, new))
    same = before == after or len({*before, *after}) == 1
    shown_before, shown_after = (
        _format_values([get_value(node.redacted_container) for node in side], side) for side in (old, new)
    )
    return Row(aspect, shown_before, shown_after, same)


def _format_values(values: Sequence[str], nodes: Sequence[Node]) -> str:
    """Return the common value of all nodes, or the values of the first nodes if they differ."""
    if len(set(values)) < 2:
        return (values[0] if values else "") or "-"
    shown = [f"{node}: {value or '-'}" for node, value in zip(nodes, values, strict=True)][:_MAX_SHOWN]
    return ", ".join([*shown, f"... ({len(values)} pods)"] if len(values) > _MAX_SHOWN else shown)


def _field(name: str) -> _Getter:
    def get_value(container: Mapping[str, Any]) -> str:
        value = container.get(name)
        return shlex.join(map(str, value)) if isinstance(value, list) else str(value or "")

    return get_value


def _amounts(kind: str) -> _Getter:
    def get_value(container: Mapping[str, Any]) -> str:
        return ", ".join(
            f"{name}: {amount}" for name, amount in sorted(get_mapping(container, "resources", kind).items())
        )

    return get_value


# -- environment variables -----------------------------------------------------------------------------------------


def _environment(old: Sequence[Node], new: Sequence[Node]) -> Iterator[Row]:
    """Yield a row for each variable of either job, and one for the `envFrom` sources."""
    names = {get_str(one, "name") for node in (*old, *new) for one in get_list(node.container, "env")}
    launched = any(name in _field(part)(node.container) for node in new for part in _ARGV for name in _LAUNCHERS)
    for name in sorted(names):
        yield _judge_variable(_row(f"env {name}", old, new, _variable(name)), name, launched=launched)
    sources = _row("env from", old, new, _env_from)
    if sources.before != "-" or sources.after != "-":
        yield sources


def _judge_variable(row: Row, name: str, *, launched: bool) -> Row:
    """Return the row of a variable with its judgement.

    Variables that each platform sets in its own way need not agree. A note reports variables of the Training Operator
    that the TrainJob's containers lack.
    """
    if name in _OPERATOR_VARIABLES and row.after == "-":
        if launched:
            return replace(row, same=None, note="the launcher sets it for each process")
        return replace(row, note="not set: a script that reads it trains alone on each node")
    return replace(row, same=None) if name in _PLATFORM_VARIABLES or name.startswith("PET_") else row


def _variable(name: str) -> _Getter:
    def get_value(container: Mapping[str, Any]) -> str:
        variable = next((one for one in get_list(container, "env") if get_str(one, "name") == name), {})
        source = get_mapping(variable, "valueFrom")
        return _reference(source) if source else get_str(variable, "value")

    return get_value


def _env_from(container: Mapping[str, Any]) -> str:
    return ", ".join(_reference(source) for source in get_list(container, "envFrom"))


def _reference(source: Mapping[str, Any]) -> str:
    """Format the source of a variable, such as `secretKeyRef hf/token`."""
    kinds = (kind for kind in source if isinstance(source[kind], Mapping))
    kind = next(kinds, "")
    place = get_mapping(source, kind)
    parts = (get_str(place, part) for part in ("name", "key", "fieldPath", "resource"))
    return f"{kind} {'/'.join(filter(None, parts))}"
