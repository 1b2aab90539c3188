"""Component `cleanup`."""

from trainjob_kfp.components.training.cleanup.component import cleanup

__all__ = ["cleanup"]
