"""A runtime with rules of its own: what no restart can mend ends a training at once, and the step's error says why.

    runtimes.py compile OUT.yaml
    runtimes.py run program="echo done"

`kubectl apply -k manifests/runtimes` makes `torch-restarting`: the pods of a TrainJob start anew together up to three
times when one of them fails, the loss of a node not counted; exit codes 2, 126 and 127 are final.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import train


@dsl.pipeline(name="runtimes")
def runtimes(program: str = "echo done"):
    train(runtime="torch-restarting", command=["sh", "-c"], args=[program])


if __name__ == "__main__":
    main(runtimes, __doc__)
