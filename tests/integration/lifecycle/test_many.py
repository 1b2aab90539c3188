"""Tests of many waiters in one process: their requests to the API server and their threads."""

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
from trainjob.lifecycle import JobReference, Listener, submit, wait, wait_async
from trainjob.manifest import build_trainjob
from trainjob.status import Phase
from trainjob.threads import BoundedExecutor
from trainjob_local.apiserver import Registry

MANY = 200
OWN_LABEL = {"trainjob.dev/run-key": "0123456789abcdef"}
RUNNING = {"jobsStatus": [{"name": "node", "active": 1, "ready": 1, "succeeded": 0, "failed": 0, "suspended": 0}]}
COMPLETE = {
    "conditions": [
        {
            "type": "Complete",
            "status": "True",
            "reason": "JobsCompleted",
            "message": "x",
            "lastTransitionTime": "2099-01-01T00:00:00Z",
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
    """Create a TrainJob with our labels that no controller runs, and return its reference."""
    job = TrainJob(trainer=CustomTrainerContainer(image="x", command=["y"]))
    made = server._registry.create(
        "trainjobs", build_trainjob(job, name=name, namespace="default", labels=OWN_LABEL, annotations={}), "default"
    )
    if status:
        set_status(server, name, status)
    return JobReference(name, "default", made["metadata"]["uid"])


def set_status(server, name, status):
    server._registry.patch("trainjobs", name, {"status": status}, "default", subresource="status")


def test_hundreds_of_waiters_share_one_list_and_one_watch(server, cluster_client):
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
        watched = ("watch trainjobs", "watch pods")  # each has its own thread
        await asyncio.to_thread(
            wait_until, lambda: len(running) == MANY and all(server.request_counts[each] for each in watched)
        )
        requests, phases = dict(server.request_counts), {phase for _, phase in running}
        for reference in references:
            set_status(server, reference.name, COMPLETE)
        return requests, phases, await asyncio.wait_for(asyncio.gather(*waiting), 60)

    requests, phases, outcomes = asyncio.run(wait_for_all())
    assert phases == {Phase.RUNNING}
    assert requests.pop("list trainjobs") == MANY / 100  # pages
    assert requests == {"watch trainjobs": 1, "list pods": 1, "watch pods": 1}
    assert all(outcome.succeeded for outcome in outcomes)
    assert server.max_watches == {"trainjobs": 1, "pods": 1}


def test_a_wait_for_a_deleted_job_ends_although_no_watch_reports_it(server, cluster_client):
    running, deleted = create_trainjob(server, "running"), JobReference("deleted", "default", "uid-of-deleted")
    other = create_trainjob(server, "other")
    replaced = JobReference("other", "default", "uid-of-earlier-job")
    started = threading.Event()
    thread = threading.Thread(
        target=wait, args=(cluster_client, running), kwargs={"listener": Listener(on_phase=lambda _: started.set())}
    )
    thread.start()
    try:
        assert wait(cluster_client, deleted).phase is Phase.DELETED  # while its namespace is listed
        assert started.wait(60)
        assert wait(cluster_client, deleted).phase is Phase.DELETED  # and after the list
        assert wait(cluster_client, replaced).phase is Phase.DELETED
        set_status(server, "other", COMPLETE)
        assert wait(cluster_client, other).succeeded
    finally:
        set_status(server, "running", COMPLETE)
        thread.join(60)


def test_a_job_that_the_watch_has_not_reported_yet_is_read(server, cluster_client):
    """The job has none of our labels, so no watch reports it; this simulates a late event."""
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


def test_concurrent_threads_get_one_shared_cluster(connection):
    barrier = threading.Barrier(8)

    def get_cluster():
        barrier.wait(60)
        return shared_cluster(connection)

    with ThreadPoolExecutor(8) as threads:
        found = {threads.submit(get_cluster) for _ in range(8)}
        clusters = {id(future.result()) for future in found}
    assert len(clusters) == 1
    shared_cluster(connection).close()


def test_an_informer_keeps_only_the_fields_that_its_handlers_read(server, cluster_client):
    reference = create_trainjob(server, "slim")
    received = threading.Event()
    events = []

    def deliver(event):
        events.append(event)
        received.set()

    with cluster_client.trainjob_informer("default").add_event_handler(reference.name, deliver):
        assert received.wait(60)
    kept = json.dumps(events[0].object)
    assert "managedFields" not in kept
    assert events[0].object["spec"].keys() == {"managedBy", "runtimeRef", "suspend", "trainer"}
    assert events[0].object["spec"]["trainer"] == {}  # its image is left out


def test_logs_beyond_the_limit_are_read_later_with_a_notice(laptop, unique, tmp_path):
    client = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)))
    client.live_log_executor = BoundedExecutor("log", 1)
    go_files = [tmp_path / "go-0", tmp_path / "go-1"]
    lines = [[], []]
    waiting = []

    def start(n):
        script = f"echo first-{n}; while [ ! -e {go_files[n]} ]; do sleep 0.05; done; echo last-{n}"
        job = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script]))
        reference = submit(client, job, RunKey("test", "many", unique, f"run-{n}"))
        listener = Listener(on_log=lambda line: lines[n].append(line.text))
        thread = threading.Thread(target=wait, args=(client, reference), kwargs={"listener": listener})
        thread.start()
        waiting.append(thread)

    start(0)
    wait_until(lambda: "first-0" in lines[0])
    start(1)
    wait_until(lambda: lines[1])
    assert "1 logs are already being followed" in lines[1][0]
    go_files[1].touch()  # its last lines are read although the other log is followed
    waiting[1].join(60)
    assert lines[1][1:] == ["first-1", "last-1"]
    go_files[0].touch()
    waiting[0].join(60)
    assert lines[0] == ["first-0", "last-0"]
    client.close()
