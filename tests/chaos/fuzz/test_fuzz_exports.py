"""Fuzz tests of invalid checkpoints, weights and manifests: an export refuses them with a typed error."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.chaos.fuzz.fuzzing import JSON, damaged_json, edge_cases, fuzz
from trainjob.errors import ExportError, InvalidSpec
from trainjob.programs.export import Export, export_model
from trainjob.programs.export.manifest_file import parse_manifest_files
from trainjob.programs.export.weights import bytes_by_dtype
from trainjob.programs.fetch.names import broken_rule

HEADER = {
    "__metadata__": {"format": "pt"},
    "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    "v": {"dtype": "BF16", "shape": [2], "data_offsets": [8, 12]},
}
INDEX = {"metadata": {"total_size": 12}, "weight_map": {"w": "model-1.safetensors", "v": "model-1.safetensors"}}
MANIFEST = {"format": "trainjob-export", "version": 1, "files": {"a": {"sha256": "0", "size": 1}, "b/c": {}}}


def encode_weights(header, data=b"\0" * 12, length=None):
    raw = json.dumps(header).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


@fuzz(
    "safetensors headers",
    300,
    header=damaged_json(HEADER) | JSON | edge_cases,
    length=st.none() | st.sampled_from([0, 1, 10**8, 2**63, 2**64 - 1]),
    data=st.binary(max_size=16) | st.just(b"\0" * 12),
)
def test_a_header_of_weights_is_read_or_refused(header, length, data):
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(encode_weights(header, data, length))
        try:
            assert isinstance(bytes_by_dtype(Path(file.name)), Counter)
        except ExportError:
            return "ExportError"
    return "sizes"


@fuzz("manifest.json of an earlier export", 300, content=damaged_json(MANIFEST) | JSON | edge_cases)
def test_an_earlier_manifest_is_read_or_refused(content):
    try:
        names = parse_manifest_files(json.dumps(content).encode())
    except ExportError:
        return "ExportError"
    assert not any(broken_rule(name) or name == "manifest.json" for name in names)
    return "names"


def create_run_folder(folder, *, index=INDEX, config=None):
    """Create the output of a TorchTune run with one epoch, and a base model."""
    epoch, model = folder / "output" / "epoch_0", folder / "model"
    epoch.mkdir(parents=True)
    model.mkdir()
    (epoch / "model.safetensors.index.json").write_text(json.dumps(index))
    (epoch / "model-1.safetensors").write_bytes(encode_weights(HEADER))
    (epoch / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16"} if config is None else config))
    (model / "tokenizer.json").write_text("{}")
    return Export(folder / "output", model, str(folder / "export"))


FACTS = {"base_model": "hf://a/b", "parameters": {"a": 1}}


@fuzz(
    "complete exports: index, configuration, properties",
    60,
    index=damaged_json(INDEX) | JSON,
    config=damaged_json({"torch_dtype": "float32", "a": {"b": []}}) | JSON,
    facts=damaged_json(FACTS) | st.just(FACTS),
)
def test_a_damaged_run_is_exported_or_refused(index, config, facts):
    with tempfile.TemporaryDirectory() as name:
        given = create_run_folder(Path(name), index=index, config=config)
        given = Export(
            given.output, given.model, given.destination, metadata=facts if isinstance(facts, dict) else FACTS
        )
        try:
            receipt = export_model(given, lambda _: None)
        except (ExportError, InvalidSpec) as error:
            return type(error).__name__
        assert receipt.files
        exported = {path.relative_to(Path(name) / "export").as_posix() for path in (Path(name) / "export").rglob("*")}
        assert {"manifest.json", "config.json"} <= exported
    return "exported"


@pytest.mark.parametrize(
    "name", ["../../secret.safetensors", "/etc/passwd", "..", "sub/x.safetensors", "a\\b", "a\0b", "a\nexport: done {}"]
)
def test_an_index_that_names_a_file_in_another_folder_is_refused(tmp_path, name):
    given = create_run_folder(tmp_path, index={"weight_map": {"w": name}})
    (given.output / "epoch_0" / "secret.safetensors").write_bytes(encode_weights(HEADER))
    with pytest.raises(ExportError, match=r"names a file in another folder|index.json lists the file"):
        export_model(given, lambda _: None)
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("place", ["output/epoch_0/notes.txt", "model/notes.json", "output/epoch_0/config.json"])
@pytest.mark.parametrize("target", ["/etc/passwd", "/proc/self/environ"])
def test_a_link_out_of_the_workspace_is_refused(tmp_path, place, target):
    given = create_run_folder(tmp_path)
    (tmp_path / place).unlink(missing_ok=True)
    (tmp_path / place).symlink_to(target)
    with pytest.raises(ExportError, match=r"outside the workspace|is not a JSON object"):
        export_model(given, lambda _: None)
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("planted", [".export.export", ".export.export/model.safetensors", ".export.export/sub"])
def test_a_link_at_the_path_of_a_temporary_file_is_not_followed(tmp_path, planted):
    """Otherwise, the export would write or remove files in another folder."""
    given = create_run_folder(tmp_path)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("mine")
    link = tmp_path / planted
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(victim / "file" if link.suffix == ".safetensors" else victim)
    assert export_model(given, lambda _: None).files
    assert (victim / "file").read_text() == "mine"
    assert sorted(path.name for path in victim.iterdir()) == ["file"]
    assert not any(path.is_symlink() for path in (tmp_path / "export").rglob("*"))
    assert (tmp_path / "export" / "model.safetensors").stat().st_size == len(encode_weights(HEADER))


UNSAFE_PATHS = ["../victim", "../../victim", "{tmp_path}/victim", "sub/../../victim", "a\\b", "a\0b", "manifest.json"]


@pytest.mark.parametrize("name", UNSAFE_PATHS)
def test_an_earlier_manifest_that_names_a_file_in_another_folder_is_refused(tmp_path, name):
    given = create_run_folder(tmp_path)
    export_model(given, lambda _: None)
    (tmp_path / "victim").write_text("mine")
    files = {name.format(tmp_path=tmp_path): {"sha256": "0", "size": 1}}
    (tmp_path / "export" / "manifest.json").write_text(json.dumps({**MANIFEST, "files": files}))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ExportError, match=r"the manifest.json of the destination lists the file"):
        export_model(given, lambda _: None)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_linked_file_in_an_earlier_export_becomes_a_file(tmp_path):
    given = create_run_folder(tmp_path)
    export_model(given, lambda _: None)
    exported, outside = tmp_path / "export" / "tokenizer.json", tmp_path / "outside.json"
    exported.rename(outside)
    exported.symlink_to(outside)
    export_model(given, lambda _: None)
    assert not exported.is_symlink()
    assert exported.read_text() == outside.read_text() == "{}"


def test_a_link_at_the_path_of_the_replaced_export_is_not_followed(tmp_path):
    """An export that is killed between two renames leaves the folder `.export.replaced`, never a link."""
    given = create_run_folder(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".export.replaced").symlink_to(tmp_path / "elsewhere")
    export_model(given, lambda _: None)
    assert not (tmp_path / "export").is_symlink()
    assert not any((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("name", ["a\\b.txt", "a\nexport: done {}.txt", "manifest\udcff.txt"])
def test_a_file_with_a_name_that_no_manifest_can_have_is_refused(tmp_path, name):
    given = create_run_folder(tmp_path)
    (given.output / "epoch_0" / name).write_text("x")
    with pytest.raises(ExportError, match="the model to export lists the file"):
        export_model(given, lambda _: None)
    assert not (tmp_path / "export").exists()
