"""Kubeflow Trainer v2 jobs as Kubeflow Pipelines steps.

Components are imported on first use, because they need kfp, and a launcher's image has only a part of kfp.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainjob_kfp.components.data_processing.initialize_dataset import initialize_dataset
    from trainjob_kfp.components.data_processing.initialize_model import initialize_model
    from trainjob_kfp.components.deployment.export_model import export_model
    from trainjob_kfp.components.deployment.generate import generate
    from trainjob_kfp.components.deployment.promote_model import promote_model
    from trainjob_kfp.components.deployment.rollback_model import rollback_model
    from trainjob_kfp.components.evaluation.evaluate import evaluate
    from trainjob_kfp.components.evaluation.evaluate_model import evaluate_model
    from trainjob_kfp.components.training.cleanup import cleanup
    from trainjob_kfp.components.training.fine_tune import fine_tune
    from trainjob_kfp.components.training.train import train
    from trainjob_kfp.function_text import source as source

_MODULES = {
    "cleanup": "components.training.cleanup",
    "evaluate": "components.evaluation.evaluate",
    "evaluate_model": "components.evaluation.evaluate_model",
    "export_model": "components.deployment.export_model",
    "fine_tune": "components.training.fine_tune",
    "generate": "components.deployment.generate",
    "initialize_dataset": "components.data_processing.initialize_dataset",
    "initialize_model": "components.data_processing.initialize_model",
    "promote_model": "components.deployment.promote_model",
    "rollback_model": "components.deployment.rollback_model",
    "source": "function_text",
    "train": "components.training.train",
}

# The components. The module also has `source`, which is not a component.
__all__ = [
    "cleanup",
    "evaluate",
    "evaluate_model",
    "export_model",
    "fine_tune",
    "generate",
    "initialize_dataset",
    "initialize_model",
    "promote_model",
    "rollback_model",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("kfp-trainjob")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_MODULES, "__version__"])
