"""spec.activeDeadlineSeconds, which exists since Trainer 2.2."""

from __future__ import annotations

import pytest

from tests.conformance.histories import watch_states
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import conditions, counters, has_condition, is_finished, list_pods, shell

EXCEEDED = ("Failed", "True", "DeadlineExceeded", "TrainJob exceeded its active deadline")
# Seconds in which the pods of a job run even on a busy machine; a shorter deadline may end before that.
ENOUGH_SECONDS = 20
COMPLETE = ("Complete", "True", "AllJobsCompleted", "jobset completed successfully")


@pytest.mark.since("2.2")
def test_the_deadline_ends_the_job(client, namespace):
    """A job that exceeds its deadline is Failed with DeadlineExceeded. Its objects are deleted; it never runs again."""
    created = client.create(shell("sleep 60", activeDeadlineSeconds=ENOUGH_SECONDS), namespace)
    client.wait_for("TrainJob", namespace, "job", lambda job: counters(job).get("node", {}).get("active"))
    (pod,) = list_pods(client, namespace)
    states = watch_states(client, created)
    assert conditions(states[-1]) == [EXCEEDED]
    for kind, name in (("JobSet", "job"), ("Job", "job-node-0"), ("Pod", pod["metadata"]["name"]), ("Service", "job")):
        client.wait_until_deleted(kind, namespace, name)
    later = watch_states(
        client, client.patch("TrainJob", namespace, "job", {"spec": {"suspend": True}}), has_condition("Suspended")
    )
    assert conditions(later[-1])[0] == EXCEEDED
    later = watch_states(
        client,
        client.patch("TrainJob", namespace, "job", {"spec": {"suspend": False}}),
        has_condition("Suspended", "False"),
    )
    assert conditions(later[-1])[0] == EXCEEDED
    assert client.list("Job", namespace) == []


@pytest.mark.slow
@pytest.mark.since("2.2")
def test_the_deadline_of_a_suspended_job(client, namespace):
    """The deadline of a suspended job starts when it resumes. A job that ends before its deadline stays Complete."""
    deadline = {"activeDeadlineSeconds": ENOUGH_SECONDS}
    client.create(shell("sleep 60", name="held", suspend=True, **deadline), namespace)
    client.create(shell("true", name="quick", **deadline), namespace)
    client.create(shell("sleep 60", name="late", **deadline), namespace)
    client.wait_for("TrainJob", namespace, "late", is_finished)
    assert [found[0] for found in conditions(client.get("TrainJob", namespace, "held"))] == ["Suspended"]
    resumed = client.patch("TrainJob", namespace, "held", {"spec": {"suspend": False}})
    states = watch_states(client, resumed)
    assert [found[:3] for found in conditions(states[-1])] == [("Suspended", "False", "Resumed"), EXCEEDED[:3]]
    assert any(counters(state)["node"].get("active") for state in states[1:])
    assert conditions(client.get("TrainJob", namespace, "quick")) == [COMPLETE]
    assert client.find("JobSet", namespace, "quick") is not None


@pytest.mark.since("2.2")
def test_the_deadline_is_immutable(client, namespace):
    """A deadline is immutable and at least 1 second."""
    wrong = 'TrainJob.trainer.kubeflow.org "job" is invalid: spec.activeDeadlineSeconds: Invalid value: '
    invalid = client.request("POST", path_of("TrainJob", namespace), shell("true", activeDeadlineSeconds=0))
    assert (invalid.code, invalid.reason) == (422, "Invalid")
    assert invalid.message == f"{wrong}0: spec.activeDeadlineSeconds in body should be greater than or equal to 1"
    client.create(shell("true", suspend=True, activeDeadlineSeconds=100), namespace)
    longer = client.request("PATCH", path_of("TrainJob", namespace, "job"), {"spec": {"activeDeadlineSeconds": 200}})
    assert (longer.code, longer.reason) == (422, "Invalid")
    assert longer.message == f"{wrong}200: field is immutable"


@pytest.mark.since("2.2")
def test_the_deadline_can_be_removed_and_set(client, namespace):
    """A deadline can be removed from a job, and set on a job that has none."""
    client.create(shell("true", suspend=True, activeDeadlineSeconds=100), namespace)
    without = client.patch("TrainJob", namespace, "job", {"spec": {"activeDeadlineSeconds": None}})
    assert "activeDeadlineSeconds" not in without["spec"]
    given = client.patch("TrainJob", namespace, "job", {"spec": {"activeDeadlineSeconds": 7}})
    assert given["spec"]["activeDeadlineSeconds"] == 7


@pytest.mark.before("2.2")
def test_no_deadline_before_2_2(client, namespace):
    """Before 2.2 activeDeadlineSeconds does not exist: Strict validation rejects it, otherwise it is dropped."""
    job = shell("true", suspend=True, activeDeadlineSeconds=5)
    strict = client.request("POST", path_of("TrainJob", namespace), job, fieldValidation="Strict")
    assert strict.code == 400
    assert strict.message.endswith('strict decoding error: unknown field "spec.activeDeadlineSeconds"')
    assert "activeDeadlineSeconds" not in client.create(job, namespace, fieldValidation="Warn")["spec"]
