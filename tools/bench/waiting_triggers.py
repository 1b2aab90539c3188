"""Measured process of the waiting benchmarks: one event loop with many triggers.

Airflow's triggerer runs triggers in the same way.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field

from waiting_server import NAMESPACE

_TICK = 0.02
_STALL = 0.05
_CLOCK_SECONDS = 10  # duration of the measurement of the monitor's own cost
_START_BATCH = 50  # a triggerer starts this many triggers before it does anything else


def make_triggers(client, jobs):
    """Yield each job's name and trigger.

    Args:
        client: `trainjob` for TrainJobTrigger, or the poll interval in seconds of the Kubernetes provider's trigger.
        jobs: UIDs by name.
    """
    if client == "trainjob":
        from trainjob.lifecycle import JobReference, Limits
        from trainjob_airflow.triggers.trainjob import TrainJobTrigger

        for name, uid in jobs.items():
            reference = JobReference(name, NAMESPACE, uid).to_dict()
            yield (
                name,
                TrainJobTrigger(
                    reference=reference, limits=Limits().to_dict(), deadline=None, kubernetes_conn_id="bench"
                ),
            )
        return
    from airflow.providers.cncf.kubernetes.triggers.job import KubernetesJobTrigger

    for name in jobs:
        yield (
            name,
            KubernetesJobTrigger(
                job_name=name,
                job_namespace=NAMESPACE,
                pod_names=[],
                pod_namespace=NAMESPACE,
                base_container_name="node",
                kubernetes_conn_id="bench",
                poll_interval=float(client),
            ),
        )


@dataclass
class LoopMonitor:
    """Measurement of the event loop's stalls.

    Attributes:
        stalls: each stall as (seconds, CPU seconds of this process during the stall).
        worst: longest delay in seconds.
    """

    stalls: list = field(default_factory=list)
    worst: float = 0.0

    async def run(self):
        while True:
            began, used = time.monotonic(), time.process_time()
            await asyncio.sleep(_TICK)
            late = time.monotonic() - began - _TICK
            self.worst = max(self.worst, late)
            if late > _STALL:
                self.stalls.append((late, time.process_time() - used))

    def take_measurements(self):
        """Return the measurements since the last call, and reset them.

        The process itself caused a stall if it computed for more than 50 ms during the stall. Otherwise, other
        processes kept the machine busy.
        """
        found = {
            "worst_ms": self.worst * 1000,
            "stalls": len(self.stalls),
            "own_stalls": sum(used > _STALL for _, used in self.stalls),
        }
        self.stalls, self.worst = [], 0.0
        return found


def run_triggers(connection, client, jobs):
    """Start the triggers, then execute the orders until None is received.

    The orders are ("measure", seconds) and ("events",).

    Args:
        connection: connection to the benchmark's process; the cost of the start is sent first.
        client: `trainjob`, or the poll interval in seconds of the Kubernetes provider's trigger.
        jobs: UIDs by name.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    asyncio.run(_run_triggers(connection, client, jobs))
    connection.send("ended")
    os._exit(0)  # skips the clean-up of thousands of triggers


async def _run_triggers(connection, client, jobs):
    loop, monitor, ended = asyncio.get_running_loop(), LoopMonitor(), {}
    ticking = loop.create_task(monitor.run())

    async def run(name, trigger):
        async for _ in trigger.run():
            ended[name] = time.time()
            break

    waiting = [next(iter(make_triggers(client, dict(list(jobs.items())[:1]))))]  # imports are not measured
    used = time.process_time()
    await asyncio.sleep(_CLOCK_SECONDS)
    clock = (time.process_time() - used) / _CLOCK_SECONDS
    monitor.take_measurements()
    began, used, tasks = time.monotonic(), time.process_time(), []
    for n, (name, trigger) in enumerate(make_triggers(client, jobs)):
        tasks.append(loop.create_task(run(name, trigger)))
        if n % _START_BATCH == _START_BATCH - 1:
            await asyncio.sleep(0.02)
    await (_wait_until_idle() if client == "trainjob" else asyncio.sleep(2 * float(client)))
    connection.send(
        {"cpu": time.process_time() - used, "seconds": time.monotonic() - began, **monitor.take_measurements()}
    )
    while order := await asyncio.to_thread(connection.recv):
        if order[0] == "measure":
            used = time.process_time()
            await asyncio.sleep(order[1])
            connection.send({"cpu": time.process_time() - used - clock * order[1], **monitor.take_measurements()})
        else:
            connection.send(dict(ended))
    ticking.cancel()
    del waiting


async def _wait_until_idle():
    """Wait until all triggers run.

    This is assumed when the process needs little CPU time for two seconds, or after three minutes.
    """
    deadline, calm = time.monotonic() + 180, 0
    while calm < 2 and time.monotonic() < deadline:
        used = time.process_time()
        await asyncio.sleep(1)
        calm = calm + 1 if time.process_time() - used < 0.25 else 0
