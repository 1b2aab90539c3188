"""Checks of `resume_training` with several models, optimizers and other objects, which torchrun starts.

Usage: training_objects.py FOLDER save|load|refuse
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from trainjob.checkpoint import resume_training


class Loader:
    """A data loader whose state may differ between the processes."""

    def __init__(self, position: int = 0) -> None:
        self.position = position

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


def build() -> dict[str, Any]:
    """Return a GAN with tied weights, a compiled part, and a parameter without a gradient."""
    generator = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    generator[1].weight = generator[0].weight
    generator.register_parameter("unused", nn.Parameter(torch.zeros(3)))
    critic = torch.compile(nn.Linear(4, 1), backend="eager")
    groups = [{"params": [critic.weight], "lr": 0.1}, {"params": [critic.bias], "lr": 0.2}]
    return {
        "generator": generator,
        "critic": critic,
        "generator_optimizer": torch.optim.Adam(generator.parameters()),
        "critic_optimizer": torch.optim.SGD(groups, momentum=0.9),
        "scaler": torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2),
    }


def step(objects: dict[str, Any]) -> None:
    scaler = objects["scaler"]
    scaler.scale(objects["critic"](objects["generator"](torch.ones(2, 4))).sum()).backward()
    for name in ("generator_optimizer", "critic_optimizer"):
        scaler.step(objects[name])
        objects[name].zero_grad()
    scaler.update()


def flatten(objects: dict[str, Any]) -> dict[str, Any]:
    return {name: value.state_dict() for name, value in objects.items()}


@contextlib.contextmanager
def raises(kind: type[Exception], text: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")


def main(folder: str, action: str) -> None:
    if os.environ["WORLD_SIZE"] != "1":
        with raises(RuntimeError, "init_process_group"):
            resume_training(folder)
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    torch.manual_seed(5)
    objects = build()
    reference = build()
    for name in ("generator", "critic"):
        reference[name].load_state_dict(objects[name].state_dict())
    for _ in range(3):
        step(reference)
    if action == "save":
        training = resume_training(folder, **objects, loader=Loader(rank))
        for _ in training.steps(3, save_every=1):
            step(objects)
    elif action == "load":
        loader = Loader()
        resume_training(folder, **objects, loader=loader)
        assert loader.position == rank
    else:
        with raises(ValueError, "the state of loader differs between the 2 processes that saved "):
            resume_training(folder, **objects, loader=Loader())
        with raises(TypeError, "step is a int, whose state cannot be saved"):
            resume_training(folder, step=3)
        with raises(TypeError, "critic_optimizer is an optimizer: give the model"):
            resume_training(folder, critic_optimizer=objects["critic_optimizer"])
        return
    torch.testing.assert_close(flatten(objects), flatten(reference), rtol=0, atol=0)
    assert objects["generator"].unused not in objects["generator_optimizer"].state
    assert objects["generator"][0].weight is objects["generator"][1].weight


if __name__ == "__main__":
    main(*sys.argv[1:])
