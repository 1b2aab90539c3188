"""Component `export_model`."""

from trainjob_kfp.components.deployment.export_model.component import export_model

__all__ = ["export_model"]
