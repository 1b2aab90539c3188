"""Exports into a folder, run as a program."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.integration.programs.export.export_program import ROOT, RunExport
from tests.support.export_runs import make_run, read_tree, write


def test_files_modes_and_manifest_of_an_export(workspace: Path, run_export: RunExport) -> None:
    target = workspace / "export"
    done = run_export(target, "--manifest", json.dumps({"base_model": "hf://demo/tiny", "run_key": "a/b"}))
    assert (done.returncode, done.stderr) == (0, "")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in target.rglob("*") if path.is_file()}
    folders = {stat.S_IMODE(path.stat().st_mode) for path in (target, target / "original")}
    assert (modes, folders) == ({0o644}, {0o755})
    files = read_tree(target)
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest["files"] == {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)} for name, content in files.items()
    }
    assert (manifest["base_model"], manifest["run_key"]) == ("hf://demo/tiny", "a/b")
    assert (manifest["checkpoint"], manifest["metrics"]["loss"]) == ({"epoch": 1, "dtype": "float32"}, 0.25)


def test_the_log_has_a_line_for_each_file_and_ends_with_json(workspace: Path, run_export: RunExport) -> None:
    first, *files, last = run_export(workspace / "export").stdout.splitlines()
    assert first.startswith("export: model of epoch_1 (float32), 7 files, ")
    assert [line.split(" ")[1] for line in files] == [f"{n}/8" for n in range(1, 9)]
    receipt = json.loads(last.removeprefix("export: done "))
    assert (receipt["files"], receipt["sent"], receipt["destination"]) == (7, 8, str(workspace / "export"))


def test_a_second_export_changes_nothing(workspace: Path, run_export: RunExport) -> None:
    target = workspace / "export"
    first = json.loads(run_export(target).stdout.splitlines()[-1].removeprefix("export: done "))
    inodes = {path: path.stat().st_ino for path in target.rglob("*")}
    second = json.loads(run_export(target).stdout.splitlines()[-1].removeprefix("export: done "))
    assert second == {**first, "sent": 0}
    assert {path: path.stat().st_ino for path in target.rglob("*")} == inodes


def test_a_file_uri_and_an_empty_folder(workspace: Path, run_export: RunExport) -> None:
    target = workspace / "my export"
    target.mkdir()
    assert run_export(f"file://{str(target).replace(' ', '%20')}").returncode == 0
    assert (target / "model.safetensors").is_file()


def test_another_run_replaces_an_earlier_export_completely(workspace: Path, run_export: RunExport) -> None:
    shutil.rmtree(workspace / "output")
    make_run(workspace / "output", shards=3)
    assert run_export(workspace / "export").returncode == 0
    shutil.rmtree(workspace / "output")
    make_run(workspace / "output", seed="b")
    assert run_export(workspace / "export").returncode == 0
    names = sorted(path.name for path in (workspace / "export").glob("model*"))
    assert names == ["model.safetensors"]
    assert sorted(path.name for path in workspace.iterdir()) == ["export", "model", "output"]


def test_a_changed_file_in_an_export_is_restored(workspace: Path, run_export: RunExport) -> None:
    run_export(workspace / "export")
    expected = read_tree(workspace / "export")
    write(workspace / "export" / "model.safetensors", "x" * len(expected["model.safetensors"]))
    run_export(workspace / "export")
    assert read_tree(workspace / "export") == expected


def test_a_reader_always_finds_an_export_while_it_is_replaced(workspace: Path, run_export: RunExport) -> None:
    target = workspace / "export"
    run_export(target)
    missing, done = [], threading.Event()

    def read() -> None:
        while not done.is_set():
            if not (target / "manifest.json").exists():
                missing.append(1)

    reader = threading.Thread(target=read)
    reader.start()
    for seed in "bcd":
        make_run(workspace / "output", seed=seed)
        assert run_export(target).returncode == 0
    done.set()
    reader.join()
    assert not missing


@pytest.mark.parametrize("foreign", ["notes.txt", "manifest.json"])
def test_a_folder_with_other_files_is_not_replaced(workspace: Path, run_export: RunExport, foreign: str) -> None:
    write(workspace / "export" / foreign, "{}")
    failed = run_export(workspace / "export")
    assert (failed.returncode, read_tree(workspace / "export")) == (1, {foreign: b"{}"})
    assert "name another" in failed.stderr


@pytest.mark.parametrize("folder", ["", "output", "model", "model/export", "output/epoch_1"])
def test_a_destination_that_overlaps_the_sources_is_refused(
    workspace: Path, run_export: RunExport, folder: str
) -> None:
    before = read_tree(workspace)
    failed = run_export(workspace / folder)
    assert (failed.returncode, read_tree(workspace)) == (2, before)
    assert "destination" in failed.stderr


@pytest.mark.parametrize(
    ("address", "message"),
    {
        "export": "it must be a URI: hf://… or s3://…",
        "ftp://bucket/x": "allowed are hf://… or s3://…",
        "file://host/x": "allowed are hf://… or s3://…",
        "s3://": "nothing follows the scheme",
        "hf://name": "it must be hf://ORGANIZATION/NAME",
        "hf://datasets/org/name": "it must be the repository of a model",
    }.items(),
)
def test_an_unknown_address_is_refused(run_export: RunExport, address: str, message: str) -> None:
    failed = run_export(address)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert f"destination cannot be '{address}': {message}" in failed.stderr


@pytest.mark.parametrize(
    "arguments", [["--manifest", "[]"], ["--manifest", "{"], ["--unknown"], ["--manifest", '{"files": 1}']]
)
def test_wrong_arguments_are_exit_code_2(workspace: Path, run_export: RunExport, arguments: list[str]) -> None:
    assert run_export(workspace / "export", *arguments).returncode == 2
    assert not (workspace / "export").exists()


def test_an_unfinished_run_is_reported_in_one_sentence_with_exit_code_1(workspace: Path, run_export: RunExport) -> None:
    shutil.rmtree(workspace / "output" / "epoch_1")
    failed = run_export(workspace / "export")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("export: failed: the run in ")
    assert "Traceback" not in failed.stderr


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/mounts").exists(), reason="needs a folder nobody can write")
def test_a_read_only_volume_is_reported_in_one_sentence(run_export: RunExport) -> None:
    failed = run_export("/proc/export")
    assert failed.returncode == 1
    assert failed.stderr.startswith("export: failed: ")
    assert "Traceback" not in failed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("earlier", "options"), [(False, []), (True, []), (True, ["no-swap"])])
def test_an_export_killed_at_any_file_access_is_completed_by_the_next(
    workspace: Path, run_export: RunExport, earlier: bool, options: list[str]
) -> None:
    target = workspace / "exports" / "model"
    if earlier:
        output = workspace / "output"
        output.rename(workspace / "later")
        make_run(output, shards=2, seed="b")
        run_export(target.with_name("model.before"))
        shutil.rmtree(output)
        (workspace / "later").rename(output)
    target.parent.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("kill_points.py"), workspace, target, *options],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'core' / 'src'}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["killed"] > 60
