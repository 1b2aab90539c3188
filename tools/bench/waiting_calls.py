"""Measured process of the benchmark of waiting calls, with one call for each job.

It waits as a user's program does.
"""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import time

from tools.bench.sizes import size
from tools.bench.waiting_server import NAMESPACE

CLIENTS = {
    "trainjob": "`trainjob.lifecycle.wait_async`",
    "sdk": "`wait_for_job_status` of the Kubeflow SDK, every 2 s",
    "watch": "a watch for each job",
}
_TIMEOUT_SECONDS = 3600
_IDLE_SECONDS = size(2.0, 0.2)
_STACK = 1 << 18  # bytes of a thread's stack; there are a thousand threads


def wait_for_jobs(connection, client, jobs):
    """Start waiting for each job, then execute the orders until None is received.

    The orders are ("measure", seconds) and ("events",).

    Args:
        connection: connection to the benchmark's process; "starting" and the cost of the start are sent first.
        client: a key of CLIENTS.
        jobs: UIDs by name.
    """
    connection.send("starting")
    ended: dict[str, float] = {}
    used, began = time.process_time(), time.monotonic()
    if client == "trainjob":
        threading.Thread(target=asyncio.run, args=(_wait_for_all(jobs, ended),), daemon=True).start()
    else:
        _start_threads({"sdk": _sdk_call, "watch": _watch_call}[client](), jobs, ended)
    _wait_until_idle()
    connection.send(_measure_cost(used, began))
    while order := connection.recv():
        if order[0] == "measure":
            used, began = time.process_time(), time.monotonic()
            time.sleep(order[1])
            connection.send(_measure_cost(used, began))
        else:
            connection.send(dict(ended))
    connection.send("ended")
    os._exit(0)  # skips the clean-up of thousands of calls


def _measure_cost(used, began):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu": time.process_time() - used, "seconds": time.monotonic() - began, "rss_mb": peak}


async def _wait_for_all(jobs, ended):
    from trainjob.client import Cluster, Connection
    from trainjob.lifecycle import JobReference, wait_async

    cluster = Cluster(Connection(kubeconfig=os.environ["KUBECONFIG"]))

    async def wait_for_one(name, uid):
        await wait_async(cluster, JobReference(name, NAMESPACE, uid))
        ended[name] = time.time()

    await asyncio.gather(*(wait_for_one(name, uid) for name, uid in jobs.items()))


def _start_threads(call, jobs, ended):
    def run_call(name):
        call(name)
        ended[name] = time.time()

    threading.stack_size(_STACK)
    for name in jobs:
        threading.Thread(target=run_call, args=(name,), daemon=True).start()


def _sdk_call():
    from kubeflow.trainer import TrainerClient

    client = TrainerClient()
    return lambda name: client.wait_for_job_status(name, timeout=_TIMEOUT_SECONDS)


def _watch_call():
    from kubernetes import client, config, watch

    settings = client.Configuration()
    config.load_kube_config(client_configuration=settings)
    settings.connection_pool_maxsize = 2000
    api = client.CustomObjectsApi(client.ApiClient(settings))
    where = ("trainer.kubeflow.org", "v1alpha1", NAMESPACE, "trainjobs")

    def call(name):
        chosen = {"field_selector": f"metadata.name={name}", "timeout_seconds": _TIMEOUT_SECONDS}
        for event in watch.Watch().stream(api.list_namespaced_custom_object, *where, **chosen):
            conditions = event["object"].get("status", {}).get("conditions", ())
            if any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions):
                return

    return call


def _wait_until_idle():
    """Wait until all calls wait for their jobs.

    This is assumed when the CPU time of this process is the same in three successive intervals, or after two
    minutes.
    """
    deadline, before, alike = time.monotonic() + 120, -1.0, 0
    while alike < 3 and time.monotonic() < deadline:
        used = time.process_time()
        time.sleep(_IDLE_SECONDS)
        now = time.process_time() - used
        alike = alike + 1 if abs(now - before) < max(0.1, 0.2 * now) else 0
        before = now
