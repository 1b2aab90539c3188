"""A runtime with rules of its own: a training whose processes are all started anew together when one of them fails.

`kubectl apply -k manifests/runtimes` makes `torch-restarting`: the pods of a TrainJob start anew up to three times, the
loss of a node not counted, and a failure that no restart can mend ends it at once, as the task's error says.
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


@dag(schedule=None, doc_md=__doc__)
def runtimes():
    with Workspace(size="1Gi") as workspace:
        TrainJobOperator(
            task_id="train",
            workspace=workspace,
            runtime="torch-restarting",
            trainer=CustomTrainerContainer(command=("sh", "-c", SCRIPT), num_nodes=2),
        )


runtimes()
