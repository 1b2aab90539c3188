"""Component `initialize_dataset`."""

from trainjob_kfp.components.data_processing.initialize_dataset.component import initialize_dataset

__all__ = ["initialize_dataset"]
