"""Tests of `pack` and `write_archive`: folders and archives, requirements, origins, and what they refuse."""

from __future__ import annotations

import base64
import io
import os
import random
import sys
import zipfile

import pytest

from trainjob.errors import InvalidSpec
from trainjob.project_code import list_files, pack, write_archive
from trainjob.project_code.archive import read_archive
from trainjob.spec.code import MAX_CONFIG_MAP_BYTES, Code


def pack_folder(folder, requirements=""):
    return pack(Code(path=str(folder), requirements=requirements), folder.parent)


def make_archive(folder, path):
    with path.open("wb") as opened:
        write_archive(pack_folder(folder), opened)
    return path


def test_a_folder_outside_of_git_has_no_origin(tmp_path, write):
    packed = pack_folder(write(tmp_path / "p", {"train.py": "x"}))
    assert (packed.commit, packed.branch, packed.modified, packed.path) == ("", "", False, str(tmp_path / "p"))
    archive = base64.b64decode(packed.archive)
    assert len(archive) == packed.size
    assert read_archive(io.BytesIO(archive)).sha256 == packed.sha256


@pytest.mark.parametrize("path", [".", "../p", "./sub/..", "../link"])
def test_a_relative_path_starts_at_the_base(tmp_path, write, path):
    project = write(tmp_path / "p", {"train.py": "x", "sub/a": ""})
    (tmp_path / "link").symlink_to("p")
    packed = pack(Code(path=path), project)
    assert packed.sha256 == pack_folder(project).sha256
    assert packed.path == str(tmp_path / ("link" if path == "../link" else "p"))


def test_the_origin_is_commit_branch_and_whether_files_differ(tmp_path, make_repository, write, git):
    project = make_repository(tmp_path / "p", {"train.py": "x", ".gitignore": "*.log\n", ".trainjobignore": "runs/\n"})
    commit = git(project, "rev-parse", "HEAD")
    write(project, {"a.log": "", "runs/1": "", "__pycache__/a.pyc": ""})  # they do not travel
    os.utime(project / "train.py", (1, 1))
    packed = pack_folder(project)
    assert (packed.commit, packed.branch, packed.modified) == (commit, "main", False)
    git(project, "checkout", "-q", "--detach")
    assert pack_folder(project).branch == ""


@pytest.mark.parametrize("change", ["changed", "staged", "deleted", "new", "mode", "submodule"])
def test_modified_files_are_noticed_only_in_the_folder(tmp_path, make_repository, write, git, change):
    make_repository(tmp_path / "library", {"a.py": ""})
    top = make_repository(tmp_path / "p", {"jobs/train.py": "x", "jobs/b.py": "", "other/c.py": ""})
    git(top, "submodule", "add", "-q", tmp_path / "library", "jobs/library")
    git(top, "commit", "-q", "--all", "--message", "submodule")
    project = top / "jobs"
    assert pack_folder(project).modified is False
    if change in ("changed", "staged"):
        write(project, {"train.py": "y"})
    elif change == "deleted":
        (project / "b.py").unlink()
    elif change == "mode":
        (project / "b.py").chmod(0o755)
    else:
        write(project, {"new.py" if change == "new" else "library/a.py": "y"})
    if change == "staged":
        git(top, "add", "--all")
    assert pack_folder(project).modified is True
    assert pack_folder(top / "other").modified is False


def test_a_repository_without_a_commit_has_no_origin(tmp_path, write, git):
    git(write(tmp_path / "p", {"train.py": ""}), "init", "-q")
    packed = pack_folder(tmp_path / "p")
    assert (packed.commit, packed.branch, packed.modified) == ("", "", False)


def test_a_large_archive_is_not_kept_but_written_again(tmp_path, write):
    noise = random.Random(1).randbytes(MAX_CONFIG_MAP_BYTES)  # noqa: S311 - not a secret
    project = write(tmp_path / "p", {"train.py": "x", "noise.bin": b"\0" + noise})
    packed = pack_folder(project)
    assert packed.archive == ""
    assert packed.size > MAX_CONFIG_MAP_BYTES
    sink = io.BytesIO()
    write_archive(packed, sink)
    assert len(sink.getvalue()) == packed.size
    assert read_archive(io.BytesIO(sink.getvalue())).sha256 == packed.sha256


def test_an_archive_is_packed_with_the_same_digest_and_origin(tmp_path, make_repository, monkeypatch, git_on_path):
    project = make_repository(tmp_path / "p", {"train.py": "x", "uv.lock": "", "pyproject.toml": ""})
    folder = pack_folder(project, "uv.lock")
    archive = make_archive(project, tmp_path / "code.tar.gz")
    git_on_path()  # no git where the archive is used
    packed = pack_folder(archive, "uv.lock")
    assert packed.model_dump(exclude={"path"}) == folder.model_dump(exclude={"path"})
    assert packed.path == str(archive)
    assert [file.name for file in list_files(archive)] == ["pyproject.toml", "train.py", "uv.lock"]
    sink = io.BytesIO()
    write_archive(packed, sink)
    assert sink.getvalue() == archive.read_bytes()


@pytest.mark.parametrize("kind", ["folder", "archive", "damaged archive", "gone"])
def test_files_that_changed_since_are_refused(tmp_path, write, kind):
    project = write(tmp_path / "p", {"train.py": "x"})
    path = project if kind == "folder" else make_archive(project, tmp_path / "code.tar.gz")
    packed = pack_folder(path)
    write(project, {"train.py": "y"})
    if kind == "archive":
        make_archive(project, path)
    elif kind == "damaged archive":
        path.write_bytes(path.read_bytes()[:-1])
    elif kind == "gone":
        path.unlink()
    with pytest.raises(InvalidSpec, match="have changed since" if kind != "gone" else "does not exist"):
        write_archive(packed, io.BytesIO())


def test_a_mistyped_path_gets_a_suggestion_and_another_one_a_list(tmp_path, write):
    write(tmp_path, {"project/train.py": "", "notes.txt": ""})
    with pytest.raises(InvalidSpec, match=r"code\.path cannot be 'project1'.*did you mean '.*/project'"):
        pack(Code(path="project1"), tmp_path)
    with pytest.raises(InvalidSpec, match=r"does not exist; '.*' has notes\.txt, project$"):
        pack(Code(path="x/y"), tmp_path)


@pytest.mark.parametrize("name", ["train.py", "code.zip", "code.tar.gz", "text.tar.gz", "pipe.tar.gz"])
def test_a_file_that_is_no_archive_of_a_project_is_refused(tmp_path, write, name):
    write(tmp_path, {"train.py": "x", "text.tar.gz": "x"})
    for archive in ("code.zip", "code.tar.gz"):  # a zip by another name, too
        with zipfile.ZipFile(tmp_path / archive, "w") as opened:
            opened.writestr("train.py", "x")
    os.mkfifo(tmp_path / "pipe.tar.gz")
    with pytest.raises(InvalidSpec, match=r"code\.path cannot be .*`trainjob pack --output NAME.tar.gz` wrote"):
        pack(Code(path=name), tmp_path)


def test_an_archive_over_the_limit_is_refused(tmp_path, write, monkeypatch):
    archive = make_archive(write(tmp_path / "p", {"train.py": "x" * 2000}), tmp_path / "code.tar.gz")
    monkeypatch.setattr("trainjob.project_code.checks.MAX_BYTES", 1000)
    with pytest.raises(InvalidSpec, match=r"2\.0 KiB, and 1000 bytes are allowed"):
        pack_folder(archive)


@pytest.mark.parametrize(
    ("files", "requirements", "message"),
    [
        ({"a.py": ""}, "requirements.txt", "requirements.txt is needed, and there is none at the top"),
        ({"sub/requirements.txt": ""}, "requirements.txt", "there is none at the top"),
        ({"requirements.txt": ""}, "uv.lock", "`uv lock` creates it; there is requirements.txt"),
        ({"uv.lock": ""}, "uv.lock", "pyproject.toml is needed, and there is none"),
        (
            {"uv.lock": "", ".gitignore": "uv.lock\n"},
            "uv.lock",
            r"uv.lock is needed, and .gitignore or .* leaves it out",
        ),
    ],
)
@pytest.mark.parametrize("as_archive", [False, True])
def test_requirements_have_to_travel(tmp_path, write, files, requirements, message, as_archive):
    path = write(tmp_path / "p", files)
    if as_archive:
        path = make_archive(path, tmp_path / "code.tar.gz")
        message = message.replace(".gitignore or .* leaves it out", "there is none at the top")
    with pytest.raises(InvalidSpec, match=rf"^code\.requirements cannot be '{requirements}': .*{message}"):
        pack_folder(path, requirements)


@pytest.mark.parametrize("files", [{"requirements.txt": ""}, {"uv.lock": "", "pyproject.toml": ""}])
def test_requirements_that_travel_are_kept(tmp_path, write, files):
    name = next(iter(files))
    assert pack_folder(write(tmp_path / "p", files), name).requirements == name


def test_credentials_are_refused(tmp_path, write):
    with pytest.raises(InvalidSpec, match=r"'\.netrc': line 1 contains a password"):
        pack_folder(write(tmp_path / "p", {".netrc": "machine x login y password z\n"}))


def test_the_package_imports_pathspec_on_first_use(tmp_path):
    import subprocess

    script = (
        "import sys, trainjob.project_code; assert 'pathspec' not in sys.modules and 'kubernetes' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
