"""Environment variables that identify a TrainJob in its own containers, if it has a workspace.

A training records them beside its checkpoint, and an export compares them: [trainjob.programs.export.origin][].
"""

from __future__ import annotations

import os

__all__ = [
    "ATTEMPT_VARIABLE",
    "CODE_ARCHIVE",
    "CODE_RECORDS",
    "JOB_VARIABLE",
    "NAME_VARIABLE",
    "POD_VARIABLE",
    "RUN_VARIABLE",
    "get_node_rank",
]

ATTEMPT_VARIABLE = "TRAINJOB_ATTEMPT"
"""Environment variable with the number of the TrainJob among those of its step, from 1."""
CODE_ARCHIVE = "ARCHIVE"
"""Word of a command that is replaced by the path of the archive which `trainjob.programs.code_fetch` has fetched."""
CODE_RECORDS = ".trainjob/trainings"
"""Folder of the workspace with the origin of the code of each TrainJob whose project travelled, in `NAME.json`."""
JOB_VARIABLE = "TRAINJOB_JOB_UID"
"""Environment variable with the uid of the Job that has created the pod, or its predecessor in the same TrainJob."""
NAME_VARIABLE = "TRAINJOB_NAME"
"""Environment variable with the name of the TrainJob."""
POD_VARIABLE = "TRAINJOB_POD"
"""Environment variable with the name of the pod.

HOSTNAME does not identify a pod: an Indexed Job gives a pod and its replacement the same host name (Kubernetes 1.36,
job_controller.go).
"""
RUN_VARIABLE = "TRAINJOB_WORKFLOW_RUN"
"""Environment variable with the workflow run, such as `airflow/tickets_llm/manual__1`; empty without a workflow."""


def get_node_rank() -> int:
    """Return the node's number.

    The Trainer sets it for torch, and Kubernetes sets it for every indexed Job.
    """
    given = (os.environ.get(name, "") for name in ("PET_NODE_RANK", "JOB_COMPLETION_INDEX"))
    return next((int(text) for text in given if text.isdecimal()), 0)
