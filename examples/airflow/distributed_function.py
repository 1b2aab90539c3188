"""Run a Python function as a distributed training on two nodes, and use its result.

The function uses PyTorch's DistributedDataParallel. The operator sends the function as source. The function therefore
imports its modules inside and uses no names from outside. For GPUs, set `resources_per_node={"gpu": 8}`, which starts
eight processes on each node, and replace `"gloo"` by `"nccl"`.
"""

from __future__ import annotations

from airflow.sdk import dag, task


@dag(schedule=None, default_args={"retries": 2}, doc_md=__doc__)
def distributed_function():
    @task
    def points():
        return [[x, 3 * x - 1] for x in (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)]

    @task.trainjob(num_nodes=2)
    def train(points, steps):
        """Learn y = 3x - 1; each process uses its share of the points."""
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        dist.init_process_group("gloo")
        rank, processes = dist.get_rank(), dist.get_world_size()
        x, y = torch.tensor(points[rank::processes]).split(1, dim=1)
        model = DistributedDataParallel(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()  # DistributedDataParallel averages the gradients of all processes
            optimizer.step()
        print(f"process {rank} of {processes}: {len(x)} points, loss {loss.item():.2g}")
        weight, bias = model.module.weight.item(), model.module.bias.item()
        dist.destroy_process_group()
        return {"weight": weight, "bias": bias, "processes": processes}

    @task
    def report(training):
        learned = training["result"]  # the value that the process with rank 0 returned
        print(f"y = {learned['weight']:.2f} x + {learned['bias']:.2f}, learned by {learned['processes']} processes")
        return learned

    report(train(points(), steps=100))


distributed_function()
