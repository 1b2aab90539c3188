"""Component `evaluate_model`."""

from trainjob_kfp.components.evaluation.evaluate_model.component import evaluate_model

__all__ = ["evaluate_model"]
