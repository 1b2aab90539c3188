"""Files that programs read which load an exported model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.corpus.model_repositories import REPOSITORIES, ModelRepository
from tests.integration.programs.export.export_program import RunExport
from trainjob.programs.export.checkpoint import Checkpoint
from trainjob.programs.export.companions import find_companions
from trainjob.programs.export.loaders import find_missing
from trainjob.programs.fetch.selection import choose_files, is_weights

CAUSAL = {"architectures": ["LlamaForCausalLM"]}
BASE = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def find(files: tuple[str, ...], base: tuple[str, ...] = BASE, **config: object) -> list[str]:
    return list(find_missing(files, base, {**CAUSAL, **config}))


def test_a_complete_export_misses_nothing() -> None:
    assert find(BASE) == []
    assert find((*BASE, "vocab.json"), ()) == []


@pytest.mark.parametrize(
    ("lost", "sentence"),
    {
        "tokenizer.json": "the base model has a file with its tokenizer, and the exported model has none",
        "chat_template.jinja": "the base model has a file with its chat template, and the exported model has none",
        "tokenizer_config.json": "the base model has tokenizer_config.json, and the exported model does not",
        "generation_config.json": "the base model has generation_config.json, and the exported model does not",
    }.items(),
)
def test_each_lost_file_is_named(lost: str, sentence: str) -> None:
    assert find(tuple(name for name in BASE if name != lost)) == [sentence]


def test_another_form_of_tokenizer_and_template_is_enough() -> None:
    assert find((*BASE[:2], "tokenizer.model", "tokenizer_config.json", "chat_template.json")) == []


def test_a_model_that_does_not_generate_needs_no_generation_configuration() -> None:
    files = tuple(name for name in BASE if name != "generation_config.json")
    assert find(files, architectures=["LlamaForSequenceClassification"]) == []


@pytest.mark.parametrize("auto_map", [None, [], "text", {"AutoModel": None}, {"AutoTokenizer": [1, None]}, {"A": {}}])
def test_an_odd_auto_map_is_not_an_error(auto_map: object) -> None:
    assert find(BASE, auto_map=auto_map) == []


def test_own_code_must_be_there() -> None:
    auto_map = {
        "AutoConfig": "configuration_own.OwnConfig",
        "AutoTokenizer": ["tokenization_own.Own", None],
        "AutoModel": "org/name--modeling_other.Other",
    }
    assert find((*BASE, "configuration_own.py"), auto_map=auto_map) == [
        "config.json names the model's own code tokenization_own.py, which is not in the exported model"
    ]


@pytest.mark.parametrize("repository", REPOSITORIES, ids=lambda each: each.name)
def test_a_fetched_model_is_exported_with_all_that_loads_it(repository: ModelRepository, tmp_path: Path) -> None:
    """A framework saves configuration, weights and tokenizer; the export adds the rest of the base model's files."""
    base, saved = tmp_path / "model", tmp_path / "output"
    chosen = choose_files("model", repository.files, (), repository.name)
    for name in chosen:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).touch()
    saved.mkdir()
    of_training = ("config.json", "generation_config.json", "model.safetensors", "training_args.bin", "tokenizer.json")
    for name in of_training:
        (saved / name).touch()
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        (saved / name).touch()
    found = find_companions(Checkpoint(saved, 1, "model", (), "float32", framework="trl"), base)
    assert list(find_missing(found, chosen, repository.config)) == []
    assert [name for name in found if is_weights(name) or name == "training_args.bin"] == []


def test_what_is_missing_is_in_the_log(workspace: Path, run_export: RunExport) -> None:
    path = workspace / "output" / "epoch_1" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": {"AutoModel": "modeling_own.Own"}}))
    done = run_export(workspace / "export")
    assert "export: config.json names the model's own code modeling_own.py, which is not in" in done.stdout
