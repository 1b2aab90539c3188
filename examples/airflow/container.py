"""Run any program in any image as a training on two nodes, and use its result.

The trainer's fields are a dict, so that templates can insert values of the run. The program prints JSON after
`trainjob result: `, and the task returns it as `result`. Refer to a secret value with
`SecretKeyReference(name="wandb", key="key")`.
"""

from __future__ import annotations

from airflow.sdk import Param, dag, task

from trainjob_airflow import TrainJobOperator

# The Trainer sets each node's rank and the number of nodes. A program that does not use torch needs no torchrun.
PROGRAM = """\
import json, os, random, sys
points, node = int(sys.argv[1]), int(os.environ["PET_NODE_RANK"])
random.seed(f"{os.environ['SEED']}-{node}")
inside = sum(random.random() ** 2 + random.random() ** 2 < 1 for _ in range(points))
print(f"node {node} of {os.environ['PET_NNODES']}: {inside} of {points} points")
if node == 0:
    print("trainjob result: " + json.dumps({"pi": 4 * inside / points}))
"""


@dag(
    schedule=None,
    default_args={"retries": 2},
    params={"points": Param(100_000, type="integer", minimum=1)},
    doc_md=__doc__,
)
def container():
    guess = TrainJobOperator(
        task_id="guess",
        trainer={
            "image": "python:3.12-slim",
            "command": ["python", "-c", PROGRAM],
            "args": ["{{ params.points }}"],
            "env": {"SEED": "{{ dag.dag_id }}"},
            "num_nodes": 2,
            "resources_per_node": {"cpu": "500m", "memory": "64Mi"},
        },
    )

    @task
    def report(training):
        print(f"pi is about {training['result']['pi']}")
        return training["result"]

    report(guess.output)


container()
