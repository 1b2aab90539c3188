"""Hundreds of tasks wait on one triggerer at once: one watch for all, every task ends well, one TrainJob each."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.api_proxy import ApiProxy
from tests.support.standalone import Standalone, wait_for
from trainjob.manifest import labels
from trainjob.status import Phase, judge

pytestmark = pytest.mark.timeout(2400)
DAGS = Path(__file__).resolve().parent / "dags"
TASKS = 200
ROOMY = {
    "AIRFLOW__CORE__PARALLELISM": "8",
    "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": str(TASKS),
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "1800",
}


class WatchCounter(ApiProxy):
    """Counts the watches that pass, by what is watched.

    Attributes:
        watches: how many there were.
        most: how many were open at once.
    """

    def __init__(self, laptop):
        self._counting, self._watched = threading.Lock(), {}
        self.watches, self.most = Counter(), Counter()
        super().__init__(laptop)

    def _pass_on(self, start, end, held, wait):
        super()._pass_on(_Tapped(start, self._note) if wait is None else start, end, held, wait)
        with self._counting:
            self._watched.pop(id(start), None)

    def _note(self, connection, data):
        line = data.partition(b"\r\n")[0].decode(errors="replace").split(" ")
        if len(line) != 3 or line[2] != "HTTP/1.1":
            return  # the rest of a request's body
        path, _, query = line[1].partition("?")
        kind = path.rpartition("/")[2]
        with self._counting:
            self._watched.pop(id(connection), None)
        if "watch=true" in query:
            self._let_go(kind)
            with self._counting:
                self._watched[id(connection)] = kind
                self.watches[kind] += 1
                self.most[kind] = max(self.most[kind], list(self._watched.values()).count(kind))

    def _let_go(self, kind):
        """One that its client has closed right before it opens this one may still be on its way here."""
        deadline = time.monotonic() + 5.0
        while kind in list(self._watched.values()) and time.monotonic() < deadline:
            time.sleep(0.01)


class _Tapped:
    """A socket that tells what it receives."""

    def __init__(self, connection, tell):
        self._connection, self._tell = connection, tell

    def recv(self, size):
        data = self._connection.recv(size)
        self._tell(self._connection, data)
        return data

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def __hash__(self):
        return hash(self._connection)

    def __eq__(self, other):
        return other == self._connection


@pytest.fixture(scope="module")
def counter(laptop):
    with WatchCounter(laptop) as there:
        yield there


@pytest.fixture(scope="module")
def there(counter, tmp_path_factory):
    """The Airflow; it reaches the cluster through the counter."""
    home = tmp_path_factory.mktemp("airflow")
    with Standalone(home, DAGS, AIRFLOW_CONN_KUBERNETES_DEFAULT=counter.connection(), **ROOMY) as airflow:
        yield airflow


def states(there, run):
    """How many of the run's tasks are in which state."""
    found, total = Counter(), 1
    while found.total() < total:
        page = there.ask("GET", f"{run}/taskInstances?limit=100&offset={found.total()}")
        total = page["total_entries"]
        found.update(task["state"] for task in page["task_instances"])
    return found


def jobs_of(cluster, run):
    """The TrainJobs of a DAG run with the map indices of their tasks."""
    name, found = run.rpartition("/")[2], []
    for job in cluster.list_trainjobs("default"):
        key = json.loads(job["metadata"]["annotations"][labels.RUN_KEY])
        if key["run"] == name:
            found.append((key["map_index"], job))
    return found


def test_two_hundred_tasks_wait_with_one_watch_and_all_end_well(there, counter, cluster, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    run = there.start("many", gate=str(gate))

    def all_wait():
        if states(there, run)["deferred"] < TASKS:
            return False
        return [judge(job).phase for _, job in jobs_of(cluster, run)] == [Phase.RUNNING] * TASKS

    wait_for(all_wait, 900)
    assert counter.most == {"trainjobs": 1, "pods": 1}
    opened = os.open(gate, os.O_RDWR)  # for those that are there and those to come
    try:
        wait_for(lambda: there.state(run) in ("success", "failed"), 900)
    finally:
        os.close(opened)
    assert states(there, run) == {"success": TASKS}
    assert sorted(int(index) for index, _ in jobs_of(cluster, run)) == list(range(TASKS))
    assert counter.most == {"trainjobs": 1, "pods": 1}
