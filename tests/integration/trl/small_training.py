"""Training of a small PyTorch model, which torchrun starts and tests kill.

Usage: small_training.py '{"kind": "ddp", "output": FOLDER, "record": FILE, "steps": 12}'

`kind` is the wrapper: `plain`, `ddp` or `fsdp`. With `random`, the model has dropout, BatchNorm and a parameter without
a gradient. Each process appends its samples to RECORD.RANK; rank 0 writes the digest of the weights and the loss to
RECORD. With `sigterm`, a rank and a step, that process gets SIGTERM in that step. Each step takes `seconds`.
"""

from __future__ import annotations

import json
import sys


def train(
    kind: str,
    output: str,
    record: str,
    steps: int,
    random: bool = False,
    sigterm: list[int] | None = None,
    seconds: float = 0.0,
) -> None:
    import hashlib
    import json
    import os
    import signal
    import time
    from pathlib import Path

    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    from trainjob.checkpoint import resume_training

    torch.set_num_threads(1)
    torch.manual_seed(3)
    inputs, batch = torch.randn(96, 8), 12
    targets = inputs.square().sum(1, keepdim=True).sin()
    layers = [nn.Linear(8, 33), nn.BatchNorm1d(33), nn.Dropout(0.2)] if random else [nn.Linear(8, 33)]
    model = nn.Sequential(*layers, nn.Tanh(), nn.Linear(33, 1))
    if random:
        model.register_parameter("unused", nn.Parameter(torch.ones(5)))
    rank, size = 0, 1
    if kind != "plain":
        dist.init_process_group("gloo")
        rank, size = dist.get_rank(), dist.get_world_size()
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=random)
    elif kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (size,))
        for layer in (model[0], model[-1]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    torch.manual_seed(11 + rank)  # other dropout in each process

    training = resume_training(output, model=model, optimizer=optimizer, scheduler=scheduler)
    for step in training.steps(steps, save_every=4):
        epoch, position = divmod(step * batch, len(inputs))
        order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(epoch))
        samples = order[position : position + batch].chunk(size)[rank]
        with Path(f"{record}.{rank}").open("a") as file:
            file.write(json.dumps([size, step, samples.tolist()]) + "\n")
        loss = nn.functional.mse_loss(model(inputs[samples]), targets[samples])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        time.sleep(seconds)
        training.log(loss=loss, learning_rate=scheduler.get_last_lr()[0])
        if [rank, step] == sigterm:
            os.kill(os.getpid(), signal.SIGTERM)

    model.eval()
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(inputs), targets).item()
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if rank == 0:
        parts = [name.encode() + weights[name].numpy().tobytes() for name in sorted(weights)]
        Path(record).write_text(json.dumps({"weights": hashlib.sha256(b"".join(parts)).hexdigest(), "loss": loss}))
    if kind != "plain":
        dist.destroy_process_group()


if __name__ == "__main__":
    train(**json.loads(sys.argv[1]))
