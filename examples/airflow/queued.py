"""Run trainings in a Kueue queue, where an urgent one starts before the nightly ones.

Each training waits until its team has quota. `team` is a LocalQueue in the TrainJobs' namespace. `nightly` and `urgent`
are WorkloadPriorityClasses of the cluster. A waiting task occupies no worker, and logs Kueue's own message with the
reason.

If the queue preempts, Kueue suspends a nightly training for the urgent one. The nightly training waits again and
restarts from the beginning as the same TrainJob. Its task neither fails nor retries. Waiting loses no work, so only
`queue_timeout` ends it.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag, task

from trainjob import CustomTrainerContainer, Queue
from trainjob_airflow import TrainJobOperator

# Learns y = 3x by gradient descent. The task returns the result in the last line.
PROGRAM = """
import sys
rate, steps, weight = float(sys.argv[1]), int(sys.argv[2]), 0.0
points = [(x / 4, 3 * x / 4) for x in range(6)]
for _ in range(steps):
    weight -= rate * sum(2 * x * (weight * x - y) for x, y in points) / len(points)
print('trainjob result: {"rate": %g, "error": %g}' % (rate, abs(weight - 3)))
"""


def training(task_id: str, rate: float, priority: str) -> TrainJobOperator:
    return TrainJobOperator(
        task_id=task_id,
        trainer=CustomTrainerContainer(
            image="python:3.12-slim",
            command=["python", "-c", PROGRAM],
            args=[str(rate), "20"],
            resources_per_node={"cpu": 1},  # the quota that the queue needs
        ),
        queue_name=Queue(name="team", priority_class=priority),
        queue_timeout=timedelta(hours=8),
    )


@dag(schedule=None, default_args={"retries": 2}, doc_md=__doc__)
def queued():
    @task
    def best(trainings):
        return min((training["result"] for training in trainings), key=lambda result: result["error"])

    nightly = [training(f"nightly_{number}", rate, "nightly") for number, rate in enumerate((0.1, 0.3))]
    best([one.output for one in nightly])
    training("urgent", 0.2, "urgent")


queued()
