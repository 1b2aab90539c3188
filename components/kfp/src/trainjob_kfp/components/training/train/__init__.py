"""Component `train`."""

from trainjob_kfp.components.training.train.component import train

__all__ = ["train"]
