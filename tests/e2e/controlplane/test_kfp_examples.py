"""The pipelines of examples/kfp, compiled, and run with `kfp.local` on a laptop cluster with the demo's tickets."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import kubernetes
import pytest

from tests.support.dag_examples import read_hub_objects
from tests.support.demo_chain import laptop_with_demo_hub
from tests.support.mlflow_server import MLflowServer, check_tracked_example
from tests.support.registry_server import RegistryServer
from tests.support.s3_server import S3Server, StoredObject
from trainjob.client import Cluster, Connection
from trainjob.status import Phase, derive_verdict
from trainjob_demo.engines.kfp import RUN_PIPELINE

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "kfp"
PYTHON = ROOT / ".venv" / "kfp" / "bin" / "python"

# The wait for the lock, in the fixtures, does not count.
pytestmark = [pytest.mark.timeout(300, func_only=True), pytest.mark.torchtune]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="module")
def laptop(folder):
    with laptop_with_demo_hub(folder) as cluster:
        yield cluster


@pytest.fixture
def finished_jobs(laptop):
    """Return a function that returns the phase of each TrainJob of this test, by name."""
    cluster = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)), retry_seconds=5.0)
    before = {job["metadata"]["name"] for job in cluster.list_trainjobs("default")}
    yield lambda: {
        job["metadata"]["name"]: derive_verdict(job).phase
        for job in cluster.list_trainjobs("default")
        if job["metadata"]["name"] not in before
    }
    cluster.close()


def run_pipeline(laptop, name, *arguments):
    """Run a pipeline to its success, and return its log."""
    environment = {**os.environ, "KUBECONFIG": str(laptop.kubeconfig)}
    command = [PYTHON, RUN_PIPELINE, EXAMPLES / f"{name}.py", "run", *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def parse_receipts(log):
    """Return the receipts of the exports in a log, by the name of their folder.

    Only the names are comparable, because the laptop cluster has other paths.
    """
    found = [json.loads(text) for text in re.findall(r"\[node-0\] export: done (\{.*\})", log)]
    return {Path(receipt["destination"]).name: receipt for receipt in found}


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_each_example_compiles_as_documented(example, tmp_path):
    assert f"{example.name} compile OUT.yaml" in example.read_text()
    subprocess.run([PYTHON, example, "compile", tmp_path / "out.yaml"], check=True)
    text = (tmp_path / "out.yaml").read_text()
    assert f"name: {example.stem.replace('_', '-')}" in text
    assert "-m pip install" not in text  # the image holds all that is needed


@pytest.mark.usefixtures("torchrun_lock")
def test_a_good_model_is_promoted_and_a_worse_one_is_not(laptop, finished_jobs, evidence):
    log = run_pipeline(laptop, "nightly_promotion")
    [evaluation] = parse_evaluations(log)
    assert evaluation["scores"]["answers/right"]["value"] > 0.8
    assert evaluation["champion_scores"] == {}
    [promotion] = [json.loads(text) for text in re.findall(r"promote: done (\{.*\})", log)]
    assert (promotion["promoted"], promotion["before"]) == (True, "")
    assert len(finished_jobs()) == 6
    log = run_pipeline(laptop, "nightly_promotion", "epochs=1.0", "minimum=0.0")
    [evaluation] = parse_evaluations(log)
    assert evaluation["passed"] is False
    assert evaluation["differences"]["answers/right"]["high"] < 0
    assert "promote: done" not in log
    assert len(finished_jobs()) == 11
    assert set(finished_jobs().values()) == {Phase.COMPLETE}
    for row in ("Hub initializer", "TorchTune models", "export"):
        evidence("features", row=row, cell="KFP example")


def parse_evaluations(log):
    return [json.loads(text) for text in re.findall(r"evaluate: done (\{.*\})", log)]


def test_a_sweep_exports_its_best_try(laptop, finished_jobs):
    log = run_pipeline(laptop, "sweep", "learning_rates=[3e-3, 1e-4]")
    [losses] = re.findall(r"losses: \[([\d.]+), ([\d.]+)\]", log)
    good, bad = map(float, losses)
    assert good < bad
    [receipt] = parse_receipts(log).values()
    assert receipt["metrics"]["loss"] == pytest.approx(good, abs=1e-3)
    assert set(finished_jobs().values()) == {Phase.COMPLETE}
    assert len(finished_jobs()) == 5


def test_preference_tuning_after_a_fine_tuning(laptop, finished_jobs, evidence):
    receipts = parse_receipts(run_pipeline(laptop, "preference_tuning"))
    assert set(receipts) == {"taught", "export"}
    assert receipts["export"]["metrics"]["loss"] < 0.6  # it started at log 2, without a preference
    assert set(finished_jobs().values()) == {Phase.COMPLETE}
    evidence("features", row="TorchTune recipes", cell="KFP example")


@pytest.mark.usefixtures("torchrun_lock")
def test_preference_tuning_of_an_adapter_with_trl(laptop, finished_jobs, evidence):
    check_preference_tuning(laptop, finished_jobs, "trl_preferences")
    evidence("features", row="TRL", cell="KFP example")


@pytest.mark.llamafactory
def test_preference_tuning_after_an_adapter_with_llamafactory(laptop, finished_jobs, evidence):
    check_preference_tuning(laptop, finished_jobs, "llamafactory_preferences")
    evidence("features", row="LLaMA-Factory", cell="KFP example")


def check_preference_tuning(laptop, finished_jobs, pipeline):
    receipts = parse_receipts(run_pipeline(laptop, pipeline))
    assert set(receipts) == {"sft", "export"}
    assert receipts["export"]["metrics"]["loss"] < 0.6  # it started at log 2, without a preference
    assert receipts["export"]["manifest_sha256"] != receipts["sft"]["manifest_sha256"]
    assert set(finished_jobs().values()) == {Phase.COMPLETE}


@pytest.mark.usefixtures("torchrun_lock")
def test_a_fine_tuning_is_tracked(laptop, finished_jobs, evidence):
    with MLflowServer() as server:
        log = run_pipeline(laptop, "tracked", f"mlflow={server.url}")
        [run] = server.list_runs("tracked")
        check_tracked_example(server, run)
    evidence("features", row="MLflow", cell="KFP example")
    assert (
        f"tracking: run {server.url}/#/experiments/{run['info']['experiment_id']}/runs/{run['info']['run_id']}" in log
    )
    assert set(finished_jobs().values()) == {Phase.COMPLETE}


@pytest.mark.usefixtures("torchrun_lock")
def test_rewards_of_a_function_rise_with_trl(laptop, finished_jobs, evidence):
    log = run_pipeline(laptop, "trl_rewards")
    rewards = [float(text) for text in re.findall(r"'reward': '?(-?[0-9.]+)", log)]
    assert len(rewards) >= 4, log[-6000:]
    assert rewards[-1] > rewards[0] + 0.1
    assert set(finished_jobs().values()) == {Phase.COMPLETE}
    evidence("features", row="TRL", cell="KFP example")


@pytest.mark.usefixtures("torchrun_lock")
def test_two_nodes_train_one_model_with_trl(laptop, finished_jobs, evidence):
    log = run_pipeline(laptop, "trl_two_nodes")
    [receipt] = parse_receipts(log).values()
    assert "22/22 (100 %)" in log  # 340 rows in batches of 8 on two nodes
    assert receipt["metrics"]["loss"] < 2.5  # it started at 5.6
    assert set(finished_jobs().values()) == {Phase.COMPLETE}
    evidence("features", row="TRL", cell="KFP example")


def test_an_object_store_for_the_source_and_the_export(laptop, folder, finished_jobs, evidence, tmp_path):
    core = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(str(laptop.kubeconfig)))
    with S3Server() as store:
        store.objects = {key: StoredObject(data, {}) for key, data in read_hub_objects(folder / "hub").items()}
        secret = {"metadata": {"name": "object-store"}, "stringData": store.environment}
        core.create_namespaced_secret("default", secret)
        log = run_pipeline(laptop, "object_store", f"endpoint={store.url}", f"workspace={tmp_path}")
    [receipt] = parse_receipts(log).values()
    assert receipt["destination"] == "s3://models/tickets-llm"
    assert {"config.json", "model.safetensors", "manifest.json"} <= set(store.read_prefix("models/tickets-llm"))
    assert set(finished_jobs().values()) == {Phase.COMPLETE}
    assert not any(secret in log for secret in store.environment.values())
    evidence("features", row="S3 initializer", cell="KFP example")
    evidence("features", row="export", cell="KFP example")


def test_a_container_gets_parameters_and_returns_a_result(laptop, evidence):
    log = run_pipeline(laptop, "container", "points=50000")
    for node in (0, 1):
        assert re.search(rf"\[node-{node}\] node {node} of 2: \d+ of 50000 points", log)
    [estimate] = re.findall(r"pi is about ([\d.]+)", log)
    assert float(estimate) == pytest.approx(3.14, abs=0.05)
    evidence("features", row="container", cell="KFP example")


def test_a_model_is_registered_with_its_sources(laptop, finished_jobs, evidence, tmp_path):
    with RegistryServer() as registry:
        registration = {"server": registry.url, "model": "tickets"}
        log = run_pipeline(laptop, "registered", f"registry={json.dumps(registration)}", f"workspace={tmp_path}")
    [receipt] = parse_receipts(log).values()
    [(name, properties)] = registry.version_properties().items()
    assert name == f"tickets/{receipt['registered']['version']}"
    assert properties["digest"] == receipt["manifest_sha256"]
    assert properties["base_model"] == "hf://demo/tiny-llama"
    assert re.fullmatch(r"[0-9a-f-]{36}", properties["trainjob_uid"])
    [artifact] = registry.objects["model_artifact"]
    assert (artifact["uri"], registry.violations) == (f"file://{tmp_path}/registered", [])
    assert set(finished_jobs().values()) == {Phase.COMPLETE}
    for row in ("export", "model registry", "Hub initializer"):
        evidence("features", row=row, cell="KFP example")


@pytest.mark.usefixtures("torchrun_lock")
def test_a_function_trains_on_two_nodes_and_returns_a_result(laptop, evidence):
    log = run_pipeline(laptop, "distributed_function", "steps=100")
    for node in (0, 1):
        assert f"[node-{node}] process {node} of 2: 3 points" in log
    [learned] = re.findall(r"y = ([\d.]+) x \+ (-[\d.]+), learned by 2 processes", log)
    assert [float(number) for number in learned] == pytest.approx([3, -1], abs=0.1)
    for row in ("Python function", "PyTorch DDP/FSDP"):
        evidence("features", row=row, cell="KFP example")
