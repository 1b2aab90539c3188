"""JAX on two nodes: each has its share of the points, and the mean of all gradients moves the same weights.

    jax_on_nodes.py compile OUT.yaml
    jax_on_nodes.py run steps=100

On the stock runtime `jax-distributed` the Trainer tells each node its rank and where the coordinator is. On GPUs call
`set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)` on the task, and leave out the line that chooses gloo.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import source, train
from trainjob_kfp.image import BASE_IMAGE


def learn(steps: int):
    """Learns y = 3x - 1."""
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
    """What the process with rank 0 returned is a parameter of later steps, as JSON."""
    import json

    learned = json.loads(result)
    print(f"y = {learned['weight']:.2f} x + {learned['bias']:.2f}, learned by {learned['processes']} processes")


@dsl.pipeline(name="jax-on-nodes")
def jax_on_nodes(steps: int = 100):
    trained = train(function=source(learn), function_args={"steps": steps}, runtime="jax-distributed", num_nodes=2)
    report(result=trained.outputs["result"])


if __name__ == "__main__":
    main(jax_on_nodes, __doc__)
