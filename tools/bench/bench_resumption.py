"""Time from a job's end to its task's return, in a complete Airflow.

It compares TrainJobOperator with the Kubernetes provider's operator.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from pathlib import Path

from tests.support.markdown import table
from tests.support.standalone import Standalone, wait_for_airflow
from tools.bench.sizes import size
from trainjob_local import LocalCluster

TASKS = 8
INTERVAL_SECONDS = size(4.0, 0.1)  # so that Airflow is idle when a task resumes
_DAGS = Path(__file__).resolve().parent / "dags"
_SETTLED_SECONDS = size(20.0, 0.0)  # longer than the first seconds of a deferral, in which our trigger never fires


class EndTimes:
    """The times at which jobs ended, as a separate watch of the benchmark sees them, in order.

    Attributes:
        times: time in seconds since the epoch, by the job's UID.
        names: name of the job, by its UID.
    """

    def __init__(self, kubeconfig, kind):
        from kubernetes import client, config

        api = config.new_client_from_config(str(kubeconfig))
        if kind == "jobs":
            self._list, self._arguments = client.BatchV1Api(api).list_namespaced_job, ["default"]
        elif kind == "pods":
            self._list, self._arguments = client.CoreV1Api(api).list_namespaced_pod, ["default"]
        else:
            self._list = client.CustomObjectsApi(api).list_namespaced_custom_object
            self._arguments = ["trainer.kubeflow.org", "v1alpha1", "default", kind]
        self.times, self.names = {}, {}
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self):
        from kubernetes import watch

        for event in watch.Watch().stream(self._list, *self._arguments, timeout_seconds=900):
            found = event["raw_object"]
            conditions = (found.get("status") or {}).get("conditions") or ()
            succeeded = (found.get("status") or {}).get("phase") == "Succeeded"
            if succeeded or any((one["type"], one["status"]) == ("Complete", "True") for one in conditions):
                self.names[found["metadata"]["uid"]] = found["metadata"]["name"]
                self.times.setdefault(found["metadata"]["uid"], time.time())


def measure():
    """Return the seconds from the end of each job to `execute_complete` of its task.

    Returns:
        The seconds by kind of job, `trainjobs` and `jobs`.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        with LocalCluster(folder / "cluster") as laptop:
            extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default"}
            connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
            home = folder / "airflow"
            home.mkdir()
            with Standalone(home, _DAGS, AIRFLOW_CONN_KUBERNETES_DEFAULT=connection) as airflow:
                return {kind: _measure_one(airflow, laptop, kind, folder / kind) for kind in ("trainjobs", "jobs")}


def _measure_one(airflow, laptop, kind, gates):
    gates.mkdir()
    ends = EndTimes(laptop.kubeconfig, kind)
    run = airflow.start_run(kind, folder=str(gates))
    tasks = [f"{run}/taskInstances/wait/{index}" for index in range(TASKS)]
    wait_for_airflow(
        lambda: all((airflow.request("GET", task) or {}).get("state") == "deferred" for task in tasks), 300
    )
    known = set(ends.times)
    time.sleep(_SETTLED_SECONDS)
    for index in range(TASKS):
        (gates / str(index)).touch()
        time.sleep(INTERVAL_SECONDS)
    wait_for_airflow(lambda: airflow.get_state(run) in ("success", "failed"), 300)
    ended = sorted(at for uid, at in ends.times.items() if uid not in known)
    assert len(ended) == TASKS, f"{len(ended)} of {TASKS} jobs were seen to end"
    back = [_resumed_at(airflow, run, index) for index in range(TASKS)]  # the jobs ended in this order
    return [came - went for went, came in zip(ended, back, strict=True)]


def _resumed_at(airflow, run, index):
    path = f"{run}/taskInstances/wait/xcomEntries/back?map_index={index}&deserialize=true"
    entry = airflow.request("GET", path)
    if entry is None:  # for example because Airflow has tried the task again, with a job that had ended
        raise AssertionError(f"not resumed by a trigger: {airflow.request('GET', f'{run}/taskInstances/wait/{index}')}")
    return float(entry["value"])


_TEXT = """## Resumption of a task

This table shows the time from the end of a job, as a watch sees it, until a worker calls `execute_complete` of its
deferred task. It is measured in a complete Airflow with its default settings. {tasks} tasks of each operator wait,
and their jobs end one after the other. With TrainJobOperator, almost all of the time passes in Airflow itself: in the
triggerer, the scheduler and the executor.

{rows}"""
_OPERATORS = {"trainjobs": "TrainJobOperator", "jobs": "KubernetesJobOperator, polling every 10 s"}


def section(found):
    """Format the measured values as a Markdown section."""
    rows = [
        (_OPERATORS[kind], f"{statistics.median(took):.1f} s", f"{max(took):.1f} s") for kind, took in found.items()
    ]
    return _TEXT.format(tasks=TASKS, rows=table(("Operator", "Median", "Longest"), rows))


def goals(found):
    """Return no goals, because Airflow itself takes most of the time."""
    return ()
