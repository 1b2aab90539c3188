"""Trainings in a Kueue queue: each waits until its team has quota, and an urgent one goes before those of the night.

    queued.py compile OUT.yaml
    queued.py run rate=0.3

`team` is a LocalQueue in the TrainJobs' namespace, `nightly` and `urgent` are WorkloadPriorityClasses of the cluster. A
step that waits tells in Kueue's own words what it waits for. Where the queue preempts, a training of the night goes for
an urgent one, waits again and begins anew, as the same TrainJob: its step is neither failed nor retried.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import train

# Learns y = 3x by gradient descent; the last line is what the step hands on.
PROGRAM = """
import sys
rate, steps, weight = float(sys.argv[1]), int(sys.argv[2]), 0.0
points = [(x / 4, 3 * x / 4) for x in range(6)]
for _ in range(steps):
    weight -= rate * sum(2 * x * (weight * x - y) for x, y in points) / len(points)
print('trainjob result: {"rate": %g, "error": %g}' % (rate, abs(weight - 3)))
"""


@dsl.pipeline(name="queued")
def queued(rate: float = 0.1):
    for priority in ("nightly", "urgent"):
        step = train(
            image="python:3.12-slim",
            command=["python", "-c", PROGRAM],
            args=[f"{rate}", "20"],
            resources_per_node={"cpu": 1},  # what its queue has to have free
            queue="team",
            priority_class=priority,
        )
        step.set_display_name(priority)


if __name__ == "__main__":
    main(queued, __doc__)
