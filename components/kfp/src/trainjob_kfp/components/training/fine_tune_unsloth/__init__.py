"""Component `fine_tune_unsloth`."""

from trainjob_kfp.components.training.fine_tune_unsloth.component import fine_tune_unsloth

__all__ = ["fine_tune_unsloth"]
