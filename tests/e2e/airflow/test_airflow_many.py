"""Hundreds of tasks wait with one shared watch per triggerer; each creates one TrainJob and succeeds."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.api_proxy import ApiProxy
from tests.support.standalone import Standalone, wait_for_airflow
from trainjob.manifest import labels
from trainjob.status import Phase, derive_verdict

pytestmark = pytest.mark.timeout(2400)
DAGS = Path(__file__).resolve().parent / "dags"
TASKS, FIRST_TASKS = 200, 20
PERIOD = 60  # seconds for which the CPU time of the triggerers is measured
SETTINGS = {
    "AIRFLOW__CORE__PARALLELISM": "8",
    "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": str(TASKS),
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "1800",
}


class WatchCountingProxy(ApiProxy):
    """A proxy that counts the watches that pass, by the watched kind.

    It does not count the watch of one TrainJob with which each worker waits until the triggerer has the task.

    Attributes:
        max_watches: largest number of concurrent watches.
    """

    def __init__(self, laptop):
        self._counting, self._open_watches = threading.Lock(), {}
        self.max_watches = Counter()
        super().__init__(laptop)

    def filter_requests(self, connection, pieces):
        try:
            for piece in super().filter_requests(connection, pieces):
                self._record_request(connection, piece)
                yield piece
        finally:
            with self._counting:
                self._open_watches.pop(connection, None)

    def _record_request(self, connection, data):
        line = data.partition(b"\r\n")[0].decode(errors="replace").split(" ")
        if len(line) != 3 or line[2] != "HTTP/1.1":
            return  # the rest of a request's body
        path, _, query = line[1].partition("?")
        kind = path.rpartition("/")[2]
        with self._counting:
            self._open_watches.pop(connection, None)
        if "watch=true" in query and quote(f"{labels.RUN_KEY}=", safe="") not in query:
            self._wait_until_closed(kind)
            with self._counting:
                self._open_watches[connection] = kind
                self.max_watches[kind] = max(self.max_watches[kind], list(self._open_watches.values()).count(kind))

    def _wait_until_closed(self, kind):
        """Wait until a watch that its client closed just before this one is closed here too."""
        deadline = time.monotonic() + 5.0
        while kind in list(self._open_watches.values()) and time.monotonic() < deadline:
            time.sleep(0.01)


@pytest.fixture(scope="module")
def proxy(laptop):
    with WatchCountingProxy(laptop) as started:
        yield started


@pytest.fixture(scope="module")
def airflow(proxy, installation, tmp_path_factory):
    """Return an Airflow that reaches the cluster through the counting proxy."""
    home = tmp_path_factory.mktemp("airflow")
    with Standalone(
        home, DAGS, **installation, AIRFLOW_CONN_KUBERNETES_DEFAULT=proxy.airflow_connection(), **SETTINGS
    ) as airflow:
        yield airflow


def count_states(airflow, run):
    """Return the number of the run's tasks in each state."""
    found, total = Counter(), 1
    while found.total() < total:
        page = airflow.request("GET", f"{run}/taskInstances?limit=100&offset={found.total()}")
        total = page["total_entries"]
        found.update(task["state"] for task in page["task_instances"])
    return found


def trainjobs_of(cluster, run):
    """Return the TrainJobs of a DAG run with the map indices of their tasks."""
    name, found = run.rpartition("/")[2], []
    for job in cluster.list_trainjobs("default"):
        key = json.loads(job["metadata"]["annotations"][labels.RUN_KEY])
        if key["run"] == name:
            found.append((key["map_index"], job))
    return found


class TriggererUsage:
    """CPU time and memory of the triggerers' processes.

    Attributes:
        cpu_seconds: CPU time since the start of the processes.
        mebibytes: proportional set size (PSS).
    """

    def __init__(self, airflow):
        folders = [Path("/proc", str(pid)) for pid in airflow.list_processes("triggerer")]
        self.cpu_seconds = sum(read_cpu_ticks(folder / "stat") for folder in folders) / os.sysconf("SC_CLK_TCK")
        self.mebibytes = sum(read_pss(folder / "smaps_rollup") for folder in folders) / 1024


def read_cpu_ticks(file):
    """Return the user time and the system time of a process together."""
    user, system = file.read_text().rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


def read_pss(file):
    """Return the proportional set size of a process in KiB."""
    return int(re.search(r"^Pss: +(\d+) kB", file.read_text(), re.MULTILINE)[1])


def measure_cpu(airflow, seconds):
    """Return the CPU seconds of the triggerers in a period."""
    before, ends_at = TriggererUsage(airflow), time.monotonic() + seconds
    wait_for_airflow(lambda: time.monotonic() >= ends_at, seconds + 10)
    return TriggererUsage(airflow).cpu_seconds - before.cpu_seconds


def test_two_hundred_tasks_share_one_watch_per_triggerer(airflow, installation, proxy, cluster, record_case, tmp_path):
    triggerers = installation.get("triggerers", 1)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    cpu_without_tasks = measure_cpu(airflow, PERIOD)
    run = airflow.start_run("many", gate=str(gate))
    # The first tasks of a triggerer make it import modules.
    wait_for_airflow(lambda: count_states(airflow, run)["deferred"] >= FIRST_TASKS, 300)
    first_usage = TriggererUsage(airflow)

    def do_all_wait():
        if count_states(airflow, run)["deferred"] < TASKS:
            return False
        return [derive_verdict(job).phase for _, job in trainjobs_of(cluster, run)] == [Phase.RUNNING] * TASKS

    wait_for_airflow(do_all_wait, 900)
    assert proxy.max_watches == {"trainjobs": triggerers, "pods": triggerers}
    usage, cpu = TriggererUsage(airflow), measure_cpu(airflow, PERIOD)
    gate_descriptor = os.open(gate, os.O_RDWR)  # for the pods that wait now and for later ones
    try:
        wait_for_airflow(lambda: airflow.get_state(run) in ("success", "failed"), 900)
    finally:
        os.close(gate_descriptor)
    assert count_states(airflow, run) == {"success": TASKS}
    assert sorted(int(index) for index, _ in trainjobs_of(cluster, run)) == list(range(TASKS))
    assert proxy.max_watches == {"trainjobs": triggerers, "pods": triggerers}
    record_case(
        f"{TASKS} deferred tasks wait for {PERIOD} s",
        f"{cpu:.1f} CPU s of both triggerers, {cpu_without_tasks:.1f} s without tasks; "
        f"{usage.mebibytes - first_usage.mebibytes:.0f} MiB more than for {FIRST_TASKS} tasks",
    )
