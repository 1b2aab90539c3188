"""When the waiting is over: restarts, limits, deletions; by the clock that is handed in."""

from __future__ import annotations

from datetime import timedelta

import pytest

from trainjob.client import ObjectEvent
from trainjob.errors import Unauthorized
from trainjob.lifecycle import KillAction, Limits
from trainjob.lifecycle.diagnosis import DiagnosisSchedule
from trainjob.lifecycle.wait_policy import WaitPolicy
from trainjob.status import Phase

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


def test_complete_ends_it():
    decision = make_policy().observe_job(ObjectEvent(COMPLETE), 1.0)
    assert decision is not None
    assert decision.verdict.phase is Phase.COMPLETE


def test_another_job_of_the_same_name_is_not_ours():
    other = {**COMPLETE, "metadata": {**META, "uid": "u2"}}
    assert make_policy().observe_job(ObjectEvent(other), 1.0) is None


def test_gone_is_never_success_unless_it_was_complete():
    assert make_policy().observe_job(ObjectEvent(RUNNING, deleted=True), 1.0).verdict.phase is Phase.DELETED
    assert make_policy().observe_job(ObjectEvent(COMPLETE, deleted=True), 1.0).verdict.phase is Phase.COMPLETE


def test_a_feed_that_gives_up_is_an_error():
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
def test_restarts_in_place(limit, restarts, state, last, ends):
    decision = make_policy(max_restarts=limit).observe_pod(ObjectEvent(pod(restarts, state, last)), 1.0)
    assert (decision is not None and decision.end_job) == ends
    if decision:
        assert decision.verdict.reason == "RestartLimitExceeded"
        assert "exit code 3" in decision.verdict.message
        assert decision.verdict.step == "node"


def test_a_pod_that_is_not_restarted_is_left_to_the_job():
    assert make_policy(max_restarts=0).observe_pod(ObjectEvent(pod(state=failed_state(), policy="Never")), 1.0) is None


def test_the_queue_has_its_own_clock():
    watch = make_policy(QUEUED, queued=timedelta(seconds=10), starting=timedelta(seconds=5))
    assert watch.seconds_until_evaluation(0.0) == 10.0
    assert watch.evaluate(9.9) is None
    assert watch.observe_job(ObjectEvent(STARTING), 9.9) is None
    assert watch.evaluate(14.8) is None
    assert "starting" in watch.evaluate(14.9).timeout
    assert watch.observe_job(ObjectEvent(RUNNING), 14.9) is None
    assert watch.seconds_until_evaluation(14.9) is None
    watch.observe_job(ObjectEvent(QUEUED), 20.0)
    assert watch.evaluate(29.9) is None
    assert "queued" in watch.evaluate(30.0).timeout


def test_the_total_goes_on_whatever_the_phase():
    watch = make_policy(total=timedelta(seconds=60))
    watch.observe_job(ObjectEvent(STARTING), 30.0)
    assert watch.seconds_until_evaluation(50.0) == 10.0
    assert "total" in watch.evaluate(60.0).timeout


def test_a_person_is_told_each_thing_once():
    told = []
    watch = make_policy(STARTING, told)
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    for _ in range(3):
        watch.observe_pod(ObjectEvent(pod(state=waiting)), 1.0)
        watch.observe_job(ObjectEvent(STARTING), 1.0)
    watch.observe_pod(ObjectEvent(pod(state={"running": {}})), 1.0)
    watch.observe_job(ObjectEvent(RUNNING), 2.0)
    assert [verdict.message or verdict.phase.value for verdict in told] == [
        "node-0: ImagePullBackOff: no such image",
        "Starting",
        "Running",
    ]


def test_limits_travel_as_json():
    limits = Limits(queued=timedelta(minutes=5), max_restarts=None, on_timeout=KillAction.KEEP)
    assert Limits.from_dict(limits.to_dict()) == limits
    assert Limits.from_dict(Limits().to_dict()) == Limits()


def test_without_counters_the_pods_tell_how_it_stands():
    """Trainer 2.0 never fills jobsStatus; later ones do a moment after the pods, which must not be told twice."""
    told = []
    bare = {"metadata": META, "status": {}}
    watch = make_policy(bare, told, starting=timedelta(seconds=60))
    ready = pod(state={"running": {}})
    ready["status"] |= {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    watch.observe_pod(ObjectEvent(ready), 1.0)
    assert [verdict.phase for verdict in told] == [Phase.PENDING]
    assert watch.seconds_until_evaluation(2.0) == 4.0
    assert watch.evaluate(6.0) is None
    assert [verdict.phase for verdict in told] == [Phase.PENDING, Phase.RUNNING]
    assert watch.seconds_until_evaluation(6.0) is None  # the limit on starting is over
    watch.observe_job(ObjectEvent(STARTING), 8.0)  # counters, where there are some, count
    assert told[-1].phase is Phase.STARTING


MISSING_SECRET = {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "hf" not found'}}
RATE_LIMITED = {"waiting": {"reason": "ErrImagePull", "message": "pull QPS exceeded"}}
INVALID_IMAGE_NAME = {"waiting": {"reason": "InvalidImageName", "message": 'couldn\'t parse image name "A"'}}


def test_what_may_still_appear_has_a_minute():
    watch = make_policy(STARTING)
    assert watch.observe_pod(ObjectEvent(pod(state=MISSING_SECRET)), 10.0) is None
    assert watch.seconds_until_evaluation(40.0) == 30.0
    assert watch.evaluate(69.9) is None
    decision = watch.evaluate(70.0)
    assert (decision.end_job, decision.timeout, decision.verdict.phase) == (True, "", Phase.FAILED)
    assert (decision.verdict.reason, decision.verdict.step) == ("CreateContainerConfigError", "node")
    assert 'node-0: secret "hf" not found' in decision.verdict.message


def test_what_appears_after_all_is_forgotten():
    watch = make_policy(STARTING)
    watch.observe_pod(ObjectEvent(pod(state=MISSING_SECRET)), 10.0)
    watch.observe_pod(ObjectEvent(pod(state={"running": {}})), 60.0)
    assert watch.evaluate(80.0) is None
    watch.observe_pod(ObjectEvent(pod(state=MISSING_SECRET)), 90.0)
    assert watch.evaluate(149.9) is None
    assert watch.evaluate(150.0).end_job


def test_what_can_never_appear_is_not_waited_for():
    watch = make_policy(STARTING)
    watch.observe_pod(ObjectEvent(pod(state=INVALID_IMAGE_NAME)), 10.0)
    assert watch.seconds_until_evaluation(10.0) == 0.0
    assert watch.evaluate(10.0).verdict.reason == "InvalidImageName"


def test_a_job_that_runs_is_not_given_up():
    watch = make_policy(STARTING)
    watch.observe_pod(ObjectEvent(pod(state=MISSING_SECRET)), 10.0)
    watch.observe_job(ObjectEvent(RUNNING), 20.0)
    assert watch.evaluate(1000.0) is None
    assert watch.seconds_until_evaluation(1000.0) is None


def test_what_passes_is_waited_out_and_told_when_a_limit_is_reached():
    watch = make_policy(STARTING, starting=timedelta(seconds=3600))
    watch.observe_pod(ObjectEvent(pod(state=RATE_LIMITED)), 10.0)
    assert watch.evaluate(3599.0) is None
    decision = watch.evaluate(3600.0)
    assert "pull QPS exceeded" in str(decision.verdict)
    assert "registry" in decision.advice
    assert not decision.end_job


def refusal_event(text, at="2026-01-01T00:00:00Z"):
    about = {"kind": "Job", "name": "tune-node-0"}
    return {"metadata": {"creationTimestamp": at}, "involvedObject": about, "reason": "FailedCreate", "message": text}


def test_events_tell_and_end_it_too():
    told = []
    watch = make_policy({"metadata": META, "status": {}}, told)
    assert watch.waits_for == "pods"
    watch.update_diagnosis(
        [refusal_event("Error creating: pods is forbidden: exceeded quota: gpus, requested: 2")], None, 15.0
    )
    assert watch.evaluate(9000.0) is None
    watch.update_diagnosis(
        [refusal_event('Error creating: pods is forbidden: serviceaccount "robot" not found')], None, 9000.0
    )
    assert watch.evaluate(9059.0) is None
    assert watch.evaluate(9060.0).verdict.reason == "FailedCreate"
    assert ["exceeded quota" in str(verdict) for verdict in told] == [True, False]


def test_a_queued_job_tells_kueues_reason_and_is_never_given_up():
    told = []
    watch = make_policy(QUEUED, told, queued=timedelta(days=1))
    assert watch.waits_for == "quota"
    full = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "insufficient unused quota"}
    watch.update_diagnosis([], {"metadata": {"name": "w"}, "status": {"conditions": [full]}}, 15.0)
    assert str(told[-1]).endswith("quota in queue gpu; Workload w: Pending: insufficient unused quota)")
    gone = {**full, "reason": "Inadmissible", "message": "LocalQueue gpu doesn't exist"}
    watch.update_diagnosis([], {"metadata": {"name": "w"}, "status": {"conditions": [gone]}}, 45.0)
    assert "Inadmissible: LocalQueue gpu doesn't exist: name a LocalQueue of the job's namespace" in str(told[-1])
    decision = watch.evaluate(86400.0)
    assert "LocalQueue gpu doesn't exist" in str(decision.verdict)
    assert (decision.advice in str(decision.verdict), "use an active LocalQueue" in decision.advice) == (False, True)


def test_looks_become_rare_and_never_stop():
    """A job may wait for weeks."""
    looks, now, pauses = DiagnosisSchedule(), 0.0, []
    for _ in range(3000):
        left = looks.seconds_until_due("pods", now)
        assert left is not None
        now += left
        pauses.append(left)
        looks.record_diagnosis(now)
    assert pauses[:6] == [15.0, 30.0, 60.0, 120.0, 240.0, 240.0]
    assert pauses[-1] == 240.0
    assert looks.seconds_until_due("quota", now) == 15.0
    assert looks.seconds_until_due("", now) is None
