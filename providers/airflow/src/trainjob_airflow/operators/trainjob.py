"""Any TrainJob as an Airflow task."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from trainjob.spec import TrainJob
from trainjob_airflow.operators.base import StepOperator
from trainjob_airflow.operators.workspace import Workspace


class TrainJobOperator(StepOperator):
    """Runs a TrainJob with any trainer, on any runtime."""

    step_type = TrainJob
    template_fields: Sequence[str] = (
        "trainer",
        "runtime",
        "initializer",
        "workspace",
        "queue_name",
        "placement",
        "namespace",
    )

    def __init__(
        self,
        *,
        trainer: Any = None,
        runtime: Any = None,
        initializer: Any = None,
        workspace: Workspace | str | None = None,
        queue_name: Any = None,
        placement: Any = None,
        deadline: timedelta | None = None,
        max_restarts: int | None = None,
        **arguments: Any,
    ) -> None:
        """See also `StepOperator`.

        Args:
            trainer: a `CustomTrainer`, `CustomTrainerContainer` or `BuiltinTrainer`.
            runtime: the training runtime's name, or a `Runtime`; by default `torch-distributed`.
            initializer: an `Initializer`, for runtimes that have initializer jobs.
            workspace: a `Workspace`, or the name of an existing claim; mounted at `/workspace`.
            queue_name: a Kueue queue's name, or a `Queue`; `queue` is Airflow's own, for its workers.
            placement: a `Placement`: node selector, tolerations, affinity, service account.
            deadline: how long the TrainJob may be active; the cluster ends it then.
            max_restarts: how often a failing container may be restarted in place; by default 0.
            **arguments: those of `StepOperator` and of every operator.

        Raises:
            InvalidSpec: an argument is not allowed.
        """
        step = {
            "trainer": trainer,
            "runtime": runtime,
            "initializer": initializer,
            "workspace": workspace,
            "queue": queue_name,
            "placement": placement,
            "deadline": deadline,
            "max_restarts": max_restarts,
        }
        super().__init__(step_arguments=step, **arguments)
