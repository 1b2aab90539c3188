"""Logs of a training with many ranks: speed and memory of following them.

It compares the log follower with the Kubernetes client.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.support.markdown import table
from tools.bench import bench_waiting
from tools.bench.logs_server import JOB, serve
from tools.bench.sizes import size
from tools.bench.waiting_server import NAMESPACE

RANKS, LINES = size(64, 2), size(10_000, 5)  # lines of each rank
_SHARE, _MEGABYTES = 0.8, 200  # share of the lines per second of a bare loop that reads the same bytes
_READERS = {
    "follower": "`LogFollower`",
    "wait": "`trainjob.lifecycle.wait`, with progress and a listener",
    "stamped": "`kubernetes.watch` on `read_namespaced_pod_log` with `timestamps=True`, a thread for each rank",
    "client": "the same without timestamps",
}


def measure():
    """Return the measured rows."""
    rows = []
    for who in _READERS:
        folder = Path(tempfile.mkdtemp(prefix="bench-"))
        try:
            with bench_waiting.start_process(serve, RANKS, LINES, folder) as server:
                url, uid = server.recv()
                bench_waiting.configure_connection(folder, url)
                with bench_waiting.start_process(read_logs, who, uid) as reader:
                    while (message := reader.recv()) == "all":
                        server.send(("finish",))
                    rows.append({"who": who, **message})
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def read_logs(connection, reader, uid):
    """Run the measured process: send `all` when all lines are read, then the measurements.

    Args:
        connection: connection to the benchmark's process.
        reader: the reader to measure, a key of `_READERS`.
        uid: UID of the TrainJob.
    """
    count = LineCounter(connection)
    readers = {"follower": _follow, "wait": _wait, "stamped": _watch_log, "client": _watch_log_without_times}
    readers[reader](count, uid)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    connection.send({"lines": count.lines, "seconds": count.seconds, "cpu": count.cpu, "rss_mb": peak})
    connection.recv()
    os._exit(0)


class LineCounter:
    """Counter of lines; it measures the time from the first to the last line."""

    def __init__(self, connection):
        self.lines, self.seconds, self.cpu, self.all_read = 0, 0.0, 0.0, threading.Event()
        self._connection, self._began, self._used = connection, 0.0, 0.0

    def __call__(self, _):
        """Count one line; callers never call it concurrently."""
        self.lines += 1
        if self.lines == 1:
            self._began, self._used = time.monotonic(), time.process_time()
        elif self.lines == RANKS * LINES:
            self.seconds, self.cpu = time.monotonic() - self._began, time.process_time() - self._used
            self._connection.send("all")
            self.all_read.set()


def _follow(count, _):
    from trainjob.client import Cluster, Connection, LogFollower, ObjectEvent

    cluster = Cluster(Connection(kubeconfig=os.environ["KUBECONFIG"]))
    follower = LogFollower(cluster, NAMESPACE, count)
    for pod in cluster.list_pods(JOB, NAMESPACE):
        follower.observe(ObjectEvent(pod))
    count.all_read.wait()
    follower.stop()


def _wait(count, uid):
    from trainjob.client import Cluster, Connection
    from trainjob.lifecycle import JobReference, Listener, wait

    cluster = Cluster(Connection(kubeconfig=os.environ["KUBECONFIG"]))
    wait(cluster, JobReference(JOB, NAMESPACE, uid), listener=Listener(on_log=count))


def _watch_log_without_times(count, uid):
    _watch_log(count, uid, timestamps=False)


def _watch_log(count, _, *, timestamps=True):
    from kubernetes import client, config, watch

    config.load_kube_config()
    settings = client.Configuration.get_default_copy()
    settings.connection_pool_maxsize = RANKS
    api, lock = client.CoreV1Api(client.ApiClient(settings)), threading.Lock()

    def one(rank):
        stream = watch.Watch().stream(api.read_namespaced_pod_log, f"{JOB}-{rank}", NAMESPACE, timestamps=timestamps)
        for line in stream:
            with lock:
                count(line)

    for rank in range(RANKS):
        threading.Thread(target=one, args=(rank,), daemon=True).start()
    count.all_read.wait()


_TEXT = """## Logs

A program reads the logs of {ranks} ranks at the same time. Each rank has written {lines:,} lines of 120 bytes, and
the program counts them. The API server is that of the laptop cluster with prepared logs. It is another process on the
same machine and serves TLS. `kubernetes.watch` is how `get_job_logs` of the Kubeflow SDK 0.5 reads the log of one
rank, without timestamps. It does not resume after a broken connection, and does not report the rank of a line. A
program that resumes needs the timestamps, so the last row but one reads the same bytes as `LogFollower`.
Memory is the peak of the reading process.

{rows}"""


def section(rows):
    """Format the measured values as a Markdown section."""
    cells = [
        (
            _READERS[row["who"]],
            f"{row['lines'] / row['seconds']:,.0f}",
            f"{1e6 * row['cpu'] / row['lines']:.1f} µs",
            f"{row['rss_mb']:.0f} MB",
        )
        for row in rows
    ]
    head = ("Reader", "Lines / s", "CPU time / line", "Memory")
    return _TEXT.format(ranks=RANKS, lines=LINES, rows=table(head, cells))


def goals(rows):
    """Yield each goal as a tuple: text of the goal, whether it is met, measured value."""
    rates = {row["who"]: row["lines"] / row["seconds"] for row in rows}
    for who, name in (("follower", "`LogFollower`"), ("wait", "`wait`")):
        share = rates[who] / rates["stamped"]
        goal = f"{name} reads at least {_SHARE:.0%} of the lines per second of a bare loop with timestamps"
        yield goal, share >= _SHARE, f"{share:.0%}"
    [peak] = [row["rss_mb"] for row in rows if row["who"] == "wait"]
    yield f"`wait` needs at most {_MEGABYTES} MB for these logs", peak <= _MEGABYTES, f"{peak:.0f} MB"


if __name__ == "__main__":
    found = measure()
    print(section(found), *goals(found), sep="\n")
