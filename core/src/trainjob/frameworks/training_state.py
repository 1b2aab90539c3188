"""State of a PyTorch training, saved with torch.distributed.checkpoint so that another number of processes can load it.

A checkpoint has the weights and the optimizers' states by the names of the parameters, without the prefixes of DDP and
torch.compile. In addition, each process saves one value: the states of all other objects, and its random numbers.
"""

from __future__ import annotations

import contextlib
import pickle
import random
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

__all__ = ["TrainingState"]

_MODEL, _OPTIMIZER, _PROCESS = "model", "optimizer", "process_"


class TrainingState:
    """Objects of one process whose states a checkpoint contains, and its random numbers."""

    def __init__(self, objects: Mapping[str, Any], group: Any) -> None:
        """Create the state of objects.

        Args:
            objects: objects by name: models, optimizers, and any others with `state_dict` and `load_state_dict`.
            group: process group of all processes on CPUs; None for one process.

        Raises:
            TypeError: an object has no state that can be saved.
        """
        for name, value in objects.items():
            if not (hasattr(value, "state_dict") and hasattr(value, "load_state_dict")):
                rule = "it must have the methods state_dict and load_state_dict"
                raise TypeError(f"{name} is a {type(value).__name__}, whose state cannot be saved: {rule}")
        models = {name: value for name, value in objects.items() if isinstance(value, torch.nn.Module)}
        optimizers = {name: value for name, value in objects.items() if isinstance(value, torch.optim.Optimizer)}
        if optimizers and not models:
            raise TypeError(f"{next(iter(optimizers))} is an optimizer: give the model that it trains, too")
        self._models = torch.nn.ModuleDict(models)
        self._optimizers = list(optimizers.values())
        self._others = {name: value for name, value in objects.items() if name not in {*models, *optimizers}}
        self._group = group
        self._rank: int = dist.get_rank() if group is not None else 0
        self._size: int = dist.get_world_size() if group is not None else 1
        self._random_states: dict[str, Any] | None = None  # of the loaded checkpoint, until they are restored

    def save(self, checkpoint: Path) -> None:
        """Write the state; all processes call it, and it returns when all have written theirs."""
        others = {name: pickle.dumps(value.state_dict()) for name, value in self._others.items()}
        # DDP overwrites buffers, such as those of BatchNorm, with those of rank 0 before each step. By default, any
        # process may save its own ones (torch 2.13).
        planner = dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=True)
        values = {**self._collect(), f"{_PROCESS}{self._rank}": pickle.dumps((others, _get_random_states()))}
        with _ignore_missing_group():
            dcp.save(values, checkpoint_id=checkpoint, planner=planner, process_group=self._group)

    def load(self, checkpoint: Path) -> None:
        """Load a checkpoint into the objects; all processes call it.

        Raises:
            ValueError: another number of processes has saved it, and another object's state differs between them.
        """
        reader = dcp.FileSystemReader(checkpoint)
        metadata = reader.read_metadata()
        saved_by = sum(name.startswith(_PROCESS) for name in metadata.state_dict_metadata)
        values = self._collect()
        if _OPTIMIZER in values:
            # A parameter that has got no gradient yet has no state, and torch would miss it.
            paths = metadata.planner_data.values()
            saved = {path[2] for path in paths if path[:2] == (_OPTIMIZER, "state")}
            states = values[_OPTIMIZER]["state"]
            values[_OPTIMIZER]["state"] = {name: states[name] for name in states if name in saved}
        ranks = [self._rank] if saved_by == self._size else range(saved_by)
        values |= {f"{_PROCESS}{rank}": b"" for rank in ranks}
        with _ignore_missing_group():
            dcp.load(values, storage_reader=reader, process_group=self._group)
        if _MODEL in values:
            set_model_state_dict(self._models, values[_MODEL])
        if _OPTIMIZER in values:
            options = StateDictOptions(strict=False)  # for the parameters without a state
            set_optimizer_state_dict(self._models, self._optimizers, values[_OPTIMIZER], options=options)
        (others, random_states), *further = (pickle.loads(values[f"{_PROCESS}{rank}"]) for rank in ranks)  # noqa: S301
        for name, value in self._others.items():
            if any(different[name] != others[name] for different, _ in further):
                raise ValueError(
                    f"the state of {name} differs between the {saved_by} processes that saved {checkpoint}, so "
                    f"{self._size} processes cannot continue: start {saved_by}, or choose the samples by the step"
                )
            value.load_state_dict(pickle.loads(others[name]))  # noqa: S301 - torch reads its part with pickle, too
        if saved_by == self._size:
            self._random_states = random_states
        elif self._rank == 0:
            print(f"random numbers start anew: {saved_by} processes saved, and {self._size} continue", flush=True)

    def restore_random_numbers(self) -> None:
        """Continue the random numbers of the loaded checkpoint.

        This does nothing if another number of processes has saved it.
        """
        states, self._random_states = self._random_states, None
        if states:
            _set_random_states(states)

    def _collect(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if self._models:
            values[_MODEL] = get_model_state_dict(self._models)
        if self._optimizers:
            values[_OPTIMIZER] = get_optimizer_state_dict(self._models, self._optimizers)
        return values


def _get_random_states() -> dict[str, Any]:
    """Return the states of the global random number generators of this process."""
    states = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if numpy := sys.modules.get("numpy"):
        states["numpy"] = numpy.random.get_state()
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def _set_random_states(states: Mapping[str, Any]) -> None:
    random.setstate(states["python"])
    torch.set_rng_state(states["torch"])
    if "numpy" in states and (numpy := sys.modules.get("numpy")):
        numpy.random.set_state(states["numpy"])
    if len(states.get("cuda", ())) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states.get("cuda", ()))


@contextlib.contextmanager
def _ignore_missing_group() -> Iterator[None]:
    """Ignore torch's warning that one process saves or loads without a group."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable or uninitialized")
        yield
