"""Files of an exported folder, and its manifest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.export_runs import make_adapter, make_epoch, make_model, write, write_config
from trainjob.errors import ExportError, InvalidSpec
from trainjob.frameworks.torchtune.finished_run.checkpoint import find_checkpoint
from trainjob.frameworks.torchtune.finished_run.run_files import read_metrics
from trainjob.programs.export.hashed_file import HashedFile, hash_files
from trainjob.programs.export.layout import MANIFEST, PENDING_MANIFEST, ExportFile, plan_files
from trainjob.programs.export.manifest_file import FORMAT, build_content, check_metadata, parse_manifest_files
from trainjob.programs.fetch.names import broken_rule
from trainjob.programs.fetch.progress import TransferProgress

COMMON = [
    "config.json",
    "generation_config.json",
    "original/tokenizer.model",
    "tokenizer.json",
    "tokenizer_config.json",
]


def plan_by_path(output: Path, model: Path, base: str = "") -> dict[str, ExportFile]:
    return {file.path: file for file in plan_files(find_checkpoint(output), model, base)}


def read_content(file: ExportFile) -> bytes:
    return file.read()


def test_one_shard_becomes_model_safetensors_without_index(tmp_path: Path) -> None:
    folder = make_epoch(tmp_path / "output", 0)
    files = plan_by_path(tmp_path / "output", make_model(tmp_path / "model"))
    assert sorted(files) == sorted([*COMMON, "model.safetensors"])
    assert read_content(files["model.safetensors"]) == (folder / "model-00001-of-00001.safetensors").read_bytes()


def test_several_shards_keep_their_names_and_index(tmp_path: Path) -> None:
    make_epoch(tmp_path / "output", 0, shards=2)
    files = plan_by_path(tmp_path / "output", tmp_path / "no-model")
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert sorted(files) == sorted([*COMMON, *shards, "model.safetensors.index.json"])


def test_adapters_next_to_merged_weights_are_not_exported(tmp_path: Path) -> None:
    make_epoch(tmp_path / "output", 0, adapter=True)
    assert not [name for name in plan_by_path(tmp_path / "output", tmp_path / "no-model") if "adapter" in name]


def test_an_exported_adapter_names_its_base_model(tmp_path: Path) -> None:
    make_adapter(tmp_path / "output" / "epoch_0")
    write_config(tmp_path / "output", epochs=1, adapter_only=True)
    files = plan_by_path(tmp_path / "output", make_model(tmp_path / "model"), "hf://meta-llama/Llama-3.2-1B")
    expected = ["adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(files) == expected
    config = json.loads(read_content(files["adapter_config.json"]))
    assert config == {"r": 8, "peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-3.2-1B"}


def test_files_that_torchtune_did_not_copy_come_from_the_base_model(tmp_path: Path) -> None:
    """TorchTune does not copy files of more than 100 MB; this test deletes a file for the same effect."""
    folder = make_epoch(tmp_path / "output", 0)
    (folder / "tokenizer.json").unlink()
    write(folder / "tokenizer_config.json", "changed by the run")
    model = make_model(tmp_path / "model")
    write(model / "README.md", "model card")
    write(model / "manifest.json", "an earlier export's")
    write(model / "pytorch_model.bin", "base weights")
    write(model / "original" / "consolidated.00.pth", "base weights")
    files = plan_by_path(tmp_path / "output", model)
    assert sorted(files) == sorted([*COMMON, "README.md", "model.safetensors"])
    assert read_content(files["tokenizer.json"]) == b"content of tokenizer.json"
    assert read_content(files["tokenizer_config.json"]) == b"changed by the run"


@pytest.mark.parametrize("key", ["torch_dtype", "dtype"])
def test_config_has_the_dtype_of_the_saved_weights(tmp_path: Path, key: str) -> None:
    folder = make_epoch(tmp_path / "output", 0, dtype="BF16")
    write(folder / "config.json", json.dumps({key: "float32", "vocab_size": 8}))
    config = json.loads(read_content(plan_by_path(tmp_path / "output", tmp_path / "none")["config.json"]))
    assert config == {key: "bfloat16", "vocab_size": 8}


@pytest.mark.parametrize("damage", ["", "[]", "{"])
def test_a_damaged_or_missing_config_is_refused(tmp_path: Path, damage: str) -> None:
    folder = make_epoch(tmp_path / "output", 0)
    if damage:
        write(folder / "config.json", damage)
    else:
        (folder / "config.json").unlink()
    with pytest.raises(ExportError, match=r"config\.json"):
        plan_by_path(tmp_path / "output", tmp_path / "none")


def test_metrics_are_the_last_values_of_the_newest_log(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "log_1.txt", "Step 9 | loss:9.0 lr:1.0 \n")
    write(tmp_path / "logs" / "log_2.txt", "Step 1 | loss:2.0 lr:0.5 \nStep 2 | loss:inf lr:0.25 \nhalf a li")
    assert read_metrics(tmp_path) == {"steps": 2, "loss": "inf", "lr": 0.25}
    assert read_metrics(tmp_path / "none") == {}


def test_the_manifest_is_the_same_every_time(tmp_path: Path) -> None:
    make_epoch(tmp_path, 0)
    checkpoint = find_checkpoint(tmp_path)
    one, two = (
        build_content(read_files(plan_files(checkpoint, tmp_path / "none")), checkpoint, {}, {"run_key": "k"})
        for _ in "ab"
    )
    assert one.manifest.file.content == two.manifest.file.content
    manifest = json.loads(one.manifest.file.content)
    assert manifest["run_key"] == "k"
    assert manifest["totals"] == {"files": len(one.files), "bytes": sum(file.size for file in one.files)}


def read_files(files: tuple[ExportFile, ...]) -> tuple[HashedFile, ...]:
    return hash_files(files, TransferProgress("export", len(files), 0, lambda _: None))


def test_metadata_cannot_override_the_manifests_own_keys() -> None:
    with pytest.raises(InvalidSpec, match="files"):
        check_metadata({"files": {}})


@given(st.text() | st.sampled_from(["../up", "/etc/passwd", "a/../../b", ".", "", "a/b", "a"]))
def test_a_path_outside_the_destination_in_an_earlier_manifest_is_refused(name: str) -> None:
    content = json.dumps({"format": FORMAT, "files": [name]}).encode()
    if broken_rule(name, MANIFEST, PENDING_MANIFEST):
        with pytest.raises(ExportError, match="lists the file"):
            parse_manifest_files(content)
    else:
        assert parse_manifest_files(content) == {name}


@pytest.mark.parametrize("foreign", [b"", b"{", b"[]", b'{"files": []}', b'{"format": "other", "files": []}'])
def test_a_manifest_that_no_export_wrote_is_refused(foreign: bytes) -> None:
    with pytest.raises(ExportError, match="no export wrote"):
        parse_manifest_files(foreign)
