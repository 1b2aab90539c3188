"""The measured process of the waiting benchmarks: one event loop with many triggers, as in Airflow's triggerer."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field

from waiting_server import NAMESPACE

_TICK = 0.02
_STALL = 0.05
_CLOCK_SECONDS = 10  # to find out what the ticking itself costs
_AT_ONCE = 50  # so many triggers a triggerer starts before it looks at anything else


def triggers(who, jobs):
    """One trigger for each job: ours, or the Kubernetes provider's with its poll interval in seconds."""
    if who == "trainjob":
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
                poll_interval=float(who),
            ),
        )


@dataclass
class Ticker:
    """Finds out for how long the event loop did nothing else: (seconds, seconds of this process's CPU meanwhile)."""

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

    def take(self):
        """What was found since the last time.

        A stall counts as ours when this process was at work for as long; else the machine was busy with others.
        """
        found = {
            "worst_ms": self.worst * 1000,
            "stalls": len(self.stalls),
            "own_stalls": sum(used > _STALL for _, used in self.stalls),
        }
        self.stalls, self.worst = [], 0.0
        return found


def wait(orders, who, jobs):
    """Start the triggers, then obey: ("measure", seconds), ("events",), None to end.

    Args:
        orders: a multiprocessing connection; the first thing sent is what the start cost.
        who: `trainjob`, or the peer's poll interval in seconds.
        jobs: uids by name.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    asyncio.run(_wait(orders, who, jobs))
    orders.send("ended")
    os._exit(0)  # thousands of triggers are not unwound


async def _wait(orders, who, jobs):
    loop, ticker, ended = asyncio.get_running_loop(), Ticker(), {}
    ticking = loop.create_task(ticker.run())

    async def run(name, trigger):
        async for _ in trigger.run():
            ended[name] = time.time()
            break

    waiting = [next(iter(triggers(who, dict(list(jobs.items())[:1]))))]  # imports are no part of it
    used = time.process_time()
    await asyncio.sleep(_CLOCK_SECONDS)
    clock = (time.process_time() - used) / _CLOCK_SECONDS
    ticker.take()
    began, used, tasks = time.monotonic(), time.process_time(), []
    for n, (name, trigger) in enumerate(triggers(who, jobs)):
        tasks.append(loop.create_task(run(name, trigger)))
        if n % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0.02)
    await (_quiet() if who == "trainjob" else asyncio.sleep(2 * float(who)))
    orders.send({"cpu": time.process_time() - used, "seconds": time.monotonic() - began, **ticker.take()})
    while order := await asyncio.to_thread(orders.recv):
        if order[0] == "measure":
            used = time.process_time()
            await asyncio.sleep(order[1])
            orders.send({"cpu": time.process_time() - used - clock * order[1], **ticker.take()})
        else:
            orders.send(dict(ended))
    ticking.cancel()
    del waiting


async def _quiet():
    """Everything is in place when this process has had little to do for two seconds."""
    deadline, calm = time.monotonic() + 180, 0
    while calm < 2 and time.monotonic() < deadline:
        used = time.process_time()
        await asyncio.sleep(1)
        calm = calm + 1 if time.process_time() - used < 0.25 else 0
