"""Train with the code of a project on two nodes, without building an image.

The folder `line_fit` beside this file is the project. Its files travel to the pods when a task runs, in the version of
the DAG bundle that the task has. `train` starts a module of the project under torchrun. The function of `check` imports
another one. For GPUs, add `"resources_per_node": {"gpu": 8}`, and replace `"gloo"` in `line_fit/train.py` by `"nccl"`.
"""

from __future__ import annotations

from airflow.sdk import Param, dag, task

from trainjob_airflow import TrainJobOperator

PROJECT = "line_fit"


@dag(
    schedule=None,
    default_args={"retries": 2},
    params={"steps": Param(100, type="integer", minimum=1)},
    doc_md=__doc__,
)
def project_code():
    train = TrainJobOperator(
        task_id="train",
        code=PROJECT,
        trainer={"module": "train", "args": ["--steps", "{{ params.steps }}"], "num_nodes": 2},
    )

    @task.trainjob(code=PROJECT)
    def check(training):
        from points import measure_error

        error = measure_error(**training["result"])
        print(f"the learned line is at most {error:.2g} away from the points")
        return error

    check(train.output)


project_code()
