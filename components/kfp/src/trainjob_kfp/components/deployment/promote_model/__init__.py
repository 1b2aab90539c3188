"""Component `promote_model`."""

from trainjob_kfp.components.deployment.promote_model.component import promote_model

__all__ = ["promote_model"]
