"""Variables and port that the Trainer sets for a training framework; pure functions.

The policy of the runtime selects the framework. Source: Trainer 2.3
`pkg/runtime/framework/plugins/{torch,jax,xgboost}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from trainjob_local.controllers import torchtune
from trainjob_local.objects import Json

__all__ = ["set_framework_variables", "upsert_variables"]

_PORT = 29500
_RANK = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}


def set_framework_variables(
    container: Json,
    job: Json,
    own: Sequence[Json],
    policy: Mapping[str, Any],
    scale: torchtune.Scale,
    command: Sequence[str],
) -> None:
    """Set the framework's variables and port on the training container.

    For TorchTune, the command of the container is set too.

    Args:
        container: the training container; changed in place.
        job: the TrainJob, which has a trainer.
        own: the variables that the TrainJob sets itself; JAX's variables precede them, those of other frameworks
            follow.
        policy: the runtime's mlPolicy.
        scale: number of nodes, processes per node and GPUs per node.
        command: the runtime's own command.
    """
    address = f"{job['metadata']['name']}-node-0-0.{job['metadata']['name']}"
    if "jax" in policy:
        framework_variables = _build_variables(
            JAX_NUM_PROCESSES=str(scale.nodes), JAX_PROCESS_ID=_RANK, JAX_COORDINATOR_ADDRESS=f"{address}:{_PORT}"
        )
        variables = [*framework_variables, *own]
    elif "xgboost" in policy:
        framework_variables = _build_variables(
            DMLC_TRACKER_URI=address,
            DMLC_TRACKER_PORT=str(_PORT),
            DMLC_TASK_ID=_RANK,
            DMLC_NUM_WORKER=str(scale.nodes * max(1, scale.gpus)),
        )
        variables = [*own, *framework_variables]
    elif "torch" in policy:
        variables = [*own, *_torch_variables(container, job, scale, address, command)]
    else:
        upsert_variables(container, own)
        return
    upsert_variables(container, variables)
    _upsert_ports(container, [{"containerPort": _PORT, "protocol": "TCP"}])


def _torch_variables(
    container: Json, job: Json, scale: torchtune.Scale, address: str, command: Sequence[str]
) -> list[Json]:
    processes = "auto" if scale.processes is None else str(scale.processes)
    variables = _build_variables(PET_NNODES=str(scale.nodes), PET_NPROC_PER_NODE=processes, PET_NODE_RANK=_RANK)
    if job["spec"]["trainer"].get("command") != torchtune.ENTRYPOINT:
        return [*variables, *_build_variables(PET_MASTER_ADDR=address, PET_MASTER_PORT=str(_PORT))]
    rendezvous = [f"--rdzv_endpoint={address}:{_PORT}"] if scale.needs_rendezvous else []
    args = job["spec"]["trainer"].get("args") or []
    recipe, config = torchtune.select_recipe(job["spec"]["runtimeRef"]["name"], scale, args)
    container["command"] += [*rendezvous, recipe, "--config", config, *torchtune.immutable_overrides(command)]
    return variables


def _build_variables(**values: str | Mapping[str, Any]) -> list[Json]:
    return [
        {"name": name, **({"value": value} if isinstance(value, str) else {"valueFrom": dict(value)})}
        for name, value in values.items()
    ]


def upsert_variables(container: Json, variables: Sequence[Json]) -> None:
    """Replace variables of the same names in place, and append the others.

    Source: Trainer 2.3 `pkg/apply/apply.go`.
    """
    for variable in variables:
        _upsert(container, "env", variable, [_same_name(one, variable) for one in container.get("env") or []])


def _upsert_ports(container: Json, ports: Sequence[Json]) -> None:
    """Replace or append ports.

    Ports without a name count as the same port, so the first of them is replaced.
    """
    for port in ports:
        present = container.get("ports") or []
        same = [one.get("containerPort") == port.get("containerPort") or _same_name(one, port) for one in present]
        _upsert(container, "ports", port, same)


def _same_name(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.get("name") == other.get("name")


def _upsert(container: Json, field: str, item: Json, same: Sequence[bool]) -> None:
    present = container.setdefault(field, [])
    if any(same):
        present[same.index(True)] = deepcopy(item)
    else:
        present.append(deepcopy(item))
