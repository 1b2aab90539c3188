"""Defer the mapped tasks of a DAG run with triggers for given TrainJobs, without a worker.

Run it with an Airflow's environment: `defer_tasks.py RUN_ID FILE`. FILE has a JSON list of references.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import Trigger
from airflow.utils.session import create_session
from sqlalchemy import select

from trainjob_airflow import TrainJobTrigger


def main(run_id: str, file: str) -> None:
    """Replace each scheduled task instance's state by a deferral."""
    references = json.loads(Path(file).read_text())
    with create_session() as session:
        is_waiting = (TaskInstance.run_id == run_id, TaskInstance.task_id == "task")
        query = select(TaskInstance).where(*is_waiting).order_by(TaskInstance.map_index)
        for instance, reference in zip(session.scalars(query).all(), references, strict=True):
            trigger = Trigger.from_object(
                TrainJobTrigger(reference=reference, kubernetes_conn_id="kubernetes_default", get_logs=False)
            )
            session.add(trigger)
            session.flush()
            instance.trigger_id, instance.state, instance.try_number = trigger.id, "deferred", 1
            instance.next_method, instance.next_kwargs = "execute_complete", {}


if __name__ == "__main__":
    main(*sys.argv[1:])
