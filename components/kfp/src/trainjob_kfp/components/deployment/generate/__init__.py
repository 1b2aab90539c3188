"""Component `generate`."""

from trainjob_kfp.components.deployment.generate.component import generate

__all__ = ["generate"]
