"""Lets a CPU stand in for GPUs in TorchTune's recipes; read by every Python with this folder on its path.

Recipes for several processes ask for the memory that is used, empty its cache, and name a backend for GPUs, where those
for one process look first what there is (torchtune 0.6.1). And what is fetched from a GPU is a copy.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType


def _memory(module: ModuleType) -> None:
    module.get_memory_stats = lambda device, reset_stats=True: {}
    module.log_memory_stats = lambda stats, message="": None
    module.cleanup_before_training = lambda: None


def _gloo(module: ModuleType) -> None:
    begin = module.init_process_group
    module.init_process_group = lambda *_, **__: begin("gloo")


def _copies(module: ModuleType) -> None:
    module.Tensor.cpu = lambda tensor, **how: tensor.clone(**how)


_CHANGES = {
    "torch._tensor": _copies,
    "torch.distributed.distributed_c10d": _gloo,
    "torchtune.training.memory": _memory,
}


class _Changed(importlib.abc.MetaPathFinder):
    """Changes a module right after it has been imported, without importing any earlier."""

    def find_spec(self, name, path=None, target=None):
        change = _CHANGES.pop(name, None)
        found = importlib.machinery.PathFinder.find_spec(name, path) if change else None
        if found:
            run = found.loader.exec_module
            found.loader.exec_module = lambda module: (run(module), change(module))
        return found


sys.meta_path.insert(0, _Changed())
