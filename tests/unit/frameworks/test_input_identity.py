"""Identity of input files: the same for the same content, on any volume, and another for any change."""

from __future__ import annotations

import os
import shutil

import pytest

from trainjob.frameworks import input_identity
from trainjob.frameworks.input_identity import identify_inputs
from trainjob.programs.fetch.record import RecordedFile, RecordWriter


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    (folder / "below").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "below/weights").write_text("abcd")
    return folder


@pytest.fixture
def read_files(monkeypatch):
    """Return the names of the files that are read, in a list that grows."""
    read, hash_file = [], input_identity._hash_file

    def note_and_hash(path):
        read.append(path.name)
        return hash_file(path)

    monkeypatch.setattr(input_identity, "_hash_file", note_and_hash)
    return read


def identify(*roots, output="output"):
    return identify_inputs(roots, roots[0].parent / output)


def test_files_that_are_written_again_have_the_same_identity(model, tmp_path):
    (tmp_path / "rows.jsonl").write_text("{}")
    first = identify(model, tmp_path / "rows.jsonl")
    assert sorted(first) == ["files of model", "files of rows.jsonl"]
    other = tmp_path / "other"
    shutil.copytree(model, other / "model", copy_function=shutil.copyfile)
    shutil.copyfile(tmp_path / "rows.jsonl", other / "rows.jsonl")
    os.utime(other / "model/config.json", (1, 1))
    assert identify(other / "model", other / "rows.jsonl") == first


@pytest.mark.parametrize("change", ["content", "name", "missing", "added"])
def test_a_change_gives_another_identity(model, change):
    first = identify(model)
    if change == "content":
        (model / "below/weights").write_text("abce")  # the same size
        os.utime(model / "below/weights", ns=(1, 1))
    elif change == "name":
        (model / "below/weights").rename(model / "below/weight")
    elif change == "missing":
        (model / "config.json").unlink()
    else:
        (model / "added").touch()
    assert identify(model) != first


def test_hidden_files_do_not_count(model):
    first = identify(model)
    (model / ".cache").mkdir()
    (model / ".cache/x").write_text("hidden")
    assert identify(model) == first


def test_a_file_is_read_once(model, read_files):
    first = identify(model)
    assert sorted(read_files) == ["config.json", "weights"]
    assert identify(model) == first
    assert len(read_files) == 2
    (model / "config.json").write_text("[]")
    identify(model)
    assert read_files[2:] == ["config.json"]


def record_fetch(model, sha256=None):
    digests = {name: sha256 or input_identity._hash_file(model / name) for name in ("config.json", "below/weights")}
    files = [RecordedFile(name, (model / name).stat().st_size, "", digest) for name, digest in digests.items()]
    RecordWriter(model, "hf://a/b", "", files).finish()


def test_a_fetched_file_is_not_read_unless_it_has_changed_since(model, read_files):
    record_fetch(model)
    read_files.clear()
    first = identify(model)
    assert read_files == []
    (model / "below/weights").write_text("abce")
    os.utime(model / "below/weights", ns=(1, 1))  # as `cp -p` of an old file of the same size
    assert identify(model, output="other") != first
    assert read_files == ["weights"]
    (model / "below/weights").write_text("abcd")
    assert identify(model, output="third") == first


def test_the_record_of_a_fetch_that_did_not_end_does_not_count(model, read_files):
    record_fetch(model, "0" * 64)
    lines = (model / ".trainjob-fetch/record.jsonl").read_text().splitlines(keepends=True)
    (model / ".trainjob-fetch/record.jsonl").write_text("".join(lines[:-1]))
    identify(model)
    assert sorted(read_files) == ["config.json", "weights"]
