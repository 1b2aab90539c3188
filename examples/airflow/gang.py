"""A gang: the pods of a training start all at once or not at all, so that no half of it holds GPUs and waits.

`kubectl apply -k manifests/runtimes` makes `torch-coscheduling`, whose gangs the coscheduling plugin of Kubernetes'
scheduler-plugins starts; `torch-volcano` and `torch-kai` are for Volcano and KAI. Dataset and model come by steps of
their own over a workspace: initializers inside the TrainJob would be part of the gang, which then never starts.
"""

from __future__ import annotations

from airflow.sdk import dag

from trainjob import CustomTrainerContainer
from trainjob_airflow import TrainJobOperator


@dag(schedule=None, doc_md=__doc__)
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
