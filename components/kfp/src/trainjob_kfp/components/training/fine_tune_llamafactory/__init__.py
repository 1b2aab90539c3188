"""Component `fine_tune_llamafactory`."""

from trainjob_kfp.components.training.fine_tune_llamafactory.component import fine_tune_llamafactory

__all__ = ["fine_tune_llamafactory"]
