"""The option `adapter` of the export step, and what it exports of TorchTune runs."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.export_runs import make_adapter, make_model, make_run, make_trl_run, write_config
from trainjob.errors import ExportError, InvalidSpec
from trainjob.frameworks.torchtune.finished_run.checkpoint import find_checkpoint
from trainjob.manifest import build_trainjob, spec_hash, to_trainjob
from trainjob.programs.export import Export, export_model
from trainjob.programs.export.program import main
from trainjob.spec import ExportModel


def build_arguments(step: ExportModel) -> list[str]:
    job: dict[str, Any] = build_trainjob(to_trainjob(step), name="n", namespace="ns")
    found: list[str] = job["spec"]["trainer"]["args"]
    return found


def test_the_default_changes_neither_fingerprint_nor_manifest() -> None:
    plain = ExportModel(workspace="w", destination="s3://b/x")
    merge = ExportModel(workspace="w", destination="s3://b/x", adapter="merge")
    assert spec_hash(plain) == spec_hash(merge)
    assert "--adapter" not in build_arguments(plain) + build_arguments(merge)


def test_keep_is_an_argument_of_the_program_and_part_of_the_fingerprint() -> None:
    keep = ExportModel(workspace="w", destination="s3://b/x", adapter="keep")
    arguments = build_arguments(keep)
    assert arguments[arguments.index("--adapter") + 1] == "keep"
    assert spec_hash(keep) != spec_hash(ExportModel(workspace="w", destination="s3://b/x"))


@pytest.mark.parametrize("value", ["none", "", None, True])
def test_another_value_is_refused_with_the_field_and_the_rule(value: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"adapter cannot be .*: it must be 'merge' or 'keep'"):
        ExportModel(workspace="w", destination="s3://b/x", adapter=value)


def test_the_arguments_of_the_manifest_run_the_program(tmp_path: Path) -> None:
    """The step's arguments, with the folders of a test instead of the pod's."""
    make_model(tmp_path / "model")
    make_trl_run(tmp_path / "output", adapter=True, merged=True)
    step = ExportModel(workspace="w", destination="/workspace/export", adapter="keep")
    arguments = [word.replace("/workspace", str(tmp_path)) for word in build_arguments(step)]
    assert main(arguments) == 0
    assert json.loads((tmp_path / "export/manifest.json").read_text())["kind"] == "adapter"


def test_keep_exports_the_adapter_beside_merged_torchtune_weights(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    make_run(tmp_path / "output", adapter=True)
    given = {"output": tmp_path / "output", "model": tmp_path / "model", "metadata": {"base_model": "hf://org/base"}}
    kept = export_model(Export(destination=str(tmp_path / "kept"), adapter="keep", **given), lambda _: None)
    merged = export_model(Export(destination=str(tmp_path / "merged"), **given), lambda _: None)
    assert (kept.kind, merged.kind) == ("adapter", "model")
    assert not (tmp_path / "kept/model.safetensors").exists()
    assert not list((tmp_path / "merged").glob("adapter*"))
    config = json.loads((tmp_path / "kept/adapter_config.json").read_text())
    assert config == {"r": 8, "peft_type": "LORA", "base_model_name_or_path": "org/base"}


@pytest.mark.parametrize("adapter", ["merge", "keep"])
def test_a_torchtune_run_with_only_an_adapter_exports_it(tmp_path: Path, adapter: str) -> None:
    make_adapter(tmp_path / "epoch_0")
    write_config(tmp_path, epochs=1, adapter_only=True)
    assert find_checkpoint(tmp_path, adapter).kind == "adapter"


@pytest.mark.parametrize("earlier", [False, True])
def test_keep_is_refused_for_full_fine_tuning_with_torchtune(tmp_path: Path, earlier: bool) -> None:
    """An adapter that is older than the weights' index was left by an earlier run in the same folder."""
    make_run(tmp_path, epochs=1, adapter=earlier)
    for path in (tmp_path / "epoch_0").glob("adapter_*"):
        os.utime(path, (time.time() - 60, time.time() - 60))
    with pytest.raises(ExportError, match=r"epoch_0 contains no adapter: .*\n  -> omit adapter="):
        find_checkpoint(tmp_path, "keep")
    assert find_checkpoint(tmp_path).kind == "model"


def test_an_adapter_without_a_hugging_face_form_is_not_kept(tmp_path: Path) -> None:
    make_run(tmp_path, epochs=1, adapter=True)
    (tmp_path / "epoch_0/adapter_model.safetensors").unlink()
    with pytest.raises(ExportError, match=r"without adapter_model\.safetensors"):
        find_checkpoint(tmp_path, "keep")


def test_a_merge_that_did_not_end_is_not_exported_as_an_adapter_without_a_word(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    make_trl_run(tmp_path / "output", adapter=True, unmerged="MemoryError: ")
    paths = (tmp_path / "output", tmp_path / "model", str(tmp_path / "export"))
    with pytest.raises(ExportError, match=r"trained, but not merged: MemoryError") as raised:
        export_model(Export(*paths))
    assert 'adapter="keep"' in raised.value.hint
    assert export_model(Export(*paths, adapter="keep")).kind == "adapter"
