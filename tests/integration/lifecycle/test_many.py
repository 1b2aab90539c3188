"""Many waiters in one process: what they ask of the API server, and how many threads they take."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.counting_server import TOKEN, CountingServer
from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection, shared_cluster
from trainjob.client.bounded_executor import BoundedExecutor
from trainjob.lifecycle import JobReference, Listener, submit, wait, wait_async
from trainjob.manifest import build_trainjob
from trainjob.status import Phase
from trainjob_local.apiserver import Registry

MANY = 200
MANAGED = {"app.kubernetes.io/managed-by": "trainjob"}
RUNNING = {"jobsStatus": [{"name": "node", "active": 1, "ready": 1, "succeeded": 0, "failed": 0, "suspended": 0}]}
COMPLETE = {
    "conditions": [
        {
            "type": "Complete",
            "status": "True",
            "reason": "JobsCompleted",
            "message": "x",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
}


@pytest.fixture
def server():
    registry = Registry()
    served = CountingServer(registry)
    served.start()
    yield served
    served.stop()
    registry.close()


@pytest.fixture
def connection(server, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    return Connection(server=server.url, token_file=str(tmp_path / "token"), namespace="default")


@pytest.fixture
def cluster_client(connection):
    opened = Cluster(connection, retry_seconds=5.0)
    yield opened
    opened.close()


def create_trainjob(server, name, status=RUNNING):
    """Create a TrainJob of ours that no controller runs, and return its reference."""
    job = TrainJob(trainer=CustomTrainerContainer(image="x", command=["y"]))
    made = server._registry.create(
        "trainjobs", build_trainjob(job, name=name, namespace="default", labels=MANAGED, annotations={}), "default"
    )
    if status:
        set_status(server, name, status)
    return JobReference(name, "default", made["metadata"]["uid"])


def set_status(server, name, status):
    server._registry.patch("trainjobs", name, {"status": status}, "default", subresource="status")


def test_hundreds_that_start_at_once_ask_for_one_list_and_one_watch(server, cluster_client):
    references = [create_trainjob(server, f"job-{n}") for n in range(MANY)]
    running = set()

    async def wait_for_all():
        listeners = [
            Listener(on_phase=lambda verdict, name=reference.name: running.add((name, verdict.phase)))
            for reference in references
        ]
        waiting = [
            asyncio.create_task(wait_async(cluster_client, reference, listener=listener))
            for reference, listener in zip(references, listeners, strict=True)
        ]
        watched = ("watch trainjobs", "watch pods")  # each by a thread of its own
        await asyncio.to_thread(wait_until, lambda: len(running) == MANY and all(server.asked[one] for one in watched))
        asked, phases = dict(server.asked), {phase for _, phase in running}
        for reference in references:
            set_status(server, reference.name, COMPLETE)
        return asked, phases, await asyncio.wait_for(asyncio.gather(*waiting), 60)

    asked, phases, outcomes = asyncio.run(wait_for_all())
    assert phases == {Phase.RUNNING}
    assert asked.pop("list trainjobs") == MANY / 100  # pages
    assert asked == {"watch trainjobs": 1, "list pods": 1, "watch pods": 1}
    assert all(outcome.succeeded for outcome in outcomes)
    assert server.most_watches == {"trainjobs": 1, "pods": 1}


def test_one_that_is_gone_is_told_though_no_watch_tells_it(server, cluster_client):
    stays, gone = create_trainjob(server, "stays"), JobReference("gone", "default", "uid-of-old")
    other = create_trainjob(server, "other")
    before = JobReference("other", "default", "uid-of-its-forerunner")
    begun = threading.Event()
    thread = threading.Thread(
        target=wait, args=(cluster_client, stays), kwargs={"listener": Listener(on_phase=lambda _: begun.set())}
    )
    thread.start()
    try:
        assert wait(cluster_client, gone).phase is Phase.DELETED  # with its namespace being listed
        assert begun.wait(60)
        assert wait(cluster_client, gone).phase is Phase.DELETED  # and after
        assert wait(cluster_client, before).phase is Phase.DELETED
        set_status(server, "other", COMPLETE)
        assert wait(cluster_client, other).succeeded
    finally:
        set_status(server, "stays", COMPLETE)
        thread.join(60)


def test_one_that_the_watch_does_not_know_yet_is_read(server, cluster_client):
    """A label of ours is missing here, so that no watch tells of it: as if its news were late."""
    server._registry.create(
        "trainjobs",
        build_trainjob(
            TrainJob(trainer=CustomTrainerContainer(image="x", command=["y"])),
            name="late",
            namespace="default",
            labels={},
            annotations={},
        ),
        "default",
    )
    set_status(server, "late", COMPLETE)
    uid = server._registry.get("trainjobs", "late", "default")["metadata"]["uid"]
    assert wait(cluster_client, JobReference("late", "default", uid)).succeeded


def test_threads_that_ask_at_once_get_one_cluster(connection):
    barrier = threading.Barrier(8)

    def ask():
        barrier.wait(60)
        return shared_cluster(connection)

    with ThreadPoolExecutor(8) as threads:
        found = {threads.submit(ask) for _ in range(8)}
        clusters = {id(future.result()) for future in found}
    assert len(clusters) == 1
    shared_cluster(connection).close()


def test_a_feed_keeps_only_what_is_asked_for(server, cluster_client):
    made = create_trainjob(server, "slim")
    seen = threading.Event()
    changes = []

    def deliver(change):
        changes.append(change)
        seen.set()

    with cluster_client.trainjob_informer("default").add_event_handler(made.name, deliver):
        assert seen.wait(60)
    kept = json.dumps(changes[0].found)
    assert "managedFields" not in kept
    assert changes[0].found["spec"]["trainer"]["image"] == "x"


def test_logs_beyond_the_bound_are_read_later_and_say_so(laptop, unique, tmp_path):
    there = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)))
    there.live_log_executor = BoundedExecutor("log", 1)
    gos = [tmp_path / "go-0", tmp_path / "go-1"]
    lines = [[], []]
    waiting = []

    def start(n):
        script = f"echo first-{n}; while [ ! -e {gos[n]} ]; do sleep 0.05; done; echo last-{n}"
        job = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script]))
        reference = submit(there, job, RunKey("test", "many", unique, f"run-{n}"))
        listener = Listener(on_log=lambda line: lines[n].append(line.text))
        thread = threading.Thread(target=wait, args=(there, reference), kwargs={"listener": listener})
        thread.start()
        waiting.append(thread)

    start(0)
    wait_until(lambda: "first-0" in lines[0])
    start(1)
    wait_until(lambda: lines[1])
    assert "1 logs are already being followed" in lines[1][0]
    gos[1].touch()  # its end is not kept waiting by the other
    waiting[1].join(60)
    assert lines[1][1:] == ["first-1", "last-1"]
    gos[0].touch()
    waiting[0].join(60)
    assert lines[0] == ["first-0", "last-0"]
    there.close()
