"""Cost of waiting for many jobs in a triggerer.

It compares `TrainJobTrigger` with the Kubernetes provider's trigger in the same run.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.counting_server import TOKEN
from tests.support.markdown import table
from tools.bench.sizes import size
from tools.bench.waiting_server import CA_CERTIFICATE, NAMESPACE, serve
from tools.bench.waiting_triggers import run_triggers

WINDOW = size(30, 1)
FINISHED, FINISHED_EACH_SECOND = size(100, 2), 10
PATCHED_EACH_SECOND = 20
COUNTS, _INTERVALS = size([100, 1000, 10_000], [3]), size(["10", "2"], ["0.5"])
_MAX_POLLED = 1000  # with 10,000 jobs, polling every 10 s needs more than one core, and misses ends of jobs
_RATIO, _CPU_SECONDS, _DELAY_MS = 27.0, 0.6, 250.0
_SPAWN = multiprocessing.get_context("spawn")


@contextlib.contextmanager
def start_process(target, *arguments):
    """Start a process and yield a connection to it."""
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=target, args=(there, *arguments), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        with contextlib.suppress(OSError):
            here.send(None)
        process.join(15)
        process.kill()


def configure_connection(folder, url):
    """Create a kubeconfig and the Airflow connection `bench`, and set both in the environment."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "b", "cluster": {"server": url, "certificate-authority": str(folder / CA_CERTIFICATE)}}],
        "users": [{"name": "b", "user": {"token": TOKEN}}],
        "contexts": [{"name": "b", "context": {"cluster": "b", "user": "b", "namespace": NAMESPACE}}],
        "current-context": "b",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    os.environ["KUBECONFIG"] = str(path)
    extra = {"kube_config_path": str(path), "namespace": NAMESPACE}
    os.environ["AIRFLOW_CONN_BENCH"] = json.dumps({"conn_type": "kubernetes", "extra": extra})


def measure():
    """Return the measured rows."""
    rows = []
    for count in COUNTS:
        for who in ("trainjob", *_INTERVALS):
            if who == "trainjob" or count <= _MAX_POLLED:
                rows.append(measure_one(who, count, run_triggers))
                print(rows[-1], file=sys.stderr, flush=True)
    return rows


def measure_one(client_name, count, wait_function):
    """Return one measured row.

    Args:
        client_name: the client to measure, by its name for `wait_function`. A number is the interval in seconds at
            which Kubernetes Jobs are polled.
        count: number of jobs.
        wait_function: function that runs in the process that waits; see `waiting_triggers.run_triggers`.
    """
    kind = "jobs" if _interval(client_name) else "trainjobs"
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    os.environ.update(AIRFLOW_HOME=str(folder), AIRFLOW__LOGGING__LOGGING_LEVEL="WARNING")
    try:
        with start_process(serve, kind, count, folder) as server:
            url, uids = server.recv()
            configure_connection(folder, url)
            with start_process(wait_function, client_name, uids) as client:
                return _row(server, client, client_name, uids)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _row(server, client, client_name, uids):
    def get_counts():
        server.send(("counts",))
        return server.recv()

    client.recv()  # "starting"
    start = client.recv()
    at_start, _ = get_counts()
    server.send(("touch", PATCHED_EACH_SECOND, WINDOW))
    client.send(("measure", WINDOW))
    window = client.recv()
    after, most = get_counts()
    names = list(uids)[:: max(1, len(uids) // FINISHED)][:FINISHED]
    server.send(("finish", names, FINISHED_EACH_SECOND))
    written = server.recv()
    client.send(("measure", 3 if client_name == "trainjob" else 2 * _interval(client_name) + size(10, 0)))
    at_end = client.recv()
    client.send(("events",))
    ended = client.recv()
    delays = sorted(ended[name] - written[name] for name in names if name in ended)
    done = sum((after - at_start).values())
    start.pop("started", None)  # a time for each job, which no table needs
    return {
        "who": client_name,
        "jobs": len(uids),
        "start": start,
        "start_requests": sum(at_start.values()),
        "window": window,
        "requests": done / len(uids) / (WINDOW / 60),
        "at_end": at_end,
        "events": len(delays),
        "p50_ms": percentile(delays, 50),
        "p99_ms": percentile(delays, 99),
        "requests_at_start": dict(at_start),
        "most_watches": most,
    }


def _interval(client_name):
    try:
        return float(client_name)
    except ValueError:
        return 0.0


def percentile(sorted_values, percent):
    """Return a percentile in milliseconds of values in seconds; NaN if there are none."""
    if not sorted_values:
        return float("nan")
    return 1000 * sorted_values[min(len(sorted_values) - 1, len(sorted_values) * percent // 100)]


_TEXT = """## Waiting in the triggerer

One process with one event loop runs all triggers, as Airflow's triggerer does. The API server is that of the laptop
cluster, with running jobs that have no pods. It is another process on the same machine and serves TLS with a
certificate authority of its own. Both clients read the same Airflow connection and log nothing:

* `trainjob` is `TrainJobTrigger` with TrainJobs.
* `poll` is the Kubernetes provider's `KubernetesJobTrigger` with Kubernetes Jobs. It polls every 10 s by default; 2 s
  is the default of the provider's pod trigger. It is measured with at most {most:,} jobs.

The measurement takes 30 s and starts when all triggers wait. During this time, {touched} jobs are patched each
second, without a change of their phase. Then {finished} jobs end, {each} each second.

* CPU s / 30 s: the CPU time of the process, without the code that measures the stalls, which takes about 0.2 s.
* Longest stall: the longest delay of the event loop.
* Own stalls: the number of delays of more than 50 ms in which this process itself computed for more than 50 ms.
* Delay: the time from the write in the API server until the trigger fires.
* Events: the number of triggers that fired within two poll intervals plus 10 s.

{waiting}"""


def section(rows):
    """Format the measured values as a Markdown section."""
    waiting = [
        (
            f"{row['jobs']:,}",
            row["who"] if row["who"] == "trainjob" else f"poll, {row['who']} s",
            f"{row['window']['cpu']:.2f}",
            f"{row['requests']:.2f}",
            f"{row['window']['worst_ms']:,.0f} ms",
            row["window"]["own_stalls"],
            f"{row['p50_ms']:,.0f} ms",
            f"{row['p99_ms']:,.0f} ms",
            row["events"],
        )
        for row in rows
    ]
    head = ("Jobs", "Client", "CPU s / 30 s", "Requests / job / min", "Longest stall", "Own stalls")
    return _TEXT.format(
        most=_MAX_POLLED,
        touched=PATCHED_EACH_SECOND,
        finished=FINISHED,
        each=FINISHED_EACH_SECOND,
        waiting=table((*head, "Delay p50", "Delay p99", "Events"), waiting),
    )


def goals(rows):
    """Yield each goal as a tuple: text of the goal, whether it is met, measured value."""
    ours = {row["jobs"]: row for row in _trainjob_rows(rows)}
    for row in rows:
        if row["jobs"] == 1000 and row["who"] != "trainjob":
            ratio = row["window"]["cpu"] / ours[1000]["window"]["cpu"]
            goal = f"1,000 jobs take at least {_RATIO:.0f} times less CPU time than polling every {row['who']} s"
            yield goal, ratio >= _RATIO, f"{ratio:.0f}"
    count = max(ours)
    most = ours[count]["window"]
    yield (
        f"{count:,} jobs take at most {_CPU_SECONDS} s of CPU time in 30 s",
        most["cpu"] <= _CPU_SECONDS,
        f"{most['cpu']:.2f} s",
    )
    yield f"{count:,} jobs cause no stall over 50 ms", not most["own_stalls"], most["own_stalls"]
    worst = max(row["p99_ms"] for row in ours.values())
    yield f"a trigger fires at most {_DELAY_MS:.0f} ms after the change (p99)", worst <= _DELAY_MS, f"{worst:.0f} ms"


def _trainjob_rows(rows):
    return [row for row in rows if row["who"] == "trainjob"]
