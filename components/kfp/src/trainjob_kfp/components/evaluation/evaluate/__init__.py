"""Component `evaluate`."""

from trainjob_kfp.components.evaluation.evaluate.component import evaluate

__all__ = ["evaluate"]
