"""Train with MPI on two nodes: an all-reduce of the gradients updates the same weights.

Each node has its share of the points. The example uses the stock runtime `deepspeed-distributed`. Its launcher starts
the processes on itself and on the other nodes with mpirun over ssh. Both are already set up.

For GPUs, set `resources_per_node={"gpu": 1}`. A training with DeepSpeed starts with
`deepspeed.init_distributed()`, which also finds the processes through MPI.
"""

from __future__ import annotations

from airflow.sdk import dag, task


@dag(schedule=None, default_args={"retries": 2}, doc_md=__doc__)
def mpi_on_nodes():
    @task.trainjob(runtime="deepspeed-distributed", num_nodes=2)  # the launcher is one of the two
    def train(steps):
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

    @task
    def report(training):
        learned = training["result"]  # the value that rank 0 returned
        print(f"y = {learned['weight']:.2f} x + {learned['bias']:.2f}, learned by {learned['processes']} processes")
        return learned

    report(train(steps=100))


mpi_on_nodes()
