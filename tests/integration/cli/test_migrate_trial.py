"""Tests of `trainjob migrate test`: a job runs as a TrainJob, which is deleted afterwards."""

from __future__ import annotations

import json
import signal

import pytest
import yaml

from tests.integration.cli.gated_steps import wait_for_only_trainjob
from tests.support.polling import wait_until
from trainjob.manifest import labels
from trainjob.status import derive_verdict

SECONDS = 300.0
PRINT_RANK = "import os; print('world', os.environ['WORLD_SIZE'], 'rank', os.environ['RANK'])"


@pytest.fixture
def write_v1_job(tmp_path):
    """Return a function that writes a v1 job, which needs a generated runtime, to a file.

    Its arguments are the command of the container, and fields of the pods' spec.
    """

    def write(*command, name="mnist", **pod):
        container = {"name": "pytorch", "image": "busybox", "command": list(command), "workingDir": str(tmp_path)}
        template = {"spec": {"containers": [container], **pod}}
        replicas = {
            role: {"replicas": 1, "restartPolicy": "Never", "template": template} for role in ("Master", "Worker")
        }
        spec = {"runPolicy": {"suspend": True, "cleanPodPolicy": "Running"}, "pytorchReplicaSpecs": replicas}
        document = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump(document))
        return file

    return write


def gated_command(folder):
    """Return a command that runs until a file exists, and the path of this file."""
    gate = folder / "gate"
    return ["sh", "-c", f"echo begun; until [ -e {gate} ]; do sleep 0.05; done"], gate


def list_remaining(cluster, namespace):
    """Return the names of the TrainJobs and TrainingRuntimes of a namespace."""
    runtimes = [runtime.name for runtime in cluster.runtimes.list_all("TrainingRuntime", namespace)]
    return [job["metadata"]["name"] for job in cluster.list_trainjobs(namespace, "")] + runtimes


def test_a_job_runs_with_its_variables_and_is_deleted(trainjob, cluster, namespace, write_v1_job):
    done = trainjob("migrate", "test", write_v1_job("python", "-c", PRINT_RANK), "-n", namespace)
    assert done.returncode == 0, done.stderr
    assert f"TrainJob {namespace}/mnist-test-" in done.stdout
    for rank in (0, 1):
        assert f"[node-{rank}] world 2 rank {rank}" in done.stdout
    assert "complete: PyTorchJob mnist runs as a TrainJob" in done.stdout
    assert list_remaining(cluster, namespace) == []


def test_a_failed_test_has_the_last_log_lines_and_is_deleted(trainjob, cluster, namespace, write_v1_job):
    done = trainjob("migrate", "test", "--json", write_v1_job("sh", "-c", "echo no data; exit 5"), "-n", namespace)
    assert done.returncode == 3
    outcome = json.loads(done.stdout)
    assert (outcome["phase"], outcome["exit_code"], outcome["log_tail"]) == ("Failed", 5, ["no data"])
    assert "exit code 5" in done.stderr
    assert list_remaining(cluster, namespace) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_deletes_the_created_objects(start_command, cluster, namespace, write_v1_job, tmp_path, number, code):
    test = start_command("migrate", "test", write_v1_job(*gated_command(tmp_path)[0]), "-n", namespace)
    wait_for_only_trainjob(cluster, namespace, phase="Running")
    test.send_signal(number)
    assert test.wait(SECONDS) == code
    assert list_remaining(cluster, namespace) == []


def test_a_timeout_deletes_the_trainjob(trainjob, cluster, namespace, write_v1_job, tmp_path):
    command, _ = gated_command(tmp_path)
    done = trainjob("migrate", "test", "--timeout", "1s", write_v1_job(*command), "-n", namespace)
    assert done.returncode == 4
    assert "it was deleted" in done.stderr
    assert list_remaining(cluster, namespace) == []


def test_keep_retains_both_objects_and_the_trainjob_owns_its_runtime(trainjob, cluster, namespace, write_v1_job):
    done = trainjob("migrate", "test", "--keep", write_v1_job("true"), "-n", namespace)
    assert done.returncode == 0
    name, runtime = list_remaining(cluster, namespace)
    assert name == runtime
    assert f"retained: TrainJob {namespace}/{name}" in done.stderr
    cluster.delete_trainjob(name, namespace, None)
    wait_until(lambda: not list_remaining(cluster, namespace))


def test_objects_of_a_killed_test_are_reported_and_deleted_by_the_next_test(
    start_command, trainjob, cluster, namespace, write_v1_job, tmp_path
):
    command, gate = gated_command(tmp_path)
    file = write_v1_job(*command)
    killed = start_command("migrate", "test", file, "-n", namespace)
    job = wait_for_only_trainjob(cluster, namespace, phase="Running")
    killed.kill()
    killed.wait(SECONDS)
    name = job["metadata"]["name"]
    assert labels.get_annotation(job, labels.TTL_AFTER_SUCCESS)  # `trainjob sweep` would delete it later
    while_it_runs = trainjob("migrate", "test", "--timeout", "1s", file, "-n", namespace)
    assert f"TrainJob {namespace}/{name} of another test is Running" in while_it_runs.stderr
    assert list_remaining(cluster, namespace) == [name, name]
    gate.touch()
    wait_until(lambda: derive_verdict(cluster.get_trainjob(name, namespace)).phase.finished, SECONDS)
    assert trainjob("migrate", "test", file, "-n", namespace).returncode == 0
    wait_until(lambda: not list_remaining(cluster, namespace))


def test_a_refused_job_creates_nothing(trainjob, cluster, namespace, write_v1_job):
    file = write_v1_job("true")
    document = yaml.safe_load(file.read_text())
    document["spec"]["bogus"] = 1
    file.write_text(yaml.safe_dump(document))
    done = trainjob("migrate", "test", file, "-n", namespace)
    assert done.returncode == 2
    assert "spec.bogus" in done.stderr
    assert list_remaining(cluster, namespace) == []
