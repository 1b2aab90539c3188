"""Run any program in any image as a training on two nodes, and use its result.

    container.py compile OUT.yaml
    container.py run points=100000

The program prints JSON after `trainjob result: `, and the component writes it to the output `result`. Refer to a secret
value with `env={"WANDB_API_KEY": {"name": "wandb", "key": "key"}}`.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import train
from trainjob_kfp.image import BASE_IMAGE

# The Trainer sets each node's rank and the number of nodes. A program that does not use torch needs no torchrun.
# `kfp.local` writes a number with a decimal point when it converts it to text.
PROGRAM = """\
import json, os, random, sys
points, node = int(float(sys.argv[1])), int(os.environ["PET_NODE_RANK"])
random.seed(f"{os.environ['SEED']}-{node}")
inside = sum(random.random() ** 2 + random.random() ** 2 < 1 for _ in range(points))
print(f"node {node} of {os.environ['PET_NNODES']}: {inside} of {points} points")
if node == 0:
    print("trainjob result: " + json.dumps({"pi": 4 * inside / points}))
"""


@dsl.component(base_image=BASE_IMAGE, install_kfp_package=False)
def report(result: str):
    """Print the result of the first node, which later steps get as JSON."""
    import json

    print(f"pi is about {json.loads(result)['pi']}")


@dsl.pipeline(name="container")
def container(points: int = 100_000):
    guess = train(
        image="python:3.12-slim",
        command=["python", "-c", PROGRAM],
        args=[f"{points}"],
        env={"SEED": "container"},
        num_nodes=2,
        resources_per_node={"cpu": "500m", "memory": "64Mi"},
    )
    report(result=guess.outputs["result"])


if __name__ == "__main__":
    main(container, __doc__)
