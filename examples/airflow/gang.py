"""Start all pods of a training at once or none of them, so that no pod holds GPUs idle.

`kubectl apply -k manifests/runtimes` creates the runtime `torch-coscheduling`. It uses the coscheduling plugin of
Kubernetes' scheduler-plugins. The runtimes `torch-volcano` and `torch-kai` are for Volcano and KAI.

Download dataset and model into a workspace in separate steps. Initializers inside the TrainJob would belong to the
gang, and the gang would never start.
"""

from __future__ import annotations

from airflow.sdk import dag

from trainjob import CustomTrainerContainer
from trainjob_airflow import TrainJobOperator


@dag(schedule=None, default_args={"retries": 2}, doc_md=__doc__)
def gang():
    TrainJobOperator(
        task_id="train",
        runtime="torch-coscheduling",
        trainer=CustomTrainerContainer(
            command=("sh", "-c", "echo node $JOB_COMPLETION_INDEX of $PET_NNODES starts"),
            num_nodes=2,
        ),
    )


gang()
