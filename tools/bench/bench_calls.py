"""Cost of waiting for many TrainJobs in a program.

It compares `trainjob.lifecycle.wait_async`, the Kubeflow SDK's call, and a watch for each job. As a program,
bench_calls.py runs in the environment of Kubeflow Pipelines, which has the SDK, and prints the rows as JSON.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.markdown import table
from tools.bench import bench_waiting, waiting_calls

_MAX_DELAY_MS = 250.0
_MAX_PEER_JOBS = 1000  # limit of the peers, which use a thread for each job
_ROOT = Path(__file__).resolve().parents[2]


def measure():
    """Return the rows, measured in the environment of Kubeflow Pipelines.

    The environment of the caller does not matter.
    """
    python = _ROOT / ".venv" / "kfp" / "bin" / "python"
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run([str(python), __file__], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def _measure_rows():
    for count in bench_waiting.COUNTS:
        for who in waiting_calls.CLIENTS:
            if who == "trainjob" or count <= _MAX_PEER_JOBS:
                row = bench_waiting.measure_one(who, count, waiting_calls.wait_for_jobs)
                print(row, file=sys.stderr, flush=True)
                yield row


_TEXT = """## Waiting in a program

These are the same API server and the same changes as above, for a program that waits without Airflow:

* `trainjob.lifecycle.wait_async` waits for all jobs in one event loop. It also watches pods, to see restarts and
  follow logs.
* `wait_for_job_status` of the Kubeflow SDK 0.5 polls every 2 s, its default, with a thread for each job.
* A watch for each job is `kubernetes.watch` with the name of the job as field selector, with a thread for each job.

The last two are measured with at most {most:,} jobs. Memory is the peak of the process.

{rows}"""


def section(rows):
    """Format the measured values as a Markdown section."""
    cells = [
        (
            f"{row['jobs']:,}",
            waiting_calls.CLIENTS[row["who"]],
            f"{row['window']['cpu']:.2f}",
            f"{row['requests']:.2f}",
            f"{row['start_requests']:,}",
            f"{row['window']['rss_mb']:.0f} MB",
            f"{row['p50_ms']:,.0f} ms",
            f"{row['p99_ms']:,.0f} ms",
            row["events"],
        )
        for row in rows
    ]
    head = (
        "Jobs",
        "Client",
        "CPU s / 30 s",
        "Requests / job / min",
        "Requests at the start",
        "Memory",
        "Delay p50",
        "Delay p99",
    )
    return _TEXT.format(most=_MAX_PEER_JOBS, rows=table((*head, "Events"), cells))


def goals(rows):
    """Yield each goal as a tuple: text of the goal, whether it is met, measured value."""
    worst = max(row["p99_ms"] for row in rows if row["who"] == "trainjob")
    yield (
        f"`wait_async` returns at most {_MAX_DELAY_MS:.0f} ms after the change (p99)",
        worst <= _MAX_DELAY_MS,
        f"{worst:.0f} ms",
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(list(_measure_rows())))
