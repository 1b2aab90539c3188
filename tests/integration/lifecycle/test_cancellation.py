"""Tests of the one way to end a TrainJob: limits, kills and failure rules never end one that has finished."""

from __future__ import annotations

import copy
import time
from pathlib import Path

import pytest

from trainjob import CustomTrainerContainer, RunKey, TrainJob, submit, wait
from trainjob.client import Cluster, Connection
from trainjob.errors import WaitTimeout
from trainjob.lifecycle import Limits, Listener, cancel
from trainjob.lifecycle.cancellation import mark_failed
from trainjob.lifecycle.job_guard import JobGuard
from trainjob.lifecycle.wait_policy import WaitResult
from trainjob.lifecycle.wait_session import WaitSession
from trainjob.status import Phase, Verdict, derive_verdict
from trainjob.status.failed_mark import awaits_deletion

REPOSITORY = Path(__file__).resolve().parents[3]
RUNNING = Verdict(Phase.RUNNING)
TOO_MANY_RESTARTS = Verdict(Phase.FAILED, "RestartLimitExceeded", "container node failed 1 time", "node")


class StaleCluster(Cluster):
    """A client whose informer still reports the TrainJob as it was before its end."""

    stale = None

    def find_known_trainjob(self, name, namespace, uid):
        return self.stale


@pytest.fixture
def stale_cluster(laptop):
    opened = StaleCluster(Connection(kubeconfig=str(laptop.kubeconfig)), retry_seconds=5.0)
    yield opened
    opened.close()


def conclude(cluster, reference, result):
    session = WaitSession(cluster, reference, Limits(), Listener(), time.monotonic())
    try:
        return session.conclude(result).phase
    except WaitTimeout:
        return "timeout"
    finally:
        session.close()


def reach_limit(cluster, reference, key):
    return conclude(cluster, reference, WaitResult(RUNNING, timeout="the limit on its total time is reached"))


def exceed_restarts(cluster, reference, key):
    return conclude(cluster, reference, WaitResult(TOO_MANY_RESTARTS, end_job=True))


def kill(cluster, reference, key):
    return cancel(cluster, reference).verdict.phase


def fail_unexpectedly(cluster, reference, key):
    guard = JobGuard()
    guard.reference = reference
    guard.apply_kill_action(cluster, key, reference.namespace, "delete")
    return derive_verdict(cluster.get_trainjob(reference.name, reference.namespace)).phase


def submit_changed_request(cluster, reference, key):
    # It runs longer than this test, because it may get the name of the one that it replaces.
    changed = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sleep", "60"]))
    submit(cluster, changed, key)
    return derive_verdict(cluster.get_trainjob(reference.name, reference.namespace)).phase


ENDS = [reach_limit, exceed_restarts, kill, fail_unexpectedly, submit_changed_request]


def start_stale(cluster, stale_cluster, key, folder, exit_code=0):
    """Submit a TrainJob that ends with the file `end`, and show it to the stale client."""
    script = f"while [ ! -e {folder}/end ]; do sleep 0.05; done; exit {exit_code}"
    trainer = CustomTrainerContainer(image="busybox", command=["sh", "-c", script])
    reference = submit(cluster, TrainJob(trainer=trainer, max_restarts=None), key)
    stale_cluster.stale = copy.deepcopy(cluster.get_trainjob(reference.name, "default"))
    return reference


@pytest.mark.parametrize(("state", "exit_code"), [("Complete", 0), ("Failed", 3)])
def test_a_finished_trainjob_is_retained_whatever_the_informer_reports(
    cluster, stale_cluster, unique, tmp_path, state, exit_code
):
    key = RunKey("test", "cancellation", unique, state)
    reference = start_stale(cluster, stale_cluster, key, tmp_path, exit_code)
    (tmp_path / "end").touch()
    assert wait(cluster, reference, limits=Limits(max_restarts=None)).phase.value == state
    for end in ENDS:
        result = end(stale_cluster, reference, key)
        assert (end.__name__, result.value) == (end.__name__, state)
        assert cluster.get_trainjob(reference.name, "default")["metadata"]["uid"] == reference.uid


@pytest.mark.parametrize("end", ENDS)
def test_a_running_trainjob_is_ended(cluster, stale_cluster, unique, tmp_path, end):
    key = RunKey("test", "cancellation", unique, "Running")
    reference = start_stale(cluster, stale_cluster, key, tmp_path)
    result = end(stale_cluster, reference, key)
    left = cluster.get_trainjob(reference.name, "default")
    assert left is None or left["metadata"]["uid"] != reference.uid
    assert result != Phase.COMPLETE


def test_a_failure_is_recorded_before_the_trainjob_is_deleted(cluster, unique):
    """The waiter dies between the two. The next try reports the failure, and does not train again."""
    request = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sleep", "600"]))
    key = RunKey("test", "cancellation", unique, "killed")
    reference = submit(cluster, request, key)
    mark_failed(cluster, reference, TOO_MANY_RESTARTS)
    assert awaits_deletion(cluster.get_trainjob(reference.name, "default"))

    adopted = submit(cluster, request, key)
    assert (adopted.uid, adopted.adopted) == (reference.uid, True)
    outcome = wait(cluster, adopted)
    assert (outcome.phase, outcome.reason) == (Phase.FAILED, "RestartLimitExceeded")
    assert cluster.get_trainjob(reference.name, "default") is None
    assert submit(cluster, request, key).uid != reference.uid


def test_no_other_code_ends_a_trainjob():
    """Each other module that deletes has another reason than a limit, a kill or a failure."""
    deleting = {
        "core/src/trainjob/lifecycle/cancellation.py",
        "core/src/trainjob/lifecycle/own_metadata.py",  # the creation of the TrainJob failed
        "core/src/trainjob/retention/sweeping.py",  # the lifetime of a finished TrainJob is over
        "providers/airflow/src/trainjob_airflow/operators/lifecycle.py",  # a user names the TrainJob
        "components/kfp/src/trainjob_kfp/deletion.py",  # during the creation, when there is no uid yet
    }
    folders = ("core", "providers", "components", "migrate", "demo")
    sources = [path for folder in folders for path in (REPOSITORY / folder).rglob("src/**/*.py")]
    assert {
        str(path.relative_to(REPOSITORY)) for path in sources if ".delete_trainjob(" in path.read_text()
    } == deleting
