"""Tests of the operators that suspend, resume and delete a TrainJob by its name."""

from __future__ import annotations

import pytest

from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, RunKey, TrainJob, submit, wait
from trainjob_airflow import DeleteTrainJobOperator, ResumeTrainJobOperator, SuspendTrainJobOperator
from trainjob_airflow.version_compat import AirflowFailException

pytestmark = pytest.mark.usefixtures("airflow_environment")


def run_operator(operator, name):
    return operator(task_id="t", name=name).execute({})


def submit_script(cluster, unique, script, **arguments):
    job = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script]), **arguments)
    return submit(cluster, job, RunKey("test", "lifecycle", unique, "run-1"))


def list_scheduled_pods(cluster, reference):
    return [pod for pod in cluster.list_pods(reference.name, reference.namespace) if pod["spec"].get("nodeName")]


def test_a_running_trainjob_is_suspended_and_resumed(cluster, unique, tmp_path):
    go = tmp_path / "go"
    reference = submit_script(cluster, unique, f"while [ ! -e {go} ]; do sleep 0.1; done")
    wait_until(lambda: list_scheduled_pods(cluster, reference))
    assert run_operator(SuspendTrainJobOperator, reference.name) is True
    wait_until(lambda: not list_scheduled_pods(cluster, reference))
    assert run_operator(SuspendTrainJobOperator, reference.name) is False
    assert run_operator(ResumeTrainJobOperator, reference.name) is True
    assert run_operator(ResumeTrainJobOperator, reference.name) is False
    go.touch()
    assert wait(cluster, reference).succeeded
    assert run_operator(SuspendTrainJobOperator, reference.name) is False


def test_a_trainjob_is_deleted_with_its_pods_and_a_second_deletion_is_no_error(cluster, unique):
    reference = submit_script(cluster, unique, "sleep 600")
    wait_until(lambda: list_scheduled_pods(cluster, reference))
    assert run_operator(DeleteTrainJobOperator, reference.name) is True
    assert cluster.get_trainjob(reference.name, reference.namespace) is None
    wait_until(lambda: not list_scheduled_pods(cluster, reference))
    assert run_operator(DeleteTrainJobOperator, reference.name) is False


@pytest.mark.parametrize("operator", [SuspendTrainJobOperator, ResumeTrainJobOperator])
def test_a_missing_trainjob_fails_the_task_without_retry(operator, unique):
    with pytest.raises(AirflowFailException, match=f"there is no TrainJob default/{unique}"):
        run_operator(operator, unique)


def test_a_queued_trainjob_cannot_be_suspended(cluster, unique):
    reference = submit_script(cluster, unique, "sleep 600", queue="gpu-team")
    with pytest.raises(AirflowFailException, match=r'(?s)Kueue queue gpu-team.*"spec\.active" of its Workload'):
        run_operator(SuspendTrainJobOperator, reference.name)
    assert run_operator(DeleteTrainJobOperator, reference.name) is True
