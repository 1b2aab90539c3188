"""Runtimes with policies of their own: which rule ended a job, restarts of all its pods, and what counts as success.

The runtimes are those of manifests/runtimes, made in the test's own namespace.
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
from trainjob import CustomTrainerContainer, RunKey, Runtime, TrainJob, Workspace
from trainjob.errors import CommandFailed, NeverStarted
from trainjob.lifecycle import Listener, submit, wait
from trainjob.status import Category, Phase

pytestmark = [pytest.mark.since("2.2"), pytest.mark.only("laptop", "controlplane"), pytest.mark.timeout(300)]
FINAL = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}


@pytest.fixture
def create_shipped_runtime(client, namespace):
    """Makes a runtime of manifests/runtimes."""

    def make(name: str) -> Runtime:
        found = yaml.safe_load((ROOT / "manifests" / "runtimes" / f"{name}.yaml").read_text())
        assert found["metadata"]["name"] == name
        create_runtime(client, namespace, found["spec"], name)
        return Runtime(name=name, kind="TrainingRuntime")

    return make


@pytest.fixture
def run_script(cluster, unique):
    """Runs a script on a runtime; its outcome, and its log's lines."""

    def run(runtime: Runtime, script: str, nodes: int = 1, **more: Any) -> tuple[Any, list[str]]:
        lines: list[str] = []
        trainer = CustomTrainerContainer(image=IMAGE, command=["sh", "-c", script], num_nodes=nodes)
        key = RunKey("conformance", "policies", unique, "run-1")
        reference = submit(cluster, TrainJob(trainer=trainer, runtime=runtime, **more), key)
        outcome = wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(str(line))))
        return outcome, lines

    return run


@pytest.fixture
def record_feature(evidence, target):
    """Notes that a feature was seen here."""

    def show(row: str = "failure policies") -> None:
        evidence("features", row=row, cell="real run" if target.backend == "laptop" else "control plane")

    return show


def test_a_rule_of_the_job(client, namespace, run_script, record_feature):
    """A Job's own rule for an exit code ends the job at once; the outcome names it, and that no retry helps."""
    create_own_runtime(client, namespace, never_restarted_job(backoffLimit=3, podFailurePolicy={"rules": [FINAL]}))
    outcome, _ = run_script(Runtime(name="own", kind="TrainingRuntime"), "echo why; exit 42")
    assert (outcome.reason, outcome.category, outcome.exit_code) == ("PodFailurePolicy", Category.POLICY, 42)
    assert "failed with exit code 42 matching FailJob rule at index 0" in outcome.message
    assert (outcome.log_tail, outcome.retryable) == (("why",), False)
    with pytest.raises(CommandFailed, match="a failure policy of the runtime ended the TrainJob"):
        outcome.raise_for_failure()
    assert len(list_pods(client, namespace, outcome.job)) == 1
    record_feature()


def test_other_exit_codes_count(client, namespace, run_script):
    """An exit code without a rule counts towards the backoffLimit, as without a policy."""
    create_own_runtime(client, namespace, never_restarted_job(backoffLimit=1, podFailurePolicy={"rules": [FINAL]}))
    outcome, _ = run_script(Runtime(name="own", kind="TrainingRuntime"), "exit 3")
    assert (outcome.reason, outcome.category, outcome.exit_code) == ("FailedJobs", Category.APPLICATION, 3)
    assert len(list_pods(client, namespace, outcome.job)) == 2


def test_a_rule_of_the_jobset(client, namespace, run_script, create_shipped_runtime, record_feature):
    """torch-restarting ends a job with a final exit code without a restart, and the outcome names the rule."""
    outcome, _ = run_script(create_shipped_runtime("torch-restarting"), "exit 2")
    assert (outcome.reason, outcome.category) == ("FailJobSetFailurePolicyAction", Category.POLICY)
    assert "rule final of the runtime's failurePolicy: FailJobSet" in outcome.message
    assert "failed with exit code 2 matching FailJob rule at index 1" in outcome.message
    assert (outcome.step, outcome.exit_code, outcome.retryable) == ("node", 2, False)
    record_feature()


def test_restarts_that_are_used_up(client, namespace, run_script, create_shipped_runtime, record_feature):
    """torch-restarting starts a failing job anew three times; the outcome tells that, and how it failed at last."""
    outcome, lines = run_script(create_shipped_runtime("torch-restarting"), "echo again; exit 5")
    assert (outcome.reason, outcome.category, outcome.exit_code) == ("ReachedMaxRestarts", Category.APPLICATION, 5)
    assert "restarted 3 times, maxRestarts is 3" in outcome.message
    assert set(outcome.log_tail) == {"again"}
    assert set(lines) == {"[node-0] again"}  # four times for who is quick enough
    record_feature()


def test_a_restart_of_all(client, namespace, run_script, create_shipped_runtime, tmp_path, record_feature):
    """When one node of a torch-restarting job fails, all of them start anew together, and the job ends well."""
    script = """
        echo run; test -e /workspace/begun && exit 0
        test "$JOB_COMPLETION_INDEX" = 1 || exec sleep 60
        touch /workspace/begun; exit 1
    """
    outcome, lines = run_script(
        create_shipped_runtime("torch-restarting"), script, 2, workspace=Workspace(node_path=str(tmp_path))
    )
    assert outcome.phase is Phase.COMPLETE
    assert set(lines) == {"[node-0] run", "[node-1] run"}
    assert client.get("JobSet", namespace, outcome.job)["status"]["restarts"] == 1
    record_feature()


def test_a_lost_node_does_not_count(client, namespace, run_script, create_shipped_runtime, tmp_path):
    """A pod that its node loses starts a torch-restarting job anew, which counts towards no limit."""
    script = "test -e /workspace/begun && exit 0; touch /workspace/begun; exec sleep 60"
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(
            run_script, create_shipped_runtime("torch-restarting"), script, workspace=Workspace(node_path=str(tmp_path))
        )
        wait_until((tmp_path / "begun").exists, 300)
        [pod] = client.list("Pod", namespace, labelSelector=JOBSET)
        fault = {"metadata": {"annotations": {"local.trainjob.dev/fault": "Evicted"}}}
        client.patch("Pod", namespace, pod["metadata"]["name"], fault)
        outcome, _ = end.result(300)
    assert outcome.phase is Phase.COMPLETE
    status = client.get("JobSet", namespace, outcome.job)["status"]
    assert (status["restarts"], status.get("restartsCountTowardsMax", 0)) == (1, 0)


def test_rank_0_decides(client, namespace, run_script, create_shipped_runtime, record_feature):
    """On torch-rank-0-decides a job is complete when its first node is; the others are ended."""
    outcome, _ = run_script(
        create_shipped_runtime("torch-rank-0-decides"), 'test "$JOB_COMPLETION_INDEX" = 0 || exec sleep 60', 2
    )
    assert outcome.phase is Phase.COMPLETE
    job = client.get("Job", namespace, f"{outcome.job}-node-0")
    [why] = [one for one in job["status"]["conditions"] if one["type"] == "SuccessCriteriaMet"]
    assert (why["reason"], why["message"]) == ("SuccessPolicy", "Matched rules at index 0")
    record_feature()


@pytest.mark.only("controlplane")
def test_a_policy_that_does_not_fit(client, namespace, run_script):
    """A podFailurePolicy for pods that are restarted in place is refused by the API server, and told so."""
    create_own_runtime(client, namespace, replicated_job(podFailurePolicy={"rules": [FINAL]}))
    outcome, _ = run_script(Runtime(name="own", kind="TrainingRuntime"), "true")
    with pytest.raises(NeverStarted, match=r"restartPolicy.*only.*Never"):
        outcome.raise_for_failure()
