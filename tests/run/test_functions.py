"""A Python function as a TrainJob: real torchrun, real torch.distributed, two nodes."""

from __future__ import annotations

import pytest

from trainjob import CustomTrainer, RunKey, TrainJob, submit, wait
from trainjob.run import Listener

pytestmark = [pytest.mark.torchtune, pytest.mark.timeout(120)]


def add_up_ranks(greeting):
    import torch
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    total = torch.tensor([torch.distributed.get_rank() + 1.0])
    torch.distributed.all_reduce(total)
    print(f"{greeting}: {int(total)} of {torch.distributed.get_world_size()}")
    torch.distributed.destroy_process_group()


def test_on_two_nodes(cluster, unique):
    trainer = CustomTrainer(
        func=add_up_ranks, func_args={"greeting": "$HOME `id` $(X)"}, num_nodes=2, num_proc_per_node=1
    )
    lines = []
    reference = submit(cluster, TrainJob(trainer=trainer), RunKey("test", "functions", unique, "run-1"))
    outcome = wait(cluster, reference, listener=Listener(on_log=lines.append))
    outcome.raise_for_failure()
    assert {str(line) for line in lines} >= {f"[node-{rank}] $HOME `id` $(X): 3 of 2" for rank in (0, 1)}
