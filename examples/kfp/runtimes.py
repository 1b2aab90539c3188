"""Use a runtime that restarts all pods of a training together when one of them fails.

    runtimes.py compile OUT.yaml
    runtimes.py run program="echo done"

`kubectl apply -k manifests/runtimes` creates the runtime `torch-restarting`. It restarts the pods of a TrainJob up to
three times; the loss of a node does not count. The exit codes 2, 126 and 127 end the TrainJob immediately, because no
restart can repair them. The step's error reports the reason.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import train


@dsl.pipeline(name="runtimes")
def runtimes(program: str = "echo done"):
    train(runtime="torch-restarting", command=["sh", "-c"], args=[program])


if __name__ == "__main__":
    main(runtimes, __doc__)
