"""Search for the checkpoint to export, and refusal of incomplete ones."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.export_runs import make_adapter, make_epoch, make_run, safetensors, write, write_config
from trainjob.errors import ExportError
from trainjob.frameworks.torchtune.finished_run.checkpoint import find_checkpoint
from trainjob.programs.export.finished_run import find_run


def test_the_highest_epoch_number_wins(tmp_path: Path) -> None:
    for epoch in (2, 9, 10):
        make_epoch(tmp_path, epoch)
    assert find_checkpoint(tmp_path).epoch == 10


def test_an_epoch_of_an_earlier_longer_run_is_not_exported(tmp_path: Path) -> None:
    make_epoch(tmp_path, 7)
    make_run(tmp_path, epochs=2)
    assert find_checkpoint(tmp_path).folder == tmp_path / "epoch_1"


def test_a_run_that_did_not_reach_its_last_epoch_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path, epochs=2)
    write_config(tmp_path, epochs=4)
    with pytest.raises(ExportError, match=r"did not finish: epoch_3 is missing, the last one saved is epoch_1"):
        find_checkpoint(tmp_path)


def test_an_epoch_from_before_the_run_is_refused_unless_the_run_resumed(tmp_path: Path) -> None:
    make_run(tmp_path, epochs=2)
    write_config(tmp_path, epochs=2, modified_at=time.time() + 60)
    with pytest.raises(ExportError, match=r"an earlier run saved .*epoch_1: the last run"):
        find_checkpoint(tmp_path)
    write_config(tmp_path, epochs=2, modified_at=time.time() + 60, resumed=True)
    assert find_checkpoint(tmp_path).epoch == 1


@pytest.mark.parametrize("found", ["nothing", "logs, notes.txt"])
def test_an_output_without_a_checkpoint_is_refused_with_a_listing(tmp_path: Path, found: str) -> None:
    if found != "nothing":
        (tmp_path / "logs").mkdir()
        write(tmp_path / "notes.txt", "")
    with pytest.raises(ExportError, match=rf"no checkpoint; found: {found}"):
        find_run(tmp_path)
    with pytest.raises(ExportError, match=rf"no checkpoint \(no folder epoch_N\); found: {found}"):
        find_checkpoint(tmp_path)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="is not a folder"):
        find_run(tmp_path / "output")


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = make_epoch(tmp_path, 0, shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ExportError, match=r"not complete: model-00002-of-00003.safetensors missing"):
        find_checkpoint(tmp_path)


def test_weights_without_their_index_are_not_complete(tmp_path: Path) -> None:
    folder = make_epoch(tmp_path, 0)
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(ExportError, match=r"not complete: no model\.safetensors\.index\.json"):
        find_checkpoint(tmp_path)


@pytest.mark.parametrize("keep", [0, 4, 30, -1])
def test_a_shard_that_is_cut_short_is_refused(tmp_path: Path, keep: int) -> None:
    shard = make_epoch(tmp_path, 0) / "model-00001-of-00001.safetensors"
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(ExportError, match=r"is truncated|not a readable safetensors"):
        find_checkpoint(tmp_path)


def test_pickled_weights_are_refused_with_advice(tmp_path: Path) -> None:
    write(tmp_path / "epoch_0" / "pytorch_model.bin.index.json", "{}")
    with pytest.raises(ExportError, match="safe_serialization=True"):
        find_checkpoint(tmp_path)


def test_shards_of_another_run_in_the_epoch_folder_do_not_count(tmp_path: Path) -> None:
    folder = make_epoch(tmp_path, 0, shards=2)
    write(folder / "model-00001-of-00009.safetensors", safetensors({"old": b"old!"}))
    assert [path.name for path in find_checkpoint(tmp_path).weights] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]


def test_a_checkpoint_with_only_an_adapter_is_found(tmp_path: Path) -> None:
    make_adapter(tmp_path / "epoch_0")
    found = find_checkpoint(tmp_path)
    assert (found.kind, found.dtype, [path.name for path in found.weights]) == (
        "adapter",
        "bfloat16",
        ["adapter_model.safetensors"],
    )


def test_merged_weights_of_an_earlier_run_do_not_hide_an_adapter_run(tmp_path: Path) -> None:
    make_epoch(tmp_path, 0, adapter=True)
    write_config(tmp_path, epochs=1, adapter_only=True)
    assert find_checkpoint(tmp_path).kind == "adapter"


def test_an_adapter_that_has_no_hugging_face_form_is_refused(tmp_path: Path) -> None:
    make_adapter(tmp_path / "epoch_0")
    (tmp_path / "epoch_0" / "adapter_model.safetensors").unlink()
    with pytest.raises(ExportError, match=r"without adapter_model.safetensors"):
        find_checkpoint(tmp_path)


@pytest.mark.parametrize(("dtype", "name"), [("F32", "float32"), ("BF16", "bfloat16"), ("F16", "float16"), ("I8", "")])
def test_the_dtype_is_that_of_the_saved_weights(tmp_path: Path, dtype: str, name: str) -> None:
    make_epoch(tmp_path, 0, dtype=dtype)
    assert find_checkpoint(tmp_path).dtype == name
