"""Runtimes with policies of their own: which rule ended a job, restarts of all its pods, and what counts as success.

The runtimes are those of manifests/runtimes, made in the test's own namespace.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml

from tests.conformance.backends import ROOT
from tests.conformance.runtimes import create_runtime, never, own_runtime, step
from tests.support.polling import until
from tests.support.trainjobs import IMAGE, JOBSET, pods_of
from trainjob import CustomTrainerContainer, RunKey, Runtime, TrainJob, Workspace
from trainjob.errors import CommandFailed, NeverStarted
from trainjob.lifecycle import Listener, submit, wait
from trainjob.status import Category, Phase

pytestmark = [pytest.mark.since("2.2"), pytest.mark.only("laptop", "controlplane"), pytest.mark.timeout(300)]
FINAL = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}


@pytest.fixture
def ours(client, namespace):
    """Makes a runtime of manifests/runtimes."""

    def make(name: str) -> Runtime:
        found = yaml.safe_load((ROOT / "manifests" / "runtimes" / f"{name}.yaml").read_text())
        assert found["metadata"]["name"] == name
        create_runtime(client, namespace, found["spec"], name)
        return Runtime(name=name, kind="TrainingRuntime")

    return make


@pytest.fixture
def run(engine, unique):
    """Runs a script on a runtime; its outcome, and its log's lines."""

    def run(runtime: Runtime, script: str, nodes: int = 1, **more: Any) -> tuple[Any, list[str]]:
        lines: list[str] = []
        trainer = CustomTrainerContainer(image=IMAGE, command=["sh", "-c", script], num_nodes=nodes)
        key = RunKey("conformance", "policies", unique, "run-1")
        reference = submit(engine, TrainJob(trainer=trainer, runtime=runtime, **more), key)
        outcome = wait(engine, reference, listener=Listener(on_log=lambda line: lines.append(str(line))))
        return outcome, lines

    return run


@pytest.fixture
def shown(evidence, target):
    """Notes that a feature was seen here."""

    def show(row: str = "failure policies") -> None:
        evidence("features", row=row, cell="real run" if target.backend == "laptop" else "control plane")

    return show


def test_a_rule_of_the_job(client, namespace, run, shown):
    """A Job's own rule for an exit code ends the job at once; the outcome names it, and that no retry helps."""
    own_runtime(client, namespace, never(backoffLimit=3, podFailurePolicy={"rules": [FINAL]}))
    outcome, _ = run(Runtime(name="own", kind="TrainingRuntime"), "echo why; exit 42")
    assert (outcome.reason, outcome.category, outcome.exit_code) == ("PodFailurePolicy", Category.POLICY, 42)
    assert "failed with exit code 42 matching FailJob rule at index 0" in outcome.message
    assert (outcome.log_tail, outcome.retryable) == (("why",), False)
    with pytest.raises(CommandFailed, match="the runtime's own rule calls this failure final"):
        outcome.raise_for_failure()
    assert len(pods_of(client, namespace, outcome.job)) == 1
    shown()


def test_other_exit_codes_count(client, namespace, run):
    """An exit code without a rule counts towards the backoffLimit, as without a policy."""
    own_runtime(client, namespace, never(backoffLimit=1, podFailurePolicy={"rules": [FINAL]}))
    outcome, _ = run(Runtime(name="own", kind="TrainingRuntime"), "exit 3")
    assert (outcome.reason, outcome.category, outcome.exit_code) == ("FailedJobs", Category.APPLICATION, 3)
    assert len(pods_of(client, namespace, outcome.job)) == 2


def test_a_rule_of_the_jobset(client, namespace, run, ours, shown):
    """torch-restarting ends a job with a final exit code without a restart, and the outcome names the rule."""
    outcome, _ = run(ours("torch-restarting"), "exit 2")
    assert (outcome.reason, outcome.category) == ("FailJobSetFailurePolicyAction", Category.POLICY)
    assert "rule final of the runtime's failurePolicy: FailJobSet" in outcome.message
    assert "failed with exit code 2 matching FailJob rule at index 1" in outcome.message
    assert (outcome.step, outcome.exit_code, outcome.retryable) == ("node", 2, False)
    shown()


def test_restarts_that_are_used_up(client, namespace, run, ours, shown):
    """torch-restarting starts a failing job anew three times; the outcome tells that, and how it failed at last."""
    outcome, lines = run(ours("torch-restarting"), "echo again; exit 5")
    assert (outcome.reason, outcome.category, outcome.exit_code) == ("ReachedMaxRestarts", Category.APPLICATION, 5)
    assert "restarted 3 times, maxRestarts is 3" in outcome.message
    assert set(outcome.log_tail) == {"again"}
    assert set(lines) == {"[node-0] again"}  # four times for who is quick enough
    shown()


def test_a_restart_of_all(client, namespace, run, ours, tmp_path, shown):
    """When one node of a torch-restarting job fails, all of them start anew together, and the job ends well."""
    script = """
        echo run; test -e /workspace/begun && exit 0
        test "$JOB_COMPLETION_INDEX" = 1 || exec sleep 60
        touch /workspace/begun; exit 1
    """
    outcome, lines = run(ours("torch-restarting"), script, 2, workspace=Workspace(node_path=str(tmp_path)))
    assert outcome.phase is Phase.COMPLETE
    assert set(lines) == {"[node-0] run", "[node-1] run"}
    assert client.get("JobSet", namespace, outcome.job)["status"]["restarts"] == 1
    shown()


def test_a_lost_node_does_not_count(client, namespace, run, ours, tmp_path):
    """A pod that its node loses starts a torch-restarting job anew, which counts towards no limit."""
    script = "test -e /workspace/begun && exit 0; touch /workspace/begun; exec sleep 60"
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(run, ours("torch-restarting"), script, workspace=Workspace(node_path=str(tmp_path)))
        until((tmp_path / "begun").exists, 300)
        [pod] = client.list("Pod", namespace, labelSelector=JOBSET)
        fault = {"metadata": {"annotations": {"local.trainjob.dev/fault": "Evicted"}}}
        client.patch("Pod", namespace, pod["metadata"]["name"], fault)
        outcome, _ = end.result(300)
    assert outcome.phase is Phase.COMPLETE
    status = client.get("JobSet", namespace, outcome.job)["status"]
    assert (status["restarts"], status.get("restartsCountTowardsMax", 0)) == (1, 0)


def test_rank_0_decides(client, namespace, run, ours, shown):
    """On torch-rank-0-decides a job is complete when its first node is; the others are ended."""
    outcome, _ = run(ours("torch-rank-0-decides"), 'test "$JOB_COMPLETION_INDEX" = 0 || exec sleep 60', 2)
    assert outcome.phase is Phase.COMPLETE
    job = client.get("Job", namespace, f"{outcome.job}-node-0")
    [why] = [one for one in job["status"]["conditions"] if one["type"] == "SuccessCriteriaMet"]
    assert (why["reason"], why["message"]) == ("SuccessPolicy", "Matched rules at index 0")
    shown()


@pytest.mark.only("controlplane")
def test_a_policy_that_does_not_fit(client, namespace, run):
    """A podFailurePolicy for pods that are restarted in place is refused by the API server, and told so."""
    own_runtime(client, namespace, step(podFailurePolicy={"rules": [FINAL]}))
    outcome, _ = run(Runtime(name="own", kind="TrainingRuntime"), "true")
    with pytest.raises(NeverStarted, match=r"restartPolicy.*only.*Never"):
        outcome.raise_for_failure()
