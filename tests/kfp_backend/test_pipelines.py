"""The pipelines without code on the back end: each is uploaded, and a run has changed parameters only."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import subprocess
import sys

import pytest

from tests.kfp_backend.pipeline_run import PipelineRun, stored_size
from tests.support.object_server import StoredObject
from tests.support.polling import wait_until

pytestmark = [
    pytest.mark.timeout(900, func_only=True),
    pytest.mark.trl,
    pytest.mark.usefixtures("torchrun_lock"),
]
SECONDS = 800.0
ON_THE_CPU = {"model_uri": "hf://demo/tiny-llama", "gpus": 0, "cpu": "1", "memory": "2Gi"}
MAX_WORKFLOW_BYTES = 1_000_000  # Argo stores at most 1 MiB


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Return the folder of the compiled packages, as a platform team makes them."""
    folder = tmp_path_factory.mktemp("packages")
    command = [sys.executable, "-m", "trainjob_kfp.pipelines", folder, "--workspace-size", "1Gi"]
    subprocess.run(command, check=True)
    return folder


@pytest.fixture
def start_package(backend, kfp_client, packages):
    """Return a function that uploads a package and starts a run of the uploaded version."""
    experiment = kfp_client.create_experiment("pipelines")

    def start(name: str, **parameters) -> PipelineRun:
        [package] = packages.glob(f"{name}-*.yaml")
        uploaded = kfp_client.upload_pipeline(str(package), pipeline_name=name)
        [version] = kfp_client.list_pipeline_versions(uploaded.pipeline_id).pipeline_versions
        run = kfp_client.run_pipeline(
            experiment.experiment_id,
            f"{name} from the form",
            params={**ON_THE_CPU, **parameters},
            pipeline_id=uploaded.pipeline_id,
            version_id=version.pipeline_version_id,
        )
        return PipelineRun(backend, kfp_client, run.run_id)

    return start


def succeed(run: PipelineRun) -> dict[str, bytes]:
    """Wait for a run's success, and return the files of its model by name.

    Their digests are those in the manifest.
    """
    workflow = run.wait_until_succeeded(SECONDS)
    size, _ = stored_size(workflow)
    print(f"{workflow['metadata']['name']}: {size:,} bytes")
    assert size < MAX_WORKFLOW_BYTES
    folder = "/model/"
    files = {path.rpartition(folder)[2]: data for path, data in run.stored_objects().items() if folder in path}
    manifest = json.loads(files.pop("manifest.json"))
    listed = {name: file["sha256"] for name, file in manifest["files"].items()}
    assert {name: hashlib.sha256(data).hexdigest() for name, data in files.items()} == listed
    return files


def test_examples_of_a_table_are_learned_with_lora(start_package, backend):
    """The dataset is a CSV file of an own store, with own names of columns, and a tenth of its rows is held out."""
    table = io.StringIO()
    rows = csv.writer(table)
    rows.writerow(("question", "reply"))
    rows.writerows((f"Ticket {number}: no “network”?", "Restart,\nplease") for number in range(40))
    names = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tables"}}
    values = {name: backend.store.environment[name] for name in names}
    backend.cluster.create({**secret, "stringData": values}, backend.namespace)
    backend.store.objects["mlpipeline/tables/tickets.csv"] = StoredObject(table.getvalue().encode("utf-8-sig"), {})
    run = start_package(
        "sft-lora",
        dataset_uri="s3://mlpipeline/tables/tickets.csv",
        dataset_endpoint=backend.store.url,
        dataset_secret="tables",
        dataset_columns={"prompt": "question", "completion": "reply"},
        eval_fraction=0.1,
        config={"precision": "fp32", "max_length": 128},
        batch_size=4,
        learning_rate=1e-2,
    )
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(succeed(run))
    log = run.read_step_logs()
    assert "36 rows for training in /workspace/dataset/data/train.jsonl" in log
    assert "4 rows for evaluation in /workspace/dataset/eval/eval.jsonl" in log
    assert "eval_loss" in log


def test_better_answers_are_preferred(start_package):
    run = start_package(
        "preference-tuning-lora",
        dataset_uri="hf://demo/tickets/pairs",
        dataset_split="train[:64]",
        adapter="keep",
        config={"precision": "fp32", "max_length": 128, "arguments": {"beta": 0.1}},
    )
    assert {"adapter_config.json", "adapter_model.safetensors"} <= set(succeed(run))


def list_claims(backend, workflow):
    return [
        claim
        for claim in backend.cluster.list("PersistentVolumeClaim", backend.namespace)
        if workflow in claim["metadata"]["name"]
    ]


def test_rewarded_answers_are_learned_and_the_run_leaves_nothing(start_package, backend):
    run = start_package(
        "grpo-lora",
        dataset_uri="hf://demo/tickets/chats",
        dataset_split="train[:8]",
        config={
            "precision": "fp32",
            "reward_functions": ["think_format_reward"],
            "arguments": {"num_generations": 4, "max_completion_length": 8},
        },
    )
    assert {"config.json", "model.safetensors"} <= set(succeed(run))
    assert len(run.list_trainjobs()) == 4
    name = run.workflow["metadata"]["name"]
    backend.cluster.delete("Workflow", backend.namespace, name)
    wait_until(lambda: not run.list_trainjobs() and not list_claims(backend, name), SECONDS)
