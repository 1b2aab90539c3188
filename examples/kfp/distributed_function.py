"""Run a Python function as a distributed training on two nodes, and use its result.

    distributed_function.py compile OUT.yaml
    distributed_function.py run steps=100

The function uses PyTorch's DistributedDataParallel. The component sends the function as source. The function therefore
imports its modules inside and uses no names from outside.

For GPUs, call `set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(8)` on the task, which starts eight
processes on each node. Also replace `"gloo"` by `"nccl"`.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import source, train
from trainjob_kfp.image import BASE_IMAGE

POINTS = [[x, 3 * x - 1] for x in (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)]


def learn(points: list, steps: int):
    """Learn y = 3x - 1; each process uses its share of the points."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    x, y = torch.tensor(points[rank::processes], dtype=torch.float32).split(1, dim=1)
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


@dsl.component(base_image=BASE_IMAGE, install_kfp_package=False)
def report(result: str):
    """Print the value that rank 0 returned, which later steps get as JSON."""
    import json

    learned = json.loads(result)
    print(f"y = {learned['weight']:.2f} x + {learned['bias']:.2f}, learned by {learned['processes']} processes")


@dsl.pipeline(name="distributed-function")
def distributed_function(steps: int = 100):
    trained = train(function=source(learn), function_args={"points": POINTS, "steps": steps}, num_nodes=2)
    report(result=trained.outputs["result"])


if __name__ == "__main__":
    main(distributed_function, __doc__)
