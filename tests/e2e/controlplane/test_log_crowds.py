"""Many logs at once: all ranks of a large training through a broken connection, and hundreds of jobs in a process."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict

import pytest

from tests.support.counting_server import TOKEN
from tests.support.log_proxy import LogProxy
from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import JobReference, Limits, Listener, submit, wait, wait_async
from trainjob.manifest import build_trainjob
from trainjob.status.pods import JOBSET_LABEL, RANK_LABEL, STEP_LABEL
from trainjob_local.apiserver import ApiServer, Registry

RANKS, LINES = 64, 600
JOBS = 300
SECONDS = 300
NOW = "2026-01-01T00:00:00Z"


def count_faults(received, written):
    """Return the numbers of written, lost and repeated lines for the evidence."""
    counts = Counter({source: len(lines) for source, lines in written.items()})
    lost = sum((Counter(written[source]) - Counter(received[source])).total() for source in written)
    repeated = sum((Counter(received[source]) - Counter(written[source])).total() for source in written)
    return {"lines": counts.total(), "lost": lost, "repeated": repeated}


def test_no_log_line_is_lost_when_connections_break(laptop, unique, tmp_path, evidence):
    received, lines = defaultdict(list), 0
    with LogProxy(laptop, tmp_path) as proxy:
        cluster = Cluster(proxy.connection)

        def record_line(line):
            nonlocal lines
            lines += 1
            received[line.source].append(line.text)
            if lines % 3000 == 0:
                proxy.reset_streams()

        script = f"for part in 1 2 3; do seq -f $part-%g {LINES // 3}; sleep 1; done"
        trainer = CustomTrainerContainer(image="busybox", command=["sh", "-c", script], num_nodes=RANKS)
        reference = submit(cluster, TrainJob(trainer=trainer), RunKey("test", "logs", unique, "run"))
        assert wait(cluster, reference, listener=Listener(on_log=record_line), limits=Limits()).succeeded
        cluster.close()
    numbers = [f"{part}-{n}" for part in (1, 2, 3) for n in range(1, LINES // 3 + 1)]
    counts = count_faults(received, {f"node-{rank}": numbers for rank in range(RANKS)})
    evidence("logs", fault=f"{RANKS} ranks, all connections reset now and then, {proxy.log_requests} streams", **counts)
    assert (counts["lost"], counts["repeated"]) == (0, 0)
    assert all(lines == numbers for lines in received.values())
    assert proxy.log_requests > 2 * RANKS


class WrittenLogs:
    """The logs of pods that run until `may_finish` is set.

    The first half of a log exists from the start.
    """

    def __init__(self):
        self.may_finish, self.open_streams, self.max_open_streams, self._lock = (
            threading.Event(),
            0,
            0,
            threading.Lock(),
        )

    def __call__(self, request):
        lines = [b"2026-01-01T00:00:%02d.%09dZ %s %d\n" % (n // 50, n, request.pod.encode(), n) for n in range(200)]
        since = request.since.strftime("%Y-%m-%dT%H:%M:%S").encode() if request.since else b""
        lines = [line for line in lines if line >= since]
        with self._lock:
            self.open_streams += 1
            self.max_open_streams = max(self.max_open_streams, self.open_streams)
        try:
            for line in lines:
                if line.endswith(b" 100\n") and not self.may_finish.is_set():
                    while not self.may_finish.wait(0.5):
                        if request.cancelled.is_set():
                            return
                yield line
        finally:
            with self._lock:
                self.open_streams -= 1


@pytest.fixture
def log_cluster(tmp_path):
    """Return a server, its logs and a client; `finish_job` ends its running jobs of one pod."""
    registry, written = Registry(), WrittenLogs()
    server = ApiServer(registry, admin_token=TOKEN, log_source=written)
    server.start()
    (tmp_path / "token").write_text(TOKEN)
    cluster = Cluster(Connection(server=server.url, token_file=str(tmp_path / "token"), namespace="default"))
    yield registry, written, cluster
    cluster.close()
    server.stop()
    registry.close()


def create_running_job(registry, name):
    """Create a running TrainJob with its pod."""
    trainer = CustomTrainerContainer(image="x", command=["y"])
    marks = {"trainjob.dev/run-key": "0123456789abcdef"}
    manifest = build_trainjob(TrainJob(trainer=trainer), name=name, namespace="default", labels=marks, annotations={})
    made = registry.create("trainjobs", manifest, "default")
    labels = {JOBSET_LABEL: name, STEP_LABEL: "node", RANK_LABEL: "0"}
    spec = {"restartPolicy": "OnFailure", "containers": [{"name": "node", "image": "x"}]}
    registry.create("pods", {"metadata": {"name": f"{name}-pod", "labels": labels}, "spec": spec}, "default")
    registry.bind(f"{name}-pod", "node", "default")
    set_pod_status(registry, name, "Running", {"running": {"startedAt": NOW}})
    return JobReference(name, "default", made["metadata"]["uid"])


def set_pod_status(registry, name, phase, state):
    container = {"name": "node", "image": "x", "imageID": "x", "ready": False, "restartCount": 0, "state": state}
    status = {"status": {"phase": phase, "containerStatuses": [container]}}
    registry.patch("pods", f"{name}-pod", status, "default", subresource="status")


def finish_job(registry, name):
    set_pod_status(registry, name, "Succeeded", {"terminated": {"exitCode": 0, "startedAt": NOW, "finishedAt": NOW}})
    complete = {"type": "Complete", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": NOW}
    registry.patch("trainjobs", name, {"status": {"conditions": [complete]}}, "default", subresource="status")


def test_hundreds_of_jobs_share_a_limited_number_of_streams(log_cluster, evidence):
    registry, written, cluster = log_cluster
    references = [create_running_job(registry, f"job-{n}") for n in range(JOBS)]
    received = {reference.name: [] for reference in references}

    async def wait_for_all():
        listeners = [Listener(on_log=lambda line, name=name: received[name].append(line.text)) for name in received]
        waiting = [
            asyncio.create_task(wait_async(cluster, reference, listener=listener))
            for reference, listener in zip(references, listeners, strict=True)
        ]
        limit = cluster.live_log_executor.max_threads

        def count_streams():
            return sum(len(lines) >= 100 for lines in received.values())

        await asyncio.to_thread(wait_until, lambda: count_streams() == limit, SECONDS)
        await asyncio.to_thread(wait_until, lambda: all(received.values()), SECONDS)  # the others get a notice
        open_then = written.open_streams
        written.may_finish.set()
        for reference in references:
            finish_job(registry, reference.name)
        return open_then, await asyncio.wait_for(asyncio.gather(*waiting), SECONDS)

    open_then, outcomes = asyncio.run(wait_for_all())
    assert all(outcome.succeeded for outcome in outcomes)
    assert open_then == cluster.live_log_executor.max_threads
    # The server has not yet seen the end of up to 8 streams.
    assert (
        written.max_open_streams <= cluster.live_log_executor.max_threads + cluster.ended_log_executor.max_threads + 8
    )
    notices = {name: [line for line in lines if "already being followed" in line] for name, lines in received.items()}
    assert sum(map(len, notices.values())) == JOBS - cluster.live_log_executor.max_threads
    expected = {name: [f"{name}-pod {n}" for n in range(200)] for name in received}
    logs = {name: [line for line in lines if line not in notices[name]] for name, lines in received.items()}
    evidence("logs", fault=f"{JOBS} jobs in one process, {open_then} streams open", **count_faults(logs, expected))
    assert logs == expected
