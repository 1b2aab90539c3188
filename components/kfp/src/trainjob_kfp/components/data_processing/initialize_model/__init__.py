"""Component `initialize_model`."""

from trainjob_kfp.components.data_processing.initialize_model.component import initialize_model

__all__ = ["initialize_model"]
