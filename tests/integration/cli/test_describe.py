"""`trainjob describe`: one TrainJob on one screen, and for programs."""

from __future__ import annotations

import json
import threading

import pytest
import yaml

from tests.integration.cli.bare_apiserver import bare_apiserver, make_run_key
from trainjob import CustomTrainerContainer, RunKey, SecretKeyReference, TrainJob
from trainjob.errors import CommandFailed
from trainjob.lifecycle import KillAction, Limits, submit, wait
from trainjob.status import pending_reasons


def shell(script, **options):
    return TrainJob(trainer=CustomTrainerContainer(image="busybox", command=("sh", "-c", script), **options))


@pytest.fixture
def submit_job(cluster, unique):
    """Submits a job; it is gone at the end."""
    made = []

    def make(job):
        made.append(submit(cluster, job, RunKey("airflow", "nightly", unique, "run-1", "3")))
        return made[-1]

    yield make
    for one in made:
        cluster.delete_trainjob(one.name, one.namespace, one.uid)


def test_one_that_is_complete_has_its_ranks_its_story_and_what_it_handed_back(cluster, submit_job, trainjob, unique):
    result = json.dumps({"loss": 0.5})
    reference = submit_job(shell(f"echo 'trainjob result: {result}'", env={"STAGE": "test"}))
    wait(cluster, reference)
    told = trainjob("describe", reference.name)
    assert (told.returncode, told.stderr) == (0, "")
    text = told.stdout
    assert text.startswith(f"TrainJob default/{reference.name}  Complete\n")
    for line in (
        f"  asked by    airflow nightly.{unique}[3] run-1, attempt 1\n",
        "  runtime     torch-distributed (ClusterTrainingRuntime)\n",
        "  env         STAGE\n",
        f"{reference.name}-node-0-0-",
        "created",
        "node: first container started",
        "complete (AllJobsCompleted)",
        '"loss": 0.5',
    ):
        assert line in text
    assert [words for words in ("Steps", "Pods", "Events", "Story", "Handed back") if f"\n{words}\n" not in text] == []
    assert "What to do" not in text


def test_one_that_has_failed_has_its_last_lines_its_exit_code_and_what_to_do(cluster, submit_job, trainjob):
    reference = submit_job(shell("echo --token s3cr3t; echo broken; exit 3 # --token s3cr3t"))
    with pytest.raises(CommandFailed):
        wait(cluster, reference, limits=Limits(on_failure=KillAction.KEEP)).raise_for_failure()
    told = json.loads(trainjob("describe", reference.name, "--json").stdout)
    assert (told["phase"], told["reason"], told["outcome"]["exit_code"]) == ("Failed", "RestartLimitExceeded", 3)
    assert told["outcome"]["log_tail"] == ["--token s3cr3t", "broken"]  # a log is as its program wrote it
    assert "s3cr3t" not in json.dumps(told["spec"])
    assert (told["pods"][0]["exit_code"], told["pods"][0]["step"], told["pods"][0]["rank"]) == (3, "node", 0)
    assert told["hints"] == ["read the step's last log lines above; the command itself ended with an error"]
    assert told["unread"] == []


def test_one_that_does_not_get_going_has_the_reason_and_what_to_do(cluster, submit_job, trainjob):
    env = {"HF_TOKEN": SecretKeyReference(name="nobody-made-it", key="token")}
    reference = submit_job(shell("true", env=env))
    waiting = threading.Event()

    def on_pod(change):
        if list(pending_reasons([change.found or {}])):
            waiting.set()

    with cluster.pod_informer("default").add_event_handler(reference.name, on_pod):
        assert waiting.wait(60)
    told = trainjob("describe", reference.name).stdout
    assert "\nWhat to do\n  node-0: CreateContainerConfigError: " in told
    assert "create the Secret or ConfigMap in the job's namespace" in told


def test_what_may_not_be_read_is_said_and_nothing_fails(tmp_path, trainjob):
    with bare_apiserver(tmp_path) as alone:
        alone.create_trainjob("train", make_run_key("train"), queue="gpus")
        alone.set_running("train")
        kubeconfig = alone.create_restricted_kubeconfig("jobsets")
        told = trainjob("--kubeconfig", kubeconfig, "describe", "train")
        assert (told.returncode, told.stderr) == (0, "")
        assert told.stdout.startswith("TrainJob default/train  Running [node]\n")
        assert "\nCould not be read\n  pods: " in told.stdout
        assert "  events: " in told.stdout


def test_the_object_itself_and_one_that_is_not_there(tmp_path, trainjob):
    with bare_apiserver(tmp_path) as alone:
        alone.create_trainjob("train")
        written = trainjob("--kubeconfig", alone.kubeconfig, "describe", "train", "-o", "yaml").stdout
        found = yaml.safe_load(written)
        assert (found["kind"], found["metadata"]["name"]) == ("TrainJob", "train")
        assert "managedFields" not in found["metadata"]
        missing = trainjob("--kubeconfig", alone.kubeconfig, "describe", "trian")
        assert (missing.returncode, missing.stdout) == (1, "")
        assert missing.stderr.startswith("error: there is no TrainJob default/trian\n  -> did you mean train?")
