"""From a training to the served model, with everything real but KServe's controller.

A tiny model with random weights is served at first. The trained one is known to be better.
"""

from __future__ import annotations

import contextlib

import pytest

from control_plane import ControlPlane
from tests.support.demo_chain import ENVIRONMENTS, make_demo_hub
from tests.support.kserve_controller import KServeController
from tests.support.kubernetes_client import Client
from tests.support.shipped_manifests import load_objects
from trainjob import (
    CommandFailed,
    CustomTrainerContainer,
    Evaluate,
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    Promote,
    Rollback,
    RunKey,
    TorchTuneConfig,
    TrainJob,
    submit,
    wait,
)
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import Listener
from trainjob.status.step_result import parse_step_result
from trainjob_demo.dags.tiny_llama import CPU, TINY
from trainjob_local.demo.hub import HubServer

pytestmark = [pytest.mark.timeout(600), pytest.mark.torchtune, pytest.mark.usefixtures("torchrun_lock")]
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
WORSE, BETTER = "pvc://tickets/models/worse", "pvc://tickets/models/better"
IMAGE = "pytorch/pytorch"


def answers(model_path):
    """Return whether each held-out ticket gets the right answer."""
    import os
    from pathlib import Path

    import torch
    from pyarrow.parquet import ParquetFile
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    [held_out] = Path(os.environ["HELD_OUT"]).glob("*.parquet")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model_path)
    model = LlamaForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
    found = []
    for row in ParquetFile(held_out).read().to_pylist():
        chat = [{"role": "user", "content": row["input"]}]
        text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        prompt = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        tokens = model.generate(prompt, max_new_tokens=12, do_sample=False, pad_token_id=tokenizer.pad_token_id)
        answer = tokenizer.decode(tokens[0, prompt.shape[1] :], skip_special_tokens=True)
        found.append({"right": float(answer == row["output"])})
    return found


@pytest.fixture
def plane(tmp_path):
    if reason := ControlPlane.unavailable_reason(kserve=True):
        pytest.skip(reason)
    make_demo_hub(tmp_path / "hub")
    with contextlib.ExitStack() as stack:
        hub = stack.enter_context(HubServer(tmp_path / "hub"))
        pods = {"HF_ENDPOINT": hub.url}
        environments = {**ENVIRONMENTS, "pytorch": ENVIRONMENTS["torchtune"]}
        yield stack.enter_context(
            ControlPlane(tmp_path / "state", kserve=True, environments=environments, pod_env=pods)
        )


@pytest.fixture
def run(plane):
    """Return a function that runs a step to its end, and returns its outcome and result."""
    with contextlib.closing(Cluster(Connection(kubeconfig=str(plane.kubeconfig)), retry_seconds=20.0)) as cluster:
        metadata = {"name": "tickets", "namespace": "default"}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": CLAIM}
        cluster.create_claim(claim)

        def run_step(step, task, night):
            lines = []
            reference = submit(cluster, step, RunKey("test", "nightly", task, night), timeout=60)
            outcome = wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(line.text)))
            results = [result for line in lines if (result := parse_step_result(line))]
            return outcome, results[-1] if results else {}

        yield run_step


def evaluate(model):
    return Evaluate(
        workspace="tickets",
        model_path=f"models/{model}",
        champion={"service": "tickets"},
        function=answers,
        gates={"answers/right": {"better_than_champion": True}},
        image=IMAGE,
        env={"HELD_OUT": "/workspace/dataset/heldout"},
        output_path=f"evaluation-{model}",
        any_run=True,
    )


def promote(model):
    return Promote(
        workspace="tickets", model=f"/workspace/models/{model}", service="tickets", image=IMAGE, time_limit=60
    )


def test_the_better_model_is_promoted_and_the_worse_is_not(plane, run):
    config = TorchTuneConfig(epochs=4, batch_size=8, dtype="fp32", learning_rate=3e-3, overrides=(*CPU, *TINY))
    copies = "mkdir -p /workspace/models && cp -r /workspace/model /workspace/models/worse"
    steps = {
        "dataset": InitializeDataset(workspace="tickets", storage_uri="hf://demo/tickets"),
        "model": InitializeModel(workspace="tickets", storage_uri="hf://demo/tiny-llama"),
        "worse": TrainJob(
            workspace="tickets", trainer=CustomTrainerContainer(image=IMAGE, command=["sh", "-c", copies])
        ),
        "train": FineTune(workspace="tickets", model="llama3.2-1b", config=config),
        "better": ExportModel(workspace="tickets", destination="/workspace/models/better"),
    }
    for task, step in steps.items():
        outcome, _ = run(step, task, "monday")
        assert outcome.succeeded, outcome.message
    client = Client.from_kubeconfig(str(plane.kubeconfig))
    for found in load_objects("promotion"):
        client.create(found, "default")
    model = {"modelFormat": {"name": "huggingface"}, "storageUri": WORSE}
    service = {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "tickets"}}
    client.create({**service, "spec": {"predictor": {"model": model}}}, "default")
    with KServeController(plane.kubeconfig) as kserve:
        kserve.wait_until_served("tickets", {WORSE: 100})
        _, report = run(evaluate("better"), "evaluate", "monday")
        assert report["passed"] is True, report
        assert report["scores"]["answers/right"]["value"] > 0.8
        assert report["champion_scores"]["answers/right"]["value"] < 0.1
        assert report["differences"]["answers/right"]["low"] > 0
        kserve.set_load_result(BETTER, "fails")
        failed, _ = run(promote("better"), "promote", "monday")
        with pytest.raises(CommandFailed, match=f"{BETTER} was not promoted: ModelLoadFailed"):
            failed.raise_for_failure()
        kserve.wait_until_served("tickets", {WORSE: 100})
        kserve.set_load_result(BETTER, "ready")
        _, promoted = run(promote("better"), "promote", "tuesday")
        assert promoted["before"] == WORSE
        kserve.wait_until_served("tickets", {BETTER: 100})
        _, report = run(evaluate("worse"), "evaluate", "wednesday")
        assert report["passed"] is False
        _, undone = run(Rollback(service="tickets", image=IMAGE, any_run=True), "undo", "thursday")
        assert (undone["rolled_back"], undone["model"]) == (True, WORSE)
        kserve.wait_until_served("tickets", {WORSE: 100})
        assert kserve.history("tickets")[-3:] == [{WORSE: 100}, {BETTER: 100}, {WORSE: 100}]
    client.close()
