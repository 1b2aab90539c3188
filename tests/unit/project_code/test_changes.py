"""Changes of a project: what differs, how it is packed, and that the pods get the same files."""

from __future__ import annotations

import base64
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.errors import InvalidSpec
from trainjob.programs.code.archive import unpack
from trainjob.programs.code.failure import CodeFailure
from trainjob.programs.code_loop.changes import ARCHIVE_FILE, INFORMATION_FILE, ChangesFolder, ChangingProject
from trainjob.project_code import pack
from trainjob.project_code.changes import ProjectSnapshots, find_changes, pack_changes, read_contents
from trainjob.spec import Code

LINK = "-> "
BASE = {"train.py": "a", "pkg/__init__.py": "", "pkg/model.py": "b", "data/deep/x.txt": "c", "to.py": LINK + "train.py"}


def write_project(folder, files):
    """Make the files of a folder these ones.

    A text `-> TARGET` is a link, and `!` makes a file executable.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith(LINK):
            path.symlink_to(text.removeprefix(LINK))
        else:
            path.write_text(text)
            path.chmod(0o755 if text.startswith("!") else 0o644)


def read_project(folder):
    """Return the inverse of [write_project][]."""
    found = {}
    for parent, folders, files in os.walk(folder):
        for name in [*files, *(each for each in folders if Path(parent, each).is_symlink())]:
            path = Path(parent, name)
            text = f"{LINK}{path.readlink()}" if path.is_symlink() else path.read_text()
            found[str(path.relative_to(folder))] = text
            assert path.is_symlink() or os.access(path, os.X_OK) == text.startswith("!")
    return found


class Transfer:
    """A project, the folder of its changes as the kubelet fills it, and the project in a pod."""

    def __init__(self, folder, files):
        self.folder, self.mount = folder / "project", folder / "mount"
        self.mount.mkdir(parents=True)
        write_project(self.folder, files)
        packed = pack(Code(path=str(self.folder)), folder)
        self.base = read_contents(packed)
        self.snapshots = ProjectSnapshots(self.folder)
        archive = folder / "archive"
        archive.write_bytes(base64.b64decode(packed.archive))
        self.pod = Path(unpack(str(archive), packed.sha256)[0])
        self.changes, self.project = ChangesFolder(self.mount), ChangingProject(self.pod)
        self.generation = 0

    def pack(self):
        files, contents = self.snapshots.take()
        return pack_changes(self.folder, files, self.base, contents)

    def send(self, files=None):
        if files is not None:
            write_project(self.folder, files)
        changes = self.pack()
        self.generation += 1
        information = {"generation": self.generation, "sha256": changes.sha256, "deleted": list(changes.deleted)}
        (self.mount / ARCHIVE_FILE).write_bytes(changes.archive)
        (self.mount / "partial").write_text(json.dumps(information))
        (self.mount / "partial").replace(self.mount / INFORMATION_FILE)
        self.project.apply(self.changes.poll())
        return changes


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path_factory, monkeypatch):
    """Use a folder of the test for what the pods unpack."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("pods")))


@pytest.fixture
def transfer(tmp_path):
    return Transfer(tmp_path, BASE)


STATES = {
    "changed": {**BASE, "train.py": "z"},
    "executable": {**BASE, "train.py": "!a"},
    "new": {**BASE, "new/folder/file.py": "z", "ö ä.txt": "z"},
    "deleted": {"train.py": "a"},
    "folder in place of a file": {**{n: t for n, t in BASE.items() if n != "to.py"}, "to.py/x.py": "z"},
    "file in place of a folder": {"train.py": "a", "pkg": "z", "to.py": LINK + "train.py"},
    "link in place of a folder": {**{n: t for n, t in BASE.items() if "pkg" not in n}, "pkg": LINK + "data"},
    "another target": {**BASE, "to.py": LINK + "pkg/model.py"},
    "file in place of a link": {**BASE, "to.py": "a"},
    "the archive": BASE,
}


@pytest.mark.parametrize("second", STATES.values(), ids=STATES)
@pytest.mark.parametrize("first", STATES.values(), ids=STATES)
def test_the_pods_get_the_files_of_the_folder(transfer, first, second):
    for files in (first, second):
        transfer.send(files)
        assert read_project(transfer.pod) == files
    changes = transfer.send(BASE)
    assert read_project(transfer.pod) == BASE
    assert changes.is_empty


_NAMES = st.sampled_from(["a", "b", "b/c", "d/e", "d/e/f", "d/g"])


def _is_possible(names):
    return not any(other.startswith(f"{name}/") for name in names for other in names)


_PROJECTS = st.dictionaries(_NAMES, st.sampled_from(["1", "2", "!3"]), min_size=1).filter(_is_possible)


@given(st.lists(_PROJECTS, min_size=2, max_size=5))
def test_any_history_ends_with_the_files_of_the_folder(tmp_path_factory, states):
    transfer = Transfer(tmp_path_factory.mktemp("history"), states[0])
    for files in states[1:]:
        transfer.send(files)
        assert read_project(transfer.pod) == files


def test_only_the_files_that_differ_are_sent(transfer):
    changes = transfer.send({**BASE, "train.py": "z" * 10})
    unpacked, count = unpack(str(transfer.mount / ARCHIVE_FILE), changes.sha256)
    assert (count, read_project(unpacked)) == (1, {"train.py": "z" * 10})


def test_what_a_run_has_written_stays(transfer):
    (transfer.pod / "runs").mkdir()
    (transfer.pod / "runs" / "log.txt").write_text("of a run")
    transfer.send({**BASE, "train.py": "z"})
    transfer.send(BASE)
    assert read_project(transfer.pod) == {**BASE, "runs/log.txt": "of a run"}


def test_a_folder_with_nothing_but_compiled_modules_is_removed(transfer):
    (transfer.pod / "pkg" / "__pycache__").mkdir()
    (transfer.pod / "pkg" / "__pycache__" / "model.cpython-311.pyc").write_text("")
    transfer.send({name: text for name, text in BASE.items() if "pkg" not in name})
    assert not (transfer.pod / "pkg").exists()


def test_each_generation_has_a_time_of_its_own(transfer):
    times = []
    for text in "xyx":
        transfer.send({**BASE, "train.py": text})
        times.append(int((transfer.pod / "train.py").stat().st_mtime))
    transfer.send(BASE)
    times.append(int((transfer.pod / "train.py").stat().st_mtime))
    assert len({*times}) == len(times)
    assert times[0] > int((transfer.pod / "pkg" / "__init__.py").stat().st_mtime)


def test_the_same_changes_are_reported_once(transfer):
    transfer.send({**BASE, "train.py": "z"})
    assert transfer.changes.poll() is None


def test_damaged_changes_are_reported_once(transfer):
    transfer.send({**BASE, "train.py": "z"})
    (transfer.mount / ARCHIVE_FILE).write_bytes(b"damaged")
    os.utime(transfer.mount / INFORMATION_FILE, (time.time(), 1))
    with pytest.raises(CodeFailure, match="the changes cannot be read"):
        transfer.changes.poll()
    assert transfer.changes.poll() is None


def test_no_folder_of_changes_means_none(tmp_path):
    assert ChangesFolder(tmp_path / "absent").poll() is None


def test_a_file_is_read_again_only_if_it_has_changed(tmp_path, monkeypatch):
    write_project(tmp_path, BASE)
    snapshots, read = ProjectSnapshots(tmp_path), list[str]()
    _, first = snapshots.take()
    real = Path.read_bytes

    def read_bytes(path):
        read.append(path.name)
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    (tmp_path / "train.py").write_text("z")
    _, second = snapshots.take()
    assert read == ["train.py"]
    assert find_changes(first, second) == (["train.py"], [])


def test_the_archive_and_the_folder_have_the_same_contents(transfer):
    assert transfer.snapshots.take()[1] == transfer.base


def test_the_contents_of_a_large_archive_are_read_from_the_folder(tmp_path):
    (tmp_path / "noise").write_bytes(os.urandom(1_100_000))
    packed = pack(Code(path=str(tmp_path)), tmp_path)
    assert packed.archive == ""
    assert read_contents(packed) == ProjectSnapshots(tmp_path).take()[1]
    (tmp_path / "noise").write_bytes(b"")
    with pytest.raises(InvalidSpec, match="changed since"):
        read_contents(packed)


REFUSED = {
    "a credential in a changed file": {**BASE, "train.py": "TOKEN = 'hf_" + "aBcDeFgHiJ" * 4 + "'"},
    "a broken link": {**BASE, "to.py": LINK + "absent.py"},
    "a link to a file that was deleted": {name: text for name, text in BASE.items() if name != "train.py"},
    "no file": {},
}


@pytest.mark.parametrize("files", REFUSED.values(), ids=REFUSED)
def test_what_cannot_travel_is_refused(transfer, files):
    write_project(transfer.folder, files)
    transfer.folder.mkdir(exist_ok=True)
    with pytest.raises(InvalidSpec, match=r"code\.path"):
        transfer.pack()
