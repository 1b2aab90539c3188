"""Component `fine_tune_trl`."""

from trainjob_kfp.components.training.fine_tune_trl.component import fine_tune_trl

__all__ = ["fine_tune_trl"]
