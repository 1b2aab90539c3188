"""Run trainings in a Kueue queue, where an urgent one starts before the nightly ones.

    queued.py compile OUT.yaml
    queued.py run rate=0.3

Each training waits until its team has quota. `team` is a LocalQueue in the TrainJobs' namespace. `nightly` and `urgent`
are WorkloadPriorityClasses of the cluster. A waiting step logs Kueue's own message with the reason.

If the queue preempts, Kueue suspends a nightly training for the urgent one. The nightly training waits again and
restarts from the beginning as the same TrainJob. Its step neither fails nor retries.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import train

# Learns y = 3x by gradient descent. The step returns the result in the last line.
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
            resources_per_node={"cpu": 1},  # the quota that the queue needs
            queue={"name": "team", "priority_class": priority},
        )
        step.set_display_name(priority)


if __name__ == "__main__":
    main(queued, __doc__)
