"""New jobs that get the name of a deleted job whose JobSet or pods still exist."""

from __future__ import annotations

import contextlib
from datetime import datetime, timezone

import pytest

from tests.support.polling import wait_until
from tests.support.trainjobs import IMAGE, is_finished
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import Listener, cancel, plan_resubmission, submit, wait
from trainjob.status import Category, Phase
from trainjob.status.failure_rules import EARLIER_JOBSET

pytestmark = pytest.mark.since("2.0")


@pytest.fixture
def cluster(target):
    with contextlib.closing(Cluster(Connection(kubeconfig=target.kubeconfig))) as cluster:
        yield cluster


@pytest.fixture
def submit_script(cluster, namespace):
    """Return a function that submits a script under the run key of this test."""

    def submit_script(script, **more):
        request = TrainJob(trainer=CustomTrainerContainer(image=IMAGE, command=("sh", "-c", script)))
        return submit(cluster, request, RunKey("test", "names", "step", namespace), namespace=namespace, **more)

    return submit_script


@pytest.mark.parametrize("script", ["true", "exit 1"])
def test_the_end_of_an_earlier_jobset_is_not_the_result(client, namespace, cluster, submit_script, script):
    """A job gets the end of a terminating JobSet, with its time. The waiter reports an interruption."""
    first = submit_script(script)
    ended = client.wait_for("TrainJob", namespace, first.name, is_finished)["status"]["conditions"][0]
    client.add_finalizer("JobSet", namespace, first.name)
    assert cancel(cluster, first)
    client.wait_for("JobSet", namespace, first.name, lambda jobset: "deletionTimestamp" in jobset["metadata"])
    wait_until(lambda: f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}" > ended["lastTransitionTime"])

    second = submit_script(script, first_submission=True)  # the caller is wrong: the run key was used before
    assert (second.name, second.uid == first.uid) == (first.name, False)
    inherited = client.wait_for("TrainJob", namespace, second.name, is_finished)["status"]["conditions"][0]
    assert inherited == ended
    outcome = wait(cluster, second)
    assert (outcome.phase, outcome.category, outcome.reason) == (Phase.FAILED, Category.INFRASTRUCTURE, EARLIER_JOBSET)
    assert client.find("TrainJob", namespace, second.name) is None

    resubmission = plan_resubmission(second, outcome, 1)
    client.remove_finalizers("JobSet", namespace, first.name)
    lines = []
    third = submit_script("echo ran", interruptions=resubmission.interruptions)
    assert wait(cluster, third, listener=Listener(on_log=lines.append)).succeeded
    assert [line.text for line in lines] == ["ran"]
