"""A job that prints many lines at once, in a complete Airflow.

It measures the effect on the triggerer and on the other tasks.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path

from tests.support.markdown import table
from tests.support.standalone import Standalone, wait_for_airflow
from tools.bench.bare_loop import LATE_SECONDS
from tools.bench.bench_resumption import EndTimes
from tools.bench.sizes import size
from trainjob_local import LocalCluster

QUIET_TASKS = 20
LINES = size(50_000, 100)
_DAGS = Path(__file__).resolve().parent / "dags"
_BARE_LOOP = Path(__file__).with_name("bare_loop.py")
_SETTLED_SECONDS = size(20.0, 0.0)  # longer than the first seconds of a deferral, in which our trigger never fires
_INTERVAL_SECONDS = size(1.0, 0.1)
_POLL_SECONDS = 0.5
_STALL_MS, _DELAY_MS, _MEGABYTES = 50.0, 250.0, 50.0
_OPERATORS = {"jobs": "`TrainJobOperator`", "pods": "`KubernetesPodOperator(deferrable=True)`"}
_ROWS = size([("jobs", 100), ("jobs", 1000), ("pods", 100)], [("jobs", 2)])
_SETTINGS = {
    "AIRFLOW__CORE__PARALLELISM": "8",
    "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": str(QUIET_TASKS + 2),
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
    "PYTHONPATH": str(_DAGS),  # the triggerer imports the measuring triggers from here
}


def measure(rows=_ROWS, **environment):
    """Return the measured rows."""
    found = []
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        with LocalCluster(folder / "cluster") as laptop:
            extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default"}
            connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
            (folder / "airflow").mkdir()
            settings = {"AIRFLOW_CONN_KUBERNETES_DEFAULT": connection, **_SETTINGS, **environment}
            with Standalone(folder / "airflow", _DAGS, **settings) as airflow:
                for kind, width in rows:
                    gates = folder / f"{kind}-{width}"
                    gates.mkdir()
                    found.append(_FloodRun(airflow, laptop, kind, width, gates).measure())
                    print(found[-1], file=sys.stderr, flush=True)
    return found


class _FloodRun:
    """One DAG run in which a job prints many lines, and its measurements."""

    def __init__(self, airflow, laptop, kind, width, gates):
        self._airflow, self._kind, self._width, self._gates = airflow, kind, width, gates
        self._end_times = EndTimes(laptop.kubeconfig, {"jobs": "trainjobs"}.get(kind, kind))
        self._run = airflow.start_run(f"flooding_{kind}", folder=str(gates), lines=LINES, width=width - 1)
        self._heartbeat_gap, self._over = 0.0, threading.Event()

    def measure(self):
        """Return the row of this run."""
        tasks = ["flood", *(f"quiet/{n}" for n in range(QUIET_TASKS)), "watch"]
        wait_for_airflow(lambda: all(self._state(task) == "deferred" for task in tasks), 600)
        time.sleep(_SETTLED_SECONDS)
        known = set(self._end_times.times)
        heartbeats = threading.Thread(target=self._poll_heartbeats, daemon=True)
        heartbeats.start()
        began = time.time()
        tasks.remove("watch")
        with _run_bare_loop() as busy:
            (self._gates / "flood").touch()
            for n in range(QUIET_TASKS):
                time.sleep(_INTERVAL_SECONDS)
                (self._gates / str(n)).touch()
            wait_for_airflow(lambda: all(self._state(task) in ("success", "failed") for task in tasks), 900)
        returned = datetime.fromisoformat(self._airflow.request("GET", f"{self._run}/taskInstances/flood")["end_date"])
        (self._gates / "measured").touch()
        self._over.set()
        wait_for_airflow(lambda: self._airflow.get_state(self._run) in ("success", "failed"), 300)
        fired = sorted(self._xcom(f"quiet/{n}", "fired") for n in range(QUIET_TASKS))
        ended = {uid: at for uid, at in self._end_times.times.items() if uid not in known}
        ends = sorted(at for uid, at in ended.items() if not self._end_times.names[uid].startswith("flood"))
        delays = sorted(1000 * (fire - end) for end, fire in zip(ends, fired, strict=True))
        loop = self._xcom("watch", "return_value")
        return {
            "who": self._kind,
            "megabytes": LINES * self._width / 1e6,
            "state": self._state("flood"),
            "seconds": returned.timestamp() - began,
            "heartbeat_gap": self._heartbeat_gap,
            "p99_ms": delays[-1],
            "p50_ms": delays[len(delays) // 2],
            **loop,
            "stalls": len(loop["stalls"]),
            "own": len(_own_stalls(loop["stalls"], busy)),
        }

    def _state(self, task):
        found = self._airflow.request("GET", f"{self._run}/taskInstances/{task}")
        return found and found["state"]

    def _xcom(self, task, key):
        task, _, index = task.partition("/")
        path = f"{self._run}/taskInstances/{task}/xcomEntries/{key}?deserialize=true&map_index={index or -1}"
        return self._airflow.request("GET", path)["value"]

    def _poll_heartbeats(self):
        while not self._over.wait(_POLL_SECONDS):
            health = self._airflow.request("GET", "/api/v2/monitor/health")["triggerer"]
            beat = datetime.fromisoformat(health["latest_triggerer_heartbeat"].replace("Z", "+00:00"))
            self._heartbeat_gap = max(self._heartbeat_gap, time.time() - beat.timestamp())


@contextlib.contextmanager
def _run_bare_loop():
    """Run an event loop in another process, and yield a list of its late ticks.

    The list is filled at the end; each element is start and end of a tick.
    """
    late: list[list[float]] = []
    with subprocess.Popen([sys.executable, str(_BARE_LOOP)], stdout=subprocess.PIPE, text=True) as loop:
        try:
            yield late
        finally:
            loop.terminate()
            late += [json.loads(line) for line in loop.stdout or ()]


def _own_stalls(stalls, busy):
    """Return the stalls during which the process itself computed and the machine was not busy."""
    return [
        (began, ended)
        for began, ended, computed in stalls
        if computed * 1000 > _STALL_MS and not any(first < ended and last > began for first, last in busy)
    ]


_TEXT = """## A job that prints a lot

In a complete Airflow with SQLite, the job of one task prints {lines:,} lines at once. {quiet} other tasks are
deferred on the same triggerer, and one of their jobs ends each second. The trigger of this project writes lines to
the task log as they arrive, and skips some of them with a notice. The pod operator's trigger reads no log (without
`logging_interval`); a worker reads the whole log after the pod has ended.

* Longest stall: the longest delay of the triggerer's event loop, measured by a trigger that does nothing else.
* Own stalls: how many of all delays of more than 50 ms the triggerer itself caused. In such a delay, its process
  computed for more than 50 ms, and an event loop in a separate process was not late by more than {late:.0f} ms.
* Heartbeat: the maximum age of the triggerer's newest heartbeat. Airflow declares a triggerer dead after 30 s.
* Delay: the time from the end of another job, as a watch sees it, until its trigger fires. p99 is the longest of
  them.
* Memory: the growth of the triggerer's process.
* Task time: the time from the first line until the end of the task.

{rows}"""


def section(rows):
    """Format the measured values as a Markdown section."""
    cells = [
        (
            _OPERATORS[row["who"]],
            f"{row['megabytes']:.0f} MB",
            f"{row['worst'] * 1000:,.0f} ms",
            f"{row['own']} of {row['stalls']}",
            f"{row['heartbeat_gap']:.1f} s",
            f"{row['p50_ms']:,.0f} ms",
            f"{row['p99_ms']:,.0f} ms",
            f"{row['grown_mb']:.0f} MB",
            f"{row['seconds']:.0f} s",
        )
        for row in rows
    ]
    head = (
        "Operator",
        "Log",
        "Longest stall",
        "Own stalls",
        "Heartbeat",
        "Delay p50",
        "Delay p99",
        "Memory",
        "Task time",
    )
    return _TEXT.format(lines=LINES, quiet=QUIET_TASKS, late=LATE_SECONDS * 1000, rows=table(head, cells))


def goals(rows):
    """Yield each goal as a tuple: text of the goal, whether it is met, measured value."""
    for row in rows:
        if row["who"] != "jobs":
            continue
        flood = f"while a job prints {row['megabytes']:.0f} MB at once"
        stalls, grown, delay = row["own"], row["grown_mb"], row["p99_ms"]
        yield f"the triggerer itself causes no stall over {_STALL_MS:.0f} ms {flood}", stalls == 0, f"{stalls}"
        yield (
            f"other triggers fire after at most {_DELAY_MS:.0f} ms (p99) {flood}",
            delay <= _DELAY_MS,
            f"{delay:,.0f} ms",
        )
        yield (
            f"the triggerer's memory grows by at most {_MEGABYTES:.0f} MB {flood}",
            grown <= _MEGABYTES,
            f"{grown:.0f} MB",
        )


if __name__ == "__main__":
    found = measure()
    print(section(found), *goals(found), sep="\n")
