"""Wrong configurations are refused before anything is sent, and wrong input in the pod's first seconds."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.integration.sentence_transformers.rows import build_rows, write_rows
from tests.integration.sentence_transformers.tiny_config import tiny_config
from trainjob import FineTune, InvalidSpec
from trainjob.errors import CommandFailed, InstallationFailed
from trainjob.spec.trainers import trainer_image

COSENT = "CoSENTLoss"
CONFIGURATIONS = {
    "no loss": ({"loss": None}, "config.loss cannot be None: it must be 'MultipleNegativesRankingLoss', "),
    "unknown loss": ({"loss": "SoftmaxLoss"}, "config.loss cannot be 'SoftmaxLoss': it must be 'MultipleNegatives"),
    "the trainer's name": ({"num_train_epochs": 2}, "did you mean epochs?"),
    "further argument as a field": ({"max_grad_norm": 0.1}, "did you mean arguments.max_grad_norm?"),
    "unknown argument": (
        {"arguments": {"logging_step": 1}},
        "config.arguments.logging_step: sentence-transformers 6.2.0 has no such argument; did you mean logging_steps",
    ),
    "argument of a field": ({"arguments": {"num_train_epochs": 1}}, "give epochs"),
    "warm-up by its old name": ({"arguments": {"warmup_ratio": 0.1}}, "give warmup_steps: a number below 1"),
    "tracker": ({"arguments": {"report_to": "wandb"}}, "give tracking to the step"),
    "another loss's argument": (
        {"loss": "CosineSimilarityLoss", "loss_arguments": {"scale": 20.0}},
        "config.loss_arguments.scale: CosineSimilarityLoss has no such argument",
    ),
    "another loss's column": (
        {"loss": COSENT, "columns": {"anchor": "question"}},
        "config.columns.anchor: CoSENTLoss has no such column: it has score, sentence1, sentence2",
    ),
    "LoRA": ({"peft_config": {"lora_rank": 8}}, "all weights are trained"),
    "DeepSpeed": ({"deepspeed": {"zero_optimization": {}}}, "each process trains a copy of the model (DDP)"),
    "packing": ({"packing": True}, "texts do not share a sequence"),
    "range of nodes": ({"num_nodes": (1, 2)}, "the samples of a step depend on the number of processes"),
    "one checkpoint": ({"arguments": {"save_total_limit": 1}}, "give at least 2"),
}


@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_a_wrong_configuration_is_refused_when_it_is_created(case):
    fields, rule = CONFIGURATIONS[case]
    with pytest.raises(InvalidSpec) as raised:
        FineTune(model="tiny", workspace="w", config=tiny_config(**fields))
    assert rule in str(raised.value)


def test_a_loss_of_single_rows_allows_a_range_of_nodes():
    step = FineTune(model="tiny", workspace="w", config=tiny_config("CosineSimilarityLoss", num_nodes=(1, 2)))
    assert step.config.samples_per_step == 8


def test_the_command_fits_into_an_item_of_a_manifest():
    """The Trainer allows 65,536 characters (Trainer 2.2)."""
    from trainjob.spec.framework import get_framework

    step = FineTune(model="tiny", workspace="w", config=tiny_config())
    assert max(map(len, get_framework(step.config).build_trainer(step, "{}").command)) < 62_000


in_pod = [pytest.mark.sentence_transformers, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]
INPUT = {
    "missing columns": (
        tiny_config(COSENT),
        {},
        "dataset_path cannot be a dataset with anchor, positive: CoSENTLoss needs sentence1 + sentence2 + score",
    ),
    "scores of another scale": (
        tiny_config("CosineSimilarityLoss"),
        {"dataset_path": "five"},
        "row 1, column score: 4.5 is no cosine: scale the scores to -1 to 1, or use CoSENTLoss",
    ),
    "number for a text": (tiny_config(), {"dataset_path": "numbers"}, "column anchor: it must be a text, but is 5"),
    "no model": (tiny_config(), {"model_path": "dataset"}, "it must be the folder of a model with config.json"),
    "own code": (tiny_config(), {"model_path": "own"}, "its module custom_st.Transformer is code of the model itself"),
    "no transformer": (tiny_config(), {"model_path": "words"}, "it must be a Transformer"),
    "missing module": (
        tiny_config(),
        {"model_path": "half"},
        "1_Pooling/config.json is missing: fetch the model again",
    ),
    "reranker": (tiny_config(), {"model_path": "other"}, "it is a CrossEncoder: this framework trains a Sentence"),
}


@pytest.fixture
def wrong_inputs(workspace, encoders):
    """Add models and datasets that cannot be trained."""
    for name, old, new in (
        ("own", "sentence_transformers.base.modules.transformer", "custom_st"),
        ("words", "modules.transformer.Transformer", "modules.WordEmbeddings"),
    ):
        shutil.copytree(encoders / "modules", workspace / name)
        path = workspace / name / "modules.json"
        path.write_text(path.read_text().replace(old, new))
    for name in ("model", "half", "other"):
        shutil.copytree(encoders / "modules", workspace / name)
    (workspace / "half/1_Pooling/config.json").unlink()
    path = workspace / "other/config_sentence_transformers.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": "CrossEncoder"}))
    rows = [{**row, "score": 4.5} for row in build_rows("scored")]
    write_rows(workspace / "dataset/five/train.jsonl", rows)
    write_rows(workspace / "dataset/numbers/train.jsonl", [{"anchor": 5, "positive": "five"}])


@pytest.mark.usefixtures("wrong_inputs")
@pytest.mark.parametrize("case", [pytest.param(case, marks=in_pod) for case in INPUT])
def test_wrong_input_is_refused_in_the_pod(run_training, workspace, case):
    config, fields, rule = INPUT[case]
    outcome, _ = run_training("run", config, **{"dataset_path": "pairs", **fields})
    with pytest.raises(CommandFailed) as raised:
        outcome.raise_for_failure()
    assert rule in str(raised.value)
    assert not list((workspace / "output").glob("run/checkpoint-*"))


@pytest.mark.sentence_transformers
@pytest.mark.slow
@pytest.mark.usefixtures("wrong_inputs")
def test_a_failed_installation_is_an_error_of_its_own(run_training, workspace):
    """This image has torch, but not sentence-transformers, and the folder with the wheels is empty."""
    (workspace / "wheels").mkdir()
    config = tiny_config(wheels_path="wheels")
    outcome, _ = run_training("run", config, dataset_path="pairs", image=trainer_image("torchtune-trainer"))
    with pytest.raises(InstallationFailed, match=r"pip ended with 1 for sentence-transformers 6\.2\.0"):
        outcome.raise_for_failure()
    assert outcome.retryable
