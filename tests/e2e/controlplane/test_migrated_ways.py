"""A file of `trainjob migrate convert` trains on two nodes in each of the five ways to create its TrainJob.

The file has a generated TrainingRuntime and a TrainJob. The control plane is real, with Trainer 2.3.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from control_plane import ControlPlane
from programs import KUBECTL
from tests.e2e.controlplane.test_migrated_runs import TRAIN, find_result, pytorch_job
from tests.support.dag_examples import ExampleRuns, airflow_environment
from tests.support.demo_chain import ENVIRONMENTS, ROOT
from tests.support.kubernetes_client import Client
from tests.support.polling import wait_until
from tests.support.trainjobs import is_finished, list_pods

NAME = "old"
SECONDS = 200
CONVERTED_EARLIER = Path(__file__).with_name("converted_by_25c88c2.yaml")
SELECTOR = "trainer.kubeflow.org/framework"
DAG = """
from airflow.sdk import DAG
from trainjob_airflow import TrainJobOperator

with DAG("migrated"):
    TrainJobOperator(task_id="train", manifest="trainjob.yaml")
"""
PIPELINE = """
import sys

import yaml
from kfp import dsl, local

from trainjob_kfp import train

with open(sys.argv[1]) as file:
    manifest = yaml.safe_load(file)


@dsl.pipeline(name="migrated")
def migrated():
    train(manifest=manifest)


local.init(local.SubprocessRunner(use_venv=False), pipeline_root=sys.argv[2])
migrated()
"""
# Each way trains in the same program, on the port of the Trainer.
pytestmark = [pytest.mark.timeout(400, func_only=True), pytest.mark.usefixtures("torchrun_lock")]
if reason := ControlPlane.unavailable_reason("2.3"):
    pytestmark = [*pytestmark, pytest.mark.skip(reason=reason)]


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    with ControlPlane(tmp_path_factory.mktemp("plane"), environments=ENVIRONMENTS) as started:
        yield started


@pytest.fixture
def client(plane):
    """Yield a client, and delete the TrainJobs and runtimes of the test at its end."""
    with contextlib.closing(Client.from_kubeconfig(str(plane.kubeconfig))) as opened:
        yield opened
        for kind in ("TrainJob", "TrainingRuntime"):
            for one in opened.list(kind, "default"):
                opened.delete(kind, "default", one["metadata"]["name"])
        wait_until(lambda: not opened.list("Pod", "default"), SECONDS)


@pytest.fixture
def run(plane, tmp_path):
    """Return a function that runs a program with the kubeconfig of the control plane."""

    def run_program(*command, **options):
        environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "HOME": str(tmp_path)}
        done = subprocess.run(
            [str(word) for word in command], env=environment, capture_output=True, text=True, timeout=SECONDS, **options
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    return run_program


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


@pytest.fixture
def converted(run, script, tmp_path):
    """Return the file that the command has written, with a runtime and a TrainJob."""
    job = pytorch_job(NAME, str(script))
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        container = replica["template"]["spec"]["containers"][0]
        container["terminationMessagePolicy"] = "FallbackToLogsOnError"  # it needs a generated runtime
        container["env"] = [{"name": "PEER", "value": f"{NAME}-worker-0"}]
    (tmp_path / "pytorchjob.yaml").write_text(yaml.safe_dump(job))
    file = tmp_path / "converted.yaml"
    file.write_text(run(sys.executable, "-m", "trainjob", "migrate", "convert", tmp_path / "pytorchjob.yaml"))
    assert [one["kind"] for one in yaml.safe_load_all(file.read_text())] == ["TrainingRuntime", "TrainJob"]
    return file


@pytest.fixture
def kubectl(run):
    program = KUBECTL.folder / "kubectl"
    if not program.exists():
        pytest.skip("kubectl is not built: run `python tests/controlplane/build.py --kubectl`, which needs Go")
    return lambda *arguments: run(program, "-n", "default", *arguments)


def check_training(client, renamed=True):
    """Check that the two pods of the only TrainJob have trained together."""
    [job] = client.list("TrainJob", "default")
    name = job["metadata"]["name"]
    assert (name != NAME) is renamed
    client.wait_for("TrainJob", "default", name, is_finished, seconds=SECONDS)
    pods = list_pods(client, "default", name)
    logs = [client.log("default", pod["metadata"]["name"], container="node") for pod in pods]
    lines = sorted(map(find_result, logs))
    assert [line.partition(",")[0] for line in lines] == [f"rank {rank} of 2: 2 trained together" for rank in (0, 1)]


def apply_runtime_alone(kubectl, file):
    """Apply the runtime as the message advises, and return the TrainJob."""
    assert kubectl("apply", "-f", file, "-l", SELECTOR).split() == [
        f"trainingruntime.trainer.kubeflow.org/{NAME}",
        "created",
    ]
    _, job = yaml.safe_load_all(file.read_text())
    return job


def apply(kubectl, file):
    kubectl("apply", "-f", file, "-l", SELECTOR)
    wait_until(lambda: "old" in kubectl("get", "trainingruntimes", "-o", "name"), SECONDS)
    kubectl("apply", "-f", file)


def test_kubectl_apply(client, kubectl, converted):
    apply(kubectl, converted)
    check_training(client, renamed=False)


def test_kubectl_apply_of_a_file_of_the_previous_version(client, kubectl, script, tmp_path):
    file = tmp_path / "converted.yaml"
    file.write_text(CONVERTED_EARLIER.read_text().replace("/scripts/train.py", str(script)))
    apply(kubectl, file)
    check_training(client, renamed=False)


def test_trainjob_submit_refuses_hosts_of_the_previous_version(client, plane):
    command = [sys.executable, "-m", "trainjob", "submit", str(CONVERTED_EARLIER)]
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode != 0
    assert "cannot be 'old-node-0-1.old'" in " ".join(done.stderr.split())
    assert client.list("TrainJob", "default") == client.list("TrainingRuntime", "default") == []


def test_trainjob_run(client, run, converted):
    output = run(sys.executable, "-m", "trainjob", "run", converted)
    assert output.count("2 trained together") == 2
    check_training(client)


def test_trainjob_submit(client, run, converted):
    name = run(sys.executable, "-m", "trainjob", "submit", converted).strip()
    run(sys.executable, "-m", "trainjob", "wait", name, "-n", "default")
    check_training(client)


def test_an_airflow_task(client, kubectl, converted, plane, tmp_path):
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "migrated.py").write_text(DAG)
    (dags / "trainjob.yaml").write_text(yaml.safe_dump(apply_runtime_alone(kubectl, converted)))
    environment = airflow_environment(plane.kubeconfig, tmp_path / "airflow") | {
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags)
    }
    runs = ExampleRuns(environment, tmp_path / "airflow.log", dags)
    try:
        assert runs.run("migrated")["state"] == "success", runs.read_log()[-4000:]
    finally:
        runs.stop()
    check_training(client)


def test_a_pipeline_component(client, run, kubectl, converted, tmp_path):
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "trainjob.yaml").write_text(yaml.safe_dump(apply_runtime_alone(kubectl, converted)))
    program = ROOT / ".venv" / "kfp" / "bin" / "python"
    run(program, tmp_path / "pipeline.py", tmp_path / "trainjob.yaml", tmp_path / "root", cwd=Path(tmp_path))
    check_training(client)
