"""Tests of the reasons why a job does not start or has ended, from its pods, events and Workload as dicts."""

from __future__ import annotations

import string
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainjob.errors import DeadlineExceeded
from trainjob.status import Category, Evidence, FinalPods, Phase, Verdict, build_outcome
from trainjob.status.diagnostics import (
    get_event_findings,
    get_pod_findings,
    get_sidecar_findings,
    get_workload_findings,
    merge_findings,
)

JOB = {"metadata": {"name": "tune", "namespace": "ml", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"}}
IMAGE = "registry.example/team/x:1"
PULL = f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": '
FORBIDDEN = 'Error creating: pods "tune-node-0-0-" is forbidden: '
REFUSAL = 'admission webhook "vjobset.kb.io" denied the request: JobSet.jobset.x-k8s.io "tune" is invalid: '
JOBSET_REFUSED = f"TrainJob resources reconciliation failed: {REFUSAL}"


def pod(rank=0, *, name="", waiting=None, conditions=(), phase="Pending", at="2026-01-01T00:00:01Z", **status):
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "batch.kubernetes.io/job-completion-index": str(rank)}
    waits = dict(zip(("reason", "message"), waiting or (), strict=False))
    containers = [{"name": "node", "state": {"waiting": waits}}]
    return {
        "metadata": {"name": name or f"tune-node-0-{rank}-x", "labels": labels, "creationTimestamp": at},
        "spec": {},
        "status": {
            "phase": phase,
            "conditions": list(conditions),
            "containerStatuses": containers if waiting else [],
            **status,
        },
    }


def event(kind, name, reason, message="", at="2026-01-01T00:00:05Z", seen=None):
    about = {"kind": kind, "name": name}
    meta = {"name": "e", "creationTimestamp": at}
    return {
        "metadata": meta,
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "lastTimestamp": seen or at,
    }


CREATING = ("ContainerCreating", "")
SUCCEEDED = {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:01:00Z"}}
REFUSED = event("Job", "tune-node-0", "FailedCreate", FORBIDDEN + "no")
SECRET = event(
    "Pod", "tune-node-0-0-x", "FailedMount", 'MountVolume.SetUp failed for volume "v" : secret "hf" not found'
)


def pod_with_sidecar(own=SUCCEEDED, *, step="node", init=(), **sidecars):
    """Return a pod with the state of the step's own container, and with sidecars."""
    own_name = step if step.endswith("-initializer") else "node"
    containers = [{"name": name, "state": state} for name, state in {own_name: own, **sidecars}.items()]
    found = pod(phase="Running", containerStatuses=containers, initContainerStatuses=list(init))
    found["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = step
    return found


def find_problems(pods=(), events=(), job=JOB):
    return merge_findings(
        [*(finding for pod in pods for finding in get_pod_findings(pod)), *get_event_findings(events, job, pods)]
    )


def problem_texts(*arguments):
    return [str(finding) for finding in find_problems(*arguments)]


def test_the_same_problem_of_many_ranks_is_reported_once():
    waiting = ("CreateContainerConfigError", 'secret "hf" not found')
    lines = problem_texts([pod(rank, waiting=waiting) for rank in range(64)])
    assert lines == ['node-0 and 63 more: CreateContainerConfigError: secret "hf" not found']


@pytest.mark.parametrize(
    "text", ['persistentvolumeclaim "tickets" not found', "pod has unbound immediate PersistentVolumeClaims"]
)
def test_words_that_the_scheduler_appends_are_omitted(text):
    """kube-scheduler 1.36 ends each message about a claim with ". not found"."""
    said = f"0/1 nodes are available: {text}. not found"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    assert problem_texts([pod(conditions=[condition])]) == [f"node-0: Unschedulable: 0/1 nodes are available: {text}"]


def test_hopeless_problems_are_first_and_unknown_ones_are_reported_only_alone():
    unknown = event("Pod", "tune-node-0-0-x", "FailedCreatePodSandBox", "no network")
    assert problem_texts([pod(waiting=CREATING)], [unknown]) == ["node-0: FailedCreatePodSandBox: no network"]
    busy = ("ErrImagePull", "pull QPS exceeded")
    lines = problem_texts([pod(waiting=busy)], [event("Pod", "tune-node-0-0-x", "Unhealthy"), REFUSED])
    assert [line.split(":")[0] for line in lines] == ["Job tune-node-0", "node-0"]


def test_an_event_about_a_volume_counts_until_the_pod_has_it():
    assert problem_texts([pod(waiting=CREATING)], [SECRET])
    prepared = {"type": "PodReadyToStartContainers", "status": "True"}
    assert not problem_texts([pod(waiting=CREATING, conditions=[prepared])], [SECRET])
    assert not problem_texts([pod(phase="Running")], [SECRET])
    assert not problem_texts([pod(name="tune-node-0-0-y", waiting=CREATING)], [SECRET])
    assert problem_texts([], [SECRET])  # pods can't be seen


def test_an_event_of_an_earlier_job_of_the_same_name_does_not_count():
    assert not problem_texts([], [{**REFUSED, "metadata": {"creationTimestamp": "2025-12-31T23:59:59Z"}}])


def test_a_refusal_does_not_count_after_the_pods_were_created():
    assert problem_texts([], [REFUSED])
    assert problem_texts(
        [pod(at="2026-01-01T00:00:05Z", waiting=CREATING)], [REFUSED]
    )  # another rank, in the same second
    assert not problem_texts([pod(at="2026-01-01T00:00:06Z", waiting=CREATING)], [REFUSED])
    again = {**REFUSED, "lastTimestamp": "2026-01-01T00:00:07Z"}
    assert problem_texts([pod(at="2026-01-01T00:00:06Z", waiting=CREATING)], [again])


def test_kueues_harmless_event_does_not_count():
    """After an eviction, Kueue 0.17 causes this event on a TrainJob that resumes without a problem."""
    harmless = event("TrainJob", "tune", "TrainJobResourcesCreationFailed", JOBSET_REFUSED + 'Invalid value: "null"')
    assert [finding.category for finding in find_problems((), [harmless])] == [Category.INVALID]
    suspended = {**JOB, "status": {"conditions": [{"type": "Suspended", "status": "False"}]}}
    assert find_problems((), [harmless], suspended) == []


def test_a_jobset_that_can_not_be_resumed_is_no_harmless_event():
    """Without a retentionPolicy of its claims, a TrainJob that was suspended before its start never runs."""
    text = 'JobSet.jobset.x-k8s.io "tune" is invalid: spec.volumeClaimPolicies: Invalid value: Value is immutable'
    refused = event(
        "TrainJob", "tune", "TrainJobResourcesCreationFailed", f"{JOBSET_REFUSED.partition(': ')[0]}: {text}"
    )
    resumed = {**JOB, "status": {"conditions": [{"type": "Suspended", "status": "False"}]}}
    assert [finding.category for finding in find_problems((), [refused], resumed)] == [Category.INVALID]
    assert find_problems([pod()], [refused], resumed) == []


def test_before_kubernetes_1_32_the_cause_of_a_back_off_is_only_in_an_event():
    failed = event("Pod", "tune-node-0-0-x", "Failed", f'Failed to pull image "{IMAGE}": {PULL}{IMAGE}: not found')
    waiting = pod(waiting=("ImagePullBackOff", f'Back-off pulling image "{IMAGE}"'))
    assert find_problems([waiting], [failed])[0].category is Category.IMAGE
    assert find_problems([pod(waiting=CREATING)], [failed]) == []


def test_the_reason_of_a_pending_claim_is_reported():
    line = event("PersistentVolumeClaim", "tickets", "ProvisioningFailed", 'storageclass.storage.k8s.io "x" not found')
    assert problem_texts([], [line]) == [
        'PersistentVolumeClaim tickets: ProvisioningFailed: storageclass.storage.k8s.io "x" not found'
    ]


def test_the_reason_of_a_queued_workload_is_reported():
    text = "couldn't assign flavors to pod set node: insufficient unused quota for cpu in flavor cpu, 1 more needed"
    conditions = [
        {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": text},
        {"type": "Evicted", "status": "False", "reason": "QuotaReserved", "message": "Previously: ..."},
    ]
    workload = {"metadata": {"name": "trainjob-tune-1"}, "status": {"conditions": conditions}}
    [finding] = get_workload_findings(workload)
    assert (finding.category, str(finding)) == (Category.QUEUED, f"Workload trainjob-tune-1: Pending: {text}")


CONDITION = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["QuotaReserved", "Admitted", "Evicted", "Finished"]),
        "status": st.sampled_from(["True", "False"]),
        "lastTransitionTime": st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"]),
    }
)


@given(conditions=st.lists(CONDITION, max_size=4, unique_by=lambda one: one["type"]), late=st.booleans())
def test_an_admitted_workload_is_a_finding_only_without_another_reason(conditions, late):
    true = {one["type"]: one for one in conditions if one["status"] == "True"}
    waits = any((one["type"], one["status"]) in {("QuotaReserved", "False"), ("Evicted", "True")} for one in conditions)
    limit = "2026-01-01T00:00:30Z" if late else ""
    found = get_workload_findings(
        {"metadata": {"name": "w"}, "status": {"conditions": conditions}}, admitted_before=limit
    )
    expected = "Admitted" in true and "Finished" not in true and not waits
    if late and expected:
        expected = true["Admitted"]["lastTransitionTime"] < limit
    assert (Category.NOT_RESUMED in [one.category for one in found]) == expected


def test_a_missing_workload_is_reported_only_with_kueue():
    assert get_workload_findings(None) == []
    [finding] = get_workload_findings({})
    assert (finding.category, str(finding)) == (
        Category.NO_WORKLOAD,
        "Kueue: NoWorkload: Kueue has not created a Workload for this TrainJob",
    )


def test_a_preemption_is_reported_with_its_message():
    preempted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "Preempted to accommodate a"}
    [finding] = get_workload_findings({"metadata": {"name": "w"}, "status": {"conditions": [preempted]}})
    assert (finding.category, str(finding)) == (
        Category.QUEUED,
        "Workload w: Preempted: Preempted to accommodate a",
    )


def test_an_admission_check_that_is_not_ready_is_reported():
    """A Workload with quota is admitted when all admission checks of its ClusterQueue are ready."""
    checks = [{"name": "budget", "state": "Pending", "message": "requested"}, {"name": "other", "state": "Ready"}]
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "x"}
    workload = {"metadata": {"name": "w"}, "status": {"conditions": [reserved], "admissionChecks": checks}}
    assert [str(finding) for finding in get_workload_findings(workload)] == [
        "Workload w: AdmissionCheck budget Pending: requested"
    ]


# -- the end of a job -------------------------------------------------------------------------------------------------

FAILED = Verdict(Phase.FAILED, "FailedJobs", "jobset failed (first failed job: tune-node-0)", "node")


def ended_container(code, reason="Error", at="2026-01-01T00:01:00Z"):
    return {"name": "node", "state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}}


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"),
        ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
        ("EvictionByEvictionAPI", "Eviction API: evicting"),
    ],
)
def test_a_pod_that_was_disrupted_is_no_failure_of_its_command(reason, message):
    """The container has an ordinary exit code; only the condition DisruptionTarget shows the disruption."""
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    lost = pod(phase="Failed", conditions=[disrupted], containerStatuses=[ended_container(143)])
    outcome = build_outcome(JOB, FAILED, Evidence(FinalPods([lost])))
    assert (outcome.category, outcome.retryable, outcome.exit_code) == (Category.INFRASTRUCTURE, True, 143)
    reset = pod(phase="Failed", conditions=[{**disrupted, "status": "False"}], containerStatuses=[ended_container(3)])
    assert build_outcome(JOB, FAILED, Evidence(FinalPods([reset]))).category is Category.APPLICATION


@pytest.mark.parametrize("reason", ["Evicted", "NodeShutdown", "UnexpectedAdmissionError", "OutOfcpu"])
def test_a_pod_that_its_node_refused_is_reported_with_the_nodes_reason(reason):
    refused = pod(phase="Failed", reason=reason, message="Pod was rejected: no")
    outcome = build_outcome(JOB, FAILED, Evidence(FinalPods([refused])))
    assert (outcome.category, outcome.retryable, outcome.exit_code) == (Category.INFRASTRUCTURE, True, None)
    assert outcome.rank == 0


def test_the_last_of_several_pods_of_a_rank_counts():
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    first = pod(
        phase="Failed", conditions=[disrupted], containerStatuses=[ended_container(143)], at="2026-01-01T00:00:01Z"
    )
    second = pod(name="y", phase="Failed", containerStatuses=[ended_container(3)], at="2026-01-01T00:00:30Z")
    outcome = build_outcome(JOB, FAILED, Evidence(FinalPods([first, second])))
    assert (outcome.category, outcome.exit_code) == (Category.APPLICATION, 3)


def test_a_failed_initializer_is_reported_as_initializer():
    lost = pod(phase="Failed", containerStatuses=[ended_container(1)])
    lost["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "dataset-initializer"
    verdict = Verdict(Phase.FAILED, "FailedJobs", "x", "dataset-initializer")
    outcome = build_outcome(JOB, verdict, Evidence(FinalPods([lost])))
    assert (outcome.category, outcome.step) == (Category.INITIALIZER, "dataset-initializer")


# -- invalid objects --------------------------------------------------------------------------------------------------

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(string.printable, max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PATHS = [
    ("metadata",), ("metadata", "labels"), ("metadata", "creationTimestamp"), ("status",), ("status", "conditions"),
    ("status", "containerStatuses"), ("status", "phase"), ("involvedObject",), ("involvedObject", "name"), ("reason",),
    ("message",), ("series",), ("eventTime",), ("lastTimestamp",), ("spec",), (),
]  # fmt: skip


def replace_at(value, path, replacement):
    """Return a copy of an object in which the field at `path` is replaced."""
    if not path:
        return replacement
    inner = value.get(path[0]) if isinstance(value, dict) else None
    return {**value, path[0]: replace_at(inner or {}, path[1:], replacement)}


@given(st.sampled_from(PATHS), st.sampled_from(PATHS), JUNK, JUNK)
@example((), (), None, {"status": {"conditions": [{"type": ["x"], "status": "False"}]}})
def test_invalid_objects_raise_no_exception(path, other_path, junk, more):
    valid_pod, valid_event = pod(waiting=("ErrImagePull", "x: not found")), {**SECRET}
    pods = [replace_at(valid_pod, path, junk), replace_at(valid_pod, other_path, more), valid_pod]
    events = [replace_at(valid_event, path, junk), replace_at(valid_event, other_path, more), valid_event]
    findings = [
        *find_problems(pods, events, replace_at(JOB, path, more)),
        *get_workload_findings(replace_at({"status": {}}, other_path, junk)),
    ]
    assert all(str(finding) and finding.rule for finding in findings)


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:02Z"}}
LATER = datetime(2026, 1, 1, 0, 2, tzinfo=timezone.utc)


@pytest.mark.parametrize("step", ["node", "launcher", "dataset-initializer"])
def test_a_sidecar_that_keeps_a_pod_running_is_found(step):
    [finding] = get_pod_findings(pod_with_sidecar(step=step, proxy=RUNNING, agent=RUNNING, done=SUCCEEDED))
    container = "dataset-initializer" if step == "dataset-initializer" else "node"
    assert (finding.category, finding.step, finding.rule.grace) == (Category.SIDECAR, step, None)
    assert str(finding) == (
        f"{step}-0: Sidecar: container {container} has succeeded; its pod still runs other containers: proxy, agent"
    )


def test_a_pod_without_a_sidecar_that_outlives_the_step_has_no_finding():
    native = [{"name": "proxy", "state": RUNNING}]  # an init container with restartPolicy Always
    failed = {"terminated": {"exitCode": 1}}
    for each in (
        pod_with_sidecar(init=native),
        pod_with_sidecar(RUNNING, proxy=RUNNING),
        pod_with_sidecar(failed, proxy=RUNNING),
        pod_with_sidecar(proxy=failed),
        {**pod_with_sidecar(proxy=RUNNING), "metadata": {"deletionTimestamp": "2026-01-01T00:02:00Z"}},
    ):
        assert get_pod_findings(each) == []


def test_a_description_and_an_outcome_show_a_sidecar_a_minute_after_the_end_of_the_step():
    running, killed = (
        pod_with_sidecar(proxy=RUNNING),
        {"terminated": {"exitCode": 137, "finishedAt": f"{LATER:%FT%TZ}"}},
    )
    assert get_sidecar_findings([running], LATER - timedelta(seconds=1)) == []
    assert len(get_sidecar_findings([running], LATER)) == 1
    assert len(get_sidecar_findings([pod_with_sidecar(proxy=killed)], LATER)) == 1
    assert get_sidecar_findings([pod_with_sidecar(proxy=killed)], LATER + timedelta(seconds=1)) == []


def test_the_error_at_a_deadline_names_the_sidecar():
    condition = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T00:02:00Z"}
    job, verdict = {**JOB, "status": {"conditions": [condition]}}, Verdict(Phase.FAILED, "DeadlineExceeded", "too long")
    pods = FinalPods(gone=[pod_with_sidecar(proxy=RUNNING)])
    outcome = build_outcome(job, verdict, Evidence(pods))
    assert (outcome.category, outcome.retryable) == (Category.SIDECAR, False)
    with pytest.raises(DeadlineExceeded, match=r"too long; node-0: Sidecar: .*: proxy") as raised:
        outcome.raise_for_failure()
    assert "sidecar.istio.io/inject" in raised.value.hint
    assert build_outcome(job, verdict, Evidence(FinalPods(gone=[pod()]))).category is Category.DEADLINE
