"""A gang: the pods of a training start all at once or not at all, so that no half of it holds GPUs and waits.

    gang.py compile OUT.yaml
    gang.py run nodes=2

`kubectl apply -k manifests/runtimes` makes `torch-coscheduling`, whose gangs the coscheduling plugin of Kubernetes'
scheduler-plugins starts; `torch-volcano` and `torch-kai` are for Volcano and KAI. Dataset and model come by steps of
their own over a workspace: initializers inside the TrainJob would be part of the gang, which then never starts.
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
