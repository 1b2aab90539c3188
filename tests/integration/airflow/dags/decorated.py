"""A Python function on two nodes.

Its argument is another task's result, and a third task gets its own result.
"""

from __future__ import annotations

from airflow.sdk import dag, task


@dag(schedule=None, catchup=False)
def decorated():
    @task
    def numbers():
        return [1, 2]

    @task.trainjob(num_nodes=2, num_proc_per_node=1, env={"MARK": "{{ run_id }}"})
    def add_up(greeting, values):
        import os

        import torch
        import torch.distributed

        torch.distributed.init_process_group("gloo")
        total = torch.tensor([torch.distributed.get_rank() + 1.0])
        torch.distributed.all_reduce(total)
        print(greeting, values, int(total), os.environ["MARK"])
        torch.distributed.destroy_process_group()
        return {"total": int(total)}

    @task
    def print_result(training):
        print("result of the training:", training["result"])

    print_result(add_up("hello {{ dag.dag_id }}", values=numbers()))


decorated()
