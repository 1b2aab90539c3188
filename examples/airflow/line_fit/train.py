"""Learn the line with DistributedDataParallel; torchrun starts this module on each node."""

import argparse
import json

import torch
import torch.distributed as dist
from points import select_share
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps
    dist.init_process_group("gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    x, y = torch.tensor(select_share(rank, processes)).split(1, dim=1)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"process {rank} of {processes}: {len(x)} points, loss {loss.item():.2g}", flush=True)
    if rank == 0:
        learned = {"weight": model.module.weight.item(), "bias": model.module.bias.item()}
        print("trainjob result: " + json.dumps(learned), flush=True)
    dist.destroy_process_group()


main()
