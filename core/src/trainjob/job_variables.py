"""Environment variables that identify a TrainJob in its own containers, if it has a workspace.

A training records them beside its checkpoint, and an export compares them: [trainjob.programs.export.origin][].
"""

from __future__ import annotations

__all__ = ["NAME_VARIABLE", "RUN_VARIABLE"]

NAME_VARIABLE = "TRAINJOB_NAME"
"""Environment variable with the name of the TrainJob."""
RUN_VARIABLE = "TRAINJOB_WORKFLOW_RUN"
"""Environment variable with the workflow run, such as `airflow/tickets_llm/manual__1`; empty without a workflow."""
