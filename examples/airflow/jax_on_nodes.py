"""Train with JAX on two nodes: both update the weights with the mean of all gradients.

Each node has its share of the points. The example uses the stock runtime `jax-distributed`. The Trainer sets variables
with the node's rank and the coordinator's address. For GPUs, set `resources_per_node={"gpu": 1}`, and remove the line
that selects gloo.
"""

from __future__ import annotations

from airflow.sdk import dag, task


@dag(schedule=None, default_args={"retries": 2}, doc_md=__doc__)
def jax_on_nodes():
    @task.trainjob(runtime="jax-distributed", num_nodes=2)
    def train(steps):
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

    @task
    def report(training):
        learned = training["result"]  # the value that rank 0 returned
        print(f"y = {learned['weight']:.2f} x + {learned['bias']:.2f}, learned by {learned['processes']} processes")
        return learned

    report(train(steps=100))


jax_on_nodes()
