"""Sequential jobs on the laptop cluster: requests of a submission, time of a no-op job."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.support.counting_server import TOKEN, CountingServer
from tests.support.markdown import table
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import submit, wait
from trainjob_local import LocalCluster
from trainjob_local.apiserver import Registry

JOBS = 30
_MAX_REQUESTS, _MAX_NO_OP_MS = 2, 150.0
_NO_OP = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["true"]), runtime="torch-distributed")


def _key(number):
    return RunKey("bench", "laptop", "no-op", str(number))


def measure():
    """Return the requests of the first and of further jobs, and the seconds of no-op jobs."""
    first, further = _measure_requests()
    return {"first": first, "further": further, "no_op": _measure_no_op()}


def _measure_requests():
    """Return the requests of `submit` with their counts.

    Returns:
        The requests of the first job in a process, and those of a further job.
    """
    registry = Registry()
    server = CountingServer(registry)
    server.start()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        token = Path(folder) / "token"
        token.write_text(TOKEN)
        cluster = Cluster(Connection(server=server.url, token_file=str(token), namespace="default"))
        counts = []
        for number in range(2):
            submit(cluster, _NO_OP, _key(number))
            counts.append(Counter(server.request_counts))
        cluster.close()
    server.stop()
    registry.close()
    return dict(counts[0]), dict(counts[1] - counts[0])


def _measure_no_op():
    """Return the seconds from `submit` until `wait` returns, for each job."""
    seconds = []
    with LocalCluster() as laptop:
        cluster = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)))
        for number in range(JOBS + 1):  # the first job warms up
            began = time.perf_counter()
            assert wait(cluster, submit(cluster, _NO_OP, _key(number))).succeeded
            seconds.append(time.perf_counter() - began)
        cluster.close()
    return seconds[1:]


_TEXT = """## One job

The first table lists the requests that `trainjob.submit` sends to the API server: for the first job of a process, and
for another job in the same process.

{requests}

The second table shows the time from `submit` until `wait` returns, on a laptop cluster. The command of the job is
`true`, and {jobs} jobs run one after the other.

{no_op}"""


def section(found):
    """Format the measured values as a Markdown section."""
    return _TEXT.format(
        jobs=JOBS,
        requests=table(
            ("Job", "Requests", "Verbs and resources"),
            [(name, sum(found[key].values()), ", ".join(found[key])) for name, key in _NAMES.items()],
        ),
        no_op=table(("Median", "Fastest", "Slowest"), [[f"{1000 * f(found['no_op']):.0f} ms" for f in _STATISTICS]]),
    )


_NAMES = {"first job of a process": "first", "each further job": "further"}
_STATISTICS = (statistics.median, min, max)


def goals(found):
    """Yield each goal as a tuple: text of the goal, whether it is met, measured value."""
    most = max(sum(found[key].values()) for key in _NAMES.values())
    yield f"a job is submitted with at most {_MAX_REQUESTS} requests", most <= _MAX_REQUESTS, most
    median = 1000 * statistics.median(found["no_op"])
    goal = f"a job that does nothing is complete on the laptop cluster after at most {_MAX_NO_OP_MS:.0f} ms (median)"
    yield goal, median <= _MAX_NO_OP_MS, f"{median:.0f} ms"
