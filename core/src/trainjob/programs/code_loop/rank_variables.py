"""Variables with which torchrun starts the processes of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["build_rank_variables", "choose_port"]

_PORTS, _PORT_STEP = 16, 100


def build_rank_variables(variables: Mapping[str, str], local_rank: int, processes: int, run: str) -> dict[str, str]:
    """Return the variables of one process, as torchrun sets them.

    The source is torch 2.13, with the static rendezvous.

    Args:
        variables: variables of the pod, with those of the Trainer for torchrun.
        local_rank: number of the process on its node, from 0.
        processes: number of processes of each node.
        run: identifier of the run.
    """
    nodes, node = int(variables["PET_NNODES"]), int(variables.get("PET_NODE_RANK", "0"))
    rank, world = str(node * processes + local_rank), str(nodes * processes)
    threads = {"OMP_NUM_THREADS": "1"} if processes > 1 and "OMP_NUM_THREADS" not in variables else {}
    return {
        "RANK": rank,
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": str(processes),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(nodes),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": variables["PET_MASTER_ADDR"],
        "MASTER_PORT": variables["PET_MASTER_PORT"],
        "TORCHELASTIC_RUN_ID": run,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        # The process of rank 0 opens the store, because there is no agent of torchrun.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": variables.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        **threads,
    }


def choose_port(port: str, generation: int) -> str:
    """Return the port at which the nodes meet in the runs of a generation of changes.

    A node that still runs the generation before does not meet the nodes of this one. On the laptop cluster, the next
    ports are those of other TrainJobs.

    Args:
        port: port that the Trainer has set.
        generation: number of the generation; 0 is the one without changes.
    """
    return str(int(port) + generation % _PORTS * _PORT_STEP)
