"""Tests of whole pipelines with `kfp.local` against the laptop cluster.

The processes and the kills are real.
"""

from __future__ import annotations

import ast
import os
import re
import signal
from pathlib import Path

import pytest

from tests.integration.kfp.pipeline_runner import PipelineRunner
from tests.support.mlflow_server import TRACKING_PYTHON, MLflowServer
from tests.support.polling import wait_until
from trainjob.manifest import labels
from trainjob.status import Phase, derive_verdict


@pytest.fixture
def pipeline_runner(laptop, tmp_path, unique):
    return PipelineRunner(laptop, tmp_path, unique)


def find_launcher(process):
    """Return the ID of the process that runs the component's code; None if there is none."""
    children = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(status.parent.name))
    below, found = [process.pid], []
    while below:
        below = [child for parent in below for child in children.get(parent, ())]
        found += [
            pid
            for pid in below
            if b"kfp.dsl.executor_main" in _read_command(pid) and b"sh\0-e" not in _read_command(pid)
        ]
    return found[0] if found else None


def _read_command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def find_running_job(cluster, runner):
    """Return the run's TrainJob if its command has started; otherwise None."""
    jobs = [job for job in runner.list_trainjobs(cluster) if derive_verdict(job).phase is Phase.RUNNING]
    return jobs[0] if jobs else None


def kill_launcher(process, number):
    launcher = wait_until(lambda: find_launcher(process))
    os.kill(launcher, number)
    return launcher


def test_the_steps_of_a_chain_share_a_workspace(pipeline_runner, cluster, claim):
    code, log = pipeline_runner("chain", workspace=claim, mark="/workspace/mark")
    assert code == 0, log
    assert "[node-0] written" in log
    assert log.count("[node-0] a-mark") == 2
    assert [derive_verdict(job).phase for job in pipeline_runner.list_trainjobs(cluster)] == [Phase.COMPLETE] * 2


def test_outputs_are_parameters_of_later_steps(pipeline_runner, cluster):
    code, log = pipeline_runner("pass_outputs")
    assert code == 0, log
    [first] = [
        job for job in pipeline_runner.list_trainjobs(cluster) if job["metadata"]["labels"][labels.TASK] == "train"
    ]
    assert f"[node-0] {first['metadata']['name']} Complete" in log


@pytest.mark.slow
@pytest.mark.torchtune
def test_a_tracked_training_is_a_run_of_its_pipeline(pipeline_runner, cluster):
    with MLflowServer() as server:
        code, log = pipeline_runner("tracked", server=server.url, python=TRACKING_PYTHON)
        assert code == 0, log
        # `kfp.local` does not say whether a step is in a loop, so each has an index, and a parent for all indexes.
        runs = server.list_runs("tracked-pipelines")
        [run] = [each for each in runs if "mlflow.parentRunId" in {tag["key"] for tag in each["data"]["tags"]}]
        history = server.get_metric_history(run["info"]["run_id"], "loss")
    assert history == [(1, 1.0), (2, 0.5)]
    assert run["info"]["status"] == "FINISHED"
    [job] = pipeline_runner.list_trainjobs(cluster)
    tags = {each["key"]: each["value"] for each in run["data"]["tags"]}
    assert (tags["trainjob.run"], tags["trainjob.name"]) == (pipeline_runner.id, job["metadata"]["name"])
    assert re.search(rf"received: {server.url}/#/experiments/\d+/runs/{run['info']['run_id']}", log)


def test_a_failing_step_logs_the_reason_and_ends_the_pipeline(pipeline_runner, cluster):
    code, log = pipeline_runner("failing")
    assert code != 0
    for expected in ("step node", "rank 0", "exit code 3", "RestartLimitExceeded", "log: ValueError: row 7"):
        assert expected in log
    assert "in executor_main" not in log  # the log has the error message without the launcher's traceback
    assert not [job for job in pipeline_runner.list_trainjobs(cluster) if "never" in str(job["spec"])]


@pytest.mark.slow
def test_a_training_that_hangs_is_followed_by_another_attempt(pipeline_runner, cluster, tmp_path):
    code, log = pipeline_runner("hanging", marker=tmp_path / "marker")
    assert code == 0, log
    assert "the training hung: node-0 (laptop) has made no step for" in log
    assert "since step 2: it is in python" in log
    assert len(pipeline_runner.list_trainjobs(cluster)) == 1  # the first one was deleted


def test_a_run_that_is_started_again_after_a_kill_adopts_its_trainjob(pipeline_runner, cluster, tmp_path):
    go = tmp_path / "go"
    process = pipeline_runner.start_pipeline("slow", go=go)
    job = wait_until(lambda: find_running_job(cluster, pipeline_runner))
    kill_launcher(process, signal.SIGKILL)
    log, _ = process.communicate()
    assert process.returncode != 0, log
    go.touch()
    code, log = pipeline_runner("slow", go=go)
    assert code == 0, log
    assert f"adopted, uid {job['metadata']['uid']}" in log
    assert "[node-0] finished" in log
    assert [found["metadata"]["uid"] for found in pipeline_runner.list_trainjobs(cluster)] == [job["metadata"]["uid"]]


@pytest.mark.slow
def test_a_retry_of_kfp_adopts_the_trainjob(pipeline_runner, cluster):
    process = pipeline_runner.start_pipeline("retried")
    job = wait_until(lambda: find_running_job(cluster, pipeline_runner))
    kill_launcher(process, signal.SIGKILL)
    log, _ = process.communicate()
    assert process.returncode == 0, log
    assert [found["metadata"]["uid"] for found in pipeline_runner.list_trainjobs(cluster)] == [job["metadata"]["uid"]]


@pytest.mark.slow
def test_a_finished_run_that_is_started_again_adopts_its_trainjobs(pipeline_runner, cluster):
    assert pipeline_runner("pass_outputs")[0] == 0
    code, log = pipeline_runner("pass_outputs")
    assert code == 0
    assert log.count(": adopted, uid ") == 2
    assert len(pipeline_runner.list_trainjobs(cluster)) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_terminated_launcher_deletes_its_trainjob(pipeline_runner, cluster, number):
    process = pipeline_runner.start_pipeline("endless")
    job = wait_until(lambda: find_running_job(cluster, pipeline_runner))
    kill_launcher(process, number)
    log, _ = process.communicate()
    assert process.returncode != 0
    # It "did not exist any more" if the response to the first deletion came so late that the request was repeated.
    result = "(was deleted|did not exist any more)"
    assert re.search(rf"{number.name}: TrainJob default/{job['metadata']['name']} {result}", log), log
    wait_until(lambda: not pipeline_runner.list_trainjobs(cluster))


@pytest.mark.slow
def test_each_iteration_has_its_own_trainjob(pipeline_runner, cluster):
    code, log = pipeline_runner("side_by_side")
    assert code == 0, log
    jobs = pipeline_runner.list_trainjobs(cluster)
    assert sorted(job["spec"]["trainer"]["command"][-1] for job in jobs) == ["a", "b", "c"]
    assert {derive_verdict(job).phase for job in jobs} == {Phase.COMPLETE}
    assert {job["metadata"]["labels"][labels.TASK] for job in jobs} == {"train"}


def test_an_invalid_request_is_refused_before_anything_is_sent(pipeline_runner, cluster, claim):
    code, log = pipeline_runner("wrong", workspace=claim)
    assert code != 0
    assert "The step's request is wrong:" in log
    assert "storage_uri" in log
    assert "did you mean hf://acme/tickets?" in log
    assert not pipeline_runner.list_trainjobs(cluster)


def test_a_pipelines_own_workspace_is_shared_by_its_steps(pipeline_runner, cluster):
    code, log = pipeline_runner("own_workspace")
    assert code == 0, log
    assert "[node-0] a-mark" in log
    assert [derive_verdict(job).phase for job in pipeline_runner.list_trainjobs(cluster)] == [Phase.COMPLETE] * 3


@pytest.mark.slow
@pytest.mark.torchtune
@pytest.mark.usefixtures("torchrun_lock")
def test_the_result_of_a_function_is_an_input_of_the_next_step(pipeline_runner):
    code, log = pipeline_runner("from_a_function")
    assert code == 0, log
    assert 'received: {"share": 0.5, "words": 4}' in log


@pytest.mark.slow
@pytest.mark.torchtune
@pytest.mark.usefixtures("torchrun_lock")
def test_the_score_of_an_evaluation_selects_the_next_step(pipeline_runner, cluster):
    code, log = pipeline_runner("gated")
    assert code == 0, log
    assert "[node-0] 2 of 4" in log
    assert "[node-0] too bad" in log
    assert "[node-0] good enough" not in log
    phases = [derive_verdict(job).phase for job in pipeline_runner.list_trainjobs(cluster)]
    assert phases == [Phase.COMPLETE] * 2  # the cleanup deletes only active TrainJobs


def test_a_cleanup_deletes_the_trainjob_that_a_killed_step_kept(pipeline_runner, cluster):
    process = pipeline_runner.start_pipeline("kept_job_with_cleanup")
    job = wait_until(lambda: find_running_job(cluster, pipeline_runner))
    kill_launcher(process, signal.SIGTERM)
    log, _ = process.communicate()
    assert process.returncode != 0
    assert f"TrainJob default/{job['metadata']['name']} was retained" in log
    assert re.search(r"Run \S+ has the state FAILED", log)
    assert f"TrainJob default/{job['metadata']['name']} was deleted; its phase was Running" in log
    wait_until(lambda: not pipeline_runner.list_trainjobs(cluster))


def test_the_metrics_of_an_adopted_finished_trainjob_are_complete(pipeline_runner):
    metrics = []
    for _ in range(2):
        code, log = pipeline_runner("learning")
        assert code == 0, log
        [metadata] = re.findall(r"metadata=(\{[^}]*'first_loss'[^}]*\})", log)
        metrics.append(ast.literal_eval(metadata))
    assert ": adopted, uid " in log
    assert metrics[0] == metrics[1]
    assert {name: metrics[0][name] for name in ("loss", "first_loss", "steps", "epochs")} == {
        "loss": 0.5,
        "first_loss": 3.5,
        "steps": 4.0,
        "epochs": 1.0,
    }
    assert metrics[0]["seconds"] >= 0


def test_a_component_runs_without_a_pipeline(pipeline_runner, cluster):
    code, log = pipeline_runner("train", image="busybox", command='["echo", "alone"]')
    assert code == 0, log
    assert "[node-0] alone" in log
    assert len(pipeline_runner.list_trainjobs(cluster)) == 1
