"""Component `fine_tune`."""

from trainjob_kfp.components.training.fine_tune.component import fine_tune

__all__ = ["fine_tune"]
