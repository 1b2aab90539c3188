"""Tests of `trainjob describe`, on a terminal and with `--json`."""

from __future__ import annotations

import json
import threading

import pytest
import yaml

from tests.integration.cli.bare_apiserver import bare_apiserver, make_run_key
from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, ExportModel, RunKey, SecretKeyReference, TrainJob
from trainjob.errors import CommandFailed
from trainjob.lifecycle import KillAction, Limits, submit, wait
from trainjob.manifest import build_trainjob, to_trainjob
from trainjob.status import pending_reasons
from trainjob.version import VERSION


def shell(script, **options):
    return TrainJob(trainer=CustomTrainerContainer(image="busybox", command=("sh", "-c", script), **options))


@pytest.fixture
def submit_job(cluster, unique):
    """Return a function that submits a job; the job is deleted after the test."""
    references = []

    def submit_and_keep(job):
        references.append(submit(cluster, job, RunKey("airflow", "nightly", unique, "run-1", "3")))
        return references[-1]

    yield submit_and_keep
    for one in references:
        cluster.delete_trainjob(one.name, one.namespace, one.uid)


def test_a_complete_trainjob_has_its_pods_timeline_and_result(cluster, submit_job, trainjob, unique):
    result = json.dumps({"loss": 0.5})
    reference = submit_job(shell(f"echo 'trainjob result: {result}'", env={"STAGE": "test"}))
    wait(cluster, reference)
    described = trainjob("describe", reference.name)
    assert (described.returncode, described.stderr) == (0, "")
    text = described.stdout
    assert text.startswith(f"TrainJob default/{reference.name}  Complete\n")
    for line in (
        f"  run key     airflow nightly.{unique}[3] run-1, attempt 1\n",
        "  runtime     torch-distributed (ClusterTrainingRuntime)\n",
        "  env         STAGE\n",
        f"{reference.name}-node-0-0-",
        "created",
        "node: first container started",
        "complete (AllJobsCompleted)",
        '"loss": 0.5',
    ):
        assert line in text
    assert [title for title in ("Steps", "Pods", "Events", "Timeline", "Result") if f"\n{title}\n" not in text] == []
    assert "What to do" not in text


def test_a_failed_trainjob_has_its_last_log_lines_exit_code_and_advice(cluster, submit_job, trainjob):
    with pytest.warns(UserWarning, match="--token in a command may be a credential"):
        job = shell("echo --token s3cr3t; echo broken; exit 3 # --token s3cr3t")
    reference = submit_job(job)
    with pytest.raises(CommandFailed):
        wait(cluster, reference, limits=Limits(on_failure=KillAction.KEEP)).raise_for_failure()
    described = json.loads(trainjob("describe", reference.name, "--json").stdout)
    assert (described["phase"], described["reason"], described["outcome"]["exit_code"]) == (
        "Failed",
        "RestartLimitExceeded",
        3,
    )
    assert described["outcome"]["log_tail"] == ["--token s3cr3t", "broken"]  # logs are not redacted
    assert "s3cr3t" not in json.dumps(described["spec"])
    assert (described["pods"][0]["exit_code"], described["pods"][0]["step"], described["pods"][0]["rank"]) == (
        3,
        "node",
        0,
    )
    assert described["hints"] == ["read the step's last log lines above; the command itself ended with an error"]
    assert described["read_errors"] == []


def test_a_trainjob_that_does_not_start_has_the_reason_and_advice(cluster, submit_job, trainjob):
    env = {"HF_TOKEN": SecretKeyReference(name="nobody-made-it", key="token")}
    reference = submit_job(shell("true", env=env))
    waiting = threading.Event()

    def on_pod(event):
        if list(pending_reasons([event.object or {}])):
            waiting.set()

    with cluster.pod_informer("default").add_event_handler(reference.name, on_pod):
        assert waiting.wait(60)
    described = trainjob("describe", reference.name).stdout
    assert "\nWhat to do\n  node-0: CreateContainerConfigError: " in described
    assert "create the Secret or ConfigMap in the job's namespace" in described


def test_a_missing_claim_is_reported_in_one_clear_sentence(submit_job, trainjob):
    job = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=("true",)), workspace="nope")
    reference = submit_job(job)
    text = wait_until(lambda: _describe_events(trainjob, reference.name), 60)
    missing = '0/1 nodes are available: persistentvolumeclaim "nope" not found'
    assert f"  why         node-0: Unschedulable: {missing}\n" in text
    assert f"{missing}: create the PersistentVolumeClaim in the job's namespace" in text
    assert "not found. not found" not in text


def _describe_events(trainjob, name):
    text = trainjob("describe", name).stdout
    return text if "FailedScheduling" in text else None


def test_objects_without_read_permission_are_listed_and_the_rest_is_shown(tmp_path, trainjob):
    with bare_apiserver(tmp_path) as alone:
        alone.create_trainjob("train", make_run_key("train"), queue="gpus")
        alone.set_running("train")
        kubeconfig = alone.create_restricted_kubeconfig("jobsets")
        described = trainjob("--kubeconfig", kubeconfig, "describe", "train")
        assert (described.returncode, described.stderr) == (0, "")
        assert described.stdout.startswith("TrainJob default/train  Running [node]\n")
        assert "\nCould not be read\n  pods: " in described.stdout
        assert "  events: " in described.stdout


def test_yaml_output_is_the_object_and_an_unknown_name_is_an_error(tmp_path, trainjob):
    with bare_apiserver(tmp_path) as alone:
        alone.create_trainjob("train")
        written = trainjob("--kubeconfig", alone.kubeconfig, "describe", "train", "-o", "yaml").stdout
        found = yaml.safe_load(written)
        assert (found["kind"], found["metadata"]["name"]) == ("TrainJob", "train")
        assert "managedFields" not in found["metadata"]
        missing = trainjob("--kubeconfig", alone.kubeconfig, "describe", "trian")
        assert (missing.returncode, missing.stdout) == (1, "")
        assert missing.stderr.startswith("error: there is no TrainJob default/trian\n  -> did you mean train?")


def test_a_packed_program_is_readable(tmp_path, trainjob):
    job = to_trainjob(ExportModel(destination="s3://models/tickets", workspace="tickets"))
    with bare_apiserver(tmp_path) as alone:
        alone.create_object("trainjobs", build_trainjob(job, name="export", namespace="default"))
        shown = trainjob("--kubeconfig", alone.kubeconfig, "describe", "export").stdout
        assert "  command     python -m trainjob.programs.export --output /workspace/output --model" in shown
        summary = trainjob("--kubeconfig", alone.kubeconfig, "describe", "export", "-o", "summary").stdout
        [found] = yaml.safe_load_all(summary)
        assert found["spec"]["trainer"]["command"][3].startswith(f"<trainjob.programs.export {VERSION}, packed, ")
        assert found["metadata"]["uid"]
