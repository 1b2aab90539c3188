"""Tests of pod seconds and GPU seconds from pods."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.errors import IncompatibleVersion
from trainjob.status import (
    Evidence,
    FinalPods,
    Outcome,
    Usage,
    Verdict,
    build_outcome,
    compute_usage,
    count_restarts,
    derive_verdict,
    get_first_start,
)
from trainjob.status.pods import reduce_to_evidence
from trainjob.status.verdict import Phase

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
NOW = START + timedelta(hours=2)
GPU = "nvidia.com/gpu"


def at(seconds):
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def job(phase="Complete", nodes=None, resumed=None, generation=1):
    conditions = [{"type": phase, "status": "True", "lastTransitionTime": at(3600)}] if phase else []
    if resumed is not None:
        conditions.append({"type": "Suspended", "status": "False", "lastTransitionTime": at(resumed)})
    meta = {"name": "tune", "uid": "job", "namespace": "ml", "creationTimestamp": at(0), "generation": generation}
    spec = {"trainer": {"numNodes": nodes}} if nodes else {}
    return {"metadata": {**meta, "labels": {"team": "a"}}, "spec": spec, "status": {"conditions": conditions}}


def pod(uid, created=1, bound=2, end=None, *, gpus=1, rank=0, step="node", restarts=0, phase=None):
    state = {"running": {}} if end is None else {"terminated": {"exitCode": 0, "finishedAt": at(end)}}
    container = {"name": step, "state": state, "restartCount": restarts}
    phase = phase or ("Running" if end is None else "Succeeded")
    conditions = []
    if bound is not None:
        conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(bound)}]
    labels = {
        "jobset.sigs.k8s.io/replicatedjob-name": step,
        "batch.kubernetes.io/job-completion-index": str(rank),
    }
    resources = {"limits": {GPU: str(gpus), "cpu": "2"}} if gpus else {}
    return {
        "metadata": {"uid": uid, "name": uid, "creationTimestamp": at(created), "labels": labels},
        "spec": {"containers": [{"name": step, "resources": resources}]},
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": [] if bound is None else [container]},
    }


def test_a_pod_counts_from_its_binding_to_the_end_of_its_last_container():
    usage = compute_usage(job(), [pod("a", created=1, bound=31, end=131, gpus=2)], NOW)
    assert usage == Usage(100.0, {GPU: 200.0}, complete=True)
    assert usage.gpu_seconds == 200.0


def test_a_pod_that_was_never_bound_uses_nothing():
    assert compute_usage(job(""), [pod("a", bound=None)], NOW).pod_seconds == 0


def test_a_running_pod_counts_until_now_and_the_usage_is_incomplete():
    usage = compute_usage(job(""), [pod("a", bound=0)], NOW)
    assert (usage.pod_seconds, usage.complete) == (7200.0, False)


def test_restarts_in_place_are_one_interval():
    """The containers start again in the same pod, which keeps its GPUs while it waits for the next start."""
    restarted = pod("a", bound=0, end=500, restarts=3)
    last = {"terminated": {"exitCode": 1, "startedAt": at(10), "finishedAt": at(400)}}
    restarted["status"]["containerStatuses"][0]["lastState"] = last
    assert compute_usage(job(), [restarted], NOW).pod_seconds == 500.0


def test_a_pod_and_its_replacement_are_two_intervals():
    pods = [pod("a", bound=1, end=101, phase="Failed"), pod("b", created=120, bound=121, end=221)]
    assert compute_usage(job(), pods, NOW) == Usage(200.0, {GPU: 200.0}, complete=True)


@pytest.mark.parametrize(
    ("grace_end", "seen", "seconds"),
    [(150, 140, 140.0), (130, 140, 130.0), (None, 140, 140.0)],
)
def test_a_pod_that_was_deleted_while_it_ran_counts_until_its_deletion(grace_end, seen, seconds):
    deleted = pod("a", bound=0)
    if grace_end:
        deleted["metadata"]["deletionTimestamp"] = at(grace_end)
    usage = compute_usage(job(), [reduce_to_evidence(deleted, START + timedelta(seconds=seen))], NOW)
    assert (usage.pod_seconds, usage.complete) == (seconds, True)


def test_a_deleted_pod_whose_containers_reported_their_end_counts_until_that_end():
    deleted = pod("a", bound=0, end=90, phase="Running")
    deleted["metadata"]["deletionTimestamp"] = at(120)
    assert compute_usage(job(), [deleted], NOW).pod_seconds == 90.0
    assert compute_usage(job(), [reduce_to_evidence(deleted, NOW)], NOW).pod_seconds == 90.0


def test_a_container_that_ended_in_a_running_pod_may_start_again():
    assert compute_usage(job(""), [pod("a", bound=0, end=90, phase="Running")], NOW).pod_seconds == 7200.0


def test_an_evicted_pod_without_containers_counts_until_its_last_condition():
    evicted = pod("a", bound=10, phase="Failed")
    evicted["status"]["containerStatuses"] = []
    disrupted = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": at(70)}
    evicted["status"]["conditions"].append(disrupted)
    assert compute_usage(job(), [evicted], NOW).pod_seconds == 60.0


@pytest.mark.parametrize(
    ("init", "main", "expected"),
    [
        ([], [1, 2], 3),
        ([(4, False)], [1], 4),  # an init container runs alone
        ([(1, True)], [2], 3),  # a sidecar runs with the containers
        ([(1, True), (4, False)], [2], 5),  # a later init container runs with the sidecar
        ([(4, False), (1, True)], [2], 4),  # an earlier one does not
        ([(0, False)], [0], 0),
    ],
)
def test_gpus_are_the_request_that_the_scheduler_reserves(init, main, expected):
    """The rule is that of Kubernetes: the maximum over the phases of the pod."""
    counted = pod("a", bound=0, end=10)

    def container(amount):
        return {"resources": {"limits": {GPU: str(amount)}}}

    counted["spec"] = {
        "initContainers": [{**container(n), **({"restartPolicy": "Always"} if side else {})} for n, side in init],
        "containers": [container(n) for n in main],
    }
    assert compute_usage(job(), [counted], NOW).gpu_seconds == expected * 10.0


def test_other_extended_resources_are_counted_but_are_no_gpus():
    counted = pod("a", bound=0, end=10)
    limits = {
        "nvidia.com/mig-1g.5gb": "2",
        "amd.com/gpu": 1,
        "gpu.intel.com/i915": "1",
        "gpu.intel.com/millicores": "1k",
    }
    more = {"rdma/hca": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi", "attachable.kubernetes.io/x": "1"}
    counted["spec"]["containers"][0]["resources"] = {"limits": {**limits, **more}}
    usage = compute_usage(job(), [counted], NOW)
    assert usage.gpu_seconds == 40.0
    assert usage.resource_seconds == {
        "nvidia.com/mig-1g.5gb": 20.0,
        "amd.com/gpu": 10.0,
        "gpu.intel.com/i915": 10.0,
        "gpu.intel.com/millicores": 10_000.0,
        "rdma/hca": 10.0,
    }


@pytest.mark.parametrize(
    ("trainjob", "pods", "complete"),
    [
        (job(), [pod("a", end=9), pod("b", end=9, rank=1)], True),
        (job(), [pod("b", created=1000, bound=1001, end=1100)], False),  # another pod may have been replaced
        (job(), [pod("a", end=9), pod("b", created=1000, bound=1001, end=1100, rank=1)], False),
        (job(), [], False),  # its pods were deleted
        (job("Failed"), [], True),  # it never had pods
        (job("Failed", nodes=2), [pod("a", end=9)], False),  # the other rank was deleted
        (job("Failed", nodes=1), [pod("a", end=9)], True),
        (job("Failed"), [pod("a", end=9)], False),  # the runtime sets the number of nodes
        (job(resumed=900, generation=2), [pod("a", created=901, bound=902, end=999)], True),  # was in a queue
        (job(resumed=900, generation=4), [pod("a", created=901, bound=902, end=999)], False),  # may have been preempted
        (job(resumed=900, generation=3), [pod("a", end=99), pod("b", created=901, bound=902, end=999)], True),
        (job(), [pod("i", end=900, step="dataset-initializer"), pod("a", created=901, bound=902, end=999)], True),
        (job(), [pod("i", end=500, step="dataset-initializer"), pod("a", created=901, bound=902, end=999)], False),
    ],
)
def test_the_usage_is_complete_only_if_no_pod_can_be_missing(trainjob, pods, complete):
    assert compute_usage(trainjob, pods, NOW).complete is complete


PODS = st.lists(
    st.builds(
        lambda uid, bound, length, gpus, rank: pod(
            str(uid), 0, bound, None if length is None else bound + length, gpus=gpus, rank=rank
        ),
        st.integers(0, 8),
        st.integers(1, 3000),
        st.none() | st.integers(0, 3000),
        st.integers(0, 8),
        st.integers(0, 3),
    ),
    max_size=8,
)


@given(PODS, st.randoms(use_true_random=False))
def test_order_and_repetition_of_pods_do_not_matter(pods, random):
    """Two waiters and a list return the same pod several times."""
    unique = list({each["metadata"]["uid"]: each for each in pods}.values())
    mixed = [*unique, *unique]
    random.shuffle(mixed)
    assert compute_usage(job(), mixed, NOW) == compute_usage(job(), unique, NOW)


@given(PODS)
def test_the_usage_is_the_sum_over_the_pods(pods):
    unique = list({each["metadata"]["uid"]: each for each in pods}.values())
    alone = sum((compute_usage(job(), [each], NOW) for each in unique), Usage())
    together = compute_usage(job(), unique, NOW)
    assert (together.pod_seconds, together.gpu_seconds) == (alone.pod_seconds, alone.gpu_seconds)


@given(PODS, st.integers(0, 7000), st.integers(0, 7000))
def test_the_usage_never_decreases_with_time(pods, first, second):
    early, late = sorted((first, second))
    usages = [compute_usage(job(), pods, START + timedelta(seconds=each)) for each in (early, late)]
    assert usages[0].pod_seconds <= usages[1].pod_seconds


@given(PODS)
def test_the_stored_usage_is_the_same(pods):
    usage = compute_usage(job(), pods, NOW)
    assert Usage.from_dict(json.loads(json.dumps(usage.to_dict()))) == usage


def test_the_first_start_is_the_earliest_binding_of_a_pod():
    assert get_first_start([]) == get_first_start([pod("a", bound=None)]) == ""
    assert get_first_start([pod("a", bound=9), pod("b", bound=None), pod("c", bound=3)]) == at(3)


def test_the_restarts_of_all_containers_are_counted():
    assert count_restarts([]) == 0
    assert count_restarts([pod("a", restarts=2), pod("b"), pod("c", restarts=1)]) == 3


def test_an_outcome_has_the_seconds_before_and_after_the_first_start():
    outcome = build_outcome(job(), derive_verdict(job()), Evidence(FinalPods([pod("a", bound=600, restarts=2)])))
    assert outcome.restarts == 2
    assert (outcome.queued_seconds, outcome.run_seconds, outcome.seconds) == (600.0, 3000.0, 3600.0)
    assert Outcome.from_dict(outcome.to_dict()) == outcome
    unknown = build_outcome(job(phase=None), derive_verdict(None))
    assert (unknown.queued_seconds, unknown.run_seconds, unknown.restarts) == (None, None, 0)


def test_the_outcome_carries_usage_and_labels():
    usage = Usage(10.0, {GPU: 20.0})
    outcome = build_outcome(job(), Verdict(Phase.COMPLETE), Evidence(usage=usage))
    assert (outcome.pod_seconds, outcome.gpu_seconds, outcome.labels) == (10.0, 20.0, {"team": "a"})
    stored = json.loads(json.dumps(outcome.to_dict()))
    assert stored["usage"]["gpu_seconds"] == 20.0
    assert Outcome.from_dict(stored) == outcome


def test_an_outcome_of_an_older_version_has_no_usage():
    stored = build_outcome(job(), Verdict(Phase.COMPLETE)).to_dict()
    del stored["usage"], stored["labels"]
    outcome = Outcome.from_dict(stored)
    assert (outcome.usage, outcome.gpu_seconds, outcome.pod_seconds, outcome.labels) == (None, None, None, {})


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 10**400, "3", True, None])
def test_a_usage_with_wrong_seconds_is_refused(value):
    stored = build_outcome(job(), Verdict(Phase.COMPLETE), Evidence(usage=Usage())).to_dict()
    stored["usage"]["pod_seconds"] = value
    with pytest.raises(IncompatibleVersion, match="seconds must be"):
        Outcome.from_dict(stored)
