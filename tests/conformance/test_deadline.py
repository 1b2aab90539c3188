"""spec.activeDeadlineSeconds, from Trainer 2.2 on."""

from __future__ import annotations

import pytest

from tests.conformance.histories import watch_states
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import conditions, counters, has_condition, is_finished, list_pods, shell

EXCEEDED = ("Failed", "True", "DeadlineExceeded", "TrainJob exceeded its active deadline")
# Seconds in which a busy machine has a job's pods running; a shorter deadline may come before them.
ENOUGH = 20
COMPLETE = ("Complete", "True", "AllJobsCompleted", "jobset completed successfully")


@pytest.mark.since("2.2")
def test_it_ends_the_job(client, namespace):
    """At its deadline a job is Failed, DeadlineExceeded; JobSet, Jobs, pods and Service go, and nothing runs again."""
    created = client.create(shell("sleep 60", activeDeadlineSeconds=ENOUGH), namespace)
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
def test_it_is_counted_from_the_resume(client, namespace):
    """The deadline of a suspended job is counted from its resume; one that ended in time stays Complete."""
    deadline = {"activeDeadlineSeconds": ENOUGH}
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
def test_it_cannot_be_changed(client, namespace):
    """The deadline is immutable, and 1 second at least."""
    wrong = 'TrainJob.trainer.kubeflow.org "job" is invalid: spec.activeDeadlineSeconds: Invalid value: '
    never = client.request("POST", path_of("TrainJob", namespace), shell("true", activeDeadlineSeconds=0))
    assert (never.code, never.reason) == (422, "Invalid")
    assert never.message == f"{wrong}0: spec.activeDeadlineSeconds in body should be greater than or equal to 1"
    client.create(shell("true", suspend=True, activeDeadlineSeconds=100), namespace)
    longer = client.request("PATCH", path_of("TrainJob", namespace, "job"), {"spec": {"activeDeadlineSeconds": 200}})
    assert (longer.code, longer.reason) == (422, "Invalid")
    assert longer.message == f"{wrong}200: field is immutable"


@pytest.mark.since("2.2")
def test_it_can_be_taken_away_and_given(client, namespace):
    """A deadline can be taken from a job and given to one that has none, though not changed."""
    client.create(shell("true", suspend=True, activeDeadlineSeconds=100), namespace)
    without = client.patch("TrainJob", namespace, "job", {"spec": {"activeDeadlineSeconds": None}})
    assert "activeDeadlineSeconds" not in without["spec"]
    given = client.patch("TrainJob", namespace, "job", {"spec": {"activeDeadlineSeconds": 7}})
    assert given["spec"]["activeDeadlineSeconds"] == 7


@pytest.mark.before("2.2")
def test_there_is_none(client, namespace):
    """Before 2.2 there is no deadline: strict creation refuses the field, any other drops it."""
    job = shell("true", suspend=True, activeDeadlineSeconds=5)
    strict = client.request("POST", path_of("TrainJob", namespace), job, fieldValidation="Strict")
    assert strict.code == 400
    assert strict.message.endswith('strict decoding error: unknown field "spec.activeDeadlineSeconds"')
    assert "activeDeadlineSeconds" not in client.create(job, namespace, fieldValidation="Warn")["spec"]
