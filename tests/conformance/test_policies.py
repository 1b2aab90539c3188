"""Runtimes with policies: the rule that ended a job, restarts of all pods, and success rules.

The runtimes are those of manifests/runtimes, created in the test's namespace.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml

from tests.conformance.backends import ROOT
from tests.conformance.runtimes import create_own_runtime, create_runtime, never_restarted_job, replicated_job
from tests.support.polling import wait_until
from tests.support.trainjobs import IMAGE, JOBSET, list_pods
from trainjob import CustomTrainerContainer, RunKey, Runtime, TrainJob, WorkspaceVolume
from trainjob.client import LogLine, LogNotice
from trainjob.errors import CommandFailed, NeverStarted
from trainjob.lifecycle import Listener, submit, wait
from trainjob.status import Category, Phase

pytestmark = [pytest.mark.since("2.2"), pytest.mark.only("laptop", "controlplane")]
FINAL = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}


@pytest.fixture
def create_shipped_runtime(client, namespace):
    """Return a function that creates a runtime of manifests/runtimes."""

    def create(name: str) -> Runtime:
        found = yaml.safe_load((ROOT / "manifests" / "runtimes" / f"{name}.yaml").read_text())
        assert found["metadata"]["name"] == name
        create_runtime(client, namespace, found["spec"], name)
        return Runtime(name=name, kind="TrainingRuntime")

    return create


@pytest.fixture
def run_script(cluster, unique):
    """Return a function that runs a script, and returns its outcome and log lines."""

    def run(runtime: Runtime, script: str, nodes: int = 1, **more: Any) -> tuple[Any, list[str]]:
        lines: list[LogLine] = []
        trainer = CustomTrainerContainer(image=IMAGE, command=["sh", "-c", script], num_nodes=nodes)
        key = RunKey("conformance", "policies", unique, "run-1")
        reference = submit(cluster, TrainJob(trainer=trainer, runtime=runtime, **more), key)
        outcome = wait(cluster, reference, listener=Listener(on_log=lines.append))
        return outcome, [str(line) for line in lines if not isinstance(line, LogNotice)]

    return run


@pytest.fixture
def record_feature(evidence, target):
    """Return a function that records a feature as tested here."""

    def record(row: str = "failure policies") -> None:
        evidence("features", row=row, cell="real run" if target.backend == "laptop" else "control plane")

    return record


def test_pod_failure_policy(client, namespace, run_script, record_feature):
    """A Job's podFailurePolicy can end the job at once. The outcome names the rule and is not retryable."""
    create_own_runtime(client, namespace, never_restarted_job(backoffLimit=3, podFailurePolicy={"rules": [FINAL]}))
    outcome, _ = run_script(Runtime(name="own", kind="TrainingRuntime"), "echo why; exit 42")
    assert (outcome.reason, outcome.category, outcome.exit_code) == ("PodFailurePolicy", Category.POLICY, 42)
    assert "failed with exit code 42 matching FailJob rule at index 0" in outcome.message
    assert (outcome.log_tail, outcome.retryable) == (("why",), False)
    with pytest.raises(CommandFailed, match="a failure policy of the runtime ended the TrainJob"):
        outcome.raise_for_failure()
    assert len(list_pods(client, namespace, outcome.job)) == 1
    record_feature()


def test_exit_codes_without_a_rule(client, namespace, run_script):
    """An exit code without a rule counts towards the backoffLimit."""
    create_own_runtime(client, namespace, never_restarted_job(backoffLimit=1, podFailurePolicy={"rules": [FINAL]}))
    outcome, _ = run_script(Runtime(name="own", kind="TrainingRuntime"), "exit 3")
    assert (outcome.reason, outcome.category, outcome.exit_code) == ("FailedJobs", Category.APPLICATION, 3)
    assert len(list_pods(client, namespace, outcome.job)) == 2


def test_failure_policy_of_the_jobset(client, namespace, run_script, create_shipped_runtime, record_feature):
    """torch-restarting ends a job with a final exit code without a restart, and the outcome names the rule."""
    outcome, _ = run_script(create_shipped_runtime("torch-restarting"), "exit 2")
    assert (outcome.reason, outcome.category) == ("FailJobSetFailurePolicyAction", Category.POLICY)
    assert "rule final of the runtime's failurePolicy: FailJobSet" in outcome.message
    assert "failed with exit code 2 matching FailJob rule at index 1" in outcome.message
    assert (outcome.step, outcome.exit_code, outcome.retryable) == ("node", 2, False)
    record_feature()


def test_all_restarts_are_used(client, namespace, run_script, create_shipped_runtime, record_feature):
    """torch-restarting restarts a failing job three times. The outcome names the restarts and the last failure."""
    outcome, lines = run_script(create_shipped_runtime("torch-restarting"), "echo again; exit 5")
    assert (outcome.reason, outcome.category, outcome.exit_code) == ("ReachedMaxRestarts", Category.APPLICATION, 5)
    assert "restarted 3 times, maxRestarts is 3" in outcome.message
    assert set(outcome.log_tail) == {"again"}
    assert set(lines) == {"[node-0] again"}  # four times, unless a log is deleted before it is read
    record_feature()


def test_all_nodes_restart_together(client, namespace, run_script, create_shipped_runtime, tmp_path, record_feature):
    """If one node of a job on torch-restarting fails, all nodes restart together, and the job can succeed."""
    script = """
        echo run; test -e /workspace/begun && exit 0
        test "$JOB_COMPLETION_INDEX" = 1 || exec sleep 60
        touch /workspace/begun; exit 1
    """
    outcome, lines = run_script(
        create_shipped_runtime("torch-restarting"), script, 2, workspace=WorkspaceVolume(node_path=str(tmp_path))
    )
    assert outcome.phase is Phase.COMPLETE
    assert set(lines) == {"[node-0] run", "[node-1] run"}
    assert client.get("JobSet", namespace, outcome.job)["status"]["restarts"] == 1
    record_feature()


def test_a_lost_node_counts_towards_no_limit(client, namespace, run_script, create_shipped_runtime, tmp_path):
    """The loss of a machine restarts a job on torch-restarting, and counts towards no limit."""
    script = "test -e /workspace/begun && exit 0; touch /workspace/begun; exec sleep 60"
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(
            run_script,
            create_shipped_runtime("torch-restarting"),
            script,
            workspace=WorkspaceVolume(node_path=str(tmp_path)),
        )
        wait_until((tmp_path / "begun").exists, 300)
        [pod] = client.list("Pod", namespace, labelSelector=JOBSET)
        fault = {"metadata": {"annotations": {"local.trainjob.dev/fault": "Evicted"}}}
        client.patch("Pod", namespace, pod["metadata"]["name"], fault)
        outcome, _ = end.result(300)
    assert outcome.phase is Phase.COMPLETE
    status = client.get("JobSet", namespace, outcome.job)["status"]
    assert (status["restarts"], status.get("restartsCountTowardsMax", 0)) == (1, 0)


def test_success_policy_of_rank_0(client, namespace, run_script, create_shipped_runtime, record_feature):
    """A job on torch-rank-0-decides is Complete when its first node is complete. The other nodes are ended."""
    outcome, _ = run_script(
        create_shipped_runtime("torch-rank-0-decides"), 'test "$JOB_COMPLETION_INDEX" = 0 || exec sleep 60', 2
    )
    assert outcome.phase is Phase.COMPLETE
    job = client.get("Job", namespace, f"{outcome.job}-node-0")
    [met] = [one for one in job["status"]["conditions"] if one["type"] == "SuccessCriteriaMet"]
    assert (met["reason"], met["message"]) == ("SuccessPolicy", "Matched rules at index 0")
    record_feature()


@pytest.mark.only("controlplane")
def test_invalid_pod_failure_policy(client, namespace, run_script):
    """A podFailurePolicy for pods that restart in place is rejected by the API server, and that is reported."""
    create_own_runtime(client, namespace, replicated_job(podFailurePolicy={"rules": [FINAL]}))
    outcome, _ = run_script(Runtime(name="own", kind="TrainingRuntime"), "true")
    with pytest.raises(NeverStarted, match=r"restartPolicy.*only.*Never"):
        outcome.raise_for_failure()
