"""Tests of the controllers' decisions, which are pure functions of an owner and its children."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob_local.controllers import job_pods, jobs, jobset_rules, jobsets, scheduling, trainjobs, volumes
from trainjob_local.controllers.composition import build_jobset
from trainjob_local.controllers.jobset_children import build_job
from trainjob_local.controllers.writes import Create, Delete, EventWrite, Patch
from trainjob_local.objects import format_timestamp
from trainjob_local.runtimes import stock_runtimes

RUNTIMES = {runtime["metadata"]["name"]: runtime for runtime in stock_runtimes()}
NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=timezone.utc)
AT = format_timestamp(NOW)


def true_condition(kind, reason="R", message="m"):
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": AT}


def writes_of(decision, kind):
    return [write for write in decision.writes if isinstance(write, kind)]


def event_reasons(decision):
    success_events = [write.success_event for write in decision.writes if isinstance(write, (Create, Delete))]
    return [event.reason for event in (*success_events, *writes_of(decision, EventWrite)) if event]


def written_status(decision, resource):
    found = [
        patch for patch in writes_of(decision, Patch) if patch.resource == resource and patch.subresource == "status"
    ]
    return found[0].change["status"] if found else None


# -- TrainJob ---------------------------------------------------------------------------------------------------------


def trainjob(runtime="torch-distributed", *, created=NOW, **spec):
    body = {"runtimeRef": {"name": runtime, "kind": "ClusterTrainingRuntime"}, "trainer": {"command": ["x"]}, **spec}
    meta = {"name": "job", "namespace": "ns", "uid": "u", "creationTimestamp": format_timestamp(created)}
    return {"metadata": meta, "spec": body}


def composed_jobset(job):
    return build_jobset(job, RUNTIMES[job["spec"]["runtimeRef"]["name"]])


def jobset_for(job, **status):
    jobset = jobset_rules.with_defaults(composed_jobset(job))
    jobset["metadata"]["uid"] = "js"
    return {**jobset, "status": status} if status else jobset


def counters(**of_node):
    return {"name": "node", **dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0), **of_node}


def test_only_the_counters_are_copied_from_a_running_jobset():
    job = trainjob()
    decision = trainjobs.decide(
        job, composed_jobset(job), jobset_for(job, replicatedJobsStatus=[counters(active=1)]), NOW
    )
    assert written_status(decision, "trainjobs") == {"jobsStatus": [counters(active=1)]}
    job["status"] = written_status(decision, "trainjobs")
    again = trainjobs.decide(job, composed_jobset(job), jobset_for(job, replicatedJobsStatus=[counters(active=1)]), NOW)
    assert again.writes == []


@pytest.mark.parametrize(("theirs", "ours"), [("Completed", "Complete"), ("Failed", "Failed")])
def test_the_end_comes_from_the_jobset(theirs, ours):
    job = trainjob()
    ended = jobset_for(job, conditions=[true_condition(theirs)], replicatedJobsStatus=[counters()])
    decision = trainjobs.decide(job, composed_jobset(job), ended, NOW + timedelta(seconds=9))
    assert written_status(decision, "trainjobs")["conditions"] == [true_condition(ours)]


def test_a_running_jobset_is_not_changed():
    job = trainjob()
    running = jobset_for(job)
    running["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}
    assert trainjobs.decide(job, composed_jobset(job), running, NOW).writes == []


def test_the_deadline_deletes_the_jobset_and_keeps_the_counters():
    job = trainjob(activeDeadlineSeconds=60)
    job["status"] = {"jobsStatus": [counters(active=1)]}
    jobset = jobset_for(job, replicatedJobsStatus=[counters(active=1)])
    early = trainjobs.decide(job, composed_jobset(job), jobset, NOW + timedelta(seconds=20))
    assert (early.requeue_after, early.writes) == (40.0, [])
    late = trainjobs.decide(job, composed_jobset(job), jobset, NOW + timedelta(seconds=61))
    assert [delete.resource for delete in writes_of(late, Delete)] == ["jobsets"]
    status = written_status(late, "trainjobs")
    assert status["conditions"][0]["reason"] == "DeadlineExceeded"
    assert status["conditions"][0]["message"] == "TrainJob exceeded its active deadline"
    assert status["jobsStatus"] == [counters(active=1)]
    job["status"] = status
    assert trainjobs.is_finished(job)
    assert trainjobs.decide(job, None, None, NOW + timedelta(hours=1)).writes == []


def test_the_deadline_counts_from_the_last_resume():
    job = trainjob(activeDeadlineSeconds=60, created=NOW - timedelta(days=1))
    resumed = {**true_condition("Suspended", "Resumed"), "status": "False"}
    assert trainjobs.compute_deadline(job, {"conditions": [resumed]}) == NOW + timedelta(seconds=60)
    assert trainjobs.compute_deadline({**job, "spec": {**job["spec"], "suspend": True}}, {}) is None
    assert trainjobs.compute_deadline(job, {"conditions": [true_condition("Complete")]}) is None


# -- JobSet -----------------------------------------------------------------------------------------------------------


def child_job(jobset, name, *, restart=0, **more):
    replicated = next(one for one in jobset["spec"]["replicatedJobs"] if one["name"] == name)
    built = build_job(jobset, replicated, 0)
    built["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] = str(restart)
    built["spec"]["suspend"] = more.pop("suspend", False)
    return {**built, "status": more}


def test_only_jobs_without_dependencies_are_created_first():
    jobset = jobset_for(trainjob("torchtune-llama3.2-1b"))
    decision = jobsets.decide(jobset, [], NOW)
    names = [create.body["metadata"]["name"] for create in writes_of(decision, Create)]
    assert names == ["job", "initializer-job", "job-dataset-initializer-0", "job-model-initializer-0"]
    order = [one["name"] for one in written_status(decision, "jobsets")["replicatedJobsStatus"]]
    assert order == ["node", "model-initializer", "dataset-initializer"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"active": 1}, {"active": 1}),
        ({"active": 1, "ready": 1}, {"active": 1, "ready": 1}),
        ({"active": 2, "ready": 1}, {"active": 1}),
        ({"active": 1, "ready": 1, "succeeded": 1}, {"active": 1, "ready": 1}),
        ({"conditions": [true_condition("Complete")]}, {"succeeded": 1}),
        ({"conditions": [true_condition("Failed")]}, {"failed": 1}),
    ],
)
def test_the_jobset_status_counts_jobs_not_pods(status, expected):
    job = trainjob()
    job["spec"]["trainer"]["numNodes"] = 2 if "succeeded" in status or status.get("active") == 2 else 1
    jobset = jobset_for(job)
    counted = jobsets.count_replicated_jobs(
        jobset, jobsets.group_child_jobs(jobset, [child_job(jobset, "node", **status)])
    )
    assert counted == [counters(**expected)]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}, ("JobsRestart", 1, 1)),
        ({"action": "FailJobSet", "targetReplicatedJobs": ["other"]}, ("JobsRestart", 1, 1)),
        ({"action": "FailJobSet", "onJobFailureMessagePatterns": ["^limit .*reached$"]}, ("Failed", 0, 0)),
        ({"action": "FailJobSet", "targetReplicatedJobs": ["node"]}, ("Failed", 0, 0)),
        ({"action": "RestartJobSetAndIgnoreMaxRestarts"}, ("JobsRestart", 1, 0)),
    ],
)
def test_the_first_rule_that_applies_counts(rule, expected):
    jobset = jobset_for(trainjob())
    jobset["spec"]["failurePolicy"] = {"maxRestarts": 1, "rules": [rule, {"name": "b", "action": "RestartJobSet"}]}
    failure = {**true_condition("Failed"), "reason": "BackoffLimitExceeded", "message": "limit 0 reached"}
    decision = jobsets.decide(jobset, [child_job(jobset, "node", conditions=[failure])], NOW)
    status = written_status(decision, "jobsets")
    terminal = status.get("terminalState", "JobsRestart")
    assert (terminal, status["restarts"], status.get("restartsCountTowardsMax", 0)) == expected


# -- Job --------------------------------------------------------------------------------------------------------------


def batch_job(*, policy="Never", suspend=False, status=None, **spec):
    template = {"metadata": {}, "spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}}
    full = {"parallelism": 1, "completions": 1, "completionMode": "Indexed", "backoffLimit": 6, "suspend": suspend}
    meta = {"name": "j", "namespace": "ns", "uid": "u"}
    return {"metadata": meta, "spec": {**full, **spec, "template": template}, "status": status or {}}


def pod(phase="Running", *, index=0, restarts=0, tracked=True, deleted=False, ready=False, at=NOW):
    meta = {"name": f"j-{index}-x", "namespace": "ns", "annotations": {job_pods.COMPLETION_INDEX: str(index)}}
    meta |= {"finalizers": [job_pods.TRACKING_FINALIZER]} if tracked else {}
    meta |= {"deletionTimestamp": AT} if deleted else {}
    state = {"terminated": {"finishedAt": format_timestamp(at)}} if phase == "Failed" else {}
    status = {"phase": phase, "containerStatuses": [{"restartCount": restarts, "state": state}]}
    return {
        "metadata": meta,
        "spec": {},
        "status": {**status, "conditions": [true_condition("Ready")] if ready else []},
    }


def decide_job(job, pods, now=NOW):
    return jobs.decide(job, pods, now, jobs.Backoff(10, 600))


def test_a_job_starts_its_pods():
    decision = decide_job(batch_job(parallelism=2, completions=2), [])
    first, second = (create.body for create in writes_of(decision, Create))
    assert (first["metadata"]["generateName"], second["metadata"]["generateName"]) == ("j-0-", "j-1-")
    assert first["spec"]["hostname"] == "j-0"
    assert (
        first["metadata"]["labels"][job_pods.COMPLETION_INDEX]
        == first["metadata"]["annotations"][job_pods.COMPLETION_INDEX]
        == "0"
    )
    assert first["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    status = written_status(decision, "jobs")
    assert (status["active"], status["startTime"], status["ready"], status["terminating"]) == (2, AT, 0, 0)
    assert event_reasons(decision) == ["SuccessfulCreate", "SuccessfulCreate"]


def test_a_job_with_all_pods_running_needs_no_writes():
    running = [pod(ready=True)]
    status = written_status(decide_job(batch_job(), running), "jobs")
    assert (status["active"], status["ready"]) == (1, 1)
    assert decide_job(batch_job(status=status), running).writes == []


def decide_end(job, pods):
    """Return the decision that ends a Job; an earlier one sets only the reason of the end."""
    first = decide_job(job, pods)
    assert len(written_status(first, "jobs")["conditions"]) == 1
    gone = [pod for pod in pods if pod["status"]["phase"] == "Running"]
    left = [{**one, "metadata": {**one["metadata"], "finalizers": []}} for one in pods if one not in gone]
    return decide_job({**job, "status": written_status(first, "jobs")}, left)


def test_success_of_all_indexes():
    job = batch_job(parallelism=2, completions=2)
    half = decide_job(job, [pod("Succeeded", index=1), pod(index=0)])
    status = written_status(half, "jobs")
    assert (status["succeeded"], status["completedIndexes"], status["active"]) == (1, "1", 1)
    assert (
        len([patch for patch in writes_of(half, Patch) if patch.resource == "pods"]) == 1
    )  # counted, so its finalizer is removed
    done = decide_end({**job, "status": status}, [pod("Succeeded", index=1, tracked=False), pod("Succeeded", index=0)])
    status = written_status(done, "jobs")
    assert (status["succeeded"], status["completedIndexes"]) == (2, "0,1")
    assert status["conditions"][1]["message"] == "Reached expected number of succeeded pods"


def test_a_failed_pod_is_replaced_after_a_pause():
    failed = pod("Failed")
    early = decide_job(batch_job(), [failed], NOW + timedelta(seconds=4))
    assert (early.requeue_after, writes_of(early, Create)) == (6.0, [])
    status = written_status(early, "jobs")
    assert status["failed"] == 1
    later = decide_job(batch_job(status=status), [pod("Failed", tracked=False)], NOW + timedelta(seconds=10))
    assert len(writes_of(later, Create)) == 1


def test_a_job_fails_at_its_backoff_limit():
    decision = decide_end(batch_job(backoffLimit=0), [pod("Failed")])
    status = written_status(decision, "jobs")
    assert [one["type"] for one in status["conditions"]] == ["FailureTarget", "Failed"]
    assert {one["reason"] for one in status["conditions"]} == {"BackoffLimitExceeded"}
    assert status["conditions"][0]["message"] == "Job has reached the specified backoff limit"
    assert event_reasons(decision) == ["BackoffLimitExceeded"]


@pytest.mark.parametrize(("restarts", "limit", "fails"), [(0, 0, False), (1, 0, True), (5, 6, False), (6, 6, True)])
def test_restarts_in_place_count_and_the_pod_is_deleted(restarts, limit, fails):
    job = batch_job(policy="OnFailure", backoffLimit=limit)
    decision = decide_job(job, [pod(restarts=restarts)])
    assert event_reasons(decision) == (["SuccessfulDelete"] if fails else [])
    if not fails:
        return
    status = written_status(decision, "jobs")
    assert ([one["type"] for one in status["conditions"]], status["failed"]) == (["FailureTarget"], 1)
    gone = decide_job({**job, "status": status}, [])
    assert [one["type"] for one in written_status(gone, "jobs")["conditions"]] == ["FailureTarget", "Failed"]
    assert written_status(gone, "jobs")["failed"] == 1


def test_a_deleted_pod_counts_as_failed_once():
    first = decide_job(batch_job(), [pod(deleted=True)])
    status = written_status(first, "jobs")
    assert (status["failed"], status["terminating"], first.requeue_after) == (1, 1, 10.0)
    again = decide_job(batch_job(status=status), [pod(deleted=True, tracked=False)])
    assert again.writes == []
    assert len(writes_of(decide_job(batch_job(status=status), [], NOW + timedelta(seconds=10)), Create)) == 1


def test_suspend_deletes_pods_without_counting_them():
    decision = decide_job(batch_job(suspend=True, status={"startTime": AT, "active": 1}), [pod()])
    status = written_status(decision, "jobs")
    assert status["startTime"] is None  # the patch removes it
    assert "failed" not in status
    assert event_reasons(decision) == ["SuccessfulDelete", "Suspended"]
    kept = {key: value for key, value in status.items() if value is not None}
    resumed = decide_job(batch_job(status=kept), [])
    assert written_status(resumed, "jobs")["conditions"][0]["reason"] == "JobResumed"
    assert event_reasons(resumed) == ["SuccessfulCreate", "Resumed"]


def test_a_job_fails_at_its_deadline():
    job = batch_job(activeDeadlineSeconds=30, status={"startTime": AT})
    assert decide_job(job, [pod()], NOW + timedelta(seconds=10)).requeue_after == 20
    late = decide_job(job, [pod()], NOW + timedelta(seconds=31))
    assert written_status(late, "jobs")["conditions"][0]["reason"] == "DeadlineExceeded"


def test_a_deleted_job_removes_the_finalizers_of_its_pods():
    job = batch_job()
    job["metadata"]["deletionTimestamp"] = AT
    decision = decide_job(job, [pod(deleted=True), pod(index=1)])
    assert [patch.obj["metadata"]["name"] for patch in writes_of(decision, Patch)] == ["j-0-x"]


def test_a_work_queue_is_complete_when_one_pod_has_succeeded():
    job = batch_job(parallelism=2, completionMode="NonIndexed")
    del job["spec"]["completions"]
    assert len(writes_of(decide_job(job, []), Create)) == 2
    status = written_status(decide_end(job, [pod("Succeeded"), pod("Succeeded")]), "jobs")
    assert (status["succeeded"], status["conditions"][-1]["type"]) == (2, "Complete")


@given(st.sets(st.integers(0, 30)))
def test_formatted_indexes_can_be_parsed(indexes):
    assert job_pods.parse_indexes(job_pods.format_indexes(indexes)) == indexes


@pytest.mark.parametrize(("indexes", "text"), [(set(), ""), ({0}, "0"), ({0, 1}, "0,1"), ({0, 2, 3, 4, 7}, "0,2-4,7")])
def test_indexes_have_the_format_of_kubernetes(indexes, text):
    assert job_pods.format_indexes(indexes) == text


# -- scheduler and claims ---------------------------------------------------------------------------------------------

NODE = {
    "metadata": {"name": "n", "labels": {"kubernetes.io/os": "linux"}},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "2", "nvidia.com/gpu": "8"}},
}
BUSY = (
    "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
)


def pod_requesting(**spec):
    resources = {"requests": spec.pop("requests", {}), "limits": spec.pop("limits", {})}
    meta = {"name": "p", "namespace": "ns"}
    return {"metadata": meta, "spec": {"containers": [{"name": "c", "resources": resources}], **spec}}


def explain_unschedulable(pod, others=(), claims=()):
    known = {name: {"metadata": {}, "spec": {}} for name in claims}
    return scheduling.unschedulable_reason(pod, NODE, list(others), known.get)


@pytest.mark.parametrize(
    ("pod", "others", "expected"),
    [
        (pod_requesting(), [], ""),
        (pod_requesting(limits={"nvidia.com/gpu": "8"}), [], ""),
        (
            pod_requesting(requests={"cpu": "3"}),
            [pod_requesting(requests={"cpu": "1500m"})],
            f"1 Insufficient cpu. {BUSY}",
        ),
        (pod_requesting(), [pod_requesting(), pod_requesting()], f"1 Too many pods. {BUSY}"),
        (pod_requesting(nodeSelector={"kubernetes.io/os": "linux"}), [], ""),
    ],
)
def test_the_reason_why_a_pod_is_unschedulable(pod, others, expected):
    assert explain_unschedulable(pod, others) == (f"0/1 nodes are available: {expected}" if expected else "")


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}, True),
        ({"key": "kubernetes.io/os", "operator": "NotIn", "values": ["linux"]}, False),
        ({"key": "gpu", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "DoesNotExist"}, True),
        ({"key": "gpu", "operator": "Gt", "values": ["1"]}, False),
        ({"key": "kubernetes.io/os", "operator": "Gt", "values": ["1"]}, False),
        ({"key": "kubernetes.io/os", "operator": "Lt"}, False),
        ({"key": "kubernetes.io/os", "operator": "Nope", "values": ["linux"]}, False),
        ({"operator": "In"}, False),
    ],
)
def test_node_affinity(expression, fits):
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert (explain_unschedulable(pod_requesting(affinity=affinity)) == "") == fits


def test_init_containers_count_by_the_largest():
    pod = pod_requesting(requests={"cpu": "1"}, initContainers=[{"resources": {"requests": {"cpu": "3"}}}])
    assert scheduling.pod_requests(pod)["cpu"] == 3


def test_a_claim_is_in_use_until_its_pods_have_ended():
    claim = {"metadata": {"name": "w", "namespace": "ns", "finalizers": [volumes.PROTECTION_FINALIZER]}, "spec": {}}
    user = pod_requesting(volumes=[{"name": "w", "persistentVolumeClaim": {"claimName": "w"}}])
    assert volumes.is_in_use(claim, [user])
    assert not volumes.is_in_use(claim, [{**user, "status": {"phase": "Failed"}}])
    assert volumes.remove_protection(claim).change == {"metadata": {"finalizers": None}}
