"""Start all pods of a training at once or none of them, so that no pod holds GPUs idle.

    gang.py compile OUT.yaml
    gang.py run nodes=2

`kubectl apply -k manifests/runtimes` creates the runtime `torch-coscheduling`. It uses the coscheduling plugin of
Kubernetes' scheduler-plugins. The runtimes `torch-volcano` and `torch-kai` are for Volcano and KAI.

Download dataset and model into a workspace in separate steps. Initializers inside the TrainJob would belong to the
gang, and the gang would never start.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import train


@dsl.pipeline(name="gang")
def gang(nodes: int = 2):
    train(
        runtime="torch-coscheduling",
        command=["sh", "-c"],
        args=["echo node $JOB_COMPLETION_INDEX of $PET_NNODES starts"],
        num_nodes=nodes,
    )


if __name__ == "__main__":
    main(gang, __doc__)
