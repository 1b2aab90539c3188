"""Exports of TRL runs: the files that are exported, and the runs that are refused."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from tests.chaos.fuzz.fuzzing import JSON, damaged_json, edge_cases
from tests.integration.programs.export.export_program import RunExport
from tests.support.export_runs import (
    make_model,
    make_run,
    make_trl_model,
    make_trl_run,
    read_tree,
    safetensors,
    write,
    write_config,
    write_trl_record,
)
from trainjob.errors import ExportError
from trainjob.programs.export import Export, Receipt, export_model
from trainjob.programs.export.finished_run import find_run
from trainjob.programs.fetch.record import RecordWriter

TOKENIZER = ["chat_template.jinja", "tokenizer.json", "tokenizer_config.json"]
MODEL = sorted([*TOKENIZER, "config.json", "generation_config.json", "model.safetensors", "original/tokenizer.model"])
ADAPTER = sorted([*TOKENIZER, "adapter_config.json", "adapter_model.safetensors"])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a workspace with a base model from the hub."""
    make_model(tmp_path / "model")
    RecordWriter(tmp_path / "model", "hf://org/base", "c0ffee", []).finish()
    return tmp_path


def export(place: Path, adapter: str = "merge", **metadata: Any) -> tuple[Receipt, list[str]]:
    lines: list[str] = []
    request = Export(place / "output", place / "model", str(place / "export"), metadata=metadata, adapter=adapter)
    return export_model(request, lines.append), lines


def list_exported(place: Path) -> list[str]:
    return sorted(set(read_tree(place / "export")) - {"manifest.json", "README.md"})


def read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def make_older(*paths: Path, seconds: float = 3600) -> None:
    for path in paths:
        os.utime(path, (time.time() - seconds, time.time() - seconds))


def test_a_model_is_exported_without_the_files_about_the_training(place: Path) -> None:
    make_trl_run(place / "output")
    write(place / "output" / "additional_chat_templates" / "tool_use.jinja", "template")
    write(place / "output" / "modeling_own.py", "code")
    write(place / "output" / "trainjob_run.json.new", "half a record")
    write(place / "model" / "LICENSE", "licence")
    receipt, lines = export(place)
    assert list_exported(place) == sorted(
        [*MODEL, "additional_chat_templates/tool_use.jinja", "modeling_own.py", "LICENSE"]
    )
    assert (place / "export/tokenizer.json").read_text() == "saved tokenizer.json"
    assert (place / "export/generation_config.json").read_text() == "saved generation_config.json"
    assert (place / "export/model.safetensors").read_bytes() == (place / "output/model.safetensors").read_bytes()
    assert lines[0].startswith("export: model of step 44 (float32), 11 files, ")
    assert {name: receipt.to_dict()[name] for name in ("kind", "epoch", "step")} == {
        "kind": "model",
        "epoch": 4.0,
        "step": 44,
    }


def test_a_run_of_llamafactory_is_exported_with_its_name(place: Path) -> None:
    make_trl_run(place / "output", adapter=True, merged=True, framework="llamafactory", framework_version="0.9.5")
    for name in ("trainer_log.jsonl", "training_loss.png", "all_results.json"):
        write(place / "output" / name, "about the training")
        write(place / "output/merged" / name, "about the training")
    export(place)
    assert list_exported(place) == sorted(MODEL)
    manifest = read_json(place / "export/manifest.json")
    assert (manifest["framework"], manifest["framework_version"]) == ("llamafactory", "0.9.5")
    front = yaml.safe_load((place / "export/README.md").read_text().split("---\n")[1])
    assert front["tags"] == ["llamafactory", "sft", "trainjob"]


@pytest.mark.parametrize(("adapter", "exported"), [("merge", MODEL), ("keep", ADAPTER)])
def test_a_run_of_unsloth_is_exported_as_the_merged_model_or_the_adapter(
    place: Path, adapter: str, exported: list[str]
) -> None:
    make_trl_run(place / "output", adapter=True, merged=True, framework="unsloth", framework_version="2026.10.9")
    write(place / "output/README.md", "the card that peft writes")
    export(place, adapter=adapter)
    assert list_exported(place) == sorted(exported)
    manifest = read_json(place / "export/manifest.json")
    assert (manifest["framework"], manifest["framework_version"]) == ("unsloth", "2026.10.9")
    front = yaml.safe_load((place / "export/README.md").read_text().split("---\n")[1])
    assert {"unsloth", "sft", "trainjob"} <= set(front["tags"])


def test_manifest_and_card_have_the_values_of_the_record(place: Path) -> None:
    make_trl_run(place / "output", method="dpo")
    export(place, run_key="a/b")
    manifest = read_json(place / "export/manifest.json")
    assert manifest["checkpoint"] == {"step": 44, "epoch": 4.0, "dtype": "float32"}
    assert manifest["metrics"] == {"loss": 0.56, "train_runtime": 9.8}
    expected = {
        "framework": "trl",
        "framework_version": "1.16.0",
        "method": "dpo",
        "model": "tiny",
        "parameters": {"learning_rate": 2e-5},  # without paths in the pod
        "base_model": "hf://org/base",
        "base_model_revision": "c0ffee",
        "run_key": "a/b",
    }
    assert {name: manifest[name] for name in expected} == expected
    assert "c0ffee" not in json.dumps({**manifest, "base_model_revision": ""})  # the run's owner
    card = (place / "export/README.md").read_text()
    front = yaml.safe_load(card.split("---\n")[1])
    assert front == {"library_name": "transformers", "base_model": "org/base", "tags": ["trl", "dpo", "trainjob"]}
    rows = ("| loss | 0.56 |", "| learning\\_rate | 2e-05 |", "| checkpoint | step 44, epoch 4.0 |")
    assert set(rows) <= set(card.splitlines())


def test_manifest_and_card_name_the_checkpoint_from_which_the_training_started(place: Path) -> None:
    changed = ["config.learning_rate 0.0001 instead of 0.0002"]
    parent = {"run": "nightly-1", "step": 400, "changed": changed}
    make_trl_run(place / "output", parent={**parent, "folder": "/workspace/output/a/checkpoint-400"})
    export(place)
    assert read_json(place / "export/manifest.json")["parent"] == parent
    rows = (place / "export/README.md").read_text().splitlines()
    assert {"| parent.run | nightly-1 |", "| parent.step | 400 |"} <= set(rows)
    assert "/workspace" not in "".join(rows)


def test_shards_are_exported_with_their_index(place: Path) -> None:
    make_trl_run(place / "output", shards=2)
    export(place)
    assert [name for name in list_exported(place) if name.startswith("model")] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ]


@pytest.mark.parametrize("newer", [1, 2])
def test_weights_of_an_earlier_run_with_another_number_of_shards_do_not_count(place: Path, newer: int) -> None:
    make_trl_run(place / "output", shards=3 - newer)
    make_older(*(path for path in (place / "output").glob("model*")))
    make_trl_run(place / "output", shards=newer)
    export(place)
    weights = [name for name in list_exported(place) if name.endswith(".safetensors")]
    assert weights == (["model.safetensors"] if newer == 1 else [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)])


def test_the_tokenizers_files_come_from_one_folder(place: Path) -> None:
    make_trl_run(place / "output")
    write(place / "model" / "special_tokens_map.json", "the base model's")
    export(place)
    assert "special_tokens_map.json" not in list_exported(place)
    for name in TOKENIZER:
        (place / "output" / name).unlink()
    export(place)
    assert {"special_tokens_map.json", "tokenizer.json"} <= set(list_exported(place))


@pytest.mark.parametrize("shards", [1, 2])
def test_the_merged_model_of_a_lora_run_is_exported_by_default(place: Path, shards: int) -> None:
    make_trl_run(place / "output", adapter=True, merged=True, shards=shards)
    receipt, lines = export(place)
    weights = [] if shards == 1 else [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    expected = {*MODEL, *weights, *(["model.safetensors.index.json"] if weights else [])}
    assert list_exported(place) == sorted(expected - ({"model.safetensors"} if weights else set()))
    assert (receipt.kind, receipt.step) == ("model", 44)
    assert lines[0].startswith("export: model of step 44 ")


def test_a_kept_adapter_names_the_origin_of_its_base_model(place: Path) -> None:
    make_trl_run(place / "output", adapter=True, merged=True, base=str(place / "model"))
    receipt, lines = export(place, "keep")
    assert list_exported(place) == ADAPTER
    assert read_json(place / "export/adapter_config.json") == {"r": 8, "base_model_name_or_path": "org/base"}
    assert lines[0].startswith("export: adapter of step 44 ")
    assert receipt.kind == read_json(place / "export/manifest.json")["kind"] == "adapter"
    front = yaml.safe_load((place / "export/README.md").read_text().split("---\n")[1])
    assert (front["library_name"], front["base_model"]) == ("peft", "org/base")


def test_without_a_merged_model_the_adapter_is_exported_and_the_log_says_so(place: Path) -> None:
    make_trl_run(place / "output", adapter=True)
    _, lines = export(place)
    assert list_exported(place) == ADAPTER
    assert lines[0] == "export: the run has no merged model, so the adapter is exported alone"


def test_a_merged_model_of_an_earlier_run_is_not_exported(place: Path) -> None:
    make_trl_run(place / "output", adapter=True, merged=True)
    make_older(*(place / "output/merged").iterdir())
    assert export(place)[0].kind == "adapter"


@pytest.mark.parametrize("given", ["", "hf://org/other"])
def test_an_adapter_of_an_earlier_export_does_not_name_the_first_base_model(place: Path, given: str) -> None:
    """Such an adapter belongs to the weights of the earlier export, whose address only the user knows."""
    make_trl_run(place / "output", adapter=True, base=str(place / "export-of-sft"))
    _, lines = export(place, "keep", **({"base_model": given} if given else {}))
    config = read_json(place / "export/adapter_config.json")
    assert config["base_model_name_or_path"] == (given.removeprefix("hf://") or None)
    assert read_json(place / "export/manifest.json").get("base_model", "") == given
    unknown = "export: the origin of the adapter's base model is not known; add base_model to the metadata to record it"
    assert (unknown in lines) is not bool(given)


def test_an_adapter_of_a_repository_keeps_its_name(place: Path) -> None:
    make_trl_run(place / "output", adapter=True, base="acme/other-base")
    export(place, "keep")
    assert read_json(place / "export/adapter_config.json")["base_model_name_or_path"] == "acme/other-base"


def test_keep_is_refused_for_full_fine_tuning(place: Path) -> None:
    make_trl_run(place / "output")
    write(place / "output/adapter_model.safetensors", safetensors({"lora": b"lora"}))  # of an earlier run
    write(place / "output/adapter_config.json", "{}")
    with pytest.raises(ExportError, match=r"has no adapter, because it trained all weights\n  -> omit adapter="):
        export(place, "keep")
    assert not (place / "export").exists()


@pytest.mark.parametrize("adapter", ["merge", "keep"])
@pytest.mark.parametrize("complete", [False, None, 1, "true"])
def test_a_run_that_is_not_complete_is_refused_with_its_last_checkpoint(
    place: Path, complete: object, adapter: str
) -> None:
    make_trl_run(place / "output", adapter=True, merged=True, complete=complete)
    (place / "output/checkpoint-44").rename(place / "output/checkpoint-100")
    with pytest.raises(ExportError, match=r"did not finish: its last checkpoint is checkpoint-100\n  -> "):
        export(place, adapter)


def test_a_run_killed_before_its_first_checkpoint_is_refused(place: Path) -> None:
    write_trl_record(place / "output", complete=False)
    with pytest.raises(ExportError, match=r"did not finish: it saved no checkpoint\n  -> "):
        export(place)


@pytest.mark.parametrize(
    ("adapter", "missing", "message"),
    [
        (False, "config.json", r"output is not complete: config\.json missing; found: "),
        (False, "model.safetensors", r"output is not complete: model\.safetensors or model\.safetensors\.index\.json"),
        (True, "merged/config.json", r"merged is not complete: config\.json missing"),
        (True, "adapter_model.safetensors", r"an adapter without adapter_model\.safetensors"),
        (True, "adapter_config.json", r"an adapter without adapter_config\.json"),
    ],
)
def test_a_missing_file_is_named(place: Path, adapter: bool, missing: str, message: str) -> None:
    make_trl_run(place / "output", adapter=adapter, merged=adapter)
    (place / "output" / missing).unlink()
    with pytest.raises(ExportError, match=message):
        export(place)


def test_a_missing_shard_is_named(place: Path) -> None:
    make_trl_run(place / "output", adapter=True, merged=True, shards=3)
    (place / "output/merged/model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ExportError, match=r"not complete: model-00002-of-00003\.safetensors missing"):
        export(place)


@pytest.mark.parametrize("keep", [0, 4, 30, -1])
@pytest.mark.parametrize("name", ["model.safetensors", "merged/model.safetensors", "adapter_model.safetensors"])
def test_weights_that_are_cut_short_are_refused(place: Path, name: str, keep: int) -> None:
    make_trl_run(place / "output", adapter=name != "model.safetensors", merged=name.startswith("merged"))
    weights = place / "output" / name
    weights.write_bytes(weights.read_bytes()[:keep])
    with pytest.raises(ExportError, match=r"is truncated|not a readable safetensors"):
        export(place)


@pytest.mark.parametrize(
    "damage",
    [
        {"framework": "a b"},
        {"method": None},
        {"step": "44"},
        {"step": True},
        {"epoch": None},
        {"adapter": "yes"},
        {"metrics": []},
        {"parameters": {"a": "\ud800"}},
        {"parent": {"step": "400"}},
    ],
)
def test_a_damaged_record_is_refused(place: Path, damage: dict[str, object]) -> None:
    make_trl_run(place / "output", **damage)
    with pytest.raises(ExportError, match=r"trainjob_run\.json is not the record of a run"):
        export(place)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "[" * 100_000, "\udcff"])
def test_a_record_that_is_not_an_object_is_refused(place: Path, content: str) -> None:
    make_trl_run(place / "output")
    (place / "output/trainjob_run.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ExportError, match=r"is not the record of a run"):
        export(place)


@given(
    damaged_json(
        {
            "framework": "trl",
            "method": "sft",
            "complete": True,
            "parameters": {"a": [1]},
            "metrics": {"loss": 0.5},
            "step": 4,
            "epoch": 0.5,
            "adapter": False,
        }
    )
    | JSON
    | edge_cases
)
def test_any_record_is_read_or_refused(record: object) -> None:
    with tempfile.TemporaryDirectory() as name:
        make_trl_run(Path(name) / "output")
        try:
            text = json.dumps(record)
        except ValueError:  # an integer with more digits than Python prints
            return
        write(Path(name) / "output/trainjob_run.json", text)
        try:
            receipt, _ = export(Path(name))
        except ExportError:
            return
        assert json.loads(json.dumps(receipt.to_dict(), allow_nan=False))["kind"] == "model"


def test_numbers_that_json_does_not_have_are_texts_in_the_manifest(place: Path) -> None:
    make_trl_run(place / "output")
    record = place / "output/trainjob_run.json"
    record.write_text(record.read_text().replace('"loss": 0.56', '"loss": NaN, "grad_norm": 1e999, "flag": true'))
    export(place)
    metrics = read_json(place / "export/manifest.json")["metrics"]
    assert metrics == {"loss": "nan", "grad_norm": "inf", "train_runtime": 9.8}


@pytest.mark.parametrize("name", ["config.json", "modeling_own.py", "adapter_config.json", "trainjob_run.json"])
def test_a_link_out_of_the_workspace_is_refused(
    place: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    """The target is JSON, so it would become part of a changed configuration."""
    make_trl_run(place / "output", adapter=name.startswith("adapter"))
    outside = tmp_path_factory.mktemp("outside") / "key.json"
    secret = {"private_key": "secret", "dtype": "bfloat16", **read_json(place / "output/trainjob_run.json")}
    outside.write_text(json.dumps(secret))
    (place / "output" / name).unlink(missing_ok=True)
    (place / "output" / name).symlink_to(outside)
    with pytest.raises(ExportError, match=r"outside the workspace|it must be a file, not a link"):
        export(place)
    assert not (place / "export").exists()


def test_a_link_out_of_the_workspace_is_refused_for_torchtune_too(
    place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    make_run(place / "output")
    outside = tmp_path_factory.mktemp("outside") / "key.json"
    outside.write_text('{"private_key": "secret"}')
    (place / "output/epoch_1/config.json").unlink()
    (place / "output/epoch_1/config.json").symlink_to(outside)
    with pytest.raises(ExportError, match="outside the workspace"):
        export(place)


def test_the_later_run_is_exported_if_two_frameworks_used_the_folder(place: Path) -> None:
    output = make_run(place / "output")
    make_older(*output.iterdir())
    make_trl_run(output)
    assert export(place)[0].step == 44
    assert "torchtune_config.yaml" not in list_exported(place)
    make_older(output / "trainjob_run.json", seconds=7200)
    assert find_run(output).checkpoint.folder == output / "epoch_1"


@pytest.mark.parametrize("epochs", [True, False])
def test_an_unfinished_later_run_is_not_replaced_by_an_earlier_one(place: Path, epochs: bool) -> None:
    output = make_run(place / "output") if epochs else make_trl_run(place / "output")
    make_older(*output.iterdir())
    if epochs:
        write_trl_record(output, complete=False)
    else:
        write_config(output, epochs=2)
    with pytest.raises(ExportError, match=r"did not finish" if epochs else r"no folder epoch_N"):
        export(place)


def test_a_second_export_changes_nothing(place: Path) -> None:
    make_trl_run(place / "output", adapter=True, merged=True)
    first, second = export(place)[0], export(place)[0]
    assert second.to_dict() == {**first.to_dict(), "sent": 0}


def test_a_model_folder_left_by_an_earlier_full_run_does_not_change_an_adapter(place: Path) -> None:
    make_trl_model(place / "output", shards=2)
    make_trl_run(place / "output", adapter=True)
    export(place)
    assert list_exported(place) == ADAPTER


def test_the_program_has_the_option(workspace: Path, run_export: RunExport) -> None:
    make_trl_run(workspace / "output", adapter=True, merged=True)
    done = run_export(workspace / "export", "--adapter", "keep")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout.splitlines()[-1].removeprefix("export: done "))["kind"] == "adapter"
    assert run_export(workspace / "export", "--adapter", "none").returncode == 2
