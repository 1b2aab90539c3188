"""Use a runtime that restarts all pods of a training together when one of them fails.

`kubectl apply -k manifests/runtimes` creates the runtime `torch-restarting`. It restarts the pods of a TrainJob up to
three times; the loss of a node does not count. A failure that no restart can repair ends the TrainJob immediately, and
the task's error reports it.
"""

from __future__ import annotations

from airflow.sdk import dag

from trainjob import CustomTrainerContainer
from trainjob_airflow import TrainJobOperator, Workspace

SCRIPT = """
echo "node $JOB_COMPLETION_INDEX starts"
test -e /workspace/begun && exit 0
test "$JOB_COMPLETION_INDEX" = 1 || exec sleep 60
touch /workspace/begun
echo "something went wrong once"
exit 1
"""


@dag(schedule=None, default_args={"retries": 2}, doc_md=__doc__)
def runtimes():
    with Workspace(size="1Gi") as workspace:
        TrainJobOperator(
            task_id="train",
            workspace=workspace,
            runtime="torch-restarting",
            trainer=CustomTrainerContainer(command=("sh", "-c", SCRIPT), num_nodes=2),
        )


runtimes()
