"""Train with MPI on two nodes: an all-reduce of the gradients updates the same weights.

    mpi_on_nodes.py compile OUT.yaml
    mpi_on_nodes.py run steps=100

Each node has its share of the points. The example uses the stock runtime `deepspeed-distributed`. Its launcher starts
the processes on itself and on the other nodes with mpirun over ssh. Both are already set up.

For GPUs, call `set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)` on the task. A training with DeepSpeed
starts with `deepspeed.init_distributed()`, which also finds the processes through MPI.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import source, train
from trainjob_kfp.image import BASE_IMAGE


def learn(steps: int):
    """Learn y = 3x - 1."""
    import numpy
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    x = numpy.linspace(0.0, 1.25, 6)[world.rank :: world.size]
    weights = numpy.zeros(2)
    for _ in range(steps):
        error = weights[0] * x + weights[1] - (3 * x - 1)
        gradient = numpy.array([(2 * error * x).mean(), (2 * error).mean()])
        weights -= 0.3 * world.allreduce(gradient) / world.size
    print(f"process {world.rank} of {world.size}: {len(x)} points")
    return {"weight": float(weights[0]), "bias": float(weights[1]), "processes": world.size}


@dsl.component(base_image=BASE_IMAGE, install_kfp_package=False)
def report(result: str):
    """Print the value that rank 0 returned, which later steps get as JSON."""
    import json

    learned = json.loads(result)
    print(f"y = {learned['weight']:.2f} x + {learned['bias']:.2f}, learned by {learned['processes']} processes")


@dsl.pipeline(name="mpi-on-nodes")
def mpi_on_nodes(steps: int = 100):
    trained = train(
        function=source(learn),
        function_args={"steps": steps},
        runtime="deepspeed-distributed",
        num_nodes=2,  # the launcher is one of the two
    )
    report(result=trained.outputs["result"])


if __name__ == "__main__":
    main(mpi_on_nodes, __doc__)
