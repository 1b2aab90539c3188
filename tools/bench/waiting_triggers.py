"""Measured process of the waiting benchmarks: one event loop with many triggers.

Airflow's triggerer runs triggers in the same way.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from dataclasses import dataclass, field

from tools.bench.sizes import size
from tools.bench.waiting_server import NAMESPACE

_TICK = 0.02
_STALL = 0.05
_CLOCK_SECONDS = size(10, 1)  # duration of the measurement of the monitor's own cost
_START_BATCH = 50  # a triggerer starts this many triggers before it does anything else


def make_triggers(client, jobs):
    """Yield each job's name and trigger.

    Args:
        client: `trainjob` for TrainJobTrigger, `idle` for a trigger that waits for nothing, or the poll interval in
            seconds of the Kubernetes provider's trigger.
        jobs: UIDs by name.
    """
    if client == "idle":
        from airflow.triggers.base import BaseTrigger

        class IdleTrigger(BaseTrigger):
            def serialize(self):
                return "", {}

            async def run(self):
                yield await asyncio.Event().wait()

        for name in jobs:
            yield name, IdleTrigger()
        return
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
        stalls: each stall as (time of its begin, time of its end, CPU seconds of this process).
        collections: each garbage collection as (time of its begin, time of its end, CPU seconds, generation).
        worst: longest delay in seconds.
    """

    stalls: list = field(default_factory=list)
    collections: list = field(default_factory=list)
    worst: float = 0.0
    _collection_began: tuple = (0.0, 0.0)

    async def run(self):
        gc.callbacks.append(self._measure_collection)
        while True:
            began, used = time.monotonic(), time.process_time()
            await asyncio.sleep(_TICK)
            ended = time.monotonic()
            late = ended - began - _TICK
            self.worst = max(self.worst, late)
            if late > _STALL:
                self.stalls.append((began, ended, time.process_time() - used))

    def _measure_collection(self, phase, info):
        if phase == "start":
            self._collection_began = time.monotonic(), time.process_time()
        else:
            began, used = self._collection_began
            self.collections.append((began, time.monotonic(), time.process_time() - used, info["generation"]))

    def take_measurements(self):
        """Return the measurements since the last call, and reset them.

        The process itself caused a stall if it computed for more than 50 ms during the stall. Otherwise, other
        processes kept the machine busy. Its garbage collections alone caused it if the stall without them was at most
        50 ms.
        """
        own = [(began, ended) for began, ended, used in self.stalls if used > _STALL]
        besides = [ended - began - _TICK - self._seconds_of_collections(began, ended) for began, ended in own]
        found = {
            "worst_ms": self.worst * 1000,
            "stalls": len(self.stalls),
            "own_stalls": len(own),
            "collection_stalls": sum(seconds <= _STALL for seconds in besides),
            "worst_besides_ms": 1000 * max(besides, default=0.0),
            "collected": sum(used for *_, used, _ in self.collections),
            "collections": sum(generation == 2 for *_, generation in self.collections),
        }
        self.stalls, self.collections, self.worst = [], [], 0.0
        return found

    def _seconds_of_collections(self, began, ended):
        return sum(max(0.0, min(ended, end) - max(began, begin)) for begin, end, *_ in self.collections)


def run_triggers(connection, client, jobs, *, first=0, thresholds=()):
    """Start the triggers, then execute the orders until None is received.

    The orders are ("measure", seconds) and ("events",).

    Args:
        connection: connection to the benchmark's process; "starting" and the cost of the start are sent first.
        client: `trainjob`, `idle`, or the poll interval in seconds of the Kubernetes provider's trigger.
        jobs: UIDs by name.
        first: number of triggers that wait already when the measurement begins.
        thresholds: arguments of `gc.set_threshold`; empty means Python's defaults.
    """
    if thresholds:
        gc.set_threshold(*thresholds)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    asyncio.run(_run_triggers(connection, client, jobs, first))
    connection.send("ended")
    os._exit(0)  # skips the clean-up of thousands of triggers


async def _run_triggers(connection, client, jobs, first):
    loop, monitor, started, ended = asyncio.get_running_loop(), LoopMonitor(), {}, {}
    ticking = loop.create_task(monitor.run())

    async def run(name, trigger):
        async for _ in trigger.run():
            ended[name] = time.time()
            break

    def start(name, trigger):
        started[name] = time.time()
        tasks.append(loop.create_task(run(name, trigger)))

    tasks, triggers = [], list(make_triggers(client, jobs))
    await _import_modules_of_a_triggerer(client)
    for name, trigger in triggers[:first]:
        start(name, trigger)
    await (_wait_until_idle() if first else asyncio.sleep(0))
    used = time.process_time()
    await asyncio.sleep(_CLOCK_SECONDS)
    clock = (time.process_time() - used) / _CLOCK_SECONDS
    monitor.take_measurements()
    connection.send("starting")
    began, used = time.monotonic(), time.process_time()
    for n, (name, trigger) in enumerate(triggers[first:]):
        start(name, trigger)
        if n % _START_BATCH == _START_BATCH - 1:
            await asyncio.sleep(0.02)
    await (_wait_until_idle() if client in ("trainjob", "idle") else asyncio.sleep(2 * float(client)))
    cost = {"cpu": time.process_time() - used, "seconds": time.monotonic() - began, **monitor.take_measurements()}
    connection.send({**cost, "started": started})
    while order := await asyncio.to_thread(connection.recv):
        if order[0] == "measure":
            used = time.process_time()
            await asyncio.sleep(order[1])
            connection.send({"cpu": time.process_time() - used - clock * order[1], **monitor.take_measurements()})
        else:
            connection.send(dict(ended))
    ticking.cancel()


async def _import_modules_of_a_triggerer(client):
    """Read the connection once, because a triggerer has imported the modules that this needs.

    It does not open the cluster: that import belongs to the measured start.
    """
    if client == "trainjob":
        from trainjob_airflow.hooks.trainjob import TrainJobHook

        await asyncio.to_thread(TrainJobHook("bench").read_connection)


async def _wait_until_idle():
    """Wait until all triggers run.

    This is assumed when the process needs little CPU time for two seconds, or after three minutes.
    """
    deadline, calm = time.monotonic() + 180, 0
    while calm < 2 and time.monotonic() < deadline:
        used = time.process_time()
        await asyncio.sleep(1)
        calm = calm + 1 if time.process_time() - used < 0.25 else 0
