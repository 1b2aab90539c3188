"""Tests of the failures that are found in pods, and of the outcome that has them."""

from __future__ import annotations

import json

import pytest

from trainjob.errors import CommandFailed, DeadlineExceeded, Interrupted, JobDeleted, JobFailed, OutOfMemory
from trainjob.status import (
    Category,
    Evidence,
    FinalPods,
    Outcome,
    Phase,
    Progress,
    Verdict,
    build_outcome,
    derive_verdict,
    find_failures,
    find_restarts,
    pending_reasons,
)
from trainjob.status.watchdog import RankState, WatchdogReport

JOB = {
    "metadata": {"name": "tune", "namespace": "ml", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "status": {
        "conditions": [
            {
                "type": "Failed",
                "status": "True",
                "reason": "FailedJobs",
                "message": "jobset failed (first failed job: tune-node-0)",
                "lastTransitionTime": "2026-01-01T00:01:30Z",
            }
        ]
    },
}


def pod(rank, *, state=None, last=None, restarts=0, reason=None, step="node"):
    container = {"name": step, "restartCount": restarts, "state": state or {}, "lastState": last or {}}
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "tune",
        "jobset.sigs.k8s.io/replicatedjob-name": step,
        "batch.kubernetes.io/job-completion-index": str(rank),
    }
    status = {"containerStatuses": [container]}
    if reason:
        status["reason"] = reason
    return {"metadata": {"name": f"tune-{step}-0-{rank}-abcde", "labels": labels}, "spec": {}, "status": status}


def terminated_state(code, at="2026-01-01T00:01:00Z", reason="Error"):
    return {"terminated": {"exitCode": code, "finishedAt": at, "reason": reason}}


def test_failures_are_sorted_by_their_end():
    pods = [
        pod(0, state=terminated_state(1, "2026-01-01T00:01:09Z")),
        pod(1, state=terminated_state(3, "2026-01-01T00:01:00Z")),
        pod(2, state=terminated_state(0)),
    ]
    assert [(f.rank, f.exit_code) for f in find_failures(pods)] == [(1, 3), (0, 1)]


def test_of_two_ends_in_the_same_second_the_deleted_pod_is_last():
    """The Job controller deletes the other pods after a failure, and a training may exit with 1 on SIGTERM."""
    deleted, failed = pod(0, state=terminated_state(1)), pod(1, state=terminated_state(3))
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    assert [f.rank for f in find_failures([deleted, failed])] == [1, 0]
    deleted["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    ]
    assert [f.rank for f in find_failures([deleted, failed])] == [0, 1]


@pytest.mark.parametrize("ended", [True, False])
def test_a_drained_node_is_the_cause_of_the_other_ranks_failures(ended):
    """The rank on the other node loses its peer and ends first; the drained pod continues for its grace period."""
    peer, drained = pod(0, state=terminated_state(1, "2026-01-01T00:01:05Z")), pod(1)
    if ended:
        drained = pod(1, state=terminated_state(1, "2026-01-01T00:01:20Z"))
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    drained["status"]["conditions"] = [{**disrupted, "lastTransitionTime": "2026-01-01T00:01:00Z"}]
    replacement = pod(1, state=terminated_state(143, "2026-01-01T00:01:06Z"))
    for each, created in ((peer, "00:00:00"), (drained, "00:00:00"), (replacement, "00:01:01")):
        each["metadata"]["creationTimestamp"] = f"2026-01-01T{created}Z"
    outcome = build_outcome(JOB, derive_verdict(JOB), Evidence(FinalPods([peer, drained, replacement])))
    assert (outcome.category, outcome.rank) == (Category.INFRASTRUCTURE, 1)
    # A pod that was created after the disruption, in a restart of the job, fails for a reason of its own.
    peer["metadata"]["creationTimestamp"] = "2026-01-01T00:01:02Z"
    outcome = build_outcome(JOB, derive_verdict(JOB), Evidence(FinalPods([peer, drained, replacement])))
    assert (outcome.category, outcome.rank) == (Category.APPLICATION, 0)
    # So does a rank that had failed before the disruption.
    peer["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    peer["status"]["containerStatuses"][0]["state"] = terminated_state(1, "2026-01-01T00:00:59Z")
    outcome = build_outcome(JOB, derive_verdict(JOB), Evidence(FinalPods([peer, drained, replacement])))
    assert (outcome.category, outcome.rank) == (Category.APPLICATION, 0)


def test_a_restarted_container_counts_with_its_last_failure():
    [failure] = find_failures([pod(0, state={"running": {}}, last=terminated_state(3), restarts=2)])
    assert (failure.exit_code, failure.count, failure.restarted) == (3, 2, True)
    [failure] = find_failures([pod(0, state=terminated_state(4), last=terminated_state(3), restarts=2)])
    assert (failure.exit_code, failure.count, failure.restarted) == (4, 3, False)
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    [failure] = find_failures([pod(0, state=waiting, last=terminated_state(4), restarts=2)])
    assert (failure.exit_code, failure.count, failure.restarted) == (4, 3, False)


def test_a_container_that_succeeded_after_a_restart_is_no_failure():
    recovered = pod(0, state=terminated_state(0), last=terminated_state(3), restarts=1)
    assert find_failures([recovered]) == []
    [restart] = find_restarts([recovered])
    assert (restart.exit_code, restart.count, restart.restarted) == (3, 1, True)


@pytest.mark.parametrize(
    ("state", "last", "restarts"),
    [
        (terminated_state(0), None, 0),
        (terminated_state(0), terminated_state(0), 2),  # init containers run again in a new sandbox
        (terminated_state(0), terminated_state(255, reason="Unknown"), 1),  # its node restarted
        (terminated_state(0), terminated_state(137, reason="ContainerStatusUnknown"), 1),
        (terminated_state(3), terminated_state(3), 1),  # it failed again
    ],
)
def test_restarts_that_are_not_restarts_after_a_failure(state, last, restarts):
    assert find_restarts([pod(0, state=state, last=last, restarts=restarts)]) == []


def test_a_sidecar_neither_fails_nor_restarts():
    """The kubelet restarts it whatever its exit code is, and ends it after the other containers."""
    with_sidecar = pod(0, state=terminated_state(0))
    with_sidecar["spec"] = {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}, {"name": "setup"}]}
    proxy = {"name": "proxy", "restartCount": 2, "state": terminated_state(143), "lastState": terminated_state(1)}
    setup = {"name": "setup", "restartCount": 1, "state": terminated_state(0), "lastState": terminated_state(1)}
    with_sidecar["status"]["initContainerStatuses"] = [proxy, setup]
    assert find_failures([with_sidecar]) == []
    assert [each.container for each in find_restarts([with_sidecar])] == ["setup"]


@pytest.mark.parametrize(
    "line",
    [
        "python: Error while finding module specification for 'trainjob.programs.fetch' (ModuleNotFoundError)",
        "/usr/bin/python3.12: No module named trainjob.frameworks.trl.pod",
        "fetch: failed: image cannot be trainjob 0.1.0: trainjob 0.2.0 created this TrainJob: use another image",
    ],
)
def test_an_image_without_the_program_is_named_in_the_hint(line):
    evidence = Evidence(FinalPods([pod(0, state=terminated_state(1))]), log_tail=["starting", line])
    outcome = build_outcome(JOB, derive_verdict(JOB), evidence)
    assert (outcome.category, outcome.retryable) == (Category.PROGRAM, False)
    with pytest.raises(CommandFailed, match=r"give an image with the version of trainjob .* or program='packed'"):
        outcome.raise_for_failure()


def test_a_module_that_the_users_code_lacks_is_a_failure_of_the_application():
    line = "ModuleNotFoundError: No module named 'trainjob'"
    outcome = build_outcome(
        JOB, derive_verdict(JOB), Evidence(FinalPods([pod(0, state=terminated_state(1))]), log_tail=[line])
    )
    assert outcome.category is Category.APPLICATION


def test_explain_has_step_rank_exit_code_reason_and_log():
    outcome = build_outcome(
        JOB,
        derive_verdict(JOB),
        Evidence(
            FinalPods([pod(1, state=terminated_state(3))]),
            events=["BackoffLimitExceeded: Job has reached the specified backoff limit"],
            log_tail=["loading data", "ValueError: bad row 7"],
        ),
    )
    text = outcome.explain()
    for expected in (
        "ml/tune",
        "step node",
        "rank 1",
        "exit code 3",
        "FailedJobs",
        "BackoffLimitExceeded",
        "bad row 7",
    ):
        assert expected in text
    assert outcome.category is Category.APPLICATION
    assert outcome.seconds == 90.0


@pytest.mark.parametrize(
    ("action", "is_alarm", "category"),
    [
        ("fail", True, Category.HUNG),
        ("restart", True, Category.HUNG),
        ("report", True, Category.APPLICATION),
        ("fail", False, Category.APPLICATION),
    ],
)
def test_a_pod_that_fails_because_another_hangs_is_not_the_cause(action, is_alarm, category):
    """The watchdog of node 1 ends its ranks, and those of node 0, which fail first, have only lost them."""
    states = (RankState(3, 5, 6.0, "stopped"), RankState(0, 5, 6.0, collective="all_reduce"))
    reports = [WatchdogReport(1, 2, states[:1], is_alarm, action), WatchdogReport(0, 2, states[1:], False, action)]
    tail = ["RuntimeError: Connection closed by peer"]
    pods = [pod(rank, state=terminated_state(1)) for rank in (0, 1)]
    for rank, each in enumerate(pods):
        each["spec"] = {"nodeName": f"gpu-{rank}"}
    outcome = build_outcome(JOB, derive_verdict(JOB), Evidence(FinalPods(pods), log_tail=tail, watchdogs=reports))
    assert (outcome.category, outcome.hung_on) == (category, ("gpu-1",))
    assert Outcome.from_dict(json.loads(json.dumps(outcome.to_dict()))) == outcome
    assert outcome.is_interruption == (action == "restart")


RESTART_LIMIT = Verdict(Phase.FAILED, "RestartLimitExceeded", "container node failed 1 time; max_restarts is 0", "node")


@pytest.mark.parametrize(
    ("log_tail", "cause"),
    [
        (
            ["trl: failed: dataset_path cannot be a dataset with instruction: sft needs prompt", "bye"],
            "dataset_path cannot be a dataset with instruction: sft needs prompt",
        ),
        (["[node-1] fetch: failed: no space", "ValueError: row 7"], "no space"),
        (["Traceback (most recent call last):", "KeyError: 1", "ValueError: row 7"], "ValueError: row 7"),
        (["[rank0]: torch.OutOfMemoryError: CUDA out of memory", ""], "torch.OutOfMemoryError: CUDA out of memory"),
        (
            ["trainjob.errors.Diverged: the training diverged", "torch.multiprocessing.errors.ChildFailedError: "],
            "trainjob.errors.Diverged: the training diverged",
        ),
        (["ValueError: " + "x" * 900], "ValueError: " + "x" * 488 + "…"),
    ],
)
def test_the_first_line_of_a_failure_is_the_reason_that_the_step_printed(log_tail, cause):
    evidence = Evidence(FinalPods([pod(0, state=terminated_state(2))]), log_tail=log_tail)
    first, second, *_ = build_outcome(JOB, RESTART_LIMIT, evidence).explain().splitlines()
    assert first == f"TrainJob ml/tune failed in step node, rank 0, exit code 2: {cause}"
    assert second == "  RestartLimitExceeded: container node failed 1 time; max_restarts is 0"


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("Error", "step 7 of 9"),
        ("Error", "2026-01-01 WARNING ConnectionError: tried again"),
        ("Error", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "),
        ("OOMKilled", "ValueError: row 7"),  # the kernel ended the container, whatever it printed before
        ("Evicted", "trl: failed: interrupted"),
    ],
)
def test_without_a_reason_of_the_step_the_first_line_is_that_of_the_cluster(reason, line):
    evidence = Evidence(FinalPods([pod(0, state=terminated_state(2, reason=reason))]), log_tail=[line])
    first, *_ = build_outcome(JOB, RESTART_LIMIT, evidence).explain().splitlines()
    assert "exit code 2: RestartLimitExceeded: container node failed 1 time" in first


@pytest.mark.parametrize(
    ("state", "reason", "category", "error", "retryable"),
    [
        (terminated_state(1), None, Category.APPLICATION, CommandFailed, False),
        (terminated_state(137, reason="OOMKilled"), None, Category.OUT_OF_MEMORY, OutOfMemory, False),
        (terminated_state(137), "Evicted", Category.INFRASTRUCTURE, Interrupted, True),
    ],
)
def test_category(state, reason, category, error, retryable):
    outcome = build_outcome(JOB, derive_verdict(JOB), Evidence(FinalPods([pod(0, state=state, reason=reason)])))
    assert (outcome.category, outcome.retryable) == (category, retryable)
    with pytest.raises(error) as raised:
        outcome.raise_for_failure()
    assert isinstance(raised.value, JobFailed)
    assert raised.value.retryable is retryable
    assert raised.value.outcome is outcome


def test_deadline_and_deletion():
    deadline = build_outcome(JOB, Verdict(Phase.FAILED, "DeadlineExceeded", "TrainJob exceeded its active deadline"))
    assert deadline.category is Category.DEADLINE
    with pytest.raises(DeadlineExceeded):
        deadline.raise_for_failure()
    deleted = build_outcome(JOB, derive_verdict(None))
    with pytest.raises(JobDeleted):
        deleted.raise_for_failure()


def test_success_has_no_failure_even_after_restarts():
    complete = Verdict(Phase.COMPLETE, "AllJobsCompleted")
    outcome = build_outcome(
        JOB, complete, Evidence(FinalPods([pod(0, state={"running": {}}, last=terminated_state(3), restarts=1)]))
    )
    assert outcome.succeeded
    assert outcome.exit_code is None
    outcome.raise_for_failure()


def test_the_description_of_a_failure_has_the_last_progress():
    evidence = Evidence(FinalPods([pod(1, state=terminated_state(3))]), progress=Progress(84, total=168, loss=0.2))
    text = build_outcome(JOB, derive_verdict(JOB), evidence).explain()
    assert "\n  last progress: step 84/168 (50 %), loss 0.2" in text


def test_an_outcome_is_the_same_after_conversion_to_json():
    progress = Progress(step=84, total=168, epoch=2, epochs=4, loss=0.2)
    outcome = build_outcome(
        JOB,
        derive_verdict(JOB),
        Evidence(FinalPods([pod(1, state=terminated_state(3))]), log_tail=["x"], progress=progress),
    )
    assert Outcome.from_dict(json.loads(json.dumps(outcome.to_dict()))) == outcome


def test_an_outcome_has_the_metrics_of_its_progress_if_there_are_any():
    progress = Progress(step=3, loss=0.5, metrics={"reward": 1.5}, carried=frozenset({"loss"}))
    values = json.loads(json.dumps(build_outcome(JOB, derive_verdict(JOB), Evidence(progress=progress)).to_dict()))
    without_totals = dict.fromkeys(("total", "epoch", "epochs"))
    stored = {"step": 3, **without_totals, "loss": 0.5, "unit": "step"}
    assert values["progress"] == {**stored, "metrics": {"reward": 1.5}}
    assert Outcome.from_dict(values).progress == Progress(step=3, loss=0.5, metrics={"reward": 1.5})
    assert (
        build_outcome(JOB, derive_verdict(JOB), Evidence(progress=Progress(3, loss=0.5))).to_dict()["progress"]
        == stored
    )


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"step": 3, "total": 9, "epoch": 1, "epochs": 3, "loss": 0.5}, Progress(3, 9, 1, 3, 0.5)),  # before 2.0
        ({"step": 3, "metrics": {"a": 1.5, "b": "x", "c": True}, "later": 1}, Progress(3, metrics={"a": 1.5})),
        ({"step": 3, "metrics": None, "carried": ["loss"]}, Progress(3)),
    ],
)
def test_an_outcome_of_another_release_is_read(stored, expected):
    values = {**build_outcome(JOB, derive_verdict(JOB)).to_dict(), "progress": stored}
    assert Outcome.from_dict(values).progress == expected


def test_pending_reasons_leave_out_normal_states():
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}}
    creating = {"waiting": {"reason": "ContainerCreating"}}
    unschedulable = pod(2)
    unschedulable["status"] = {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
            }
        ]
    }
    assert pending_reasons([pod(0, state=waiting), pod(1, state=creating), unschedulable]) == [
        'node-0: ImagePullBackOff: Back-off pulling image "x"',
        "node-2: Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
    ]
