"""Files that another process replaces while they are exported."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.programs.export.export_program import RunExport
from tests.integration.programs.export.hub_uploads import Uploads, upload_hub
from tests.support.export_runs import make_run, read_tree
from trainjob.errors import ExportError
from trainjob.programs.export import Export, export_model
from trainjob.programs.export.folder import FolderTarget
from trainjob.programs.export.hashed_file import hash_opened
from trainjob.programs.export.hub import _SMALL, _get_path
from trainjob.programs.export.layout import ExportFile
from trainjob.programs.export.workspace import SourceFile, Workspace

SECRET = "ACCESS_TOKEN=hunter2"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Return a folder outside the workspace, whose files have the names of a checkpoint."""
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer.model", "config.json", "model-00001-of-00001.safetensors"):
        (folder / name).write_text(SECRET)
    return folder


def replace_by_link(path: Path, target: Path) -> None:
    path.rename(path.with_name(f".{path.name}.old"))
    path.symlink_to(target)


def run_with_race(
    monkeypatch: pytest.MonkeyPatch, workspace: Path, race: Callable[[], None], destination: Path
) -> None:
    """Run an export in which another process interferes before the files are read."""
    send = FolderTarget.send

    def interfere(*arguments):
        race()
        return send(*arguments)

    monkeypatch.setattr(FolderTarget, "send", interfere)
    export_model(Export(workspace / "output", workspace / "model", str(destination)), lambda _: None)


@pytest.mark.parametrize("replaced", ["tokenizer.json", "model-00001-of-00001.safetensors", "original"])
def test_a_file_or_folder_replaced_by_a_link_is_not_exported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workspace: Path, secret: Path, replaced: str
) -> None:
    path, target = workspace / "output" / "epoch_1" / replaced, tmp_path / "exports" / "model"
    outside = secret if replaced == "original" else secret / replaced
    with pytest.raises(ExportError, match="was replaced while it was exported"):
        run_with_race(monkeypatch, workspace, lambda: replace_by_link(path, outside), target)
    assert not target.exists()
    assert not [name for name, content in read_tree(tmp_path / "exports").items() if SECRET.encode() in content]


@pytest.mark.parametrize("kind", ["folder", "pipe", "missing"])
def test_other_replacements_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workspace: Path, kind: str
) -> None:
    path = workspace / "output" / "epoch_1" / "tokenizer.json"

    def race() -> None:
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)

    with pytest.raises(ExportError, match=r"tokenizer\.json was replaced while it was exported"):
        run_with_race(monkeypatch, workspace, race, tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("change", ["same size", "longer", "shorter"])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, change: str) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"w" * 1000)
    file = ExportFile("weights.bin", SourceFile(tmp_path, "weights.bin"))

    def write(_: memoryview) -> None:
        path.write_bytes(b"v" * {"same size": 1000, "longer": 1001, "shorter": 999}[change])

    with (
        file.source.open() as source,
        pytest.raises(ExportError, match=r"weights\.bin changed while it was exported"),
    ):
        hash_opened(file, source, source, write)


def test_a_file_that_changed_after_it_was_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"w" * 1000)
    file = ExportFile("weights.bin", SourceFile(tmp_path, "weights.bin"))
    with file.source.open() as source:
        hashed = hash_opened(file, source, source, len)
        assert b"".join(hashed.blocks(300)) == b"w" * 1000
        hashed.check_unchanged(source)
        path.write_bytes(b"v" * 1000)
        with pytest.raises(ExportError, match="changed while it was exported"):
            hashed.check_unchanged(source)
    with pytest.raises(ExportError, match="changed while it was exported"):
        list(hashed.blocks(300))


def test_a_config_replaced_by_a_link_is_not_read(workspace: Path, secret: Path) -> None:
    """The export changes config.json, so it reads the file before the others."""
    path = workspace / "output" / "epoch_1" / "config.json"
    source = Workspace.enclosing(workspace / "output", workspace / "model").find(path)
    replace_by_link(path, secret / "config.json")
    with pytest.raises(ExportError, match="was replaced"):
        source.open()


def test_links_within_the_workspace_are_exported(tmp_path: Path, workspace: Path) -> None:
    """The Hugging Face cache has such links to files and folders."""
    epoch, blobs = workspace / "output" / "epoch_1", workspace / "blobs"
    blobs.mkdir()
    expected = (epoch / "tokenizer.json").read_bytes()
    (epoch / "tokenizer.json").rename(blobs / "0123abcd")
    (epoch / "tokenizer.json").symlink_to("../../blobs/0123abcd")
    (workspace / "output").rename(workspace / "runs")
    (workspace / "output").symlink_to("runs")
    (tmp_path / "mount").symlink_to("workspace")
    place = tmp_path / "mount"
    export_model(Export(place / "output", place / "model", str(tmp_path / "export")), lambda _: None)
    files = read_tree(tmp_path / "export")
    assert files["tokenizer.json"] == expected
    assert files["model.safetensors"] == (workspace / "runs/epoch_1/model-00001-of-00001.safetensors").read_bytes()


def test_links_in_the_unfinished_copy_are_not_followed(tmp_path: Path, workspace: Path, secret: Path) -> None:
    before, staging = read_tree(secret), tmp_path / ".export.export"
    (staging / "empty").mkdir(parents=True)
    (staging / "original").symlink_to(secret)
    (staging / "tokenizer.json").symlink_to(secret / "tokenizer.json")
    (staging / "config.json").mkdir()
    (staging / "config.json" / "old").write_text("an unfinished export's")
    secret.chmod(0o700)
    export_model(Export(workspace / "output", workspace / "model", str(tmp_path / "export")), lambda _: None)
    assert (read_tree(secret), secret.stat().st_mode & 0o777) == (before, 0o700)
    assert not [path for path in (tmp_path / "export").rglob("*") if path.is_symlink() or path.name == "empty"]


def test_a_large_file_is_uploaded_to_the_hub_from_its_descriptor(workspace: Path, secret: Path) -> None:
    """huggingface_hub opens the path again, after another process has replaced the file."""
    path = workspace / "output" / "large.safetensors"
    path.write_bytes(b"w" * (_SMALL + 1))
    with Workspace.enclosing(workspace / "output", workspace / "model").find(path).open() as opened:
        content = _get_path(opened)
        replace_by_link(path, secret / "config.json")
        found = Path(content).read_bytes() if isinstance(content, str) else content.read()
    assert found == b"w" * (_SMALL + 1)


def test_large_files_arrive_on_the_hub(tmp_path: Path, workspace: Path, run_export: RunExport) -> None:
    """The hub takes one large file before the commit (LFS), and the other in the commit."""
    make_run(workspace / "output", size=_SMALL)
    (workspace / "output" / "epoch_1" / "large.json").write_bytes(b" " * (_SMALL + 1))
    (tmp_path / "hub" / "models").mkdir(parents=True)
    with upload_hub(tmp_path / "hub", Uploads("token")) as hub:
        done = run_export("hf://org/name", "--endpoint", hub.url, ACCESS_TOKEN="token")
        assert done.returncode == 0, done.stderr
    run_export(workspace / "export")
    files = read_tree(workspace / "export")
    assert read_tree(tmp_path / "hub" / "models" / "org" / "name") == files
    assert min(len(files["model.safetensors"]), len(files["large.json"])) > _SMALL


def test_an_export_keeps_few_files_open(tmp_path: Path, workspace: Path) -> None:
    for number in range(300):
        (workspace / "output" / "epoch_1" / f"part_{number}.json").write_text(f"{number}")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(used + 40, 100), before[1]))
    try:
        export_model(Export(workspace / "output", workspace / "model", str(tmp_path / "export")), lambda _: None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(list((tmp_path / "export").glob("part_*"))) == 300
