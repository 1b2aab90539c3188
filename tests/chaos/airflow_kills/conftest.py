"""An Airflow whose components can be killed, and an API server that can be disconnected."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from tests.support.api_proxy import ApiProxy
from tests.support.standalone import SHORT_INTERVALS, Standalone
from trainjob.manifest import labels

DAGS = Path(__file__).resolve().parent / "dags"


@pytest.fixture(scope="module")
def proxy(laptop):
    with ApiProxy(laptop) as started:
        yield started


@pytest.fixture(scope="module")
def airflow(proxy, installation, tmp_path_factory):
    """Return an Airflow that connects to the cluster through the proxy.

    The jobs' processes do not use the proxy.
    """
    home = tmp_path_factory.mktemp("airflow")
    connection = proxy.airflow_connection()
    with Standalone(
        home, DAGS, **installation, AIRFLOW_CONN_KUBERNETES_DEFAULT=connection, **SHORT_INTERVALS
    ) as airflow:
        yield airflow


class TrainJobRecorder:
    """A record of every TrainJob and the time of its deletion, from a watch."""

    def __init__(self, cluster):
        self._lock, self._jobs, self._deleted_at = threading.Lock(), {}, {}
        self._event_handler = cluster.trainjob_informer("default").add_event_handler(None, self._record)

    def _record(self, event):
        uid = event.object["metadata"]["uid"]
        with self._lock:
            self._jobs[uid] = event.object
            if event.deleted:
                self._deleted_at.setdefault(uid, time.monotonic())

    def jobs(self, run, task=None):
        """Return the TrainJobs of a DAG run's task by UID, oldest first, with the deleted ones."""
        name = run.rpartition("/")[2]
        with self._lock:
            known = dict(self._jobs)
        keys = {uid: json.loads(job["metadata"]["annotations"][labels.RUN_KEY]) for uid, job in known.items()}
        own = [uid for uid, key in keys.items() if key["run"] == name and task in (None, key["task"])]
        return {uid: known[uid] for uid in sorted(own, key=lambda uid: known[uid]["metadata"]["creationTimestamp"])}

    def deleted_at(self, uid):
        """Return the time of a TrainJob's deletion by `time.monotonic`; None if it exists."""
        with self._lock:
            return self._deleted_at.get(uid)

    def close(self):
        self._event_handler.close()


@pytest.fixture(scope="module")
def recorder(cluster):
    started = TrainJobRecorder(cluster)
    yield started
    started.close()
