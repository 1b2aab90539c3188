"""Exports of models with files in folders, such as the modules of sentence-transformers, which the record names."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.export_runs import make_model, make_trl_run, read_tree, safetensors, write
from trainjob.errors import ExportError
from trainjob.programs.export import Export, export_model

FOLDERS = {"folders": ["1_Pooling", "2_Dense"], "library": "sentence-transformers"}
SAVED = ("config.json", "generation_config.json", "chat_template.jinja", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a workspace with a base model, and with a run that saved other modules."""
    make_model(tmp_path / "model")
    for name in ("LICENSE", "0_Transformer/config.json", "1_Pooling/config.json", "2_Normalize/config.json"):
        write(tmp_path / "model" / name, f"base {name}")
    write(tmp_path / "model/2_Normalize/model.safetensors", safetensors({"w": b"base"}))
    output = make_trl_run(tmp_path / "output", **FOLDERS)
    for name in ("modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/deeper/vocab.txt"):
        write(output / name, f"saved {name}")
    write(output / "2_Dense/.cache/file", "hidden")
    write(output / "2_Dense/model.safetensors", safetensors({"w": b"tune"}))
    return tmp_path


def export(place: Path) -> list[str]:
    lines: list[str] = []
    export_model(Export(place / "output", place / "model", str(place / "export")), lines.append)
    return lines


def replace_record(place: Path, **values: Any) -> None:
    path = place / "output/trainjob_run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_the_folders_are_exported_with_all_their_files(place: Path) -> None:
    lines = export(place)
    found = read_tree(place / "export")
    of_folders = {"1_Pooling/config.json", "2_Dense/config.json", "2_Dense/deeper/vocab.txt"}
    top = {"LICENSE", "README.md", "manifest.json", "model.safetensors", "modules.json", *SAVED}
    assert found.keys() == {*top, *of_folders, "2_Dense/model.safetensors"}
    assert all(found[name].decode() == f"saved {name}" for name in of_folders)
    assert found["2_Dense/model.safetensors"] == (place / "output/2_Dense/model.safetensors").read_bytes()
    assert not [line for line in lines if "does not" in line]


def test_the_card_names_the_library_that_loads_the_model(place: Path) -> None:
    export(place)
    front = yaml.safe_load((place / "export/README.md").read_text().split("---\n")[1])
    assert front["library_name"] == "sentence-transformers"


def test_without_the_key_the_base_model_gives_its_folders(place: Path) -> None:
    replace_record(place, folders=None, library="")
    export(place)
    found = read_tree(place / "export")
    assert {name for name in found if "/" in name} == {
        *("0_Transformer/config.json", "1_Pooling/config.json", "2_Normalize/config.json", "original/tokenizer.model")
    }
    assert found["1_Pooling/config.json"] == b"base 1_Pooling/config.json"


def test_an_empty_list_means_a_model_without_folders(place: Path) -> None:
    replace_record(place, folders=[])
    export(place)
    assert not [name for name in read_tree(place / "export") if "/" in name]


def test_a_missing_folder_is_refused(place: Path) -> None:
    replace_record(place, folders=["1_Pooling", "3_Dense"])
    with pytest.raises(ExportError, match=r"output is not complete: 3_Dense missing; found: "):
        export(place)
    assert not (place / "export").exists()


def test_weights_in_a_folder_are_checked(place: Path) -> None:
    write(place / "output/2_Dense/model.safetensors", safetensors({"w": struct.pack("<f", float("nan"))}))
    with pytest.raises(ExportError, match=r"2_Dense/model\.safetensors"):
        export(place)


@pytest.mark.parametrize("names", ["1_Pooling", [1], ["../model"], ["a/b"], [".cache"], [""], ["..."]])
def test_a_record_with_other_names_is_refused(place: Path, names: object) -> None:
    replace_record(place, folders=names)
    with pytest.raises(ExportError, match="is not the record of a run"):
        export(place)


def test_a_record_with_another_kind_of_library_is_refused(place: Path) -> None:
    replace_record(place, library="a\nlicense: mit")
    with pytest.raises(ExportError, match="is not the record of a run"):
        export(place)
