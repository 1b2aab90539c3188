"""Tests of the rules that end a wait: restarts, limits and deletions, by a given clock."""

from __future__ import annotations

from datetime import timedelta

import pytest

from trainjob.client import ObjectEvent
from trainjob.errors import Unauthorized
from trainjob.lifecycle import KillAction, Limits, wait_policy
from trainjob.lifecycle.diagnosis import DiagnosisSchedule
from trainjob.lifecycle.wait_policy import WaitPolicy
from trainjob.status import Phase, find_failures

META = {"name": "tune", "namespace": "ml", "uid": "u1"}
RUNNING = {"metadata": META, "status": {"jobsStatus": [{"name": "node", "active": 1, "ready": 1}]}}
STARTING = {"metadata": META, "status": {"jobsStatus": [{"name": "node", "active": 1, "ready": 0}]}}
QUEUED = {"metadata": {**META, "labels": {"kueue.x-k8s.io/queue-name": "gpu"}}, "spec": {"suspend": True}}
COMPLETE = {"metadata": META, "status": {"conditions": [{"type": "Complete", "status": "True"}]}}


def pod(restarts=0, state=None, last=None, policy="OnFailure", uid="p1"):
    status = {"name": "node", "restartCount": restarts, "state": state or {}, "lastState": last or {}}
    return {
        "metadata": {
            "name": "tune-node-0-0-x",
            "uid": uid,
            "labels": {"jobset.sigs.k8s.io/replicatedjob-name": "node"},
        },
        "spec": {"restartPolicy": policy},
        "status": {"containerStatuses": [status]},
    }


def failed_state(code=3):
    return {"terminated": {"exitCode": code, "reason": "Error"}}


def make_policy(job=RUNNING, messages=None, **limits):
    return WaitPolicy(job, Limits(**limits), (messages if messages is not None else []).append, now=0.0)


def test_a_complete_job_ends_the_wait():
    result = make_policy().observe_job(ObjectEvent(COMPLETE), 1.0)
    assert result is not None
    assert result.verdict.phase is Phase.COMPLETE


def test_another_job_of_the_same_name_is_ignored():
    other = {**COMPLETE, "metadata": {**META, "uid": "u2"}}
    assert make_policy().observe_job(ObjectEvent(other), 1.0) is None


def test_a_deleted_job_succeeded_only_if_it_was_complete():
    assert make_policy().observe_job(ObjectEvent(RUNNING, deleted=True), 1.0).verdict.phase is Phase.DELETED
    assert make_policy().observe_job(ObjectEvent(COMPLETE, deleted=True), 1.0).verdict.phase is Phase.COMPLETE


def test_an_informer_that_fails_raises_its_error():
    with pytest.raises(Unauthorized):
        make_policy().observe_job(ObjectEvent(error=Unauthorized("expired")), 1.0)


@pytest.mark.parametrize(
    ("limit", "restarts", "state", "last", "ends"),
    [
        (0, 0, failed_state(), None, True),
        (0, 1, {"running": {}}, failed_state(), True),
        (0, 0, {"running": {}}, None, False),
        (0, 0, failed_state(0), None, False),
        (2, 2, {"running": {}}, failed_state(), False),
        (2, 2, failed_state(), failed_state(), True),
        (None, 5, {"running": {}}, failed_state(), False),
    ],
)
def test_restarts_in_place_are_limited(limit, restarts, state, last, ends):
    result = make_policy(max_restarts=limit).observe_pod(ObjectEvent(pod(restarts, state, last)), 1.0)
    assert (result is not None and result.end_job) == ends
    if result:
        assert result.verdict.reason == "RestartLimitExceeded"
        assert "exit code 3" in result.verdict.message
        assert result.verdict.step == "node"


def test_a_container_that_was_lost_with_its_node_did_not_fail():
    """After a restart of the node, the kubelet starts the container again in the same pod."""
    lost = {"terminated": {"exitCode": 255, "reason": "Unknown"}}
    policy = make_policy(max_restarts=0)
    assert policy.observe_pod(ObjectEvent(pod(1, {"running": {}}, lost)), 1.0) is None
    assert policy.observe_pod(ObjectEvent(pod(1, failed_state(), lost)), 2.0).end_job


def test_a_container_that_succeeded_after_unseen_failures_does_not_end_the_wait():
    policy = make_policy(max_restarts=0)
    assert policy.observe_pod(ObjectEvent(pod(2, failed_state(0), failed_state())), 1.0) is None


@pytest.mark.parametrize("action", KillAction)
def test_the_end_of_a_failed_job_says_that_it_is_deleted(action):
    result = make_policy(max_restarts=0, on_failure=action).observe_pod(ObjectEvent(pod(0, failed_state(), None)), 1.0)
    said = "max_restarts is 0 and on_failure is 'delete', so the TrainJob is deleted" in result.verdict.message
    assert said == (action is KillAction.DELETE)


def test_a_failed_pod_that_is_never_restarted_in_place_does_not_end_the_wait():
    assert make_policy(max_restarts=0).observe_pod(ObjectEvent(pod(state=failed_state(), policy="Never")), 1.0) is None


def test_the_last_states_of_deleted_pods_are_bounded(monkeypatch):
    """A JobSet that restarts replaces all pods; the wait for 64 nodes and 20 restarts kept 13 MiB."""
    monkeypatch.setattr(wait_policy, "MAX_DELETED_PODS", 3)
    policy = make_policy(max_restarts=None)
    for number in range(10):
        observed = pod(0, failed_state(), uid=f"p{number}")
        observed["metadata"]["annotations"] = observed["spec"]["volumes"] = {"large": "x" * 1000}
        policy.observe_pod(ObjectEvent(observed), 1.0)
        policy.observe_pod(ObjectEvent(observed, deleted=True), 1.0)
    assert list(policy.deleted_pods) == ["p0", "p8", "p9"]
    assert find_failures(policy.deleted_pods.values()) == find_failures([pod(0, failed_state(), uid="p9")] * 3)
    assert "large" not in str(policy.deleted_pods)


def test_the_time_in_the_queue_has_its_own_limit():
    policy = make_policy(QUEUED, queued=timedelta(seconds=10), starting=timedelta(seconds=5))
    assert policy.seconds_until_evaluation(0.0) == 10.0
    assert policy.evaluate(9.9) is None
    assert policy.observe_job(ObjectEvent(STARTING), 9.9) is None
    assert policy.evaluate(14.8) is None
    assert "starting" in policy.evaluate(14.9).timeout
    assert policy.observe_job(ObjectEvent(RUNNING), 14.9) is None
    assert policy.seconds_until_evaluation(14.9) is None
    policy.observe_job(ObjectEvent(QUEUED), 20.0)
    assert policy.evaluate(29.9) is None
    assert "queued" in policy.evaluate(30.0).timeout


SHRINKING = {"trainjob.dev/shrinking": '{"num_nodes": 4, "after": 10}'}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are free"}


def test_an_attempt_without_quota_is_ended_for_one_with_fewer_nodes():
    job = {**QUEUED, "metadata": {**QUEUED["metadata"], "annotations": SHRINKING}}
    job["spec"] = {"suspend": True, "trainer": {"numNodes": 8}}
    policy = make_policy(job, queued=timedelta(seconds=60))
    assert policy.seconds_until_evaluation(0.0) == 10.0
    assert policy.evaluate(9.9) is None
    policy.observe_job(ObjectEvent({**RUNNING, "metadata": job["metadata"]}), 9.9)
    assert policy.evaluate(100.0) is None
    policy.observe_job(ObjectEvent(job), 110.0)  # Kueue has preempted it
    assert policy.evaluate(119.9) is None
    result = policy.evaluate(120.0)
    assert (result.verdict.reason, result.end_job, result.timeout) == ("NoReservation", True, "")
    assert result.verdict.message == "no reservation for 8 nodes within 10 s"
    # A shorter limit on the queue ends the step.
    assert make_policy(job, queued=timedelta(seconds=5)).evaluate(5.0).timeout
    # A user has suspended it.
    suspended = {**job, "metadata": {**META, "annotations": SHRINKING}}
    assert make_policy(suspended).evaluate(1000.0) is None


def test_an_attempt_without_free_nodes_is_ended_for_one_with_fewer_nodes():
    job = {**STARTING, "metadata": {**META, "annotations": SHRINKING}}
    policy = make_policy(job)
    pending = pod()
    assert policy.observe_pod(ObjectEvent(pending), 1.0) is None
    assert policy.evaluate(100.0) is None  # it waits for something else, such as an image
    pending["status"] = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
    policy.observe_pod(ObjectEvent(pending), 101.0)
    policy.observe_job(ObjectEvent(job), 101.0)
    result = policy.evaluate(101.0)
    assert (result.verdict.reason, result.end_job) == ("NoReservation", True)


def test_the_total_limit_applies_in_every_phase():
    policy = make_policy(total=timedelta(seconds=60))
    policy.observe_job(ObjectEvent(STARTING), 30.0)
    assert policy.seconds_until_evaluation(50.0) == 10.0
    assert "total" in policy.evaluate(60.0).timeout


def test_each_change_is_notified_once():
    notified = []
    policy = make_policy(STARTING, notified)
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    for _ in range(3):
        policy.observe_pod(ObjectEvent(pod(state=waiting)), 1.0)
        policy.observe_job(ObjectEvent(STARTING), 1.0)
    policy.observe_pod(ObjectEvent(pod(state={"running": {}})), 1.0)
    policy.observe_job(ObjectEvent(RUNNING), 2.0)
    assert [verdict.message or verdict.phase.value for verdict in notified] == [
        "node-0: ImagePullBackOff: no such image",
        "Starting",
        "Running",
    ]


def test_limits_are_restored_from_json():
    limits = Limits(queued=timedelta(minutes=5), max_restarts=None, on_timeout=KillAction.KEEP)
    assert Limits.from_dict(limits.to_dict()) == limits
    assert Limits.from_dict(Limits().to_dict()) == Limits()


def test_without_counters_the_pods_determine_the_phase():
    """Trainer 2.0 never sets `jobsStatus`.

    Later Trainers set it shortly after the pods exist. The same change must not be notified twice.
    """
    notified = []
    without_counters = {"metadata": META, "status": {}}
    policy = make_policy(without_counters, notified, starting=timedelta(seconds=60))
    ready = pod(state={"running": {}})
    ready["status"] |= {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    policy.observe_pod(ObjectEvent(ready), 1.0)
    assert [verdict.phase for verdict in notified] == [Phase.PENDING]
    assert policy.seconds_until_evaluation(2.0) == 4.0
    assert policy.evaluate(6.0) is None
    assert [verdict.phase for verdict in notified] == [Phase.PENDING, Phase.RUNNING]
    assert policy.seconds_until_evaluation(6.0) is None  # the limit on starting is over
    policy.observe_job(ObjectEvent(STARTING), 8.0)  # counters replace the pods
    assert notified[-1].phase is Phase.STARTING


MISSING_SECRET = {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "hf" not found'}}
RATE_LIMITED = {"waiting": {"reason": "ErrImagePull", "message": "pull QPS exceeded"}}
INVALID_IMAGE_NAME = {"waiting": {"reason": "InvalidImageName", "message": 'couldn\'t parse image name "A"'}}


def test_a_missing_secret_ends_the_wait_after_a_minute():
    policy = make_policy(STARTING)
    assert policy.observe_pod(ObjectEvent(pod(state=MISSING_SECRET)), 10.0) is None
    assert policy.seconds_until_evaluation(40.0) == 30.0
    assert policy.evaluate(69.9) is None
    result = policy.evaluate(70.0)
    assert (result.end_job, result.timeout, result.verdict.phase) == (True, "", Phase.FAILED)
    assert (result.verdict.reason, result.verdict.step) == ("CreateContainerConfigError", "node")
    assert 'node-0: secret "hf" not found' in result.verdict.message


def test_a_secret_that_appears_in_time_resets_the_grace_period():
    policy = make_policy(STARTING)
    policy.observe_pod(ObjectEvent(pod(state=MISSING_SECRET)), 10.0)
    policy.observe_pod(ObjectEvent(pod(state={"running": {}})), 60.0)
    assert policy.evaluate(80.0) is None
    policy.observe_pod(ObjectEvent(pod(state=MISSING_SECRET)), 90.0)
    assert policy.evaluate(149.9) is None
    assert policy.evaluate(150.0).end_job


def test_an_invalid_image_name_ends_the_wait_immediately():
    policy = make_policy(STARTING)
    policy.observe_pod(ObjectEvent(pod(state=INVALID_IMAGE_NAME)), 10.0)
    assert policy.seconds_until_evaluation(10.0) == 0.0
    assert policy.evaluate(10.0).verdict.reason == "InvalidImageName"


def test_a_job_that_runs_is_not_ended_for_an_earlier_finding():
    policy = make_policy(STARTING)
    policy.observe_pod(ObjectEvent(pod(state=MISSING_SECRET)), 10.0)
    policy.observe_job(ObjectEvent(RUNNING), 20.0)
    assert policy.evaluate(1000.0) is None
    assert policy.seconds_until_evaluation(1000.0) is None


def test_a_temporary_finding_is_reported_when_a_limit_is_reached():
    policy = make_policy(STARTING, starting=timedelta(seconds=3600))
    policy.observe_pod(ObjectEvent(pod(state=RATE_LIMITED)), 10.0)
    assert policy.evaluate(3599.0) is None
    result = policy.evaluate(3600.0)
    assert "pull QPS exceeded" in str(result.verdict)
    assert "registry" in result.advice
    assert not result.end_job


def refusal_event(text, at="2026-01-01T00:00:00Z"):
    about = {"kind": "Job", "name": "tune-node-0"}
    return {"metadata": {"creationTimestamp": at}, "involvedObject": about, "reason": "FailedCreate", "message": text}


def test_event_findings_are_notified_and_end_the_wait():
    notified = []
    policy = make_policy({"metadata": META, "status": {}}, notified)
    assert policy.waits_for == "pods"
    policy.update_diagnosis(
        [refusal_event("Error creating: pods is forbidden: exceeded quota: gpus, requested: 2")], None, 15.0
    )
    assert policy.evaluate(9000.0) is None
    policy.update_diagnosis(
        [refusal_event('Error creating: pods is forbidden: serviceaccount "robot" not found')], None, 9000.0
    )
    assert policy.evaluate(9059.0) is None
    assert policy.evaluate(9060.0).verdict.reason == "FailedCreate"
    assert ["exceeded quota" in str(verdict) for verdict in notified] == [True, False]


def test_a_queued_job_reports_the_reason_of_kueue_and_is_never_ended():
    notified = []
    policy = make_policy(QUEUED, notified, queued=timedelta(days=1))
    assert policy.waits_for == "quota"
    no_quota = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "insufficient unused quota"}
    policy.update_diagnosis([], {"metadata": {"name": "w"}, "status": {"conditions": [no_quota]}}, 15.0)
    assert str(notified[-1]).endswith("quota in queue gpu; Workload w: Pending: insufficient unused quota)")
    no_queue = {**no_quota, "reason": "Inadmissible", "message": "LocalQueue gpu doesn't exist"}
    policy.update_diagnosis([], {"metadata": {"name": "w"}, "status": {"conditions": [no_queue]}}, 45.0)
    assert "Inadmissible: LocalQueue gpu doesn't exist: use an active LocalQueue of the job's namespace" in str(
        notified[-1]
    )
    result = policy.evaluate(86400.0)
    assert "LocalQueue gpu doesn't exist" in str(result.verdict)
    assert (result.advice in str(result.verdict), "use an active LocalQueue" in result.advice) == (False, True)


ADMITTED = {
    "metadata": {"name": "w"},
    "status": {
        "conditions": [
            {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": "2026-01-01T00:00:00Z"}
            for kind in ("QuotaReserved", "Admitted")
        ]
    },
}


def test_an_admitted_job_that_stays_suspended_is_reported_after_a_delay():
    """Kueue resumes a TrainJob a moment after its admission, so the first look proves nothing."""
    notified = []
    policy = make_policy(QUEUED, notified, queued=timedelta(minutes=5), starting=timedelta(seconds=1))
    policy.update_diagnosis([], ADMITTED, 15.0)
    assert "Admitted" not in str(notified[-1])
    assert policy.seconds_until_evaluation(15.0) == 20.0
    policy.update_diagnosis([], ADMITTED, 35.0)
    assert "Workload w: Admitted: Kueue has admitted the TrainJob" in str(notified[-1])
    assert "read the log of Kueue's controller" in str(notified[-1])
    result = policy.evaluate(300.0)
    assert ("queued" in result.timeout, "Trainer 2.2 or later" in result.advice) == (True, True)


def test_an_admitted_job_that_resumes_is_not_reported():
    notified = []
    policy = make_policy(QUEUED, notified)
    policy.update_diagnosis([], ADMITTED, 15.0)
    policy.observe_job(ObjectEvent(STARTING), 15.2)
    assert policy.evaluate(60.0) is None
    assert not any("Admitted" in str(verdict) for verdict in notified)
    policy.observe_job(ObjectEvent(QUEUED), 70.0)  # it was evicted: the next admission counts from its own time
    policy.update_diagnosis([], ADMITTED, 85.0)
    assert not any("Admitted" in str(verdict) for verdict in notified)


def sidecar_pod(ended=0):
    """Return a running pod whose own container has ended with this exit code."""
    own = {"terminated": {"exitCode": ended, "finishedAt": "2026-01-01T00:00:05Z"}}
    found = pod(state=own)
    found["status"]["containerStatuses"].append({"name": "istio-proxy", "state": {"running": {}}})
    return found


@pytest.mark.parametrize("job", [RUNNING, STARTING], ids=["Running", "Starting"])
def test_a_sidecar_that_does_not_end_is_reported_after_a_minute(job):
    """The pod is no longer ready once a container has ended, so the phase may be either one."""
    notified = []
    policy = make_policy(job, notified, total=timedelta(minutes=5))
    assert policy.observe_pod(ObjectEvent(sidecar_pod()), 10.0) is None
    assert policy.evaluate(69.0) is None
    assert "Sidecar" not in str(notified)
    assert policy.seconds_until_evaluation(69.0) == 1.0
    assert policy.evaluate(70.0) is None
    assert "node-0: Sidecar: container node has succeeded" in str(notified[-1])
    assert "other containers: istio-proxy" in str(notified[-1])
    assert "sidecar.istio.io/inject" in str(notified[-1])
    result = policy.evaluate(300.0)
    assert ("istio-proxy" in str(result.verdict), "sidecar.istio.io/inject" in result.advice) == (True, True)
    assert not result.end_job


def test_a_sidecar_is_not_reported_if_it_ends_or_the_step_has_not_succeeded():
    notified = []
    policy = make_policy(RUNNING, notified, max_restarts=None)
    policy.observe_pod(ObjectEvent(sidecar_pod()), 10.0)
    policy.observe_pod(ObjectEvent(pod(state={"terminated": {"exitCode": 0}})), 30.0)
    policy.evaluate(90.0)
    policy.observe_pod(ObjectEvent(sidecar_pod(ended=3)), 100.0)
    policy.evaluate(200.0)
    assert "Sidecar" not in str(notified)


def test_the_pauses_between_diagnoses_double_up_to_a_maximum():
    """A job may wait for weeks, so diagnoses become rare but never stop."""
    schedule, now, pauses = DiagnosisSchedule(), 0.0, []
    for _ in range(3000):
        pause = schedule.seconds_until_due("pods", now)
        assert pause is not None
        now += pause
        pauses.append(pause)
        schedule.record_diagnosis(now)
    assert pauses[:6] == [15.0, 30.0, 60.0, 120.0, 240.0, 240.0]
    assert pauses[-1] == 240.0
    assert schedule.seconds_until_due("quota", now) == 15.0
    assert schedule.seconds_until_due("", now) is None
