"""A function with PyTorch's FSDP on two nodes: its sharded model learns the same as an unsharded one."""

from __future__ import annotations

import pytest

from trainjob import CustomTrainer, RunKey, TrainJob, submit, wait
from trainjob.lifecycle import Listener
from trainjob.status import parse_step_result

pytestmark = [pytest.mark.timeout(180), pytest.mark.torchtune]


def train_in_shards(steps):
    """Return the losses of a model that is trained whole and in shards.

    Each process has its half of the rows and of the sharded parameters.
    """
    import copy

    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    whole = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    x = torch.randn(32, 4)
    y = torch.stack([x.sum(1), x.prod(1)], 1)
    sharded, mesh = copy.deepcopy(whole), init_device_mesh("cpu", (processes,))
    for layer in (sharded[0], sharded[2], sharded):
        fully_shard(layer, mesh=mesh)
    losses, loss = {}, torch.zeros(())
    for name, model, rows in (("whole", whole, slice(None)), ("sharded", sharded, slice(rank, None, processes))):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
        dist.all_reduce(mean := loss.detach() / processes)
        losses[name] = mean.item()
    pairs = list(zip(whole.parameters(), sharded.parameters(), strict=True))
    difference = max((one - other.full_tensor()).abs().max().item() for one, other in pairs)
    kept = sum(other.to_local().numel() for _, other in pairs)
    print(f"process {rank} of {processes} keeps {kept} of {sum(one.numel() for one, _ in pairs)} parameters")
    dist.destroy_process_group()
    return {"losses": losses, "difference": difference}


@pytest.mark.usefixtures("torchrun_lock")
def test_a_sharded_model_learns_the_same_as_an_unsharded_one(cluster, unique, evidence):
    trainer = CustomTrainer(func=train_in_shards, func_args={"steps": 40}, num_nodes=2, num_proc_per_node=1)
    lines = []
    reference = submit(cluster, TrainJob(trainer=trainer), RunKey("test", "fsdp", unique, "run-1"))
    wait(cluster, reference, listener=Listener(on_log=lines.append)).raise_for_failure()
    [result] = [parsed["result"] for line in lines if (parsed := parse_step_result(line.text))]
    for rank in (0, 1):
        assert f"[node-{rank}] process {rank} of 2 keeps 57 of 114 parameters" in map(str, lines)
    assert result["difference"] < 1e-4
    assert result["losses"]["sharded"] == pytest.approx(result["losses"]["whole"], rel=1e-3)
    assert result["losses"]["whole"] < 1.0  # the first loss is higher
    evidence("features", row="PyTorch DDP/FSDP", cell="real run")
