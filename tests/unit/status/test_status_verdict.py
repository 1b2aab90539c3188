"""Tests of the verdict: tables of states that a real control plane had, and properties of any state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.status import Phase, derive_verdict


def job(*conditions, jobs=(), labels=None, suspend=None, deleting=False):
    """Return a TrainJob `tune`; conditions are (type, status, reason, message)."""
    metadata = {"name": "tune", "labels": labels or {}}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec = {} if suspend is None else {"suspend": suspend}
    keys = ("type", "status", "reason", "message")
    status = {"conditions": [dict(zip(keys, c, strict=True)) for c in conditions], "jobsStatus": list(jobs)}
    return {"metadata": metadata, "spec": spec, "status": status}


def counters(name, **counts):
    return {"name": name, "active": 0, "ready": 0, "succeeded": 0, "failed": 0, "suspended": 0, **counts}


NODE_FAILED = "jobset failed due to one or more job failures (first failed job: tune-node-0)"
DATASET_FAILED = "jobset failed due to one or more job failures (first failed job: tune-dataset-initializer-0)"
COMPLETE = ("Complete", "True", "AllJobsCompleted", "jobset completed successfully")


@pytest.mark.parametrize(
    ("given_job", "phase", "step"),
    [
        (None, Phase.DELETED, ""),
        ({"metadata": {"name": "tune"}}, Phase.PENDING, ""),
        ({"metadata": {"name": "tune"}, "status": None}, Phase.PENDING, ""),
        (job(jobs=[counters("node")]), Phase.PENDING, ""),
        (job(jobs=[counters("node", active=1)]), Phase.STARTING, "node"),
        (job(jobs=[counters("node", active=1, ready=1)]), Phase.RUNNING, "node"),
        (job(jobs=[counters("launcher", active=1), counters("node", active=1, ready=1)]), Phase.STARTING, "launcher"),
        (
            job(jobs=[counters("node"), counters("dataset-initializer", active=1, ready=1)]),
            Phase.INITIALIZING,
            "dataset-initializer",
        ),
        (job(jobs=[counters("node"), counters("model-initializer", succeeded=1)]), Phase.STARTING, ""),
        (job(COMPLETE), Phase.COMPLETE, ""),
        (job(("Suspended", "False", "Resumed", "TrainJob is resumed"), COMPLETE), Phase.COMPLETE, ""),
        (job(COMPLETE, ("Suspended", "True", "Suspended", "TrainJob is suspended")), Phase.COMPLETE, ""),
        (job(COMPLETE, deleting=True), Phase.COMPLETE, ""),
        (job(("Failed", "True", "FailedJobs", NODE_FAILED)), Phase.FAILED, "node"),
        (job(("Failed", "True", "FailedJobs", DATASET_FAILED)), Phase.FAILED, "dataset-initializer"),
        (job(("Failed", "True", "DeadlineExceeded", "TrainJob exceeded its active deadline")), Phase.FAILED, ""),
        (job(("Failed", "False", "x", "y"), jobs=[counters("node", active=1)]), Phase.STARTING, "node"),
        (job(("Suspended", "True", "Suspended", "TrainJob is suspended")), Phase.SUSPENDED, ""),
        (job(suspend=True), Phase.SUSPENDED, ""),
        (
            job(("Suspended", "True", "Suspended", "x"), labels={"kueue.x-k8s.io/queue-name": "gpu"}),
            Phase.QUEUED,
            "",
        ),
        (
            job(("Suspended", "False", "Resumed", "x"), jobs=[counters("node", active=1, ready=1)]),
            Phase.RUNNING,
            "node",
        ),
        (job(deleting=True, jobs=[counters("node", active=1, ready=1)]), Phase.DELETED, ""),
    ],
)
def test_phase(given_job, phase, step):
    verdict = derive_verdict(given_job)
    assert (verdict.phase, verdict.step) == (phase, step)


def test_reason_and_message_are_the_conditions():
    verdict = derive_verdict(job(("Failed", "True", "FailedJobs", NODE_FAILED)))
    assert verdict.reason == "FailedJobs"
    assert verdict.message == NODE_FAILED
    assert str(verdict) == f"Failed [node] (FailedJobs: {NODE_FAILED})"


def test_a_multikueue_job_is_pending_until_its_cluster_reports_a_status():
    elsewhere = {"metadata": {"name": "tune"}, "spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}
    assert (derive_verdict(elsewhere).phase, derive_verdict(elsewhere).reason) == (Phase.PENDING, "ManagedElsewhere")
    mirrored = {**elsewhere, "status": {"jobsStatus": [{"name": "node", "active": 1, "ready": 1}]}}
    assert derive_verdict(mirrored).phase is Phase.RUNNING


def test_queued_names_the_queue():
    assert "gpu-team" in derive_verdict(job(suspend=True, labels={"kueue.x-k8s.io/queue-name": "gpu-team"})).message


condition = st.tuples(
    st.sampled_from(["Suspended", "Complete", "Failed", "Unknown"]),
    st.sampled_from(["True", "False", "Unknown"]),
    st.text(max_size=5),
    st.text(max_size=20),
)
job_status = st.builds(
    counters,
    st.sampled_from(["node", "launcher", "dataset-initializer", "model-initializer"]),
    active=st.integers(0, 1),
    ready=st.integers(0, 1),
    succeeded=st.integers(0, 1),
    suspended=st.integers(0, 1),
)


@given(st.lists(condition, max_size=4), st.lists(job_status, max_size=4), st.booleans(), st.booleans())
def test_failed_has_priority_over_complete_and_both_over_everything_else(conditions, jobs, suspend, deleting):
    verdict = derive_verdict(job(*conditions, jobs=jobs, suspend=suspend, deleting=deleting))
    true = {kind for kind, status, _, _ in conditions if status == "True"}
    assert (verdict.phase is Phase.FAILED) == ("Failed" in true)
    assert (verdict.phase is Phase.COMPLETE) == ("Complete" in true and "Failed" not in true)
    if deleting and not true & {"Failed", "Complete"}:
        assert verdict.phase is Phase.DELETED
    assert verdict.phase.finished == (verdict.phase in (Phase.FAILED, Phase.COMPLETE, Phase.DELETED))


def pod(step, phase, *, ready=False, deleting=False):
    """Return a pod as Kubernetes shows it; Trainer 2.0 sets no counters."""
    deletion = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
    metadata = {"labels": {"jobset.sigs.k8s.io/replicatedjob-name": step}, **deletion}
    return {"metadata": metadata, "status": {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]}}


READY, PENDING = pod("node", "Running", ready=True), pod("node", "Pending")
DONE = [pod(f"{kind}-initializer", "Succeeded") for kind in ("dataset", "model")]


@pytest.mark.parametrize(
    ("pods", "nodes", "phase", "step"),
    [
        ([], None, Phase.PENDING, ""),
        ([pod("dataset-initializer", "Pending")], None, Phase.INITIALIZING, "dataset-initializer"),
        ([DONE[0], pod("model-initializer", "Running", ready=True)], None, Phase.INITIALIZING, "model-initializer"),
        (DONE, None, Phase.STARTING, ""),
        ([*DONE, PENDING], None, Phase.STARTING, "node"),
        ([*DONE, READY], None, Phase.RUNNING, "node"),
        ([READY], 2, Phase.STARTING, "node"),
        ([READY, PENDING], 2, Phase.STARTING, "node"),
        ([READY, pod("node", "Succeeded")], 2, Phase.RUNNING, "node"),
        ([pod("node", "Running", ready=True, deleting=True)], None, Phase.PENDING, ""),
        ([pod("launcher", "Pending"), READY], None, Phase.STARTING, "launcher"),
        ([pod("launcher", "Running", ready=True), READY], None, Phase.RUNNING, "launcher"),
        ([{"metadata": {}}], None, Phase.STARTING, ""),
    ],
)
def test_phase_without_counters(pods, nodes, phase, step):
    bare = {"metadata": {"name": "tune"}, "spec": {"trainer": {"numNodes": nodes}}}
    assert (derive_verdict(bare, pods).phase, derive_verdict(bare, pods).step) == (phase, step)


def test_the_status_of_the_trainjob_has_priority_over_its_pods():
    assert derive_verdict(job(COMPLETE, jobs=[]), [READY]).phase is Phase.COMPLETE
    assert derive_verdict(job(suspend=True), [READY]).phase is Phase.SUSPENDED
    assert derive_verdict(job(jobs=[counters("node", active=1)]), [READY]).phase is Phase.STARTING


@pytest.mark.parametrize(
    ("launcher", "phase", "step"),
    [
        ({}, Phase.STARTING, ""),
        ({"active": 1}, Phase.STARTING, "launcher"),
        ({"active": 1, "ready": 1}, Phase.RUNNING, "launcher"),
    ],
)
def test_nodes_that_wait_for_their_launcher_count_as_starting(launcher, phase, step):
    found = derive_verdict(job(jobs=[counters("node", active=1, ready=1), counters("launcher", **launcher)]))
    assert (found.phase, found.step) == (phase, step)
