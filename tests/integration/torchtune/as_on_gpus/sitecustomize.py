"""Patches that let TorchTune's recipes use a CPU instead of GPUs.

Every Python with this folder on its path imports this module. Recipes for several processes read the GPU's memory
statistics, empty its cache and name a backend for GPUs. Recipes for one process first check which device exists
(torchtune 0.6.1). A tensor that is fetched from a GPU is a copy, so here `Tensor.cpu` makes a copy, too.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType


def _patch_memory(module: ModuleType) -> None:
    module.get_memory_stats = lambda device, reset_stats=True: {}
    module.log_memory_stats = lambda stats, message="": None
    module.cleanup_before_training = lambda: None


def _patch_process_group(module: ModuleType) -> None:
    begin = module.init_process_group
    module.init_process_group = lambda *_, **__: begin("gloo")


def _patch_tensor_cpu(module: ModuleType) -> None:
    module.Tensor.cpu = lambda tensor, **options: tensor.clone(**options)


_PATCHES = {
    "torch._tensor": _patch_tensor_cpu,
    "torch.distributed.distributed_c10d": _patch_process_group,
    "torchtune.training.memory": _patch_memory,
}


class _PatchingFinder(importlib.abc.MetaPathFinder):
    """A finder that patches a module right after its import, without an earlier import."""

    def find_spec(self, name, path=None, target=None):
        change = _PATCHES.pop(name, None)
        found = importlib.machinery.PathFinder.find_spec(name, path) if change else None
        if found:
            run = found.loader.exec_module
            found.loader.exec_module = lambda module: (run(module), change(module))
        return found


sys.meta_path.insert(0, _PatchingFinder())
