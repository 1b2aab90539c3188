"""Tests of the list of a project's files, with real repositories and without one."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata

import pytest

from trainjob.errors import InvalidSpec
from trainjob.project_code import list_files


def names(folder):
    return [file.name for file in list_files(folder)]


def test_tracked_and_new_files_travel_and_ignored_or_deleted_ones_do_not(tmp_path, make_repository, write):
    project = make_repository(tmp_path / "p", {"train.py": "", "old.py": "", ".gitignore": "*.log\n/runs/\n"})
    write(project, {"new.py": "", "a.log": "", "runs/x": "", "sub/runs/kept": "", "__pycache__/a.pyc": "", "b.pyc": ""})
    (project / "old.py").unlink()
    assert names(project) == [".gitignore", "new.py", "sub/runs/kept", "train.py"]


def test_tracked_files_of_ignored_names_travel_except_compiled_python(tmp_path, make_repository, git, write):
    project = make_repository(tmp_path / "p", {".gitignore": "*.log\n", "a.py": ""})
    write(project, {"kept.log": "", "a.pyc": "", "x/__pycache__/b": ""})
    git(project, "add", "--force", "kept.log", "a.pyc", "x/__pycache__/b")
    assert names(project) == [".gitignore", "a.py", "kept.log"]


def test_a_folder_inside_a_repository_is_a_project_of_its_own(tmp_path, make_repository, write):
    top = make_repository(
        tmp_path / "p", {".gitignore": "*.csv\n", "other.py": "", "jobs/a/train.py": "", "jobs/b.py": ""}
    )
    write(top, {"jobs/a/data.csv": "", "jobs/a/new.py": ""})
    assert names(top / "jobs" / "a") == ["new.py", "train.py"]


def test_a_link_to_a_folder_inside_a_repository_uses_its_git(tmp_path, make_repository, write):
    top = make_repository(tmp_path / "p", {".gitignore": "*.csv\n", "jobs/train.py": ""})
    write(top, {"jobs/data.csv": ""})
    (tmp_path / "current").symlink_to(top / "jobs")
    assert names(tmp_path / "current") == ["train.py"]


def test_worktrees_whose_git_is_a_file(tmp_path, make_repository, git, write):
    make_repository(tmp_path / "p", {"train.py": "", ".gitignore": "*.log\n"})
    git(tmp_path / "p", "worktree", "add", "-q", "-b", "other", tmp_path / "tree")
    write(tmp_path / "tree", {"a.log": "", "new.py": ""})
    assert (tmp_path / "tree" / ".git").is_file()
    assert names(tmp_path / "tree") == [".gitignore", "new.py", "train.py"]


def test_submodules_inside_submodules_and_embedded_repositories_travel(tmp_path, make_repository, git, write):
    make_repository(tmp_path / "inner", {"inner.py": ""})
    outer = make_repository(tmp_path / "outer", {"outer.py": "", ".gitignore": "*.log\n"})
    git(outer, "submodule", "add", "-q", tmp_path / "inner", "deep/inner")
    git(outer, "commit", "-q", "--all", "--message", "submodule")
    project = make_repository(tmp_path / "p", {"train.py": ""})
    git(project, "submodule", "add", "-q", tmp_path / "outer", "outer")
    git(project, "commit", "-q", "--all", "--message", "submodule")
    git(project, "submodule", "update", "-q", "--init", "--recursive")
    make_repository(project / "embedded", {"e.py": "", ".gitignore": "*.csv\n"})
    write(project, {"outer/new.py": "", "outer/a.log": "", "embedded/a.csv": "", "embedded/b.py": ""})
    assert names(project) == [
        ".gitmodules",
        "embedded/.gitignore",
        "embedded/b.py",
        "embedded/e.py",
        "outer/.gitignore",
        "outer/.gitmodules",
        "outer/deep/inner/inner.py",
        "outer/new.py",
        "outer/outer.py",
        "train.py",
    ]


def test_a_submodule_that_is_not_checked_out_is_refused_unless_it_is_left_out(tmp_path, make_repository, git, write):
    make_repository(tmp_path / "library", {"library.py": ""})
    project = make_repository(tmp_path / "p", {"train.py": ""})
    git(project, "submodule", "add", "-q", tmp_path / "library", "library")
    git(project, "commit", "-q", "--all", "--message", "submodule")
    git(tmp_path, "clone", "-q", project, tmp_path / "clone")
    with pytest.raises(InvalidSpec, match=r"'library/'.*git submodule update --init"):
        list_files(tmp_path / "clone")
    write(tmp_path / "clone", {".trainjobignore": "library/\n"})
    assert names(tmp_path / "clone") == [".gitmodules", ".trainjobignore", "train.py"]


@pytest.mark.parametrize("in_repository", [True, False])
def test_the_ignore_file_leaves_out_more_files_and_can_except_some(tmp_path, make_repository, write, in_repository):
    files = {
        ".trainjobignore": "# data\ndata/*\n!data/small.json\n*.ipynb\n/top.py\n",
        "data/big.bin": "",
        "data/small.json": "",
        "sub/top.py": "",
        "sub/a.ipynb": "",
        "top.py": "",
        "sub/.trainjobignore": "top.py\n",  # only that at the top of the project counts
    }
    project = (make_repository if in_repository else write)(tmp_path / "p", files)
    assert names(project) == [".trainjobignore", "data/small.json", "sub/.trainjobignore", "sub/top.py"]


@pytest.mark.parametrize(
    "ignore_files",
    [
        {".gitignore": "*.log\n!keep.log\n"},
        {".gitignore": "/build\nsub/x\n"},
        {".gitignore": "*\n!*/\n!*.py\n"},
        {".gitignore": "*.py\n", "sub/.gitignore": "!*.py\n"},
        {".gitignore": "sub/\n", "sub/.gitignore": "!*\n"},
        {".gitignore": "**/build/\n!sub/build/\n", "sub/build/.gitignore": "x\n"},
        {".gitignore": "a?.py\n[ab].log\n\\#hash\n\\!bang\nspace\\ \n"},
        {".gitignore": "sub/**/x\n"},
        {".gitignore": "sub/**\n!sub/a.py\n"},
        {".gitignore": "sub/*\n!sub/a.py\n"},
        {".gitignore": "/*\n!/sub/\n!/a.py\n"},
        {".gitignore": "# only a comment\r\n\r\n*.log\r\n"},
        {".gitignore": "\ufeff*.log\n"},
        {"sub/.gitignore": "/x\n*.log\n"},
        {".gitignore": "数据/\n*é.py\n"},
    ],
)
def test_without_git_the_same_files_travel_as_with_git(tmp_path, make_repository, write, git, ignore_files):
    made = [
        *("a.py", "ab.py", "a.log", "keep.log", "build/x", "build/a.py", "sub/x", "sub/a.py", "sub/a.log", "#hash"),
        *("sub/build/x", "sub/build/y", "sub/deep/er/x", "!bang", "数据/a.py", "caf\u00e9.py", "space ", "build.py"),
    ]
    files = dict.fromkeys(made, "") | ignore_files
    write(tmp_path / "plain", files)
    git(write(tmp_path / "p", files), "init", "-q")
    assert names(tmp_path / "plain") == names(tmp_path / "p")
    assert len(names(tmp_path / "p")) < len(files)


def test_a_repository_inside_a_plain_folder_is_read_with_git(tmp_path, make_repository, write):
    write(tmp_path / "p", {"train.py": "", ".git-backup/x": ""})
    make_repository(tmp_path / "p" / "library", {".gitignore": "*.log\n", "a.py": ""})
    write(tmp_path / "p", {"library/a.log": ""})
    assert names(tmp_path / "p") == [".git-backup/x", "library/.gitignore", "library/a.py", "train.py"]


NAMES = [
    "数据/模型.py",
    "تدريب.py",
    "🚀.py",
    unicodedata.normalize("NFD", "é.py"),
    unicodedata.normalize("NFC", "é.py"),
    "with space.py",
    "-rf",
    "--help/x",
    "quote'\".py",
    "back\\slash",
    "*.py",
    "/".join(["deep" * 5] * 30),
    "n" * 255,
]


@pytest.mark.parametrize("in_repository", [True, False])
def test_names_in_every_language_are_sorted_by_their_bytes(tmp_path, make_repository, write, in_repository):
    project = (make_repository if in_repository else write)(tmp_path / "p", dict.fromkeys(NAMES, "x"))
    assert names(project) == sorted(NAMES, key=str.encode)


@pytest.mark.parametrize("in_repository", [True, False])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (b"latin-\xe9.py", r"latin-\\+udce9.*not UTF-8"),
        (b"line\nfeed", r"line\\nfeed.*control"),
        (b"bell\x07", "control"),
    ],
)
def test_names_that_not_every_system_can_show_are_refused(tmp_path, make_repository, name, message, in_repository):
    project = make_repository(tmp_path / "p", {}) if in_repository else tmp_path
    (project / os.fsdecode(name)).touch()
    with pytest.raises(InvalidSpec, match=message):
        list_files(project)


@pytest.mark.parametrize("in_repository", [True, False])
def test_only_the_owners_executable_bit_counts(tmp_path, make_repository, write, in_repository):
    modes = {"plain": 0o644, "group": 0o655, "owner": 0o744, "private": 0o600, "all": 0o777, "read-only": 0o444}
    project = (make_repository if in_repository else write)(tmp_path / "p", dict.fromkeys(modes, "x"))
    for name, mode in modes.items():
        (project / name).chmod(mode)
    assert {file.name for file in list_files(project) if file.executable} == {"owner", "all"}


def test_without_executable_bits_in_the_file_system_the_index_decides(tmp_path, make_repository, write, git):
    project = make_repository(tmp_path / "p", {"plain": "", "run": ""})
    git(project, "update-index", "--chmod=+x", "run")
    git(project, "config", "core.fileMode", "false")
    write(project, {"new": ""})
    for path in ("plain", "run", "new"):
        (project / path).chmod(0o777 if path != "run" else 0o644)
    assert {file.name: file.executable for file in list_files(project)} == {"new": False, "plain": False, "run": True}


@pytest.mark.parametrize("in_repository", [True, False])
def test_links_are_not_followed(tmp_path, make_repository, write, in_repository):
    write(tmp_path / "p", {"data/a.txt": "abc"})
    (tmp_path / "p" / "folder").symlink_to("data")
    (tmp_path / "p" / "file").symlink_to("data/a.txt")
    project = make_repository(tmp_path / "p", {}) if in_repository else tmp_path / "p"
    found = {file.name: (file.size, file.link) for file in list_files(project)}
    assert found == {"data/a.txt": (3, ""), "folder": (0, "data"), "file": (0, "data/a.txt")}


def test_hard_links_are_files(tmp_path, write):
    write(tmp_path, {"a": "abc"})
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert [(file.name, file.size, file.link) for file in list_files(tmp_path)] == [("a", 3, ""), ("b", 3, "")]


def test_a_link_in_place_of_a_tracked_folder_hides_its_files(tmp_path, make_repository, write):
    project = make_repository(tmp_path / "p", {"data/a.txt": "", "train.py": ""})
    write(tmp_path / "elsewhere", {"a.txt": "secret"})
    (project / "data" / "a.txt").unlink()
    (project / "data").rmdir()
    (project / "data").symlink_to(tmp_path / "elsewhere")
    assert names(project) == ["data", "train.py"]


def test_a_folder_in_place_of_a_tracked_file(tmp_path, make_repository, write):
    project = make_repository(tmp_path / "p", {"config": "", "train.py": ""})
    (project / "config").unlink()
    write(project, {"config/a.yaml": ""})
    assert names(project) == ["config/a.yaml", "train.py"]


def test_files_with_a_conflict_are_listed_once(tmp_path, make_repository, write, git):
    project = make_repository(tmp_path / "p", {"a.py": "1"})
    git(project, "checkout", "-q", "-b", "other")
    git(write(project, {"a.py": "2"}), "commit", "-q", "--all", "--message", "2")
    git(project, "checkout", "-q", "main")
    git(write(project, {"a.py": "3"}), "commit", "-q", "--all", "--message", "3")
    with pytest.raises(Exception, match="merge"):
        git(project, "merge", "other")
    assert names(project) == ["a.py"]


def test_a_named_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidSpec, match=r"'pipe'.*named pipe"):
        list_files(tmp_path)


def test_settings_of_the_user_change_nothing(tmp_path, home, make_repository, write, monkeypatch):
    project = make_repository(tmp_path / "p", {"train.py": "", "ä.py": ""})
    write(project, {"notes.txt": ""})
    expected = names(project)
    hook = write(home, {"hook": "#!/bin/sh\ntouch $HOME/hook-ran\n"}) / "hook"
    hook.chmod(0o755)
    settings = f"[core]\nexcludesFile=~/mine\nquotePath=true\nfsmonitor={hook}\n[submodule]\nrecurse=true\n"
    write(home, {".gitconfig": settings, "mine": "*.txt\n", ".config/git/ignore": "*.txt\n"})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert names(project) == expected == ["notes.txt", "train.py", "ä.py"]
    assert not (home / "hook-ran").exists()


def test_listing_changes_nothing_in_the_repository(tmp_path, make_repository):
    project = make_repository(tmp_path / "p", {"train.py": ""})
    os.utime(project / "train.py", (1, 1))  # git would refresh its index
    before = {path: path.stat().st_mtime_ns for path in project.rglob("*")}
    list_files(project)
    assert {path: path.stat().st_mtime_ns for path in project.rglob("*")} == before


def test_without_the_program_git_a_repository_is_refused(tmp_path, make_repository, write, git_on_path):
    project = make_repository(tmp_path / "p", {"jobs/train.py": ""})
    git_on_path()
    with pytest.raises(InvalidSpec, match=r"install git, or give an archive that `trainjob pack` wrote"):
        list_files(project / "jobs")
    assert names(write(tmp_path / "plain", {"train.py": ""})) == ["train.py"]


def test_a_repository_of_another_owner_has_the_command_to_run(tmp_path, make_repository, git_on_path):
    project = make_repository(tmp_path / "my project", {"jobs/train.py": ""})
    git_on_path(f"echo \"fatal: detected dubious ownership in repository at '{project}'\" >&2; exit 128")  # git 2.39
    with pytest.raises(InvalidSpec) as caught:
        list_files(project / "jobs")
    assert f"run: git config --global --add safe.directory '{project}'" in str(caught.value)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("is_inside", [True, False])
def test_a_repository_of_another_owner_is_read_by_a_program_of_it(tmp_path, make_repository, write, is_inside):
    """git-sync checks out Airflow's DAGs as another user, and the worker runs a DAG file of the checkout."""
    project = make_repository(tmp_path / "dags", {"tracked.log": "", ".gitignore": "*.log\n!tracked.log\n"})
    text = f"import trainjob.project_code as p; print([f.name for f in p.list_files({str(project)!r})])"
    program = write(project if is_inside else tmp_path / "other", {"dag.py": text}) / "dag.py"
    for path in (project, *project.rglob("*")):
        os.chown(path, 65533, 65533)
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    if is_inside:
        assert ended.stdout == "['.gitignore', 'dag.py', 'tracked.log']\n", ended.stderr
    else:
        assert "git refuses its repository, because another user owns it" in ended.stderr


def test_a_broken_repository_is_refused_with_the_message_of_git(tmp_path, write):
    write(tmp_path, {".git": "gitdir: /nowhere/worktrees/x\n", "train.py": ""})
    with pytest.raises(InvalidSpec, match="git cannot list its files: fatal: not a git repository: /nowhere"):
        list_files(tmp_path)


@pytest.mark.parametrize("folder", ["/", "~"])
def test_a_whole_home_or_file_system_is_refused(home, folder):
    with pytest.raises(InvalidSpec, match="it is no project"):
        list_files(home.parent if folder == "home" else type(home)(folder).expanduser())


def test_an_unreadable_folder_is_refused(unprivileged_folder, write):
    write(unprivileged_folder, {"closed/a.py": ""})
    (unprivileged_folder / "closed").chmod(0)
    with pytest.raises(InvalidSpec, match=r"closed'?: it cannot be read: Permission denied"):
        list_files(unprivileged_folder)
    (unprivileged_folder / "closed").chmod(0o755)


def test_a_folder_that_git_cannot_read_is_refused(unprivileged_folder, git, write):
    write(unprivileged_folder, {"closed/a.py": "", "b.py": ""})
    git(unprivileged_folder, "init", "-q")
    (unprivileged_folder / "closed").chmod(0)
    with pytest.raises(InvalidSpec, match=r"git cannot list its files: warning: could not open directory 'closed/'"):
        list_files(unprivileged_folder)
    (unprivileged_folder / "closed").chmod(0o755)
