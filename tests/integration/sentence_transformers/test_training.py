"""An embedding model is trained, reports progress, is exported, and loads with the same embeddings."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml

from tests.integration.sentence_transformers.tiny_config import tiny_config
from tests.integration.tracking.event_files import read_event_files
from tests.support.mlflow_server import TRACKING_PYTHON
from trainjob import TensorBoard, WorkspaceVolume, wait
from trainjob.frameworks.tracking.recorder_process import PYTHON_VARIABLE
from trainjob.inspection.model_location import find_model
from trainjob.lifecycle import Listener

pytestmark = [pytest.mark.sentence_transformers, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

TOP = ("config.json", "config_sentence_transformers.json", "model.safetensors", "modules.json")
SAVED = {*TOP, "sentence_bert_config.json", "tokenizer.json", "tokenizer_config.json", "README.md", "manifest.json"}
POOLING, NORMALIZE = "1_Pooling/config.json", "2_Normalize/config.json"
# Form of the model -> the modules after a training, and the exported files in folders.
FORMS = {
    "modules": (["Transformer", "Pooling", "Normalize"], {POOLING, NORMALIZE}),
    "older": (["Transformer", "Pooling", "Normalize"], {POOLING, NORMALIZE}),
    "plain": (["Transformer", "Pooling"], {POOLING}),
    "dense": (
        ["Transformer", "Pooling", "Dense", "Normalize"],
        {POOLING, "2_Dense/config.json", "2_Dense/model.safetensors", "3_Normalize/config.json"},
    ),
}


def list_files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("form", FORMS)
def test_the_exported_model_loads_and_gives_the_embeddings_of_the_trained_one(
    run_training, export_model, workspace, encoders, embed, form
):
    shutil.copytree(encoders / form, workspace / "model")
    outcome, lines = run_training("run", tiny_config(max_steps=8), dataset_path="pairs")
    assert outcome.succeeded, lines[-20:]
    log = export_model("run")
    modules, in_folders = FORMS[form]
    assert list_files(workspace / "export") == SAVED | in_folders
    assert not [line for line in log if "does not" in line or "has none" in line], log
    found = embed(workspace / "model", workspace / "output" / "run", workspace / "export")
    assert found["export"]["modules"] == modules
    assert found["export"]["vectors"] == found["run"]["vectors"] != found["model"]["vectors"]
    assert found["export"]["length"] == 32
    front = yaml.safe_load((workspace / "export" / "README.md").read_text().split("---\n")[1])
    assert front["library_name"] == "sentence-transformers"
    assert front["tags"] == ["sentence_transformers", "embedding", "trainjob"]


def test_progress_and_tracking_have_the_steps_and_losses(cluster, submit_training, workspace, encoders):
    shutil.copytree(encoders / "modules", workspace / "model")
    shutil.copytree(workspace / "dataset" / "pairs", workspace / "dataset" / "held-out")
    reference = submit_training(
        "run",
        tiny_config(epochs=2, eval_dataset_path="held-out"),
        dataset_path="pairs",
        tracking=TensorBoard(),
        env={PYTHON_VARIABLE: str(TRACKING_PYTHON)},
    )
    progress = []
    wait(cluster, reference, listener=Listener(on_progress=progress.append)).raise_for_failure()
    steps = [each for each in progress if each.loss is not None]
    assert {each.total for each in steps} == {12}
    assert {each.step for each in steps} >= {2, 4, 6, 8, 10, 12}
    assert (steps[-1].epoch, steps[-1].epochs) == (2, 2)
    assert steps[-1].loss < steps[0].loss
    assert steps[-1].metrics["eval_loss"] > 0
    events = read_event_files(next(workspace.glob("tensorboard/*/*")))
    assert [step for step, _ in events["scalars"]["loss"]] == [2, 4, 6, 8, 10, 12]
    assert [step for step, _ in events["scalars"]["eval_loss"]] == [6, 12]
    assert any("MultipleNegativesRankingLoss" in text for texts in events["texts"].values() for text in texts)
    where = WorkspaceVolume(node_path=str(workspace))
    assert find_model(cluster, cluster.get_trainjob(reference.name, reference.namespace)) == (where, "run")
    record = json.loads((workspace / "output" / "run" / "trainjob_run.json").read_text())
    assert (record["complete"], record["step"], record["folders"]) == (True, 12, ["1_Pooling", "2_Normalize"])
    assert record["parameters"]["loss"] == "MultipleNegativesRankingLoss"


LOSSES = {
    "CachedMultipleNegativesRankingLoss": ("pairs", {"loss_arguments": {"mini_batch_size": 2}}),
    "MultipleNegativesRankingLoss": ("triplets", {"matryoshka_dims": [32, 16], "loss_arguments": {"scale": 10.0}}),
    "TripletLoss": ("triplets", {"loss_arguments": {"triplet_margin": 0.5}}),
    "CoSENTLoss": ("scored", {"arguments": {"prompts": {"sentence1": "query: "}}}),
    "AnglELoss": ("scored", {}),
    "CosineSimilarityLoss": ("scored", {"warmup_steps": 0.5}),
    "ContrastiveLoss": ("labeled", {"precision": "bf16"}),
    "OnlineContrastiveLoss": ("labeled", {"loss_arguments": {"margin": 0.4}}),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_each_loss_trains_on_the_rows_that_it_needs(run_training, workspace, encoders, loss):
    columns, fields = LOSSES[loss]
    shutil.copytree(encoders / "modules", workspace / "model")
    outcome, lines = run_training("run", tiny_config(loss, max_steps=4, **fields), dataset_path=columns)
    assert outcome.succeeded, lines[-20:]
    assert [line for line in lines if "'step': 4, 'max_steps': 4" in line and "'loss'" in line]


def test_columns_can_be_renamed_and_others_are_not_trained_on(run_training, workspace, encoders, embed):
    """The trainer would take a further column for a negative example."""
    shutil.copytree(encoders / "modules", workspace / "model")
    rows = [json.loads(line) for line in (workspace / "dataset/pairs/train.jsonl").read_text().splitlines()]
    other = [{"id": "x", "answer": row["positive"], "question": row["anchor"], "note": "the note"} for row in rows]
    (workspace / "dataset/renamed").mkdir()
    (workspace / "dataset/renamed/train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in other))
    for name, columns in (("pairs", {}), ("renamed", {"anchor": "question", "positive": "answer"})):
        outcome, lines = run_training(name, tiny_config(max_steps=4, columns=columns), dataset_path=name)
        assert outcome.succeeded, lines[-20:]
    found = embed(workspace / "output" / "pairs", workspace / "output" / "renamed")
    assert found["pairs"]["vectors"] == found["renamed"]["vectors"]


def test_two_processes_train_one_model(run_training, workspace, encoders, embed):
    shutil.copytree(encoders / "dense", workspace / "model")
    config = tiny_config(max_steps=4, num_proc_per_node=2, save_strategy="steps", save_steps=2)
    outcome, lines = run_training("run", config, dataset_path="pairs")
    assert outcome.succeeded, lines[-20:]
    assert "trains with 2 processes on 1 node from step 0" in lines
    record = json.loads((workspace / "output" / "run" / "trainjob_run.json").read_text())
    assert (record["complete"], record["attempts"]) == (True, [{"step": 0, "processes": 2, "nodes": 1}])
    assert embed(workspace / "output" / "run")["run"]["modules"] == ["Transformer", "Pooling", "Dense", "Normalize"]
