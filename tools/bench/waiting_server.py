"""API server of the benchmarks: the laptop cluster's, in a separate process.

No controller runs its jobs.
"""

from __future__ import annotations

import time
from collections import Counter

from tests.support.counting_server import CountingServer
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.manifest import build_trainjob
from trainjob_local.apiserver import Registry
from trainjob_local.certificates import create_server_context
from trainjob_local.runtimes import stock_runtimes

NAMESPACE = "default"
CA_CERTIFICATE, CA_KEY = "ca.crt", "ca.key"
RUNNING = {
    "trainjobs": {
        "jobsStatus": [{"name": "node", "active": 1, "ready": 1, "succeeded": 0, "failed": 0, "suspended": 0}]
    },
    "jobs": {"active": 1, "ready": 1},
}
NOW = "2099-01-01T00:00:00Z"  # not older than the objects, whose creation times are real
COMPLETE = {
    "trainjobs": {
        "conditions": [
            {"type": "Complete", "status": "True", "reason": "JobsCompleted", "message": "x", "lastTransitionTime": NOW}
        ]
    },
    "jobs": {
        "active": 0,
        "ready": 0,
        "succeeded": 1,
        "startTime": NOW,
        "completionTime": NOW,
        "conditions": [
            {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": NOW},
            {"type": "Complete", "status": "True", "lastTransitionTime": NOW},
        ],
    },
}


def _manifest(kind, number):
    if kind == "trainjobs":
        trainer = CustomTrainerContainer(
            image="ghcr.io/acme/trainer:1", command=["torchrun", "train.py"], args=[f"--seed={number}"], num_nodes=1
        )
        labels = {"trainjob.dev/run-key": "0123456789abcdef"}
        job = TrainJob(trainer=trainer, runtime="torch-distributed")
        return build_trainjob(job, name=f"bench-{number}", namespace=NAMESPACE, labels=labels, annotations={})
    container = {"name": "node", "image": "ghcr.io/acme/trainer:1", "command": ["torchrun", "train.py"]}
    pod = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {"metadata": {"name": f"bench-{number}"}, "spec": {"template": pod}}


def serve(connection, kind, count, folder):
    """Serve `count` running jobs, and execute the orders until None is received.

    The orders are ("counts",), ("touch", jobs per second, seconds) and ("finish", names, jobs per second).

    Args:
        connection: connection to the benchmark's process; `serve` first sends (URL, UIDs by name).
        kind: `trainjobs` or `jobs`.
        count: number of jobs.
        folder: folder that gets the files of the certificate authority; every real API server serves TLS.
    """
    registry = Registry(history=200_000)
    registry.create("clustertrainingruntimes", stock_runtimes()[0])  # the Kubeflow SDK reads it
    uids = {}
    for number in range(count):
        made = registry.create(kind, _manifest(kind, number), NAMESPACE)
        uids[made["metadata"]["name"]] = made["metadata"]["uid"]
        registry.patch(kind, made["metadata"]["name"], {"status": RUNNING[kind]}, NAMESPACE, subresource="status")
    server = CountingServer(registry, create_server_context(folder / CA_CERTIFICATE, folder / CA_KEY))
    server.start()
    connection.send((server.url, uids))
    names = list(uids)

    def touch(name):
        marks = {"metadata": {"annotations": {"at": str(time.time())}}}
        registry.patch(kind, name, marks, NAMESPACE)

    def finish(name):
        written[name] = time.time()
        registry.patch(kind, name, {"status": COMPLETE[kind]}, NAMESPACE, subresource="status")

    written: dict[str, float] = {}
    while order := connection.recv():
        if order[0] == "counts":
            connection.send((Counter(server.request_counts), dict(server.max_watches)))
        elif order[0] == "touch":
            call_at_rate([names[n % count] for n in range(order[1] * order[2])], order[1], touch)
        elif order[0] == "finish":
            call_at_rate(order[1], order[2], finish)
            connection.send(written)
    server.stop()
    registry.close()


def call_at_rate(names, each_second, action):
    """Call `action` with each name in turn, at this number of calls per second."""
    began = time.monotonic()
    for n, name in enumerate(names):
        time.sleep(max(0.0, began + n / each_second - time.monotonic()))
        action(name)
