"""Sequential jobs on the laptop cluster: requests and time of a submission, time of a no-op job."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from tests.support.counting_server import TOKEN, CountingServer
from tests.support.markdown import table
from tools.bench.sizes import size
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import submit, wait
from trainjob_local import LocalCluster
from trainjob_local.apiserver import Registry

JOBS = size(30, 1)
_MAX_REQUESTS, _MAX_NO_OP_MS = 2, 150.0
_ECHO = CustomTrainerContainer(image="busybox", command=["echo", "done"])
_NO_OP = TrainJob(trainer=_ECHO, runtime="torch-distributed")


def _key(number):
    return RunKey("bench", "laptop", "no-op", str(number))


def measure():
    """Return the requests and seconds of submissions, and the seconds of no-op jobs."""
    return {"requests": _measure_requests(), **_measure_no_op()}


def _measure_requests():
    """Return the requests of `submit` with their counts, in the order of [_NAMES][]."""
    registry = Registry()
    server = CountingServer(registry)
    server.start()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        token = Path(folder) / "token"
        token.write_text(TOKEN)
        cluster = Cluster(Connection(server=server.url, token_file=str(token), namespace="default"))
        counts = []
        for number, first_submission in enumerate(_NAMES.values()):
            server.request_counts.clear()
            submit(cluster, _NO_OP, _key(number), first_submission=first_submission)
            counts.append(dict(server.request_counts))
        cluster.close()
    server.stop()
    registry.close()
    return counts


def _measure_no_op():
    """Return the seconds of `submit` by its kind, and those until `wait` returns for each job."""
    submissions: list[list[float]] = [[] for _ in _NAMES]
    ends: list[list[float]] = [[] for _ in _NAMES]
    with LocalCluster() as laptop:
        cluster = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)))
        for number in range(JOBS + 1):  # the first job of each kind warms up
            for submitted, ended, first_submission in zip(submissions, ends, _NAMES.values(), strict=True):
                began = time.perf_counter()
                reference = submit(
                    cluster, _NO_OP, _key(f"{number} {first_submission}"), first_submission=first_submission
                )
                submitted.append(time.perf_counter() - began)
                assert wait(cluster, reference).succeeded
                ended.append(time.perf_counter() - began)
        cluster.close()
    return {"submissions": [seconds[1:] for seconds in submissions], "no_op": ends[-1][1:]}


_TEXT = """## One job

The first table shows the requests that `trainjob.submit` sends to the API server, and the median of its time on a
laptop cluster. A first submission is that of a run key that was never used before, such as the first try of an Airflow
task. Any other submission, such as a retry, also looks for the JobSet and the pods of a deleted TrainJob. Each kind is
measured {jobs} times, in turn.

{requests}

The second table shows the time from `submit` until `wait` returns. Each job prints one line, and {jobs} jobs run one
after the other. A job that prints nothing takes 0.4 s longer: `wait` reads an empty log three times, because a broken
kubelet also answers with nothing.

{no_op}"""


def section(found):
    """Format the measured values as a Markdown section."""
    return _TEXT.format(
        jobs=JOBS,
        requests=table(
            ("Submission", "Requests", "Verbs and resources", "Median"),
            [
                (name, sum(requests.values()), ", ".join(requests), f"{1000 * statistics.median(seconds):.1f} ms")
                for name, requests, seconds in zip(_NAMES, found["requests"], found["submissions"], strict=True)
            ],
        ),
        no_op=table(("Median", "Fastest", "Slowest"), [[f"{1000 * f(found['no_op']):.0f} ms" for f in _STATISTICS]]),
    )


_NAMES = {"first submission of a run key": True, "any other submission": False}
_STATISTICS = (statistics.median, min, max)


def goals(found):
    """Yield each goal as a tuple: text of the goal, whether it is met, measured value."""
    number = sum(found["requests"][0].values())
    yield f"a run key is first submitted with at most {_MAX_REQUESTS} requests", number <= _MAX_REQUESTS, number
    median = 1000 * statistics.median(found["no_op"])
    goal = f"a job that prints one line is complete on the laptop cluster after at most {_MAX_NO_OP_MS:.0f} ms (median)"
    yield goal, median <= _MAX_NO_OP_MS, f"{median:.0f} ms"
