"""The model card of an export, as the Hugging Face hub reads it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.programs.export.export_program import PYTHON, RunExport
from tests.support.export_runs import make_adapter, make_run, write, write_config
from trainjob.frameworks.torchtune.finished_run.run_files import read_parameters
from trainjob.programs.export.card import model_card
from trainjob.programs.export.checkpoint import Checkpoint
from trainjob.programs.fetch.record import RecordWriter

CHECKPOINT = Checkpoint(Path("epoch_3"), 3, "model", (), "bfloat16", "torchtune")
METADATA = {
    "base_model": "hf://meta-llama/Llama-3.2-1B-Instruct",
    "dataset": "hf://acme/tickets/data",
    "parameters": {"epochs": 4, "optimizer.lr": 3e-3},
    "run_key": {"engine": "airflow", "run": "2026-11-21"},
}


def parse_front_matter(card: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return found


def test_the_card_names_base_model_and_dataset_for_the_hub() -> None:
    card = model_card(CHECKPOINT, {"loss": 0.25}, METADATA)
    assert parse_front_matter(card) == {
        "library_name": "transformers",
        "base_model": "meta-llama/Llama-3.2-1B-Instruct",
        "datasets": ["acme/tickets"],
        "tags": ["torchtune", "trainjob"],
    }
    for row in (
        "# Fine-tuned from meta-llama/Llama-3.2-1B-Instruct",
        "| loss | 0.25 |",
        "| optimizer.lr | 0.003 |",
        "| run\\_key.run | 2026-11-21 |",
        "| checkpoint | epoch 3, counted from 0 |",
        "| dtype | bfloat16 |",
    ):
        assert row in card.splitlines()
    assert card == model_card(CHECKPOINT, {"loss": 0.25}, METADATA)


def test_a_base_model_outside_the_hub_is_not_in_the_front_matter() -> None:
    front = parse_front_matter(model_card(CHECKPOINT, {}, {"base_model": "s3://models/base", "dataset": 5}))
    assert set(front) == {"library_name", "tags"}


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text()) | st.none()))
def test_no_value_ends_the_front_matter_or_a_row(metadata: dict[str, Any]) -> None:
    card = model_card(CHECKPOINT, {}, metadata)
    assert set(parse_front_matter(card)) <= {"library_name", "base_model", "datasets", "tags"}
    rows = [line for line in card.split("\n") if line.startswith("|")]
    assert all(line.replace("\\\\", "").replace("\\|", "").count("|") == 3 for line in rows)


def test_huggingface_hub_parses_the_card(workspace: Path, run_export: RunExport) -> None:
    make_adapter(workspace / "output" / "epoch_1")
    write_config(workspace / "output", epochs=2, adapter_only=True)
    run_export(workspace / "export", "--manifest", json.dumps(METADATA))
    code = (
        "import json, sys; from huggingface_hub import ModelCard;"
        "print(json.dumps(ModelCard.load(sys.argv[1]).data.to_dict()))"
    )
    read = subprocess.run([PYTHON, "-c", code, workspace / "export" / "README.md"], capture_output=True, text=True)
    assert read.returncode == 0, read.stderr
    found = json.loads(read.stdout)
    assert (found["library_name"], found["base_model"]) == ("peft", "meta-llama/Llama-3.2-1B-Instruct")
    assert found["datasets"] == ["acme/tickets"]


def test_the_base_models_card_is_replaced(workspace: Path, run_export: RunExport) -> None:
    write(workspace / "output" / "epoch_1" / "README.md", "# Llama, by Meta")
    run_export(workspace / "export")
    assert "Meta" not in (workspace / "export" / "README.md").read_text()


def test_origins_of_dataset_and_model_are_in_manifest_and_card(workspace: Path, run_export: RunExport) -> None:
    RecordWriter(workspace / "model", "hf://org/base", "c0ffee", []).finish()
    RecordWriter(workspace / "dataset", "s3://data/tickets", "", []).finish()
    run_export(workspace / "export", "--dataset", str(workspace / "dataset"))
    manifest = json.loads((workspace / "export" / "manifest.json").read_text())
    assert (manifest["base_model"], manifest["base_model_revision"]) == ("hf://org/base", "c0ffee")
    assert manifest["dataset"] == "s3://data/tickets"
    assert "dataset_revision" not in manifest
    assert parse_front_matter((workspace / "export" / "README.md").read_text())["base_model"] == "org/base"
    assert not list((workspace / "export").glob(".*"))


@pytest.mark.parametrize("complete", [True, False])
def test_given_metadata_overrides_a_record_and_an_incomplete_record_is_ignored(
    workspace: Path, run_export: RunExport, complete: bool
) -> None:
    writer = RecordWriter(workspace / "model", "hf://org/base", "c0ffee", [])
    (writer.finish if complete else writer.close)()
    metadata = {"base_model": "hf://org/other", "base_model_revision": "v2"} if complete else {}
    run_export(workspace / "export", "--manifest", json.dumps(metadata))
    manifest = json.loads((workspace / "export" / "manifest.json").read_text())
    assert manifest.get("base_model") == ("hf://org/other" if complete else None)


def test_only_parameters_that_describe_the_training_are_read(tmp_path: Path) -> None:
    make_run(tmp_path)
    text = """\
output_dir: /workspace/output
tokenizer:
  path: /workspace/model/tokenizer.model
optimizer:
  _component_: torch.optim.AdamW
  fused: true
  lr: 2.0e-05
model:
  _component_: torchtune.models.llama3_2.lora_llama3_2_1b
  lora_attn_modules:
  - q_proj
  lora_rank: 64
dataset:
  seed: 7
seed: null
epochs: 3
dtype: 'bf16'
"""
    write(tmp_path / "torchtune_config.yaml", text)
    assert read_parameters(tmp_path) == {
        "model._component_": "torchtune.models.llama3_2.lora_llama3_2_1b",
        "model.lora_rank": 64,
        "optimizer._component_": "torch.optim.AdamW",
        "optimizer.lr": 2e-5,
        "epochs": 3,
        "dtype": "bf16",
    }
    shutil.rmtree(tmp_path)
    assert read_parameters(tmp_path) == {}


def test_license_and_languages_of_the_base_model_are_in_the_card(workspace: Path, run_export: RunExport) -> None:
    fields = "license: other\nlicense_name: acme\nlanguage: [en, de]\nlicense_link: 2026-01-01\ntags: [chat]\n"
    card = f"---\n{fields}model-index: {{}}\n---\n# Base\n"
    (workspace / "model" / "README.md").write_text(card)
    run_export(workspace / "export")
    front = parse_front_matter((workspace / "export" / "README.md").read_text())
    assert {name: front.get(name) for name in ("license", "license_name", "language")} == {
        "license": "other",
        "license_name": "acme",
        "language": ["en", "de"],
    }
    assert front["tags"] == ["torchtune", "trainjob"]


@pytest.mark.parametrize(
    "card",
    [
        b"no front matter",
        b"---\nlicense: [\n---\n",
        b"\xff",
        b"---\n- a\n---\n",
        b"---\nlanguage: &a [*a]\nlicense: {a: 1}\n---\n",
    ],
)
def test_a_damaged_card_of_the_base_model_is_not_an_error(workspace: Path, run_export: RunExport, card: bytes) -> None:
    (workspace / "model" / "README.md").write_bytes(card)
    done = run_export(workspace / "export")
    assert (done.returncode, done.stderr) == (0, "")
    assert "license" not in parse_front_matter((workspace / "export" / "README.md").read_text())
