"""Component `rollback_model`."""

from trainjob_kfp.components.deployment.rollback_model.component import rollback_model

__all__ = ["rollback_model"]
