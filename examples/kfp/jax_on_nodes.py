"""Train with JAX on two nodes: both update the weights with the mean of all gradients.

    jax_on_nodes.py compile OUT.yaml
    jax_on_nodes.py run steps=100

Each node has its share of the points. The example uses the stock runtime `jax-distributed`. The Trainer sets variables
with the node's rank and the coordinator's address.

For GPUs, call `set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)` on the task. Also remove the line that
selects gloo.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import source, train
from trainjob_kfp.image import BASE_IMAGE


def learn(steps: int):
    """Learn y = 3x - 1."""
    import os

    import jax
    import jax.numpy as np
    from jax.experimental.multihost_utils import process_allgather

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    rank, processes = int(os.environ["JAX_PROCESS_ID"]), int(os.environ["JAX_NUM_PROCESSES"])
    jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], processes, rank)
    x = np.linspace(0.0, 1.25, 6)[rank::processes]
    gradient = jax.jit(jax.grad(lambda w: ((w[0] * x + w[1] - (3 * x - 1)) ** 2).mean()))
    weights = np.zeros(2)
    for _ in range(steps):
        weights -= 0.3 * process_allgather(gradient(weights)).mean(axis=0)
    print(f"process {jax.process_index()} of {jax.process_count()}: {len(x)} points")
    weight, bias = map(float, weights)
    jax.distributed.shutdown()
    return {"weight": weight, "bias": bias, "processes": processes}


@dsl.component(base_image=BASE_IMAGE, install_kfp_package=False)
def report(result: str):
    """Print the value that rank 0 returned, which later steps get as JSON."""
    import json

    learned = json.loads(result)
    print(f"y = {learned['weight']:.2f} x + {learned['bias']:.2f}, learned by {learned['processes']} processes")


@dsl.pipeline(name="jax-on-nodes")
def jax_on_nodes(steps: int = 100):
    trained = train(function=source(learn), function_args={"steps": steps}, runtime="jax-distributed", num_nodes=2)
    report(result=trained.outputs["result"])


if __name__ == "__main__":
    main(jax_on_nodes, __doc__)
