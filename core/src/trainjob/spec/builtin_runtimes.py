"""Runtimes that the Trainer ships for its built-in trainers.

The package of a framework that is a built-in trainer has a module `builtin_trainer`. Its `STOCK_RUNTIMES` is the start
of the names of these runtimes. Its function `find_output_folder` is for [trainjob.frameworks.output_folder][].
"""

from __future__ import annotations

from trainjob.framework_modules import load_modules
from trainjob.spec.resources import BUILTIN_MODELS

__all__ = ["get_builtin_example", "is_stock_builtin"]


def is_stock_builtin(name: str, kind: str = "ClusterTrainingRuntime") -> bool:
    """Return whether a runtime is one that the Trainer ships for a built-in trainer.

    All of these runtimes run both initializers. Their JobSets cannot be changed after their creation (Trainer 2.3.0
    with JobSet 0.12.0).
    """
    return kind == "ClusterTrainingRuntime" and name.startswith(_list_starts())


def get_builtin_example() -> str:
    """Return the name of such a runtime, for messages."""
    return f"{_list_starts()[0]}{BUILTIN_MODELS[0]}"


def _list_starts() -> tuple[str, ...]:
    return tuple(module.STOCK_RUNTIMES for module in load_modules("builtin_trainer"))
