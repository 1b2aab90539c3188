"""Copies of an export into a folder: one read, clones, interruptions, full volumes and two exports at once."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.programs.export.export_program import StartExport
from tests.support.export_runs import make_epoch, make_model, make_run, read_tree
from trainjob.errors import ExportError
from trainjob.programs.export import Export, export_model
from trainjob.programs.export import folder as folder_export
from trainjob.programs.fetch.folder import Folder

MB = 1 << 20


def export(workspace: Path, target: Path) -> list[str]:
    lines: list[str] = []
    export_model(Export(workspace / "output", workspace / "model", str(target)), lines.append)
    return lines


@pytest.fixture(params=["xfs", "btrfs"])
def cloning_volume(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Mount a file system that can clone files."""
    program = shutil.which(f"mkfs.{request.param}")
    if program is None or os.geteuid():
        pytest.skip(f"needs root, and Debian's package {request.param}progs or {request.param}-progs")
    image, volume = tmp_path / "image", tmp_path / "volume"
    with image.open("wb") as file:
        file.truncate(400 * MB)  # XFS needs 300 MB
    volume.mkdir()
    subprocess.run([program, "-q", image], check=True, capture_output=True)
    if subprocess.run(["mount", "-o", "loop", image, volume], check=False, capture_output=True).returncode:
        pytest.skip("loop devices can't be mounted here")
    try:
        yield volume
    finally:
        subprocess.run(["umount", volume], check=True)


def test_a_clone_needs_no_space_and_has_the_same_bytes(cloning_volume: Path) -> None:
    workspace, target = cloning_volume / "workspace", cloning_volume / "exports" / "model"
    make_model(workspace / "model")
    make_run(workspace / "output", epochs=1, size=100 * MB)
    os.sync()
    used = shutil.disk_usage(cloning_volume).used
    lines = export(workspace, target)
    os.sync()
    assert shutil.disk_usage(cloning_volume).used - used < 20 * MB
    weights = workspace / "output/epoch_0/model-00001-of-00001.safetensors"
    assert (target / "model.safetensors").read_bytes() == weights.read_bytes()
    assert json.loads((target / "manifest.json").read_bytes())["totals"]["bytes"] > 100 * MB
    assert any(line.startswith("export: 8/8 ") for line in lines)
    # The run goes on in its own files, not in those of the export.
    before = (target / "model.safetensors").read_bytes()
    with weights.open("r+b") as file:
        file.write(b"other")
    assert (target / "model.safetensors").read_bytes() == before


def test_a_clone_fits_on_a_volume_that_has_no_space_for_a_copy(cloning_volume: Path) -> None:
    workspace = cloning_volume / "workspace"
    make_model(workspace / "model")
    make_run(workspace / "output", epochs=1, size=180 * MB)
    os.sync()
    assert shutil.disk_usage(cloning_volume).free < 180 * MB
    export(workspace, cloning_volume / "export")
    assert (cloning_volume / "export/model.safetensors").stat().st_size > 180 * MB


def test_an_export_without_space_is_refused_before_it_copies(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_export, "_clone", lambda *_: False)
    monkeypatch.setattr(Folder, "get_free_bytes", lambda _: 100)
    make_epoch(workspace / "output", 1, size=MB)
    with pytest.raises(ExportError, match=r"full: the export needs 1\.0 MB, and 100 B are left\n.*enlarge"):
        export(workspace, tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_a_volume_that_becomes_full_is_reported_and_the_next_export_continues(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_epoch(workspace / "output", 1, shards=3, size=MB)
    finish, finished = folder_export._Copies._finish, []

    def refuse(copies, target):
        if len(finished) > 5:
            raise OSError(122, "Disk quota exceeded")
        finished.append(finish(copies, target))

    with monkeypatch.context() as patched:
        patched.setattr(folder_export._Copies, "_finish", refuse)
        with pytest.raises(ExportError, match=r"the volume of .* is full: Disk quota exceeded\n.*enlarge"):
            export(workspace, tmp_path / "export")
    assert not (tmp_path / "export").exists()
    lines = export(workspace, tmp_path / "export")
    assert sum("already there" in line for line in lines) >= 4
    assert [path.name for path in tmp_path.glob("*export*")] == ["export"]


class Killed(BaseException):
    """End of an export without any clean-up."""


def test_files_that_were_copied_before_a_kill_are_not_read_again(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_epoch(workspace / "output", 1, shards=2)

    def end(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(folder_export, "_put_in_place", end)
        export(workspace, tmp_path / "export")
    (tmp_path / ".export.export" / "tokenizer.json").write_text("content of tokenizer_json")  # of the same size
    inodes = {path.name: path.stat().st_ino for path in (tmp_path / ".export.export").rglob("*")}
    lines = export(workspace, tmp_path / "export")
    kept = {line.split()[2] for line in lines if "already there" in line}
    assert {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} <= kept
    assert "tokenizer.json" not in kept
    assert all((tmp_path / "export" / name).stat().st_ino == inodes[Path(name).name] for name in kept)
    files = read_tree(tmp_path / "export")
    named = json.loads(files.pop("manifest.json"))["files"]
    assert {name: entry["sha256"] for name, entry in named.items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items()
    }


def test_a_recorded_copy_that_has_changed_is_copied_again(workspace: Path, tmp_path: Path) -> None:
    target = tmp_path / "export"
    export(workspace, target)
    expected = read_tree(target)
    target.rename(tmp_path / ".export.export")
    lines = [
        {"path": name, "sha256": "0" * 64, "source": [1, 2, 3], "copy": [4, 5, 6]} for name in ("tokenizer.json", "x")
    ]
    (tmp_path / ".export.export.jsonl").write_text("\n".join([*map(json.dumps, lines), "[]", "{", '{"path": 1}']))
    assert not any("already there" in line for line in export(workspace, target))
    assert read_tree(target) == expected


def test_two_exports_into_one_folder_run_one_after_the_other(
    workspace: Path, tmp_path: Path, start_export: StartExport
) -> None:
    record = tmp_path / ".export.export.jsonl"
    with record.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        processes = [start_export(tmp_path / "export") for _ in range(2)]
        for process in processes:
            assert any("waiting for its end" in line for line in process.stdout)
        record.unlink()
    results = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], results
    receipts = [json.loads(out.splitlines()[-1].removeprefix("export: done ")) for out, _ in results]
    assert sorted(receipt["sent"] for receipt in receipts) == [0, 8]
    assert [path.name for path in tmp_path.glob("*export*")] == ["export"]


def test_exports_into_several_folders_do_not_wait_for_each_other(workspace: Path, tmp_path: Path) -> None:
    with (tmp_path / ".a.export.jsonl").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        other = threading.Thread(target=export, args=(workspace, tmp_path / "b"))
        other.start()
        other.join(60)
        assert (tmp_path / "b" / "manifest.json").exists()
