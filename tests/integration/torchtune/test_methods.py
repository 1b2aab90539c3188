"""Each method with real TorchTune on the tiny model, and all names that requests pass to TorchTune."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.torchtune.tiny_trainings import CPU, SHAPE, TEACHER_SHAPE, tiny_config
from trainjob import (
    Distillation,
    LoraConfig,
    PreferenceTuning,
    Quantization,
    QuantizationAware,
    TorchTuneChatDataset,
    TorchTuneConfig,
    TorchTunePreferenceDataset,
)
from trainjob.frameworks.torchtune.models import MODELS, TEACHERS
from trainjob.frameworks.torchtune.recipes import select_recipe
from trainjob_demo.tickets.make_data import make_tickets, preference_pair

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.torchtune, pytest.mark.slow]
LORA = LoraConfig(lora_rank=16, lora_alpha=32)


def read_metric(workspace, name, metric):
    """Return all values of a metric, in the order of the steps."""
    [log] = (workspace / "output" / name / "logs").glob("*.txt")
    return [float(value) for value in re.findall(rf"{metric}:([-\d.e]+|nan)", log.read_text())]


def write_rows(workspace, rows):
    (workspace / "dataset/rows.json").write_text("\n".join(map(json.dumps, rows)))


def conversation(ticket, answer):
    return [{"role": "user", "content": ticket}, {"role": "assistant", "content": answer}]


@pytest.mark.parametrize("lora", [LORA, None], ids=["lora", "all-weights"])
def test_preference_tuning_makes_the_model_prefer_the_better_answer(
    run_training, workspace, cpu_for_gpus, lora, evidence
):
    pairs = [preference_pair(*ticket) for ticket in make_tickets()[:160]]
    write_rows(workspace, [dict(zip(("good", "bad"), pair, strict=True)) for pair in pairs])
    config = tiny_config(
        preference_tuning=PreferenceTuning(beta=0.1),
        peft_config=lora,
        dataset_preprocess_config=TorchTunePreferenceDataset(
            source="json", column_map={"chosen": "good", "rejected": "bad"}
        ),
        epochs=1,
    )
    outcome, _ = run_training("pairs", config, dataset_path="rows.json", env=cpu_for_gpus)
    outcome.raise_for_failure()
    losses = read_metric(workspace, "pairs", "loss")
    assert losses[0] == pytest.approx(0.693, abs=0.01)  # log 2: the model prefers neither answer yet
    assert losses[-1] < 0.3
    assert list((workspace / "output/pairs/epoch_0").glob("model-*.safetensors"))
    evidence("features", row="TorchTune recipes", cell="real run")


def test_a_model_learns_from_a_larger_one(run_training, workspace):
    outcome, _ = run_training("teacher", tiny_config(epochs=2))
    outcome.raise_for_failure()
    saved = workspace / "output/teacher/epoch_1"
    taught = tiny_config(
        *TEACHER_SHAPE,
        "teacher_checkpointer.checkpoint_files=[model-00001-of-00001.safetensors]",
        distillation=Distillation(teacher="llama3.2-3b", teacher_path="teacher", ratio=0.5),
        peft_config=LORA,
        epochs=1,
    )
    saved.rename(workspace / "teacher")
    outcome, _ = run_training("taught", taught)
    outcome.raise_for_failure()
    for loss in ("loss", "kd_loss"):
        values = read_metric(workspace, "taught", rf"(?<![a-z_]){loss}")
        assert sum(values[-3:]) < sum(values[:3])


READ_WEIGHTS = """
import json, sys, torch
from safetensors.torch import load_file
numbers, scales, _ = (
    torch.load(sys.argv[1], weights_only=False)["layers.0.mlp.w1.weight"].original_weight_tensor.tensor_impl.get_plain()
)
groups = load_file(sys.argv[2])["model.layers.0.mlp.gate_proj.weight"].unflatten(1, (-1, 32))
away = (groups - numbers.unflatten(1, (-1, 32)) * scales.unsqueeze(-1)).abs()
print(json.dumps([int(numbers.min()), int(numbers.max()), float((away / scales.unsqueeze(-1)).max())]))
"""


def test_a_model_from_quantization_aware_training_is_quantized(run_training, workspace, cpu_for_gpus):
    aware = tiny_config(epochs=1, quantization_aware=QuantizationAware(group_size=32))
    outcome, _ = run_training("aware", aware, env=cpu_for_gpus)
    outcome.raise_for_failure()
    losses = read_metric(workspace, "aware", "loss")
    assert losses[-1] < losses[0] / 2
    (workspace / "output/aware/epoch_0").rename(workspace / "tuned")
    trained = next((workspace / "tuned").glob("model-*.safetensors")).rename(workspace / "tuned/model.safetensors")

    builder = "model=torchtune.models.llama3_2.llama3_2"
    small = TorchTuneConfig(
        quantization=Quantization(group_size=32), dtype="fp32", overrides=(CPU, builder, *SHAPE[:-1])
    )
    outcome, _ = run_training("small", small, model_path="tuned")
    outcome.raise_for_failure()
    lowest, highest, away = json.loads(
        run_program(READ_WEIGHTS, workspace / "output/small/model-8da4w.pt", trained).splitlines()[-1]
    )
    assert (lowest, highest) == (-8, 7)  # 4 bits
    assert away <= 0.51  # in quantization steps: each weight is rounded to the nearest of its group's 16 values


def test_conversations_are_learned(run_training, workspace):
    write_rows(workspace, [{"turns": conversation(*ticket)} for ticket in make_tickets()[:80]])
    rows = TorchTuneChatDataset(source="json", conversation_column="turns", conversation_style="openai")
    outcome, _ = run_training("chat", tiny_config(epochs=1, dataset_preprocess_config=rows), dataset_path="rows.json")
    outcome.raise_for_failure()
    losses = read_metric(workspace, "chat", "loss")
    assert len(losses) == 10
    assert losses[-1] < losses[0]


LIST_RECIPES = """
import json
from torchtune._recipe_registry import get_all_recipes
print(json.dumps({recipe.name: [config.name for config in recipe.configs] for recipe in get_all_recipes()}))
"""
FIND_COMPONENTS = """
import json, sys
from torchtune.config._utils import _get_component_from_path
for name in json.load(sys.stdin):
    assert callable(_get_component_from_path(name)), name
"""


def run_program(program, *arguments, standard_input=""):
    command = [ROOT / ".venv/torchtune/bin/python", "-c", program, *arguments]
    done = subprocess.run(command, input=standard_input, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


METHODS = (
    {},
    {"preference_tuning": PreferenceTuning()},
    {"distillation": Distillation(teacher="llama3.1-8b", teacher_path="t")},
    {"quantization_aware": QuantizationAware()},
    {"quantization": Quantization()},
)


def test_torchtune_has_every_recipe_configuration_and_component():
    registry = json.loads(run_program(LIST_RECIPES))
    for model, method, lora, processes in itertools.product(MODELS.values(), METHODS, (None, LORA), (1, 2)):
        refused = {("distillation", False), ("quantization_aware", True), ("quantization", True)}
        wrong = {(name, lora is not None) for name in method} & refused
        if wrong or (not method and processes == 1 and not model.has_single_device_config):
            continue
        config = TorchTuneConfig(**method, peft_config=lora, num_proc_per_node=processes)
        recipe, configuration = select_recipe(model, config)
        assert configuration in registry[recipe]
    components = {model.get_builder_name(lora=lora) for model in TEACHERS.values() for lora in (False, True)}
    components |= {f"torchtune.models.{model.tokenizer_builder}" for model in TEACHERS.values()}
    run_program(FIND_COMPONENTS, standard_input=json.dumps(sorted(components)))
