"""Examples with other runtimes than torch's stock runtime, on a laptop cluster: XGBoost, JAX and restarts."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import kubernetes
import pytest
import yaml

from tests.support.dag_examples import DAGS, ExampleRuns
from trainjob import CustomTrainer
from trainjob.manifest.function import function_command
from trainjob_local import LocalCluster

ROOT = Path(__file__).resolve().parents[3]
RUNTIMES = ROOT / ".venv" / "runtimes"

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("torchrun_lock")]
needs_runtimes = pytest.mark.skipif(
    not (RUNTIMES / ".ready").exists(), reason="`make .venv/runtimes/.ready` has not been run"
)


def custom_objects_api(cluster):
    """Return the Kubernetes client's API for custom resources."""
    return kubernetes.client.CustomObjectsApi(kubernetes.config.new_client_from_config(str(cluster.kubeconfig)))


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    with LocalCluster(
        tmp_path_factory.mktemp("cluster"), environments={"xgboost": RUNTIMES, "jax": RUNTIMES}
    ) as cluster:
        runtime = yaml.safe_load((ROOT / "manifests" / "runtimes" / "torch-restarting.yaml").read_text())
        custom_objects_api(cluster).create_cluster_custom_object(
            "trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", runtime
        )
        yield cluster


@pytest.fixture(scope="module")
def dags(laptop, tmp_path_factory):
    home = tmp_path_factory.mktemp("airflow")
    extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default"}
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": extra}),
    }
    runs = ExampleRuns(environment, home / "airflow.log")
    yield runs
    runs.stop()


def run_pipeline(laptop, name, *arguments):
    """Run a pipeline, and return its exit code and its output."""
    command = [ROOT / ".venv" / "kfp" / "bin" / "python", ROOT / "examples" / "kfp" / f"{name}.py", "run", *arguments]
    environment = {**os.environ, "KUBECONFIG": str(laptop.kubeconfig)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


@needs_runtimes
def test_xgboost_in_a_dag(dags, evidence):
    done = dags.run("boosted_trees")
    assert done["state"] == "success", dags.read_log()[-6000:]
    [learned] = done["returned"]["report"]
    assert (learned["workers"], learned["accuracy"] > 0.9) == (2, True)
    for rank in (0, 1):
        assert f"[node-{rank}] worker {rank} of 2: 500 rows" in dags.read_log()
    evidence("features", row="XGBoost", cell="Airflow example")
    evidence("features", row="XGBoost", cell="real run")


def report_rank():
    import os

    rank, processes = (os.environ[f"OMPI_COMM_WORLD_{name}"] for name in ("RANK", "SIZE"))
    print(f"process {rank} of {processes}", flush=True)
    return {"rank": rank, "text": """$HOME `id` "q" 'x'"""}


@needs_runtimes
def test_a_function_under_a_real_mpirun(tmp_path, evidence):
    """A function runs under mpirun as the launcher of an MPI runtime starts it, on this machine only."""
    (tmp_path / "hostfile").write_text("localhost slots=2\n")
    environment = {
        "PATH": f"{RUNTIMES / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "JOB_COMPLETION_INDEX": "0",
        "OMPI_MCA_orte_default_hostfile": str(tmp_path / "hostfile"),
        **dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1"),
    }
    command = function_command(CustomTrainer(func=report_rank))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    *processes, result = sorted(done.stdout.splitlines())
    assert processes == ["process 0 of 2", "process 1 of 2"]
    assert json.loads(result.removeprefix("trainjob result: ")) == {"rank": "0", "text": """$HOME `id` "q" 'x'"""}
    evidence("features", row="MPI", cell="real run")


def test_failure_policy_in_a_dag(laptop, dags, evidence):
    done = dags.run("runtimes")
    assert done["state"] == "success", dags.read_log()[-6000:]
    [train] = done["returned"]["train"]
    jobset = custom_objects_api(laptop).get_namespaced_custom_object(
        "jobset.x-k8s.io", "v1alpha2", "default", "jobsets", train["job"]
    )
    assert jobset["status"]["restarts"] == 1
    for row in ("failure policies", "runtimes"):
        evidence("features", row=row, cell="Airflow example")


@pytest.mark.parametrize("code", [0, 127])
def test_failure_policy_in_a_pipeline(laptop, code, evidence):
    ended, log = run_pipeline(laptop, "runtimes", f"program=echo ends with {code}; exit {code}")
    assert (ended == 0, f"[node-0] ends with {code}" in log) == (code == 0, True), log[-8000:]
    if code:
        assert "rule final of the runtime's failurePolicy: FailJobSet" in log
        assert "failed with exit code 127 matching FailJob rule at index 1" in log
    for row in ("failure policies", "runtimes"):
        evidence("features", row=row, cell="KFP example")


@needs_runtimes
def test_xgboost_in_a_pipeline(laptop, evidence):
    code, log = run_pipeline(laptop, "boosted_trees")
    assert code == 0, log[-8000:]
    [right] = re.findall(r"(\d+)% of the points are classified correctly, learned by 2 workers", log)
    assert int(right) > 90
    evidence("features", row="XGBoost", cell="KFP example")


@needs_runtimes
def test_jax_in_a_dag(dags, evidence):
    done = dags.run("jax_on_nodes")
    assert done["state"] == "success", dags.read_log()[-6000:]
    [learned] = done["returned"]["report"]
    assert learned == {"weight": pytest.approx(3, abs=0.1), "bias": pytest.approx(-1, abs=0.1), "processes": 2}
    for rank in (0, 1):
        assert f"[node-{rank}] process {rank} of 2: 3 points" in dags.read_log()
    evidence("features", row="JAX", cell="Airflow example")
    evidence("features", row="JAX", cell="real run")


@needs_runtimes
def test_jax_in_a_pipeline(laptop, evidence):
    code, log = run_pipeline(laptop, "jax_on_nodes", "steps=100")
    assert code == 0, log[-8000:]
    [learned] = re.findall(r"y = ([\d.]+) x \+ (-[\d.]+), learned by 2 processes", log)
    assert [float(number) for number in learned] == pytest.approx([3, -1], abs=0.1)
    evidence("features", row="JAX", cell="KFP example")
