"""Tests of `trainjob pack`, which needs no cluster."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import subprocess
import sys

import pytest
import yaml


@pytest.fixture
def project(tmp_path):
    """Return a folder with two files and a link."""
    folder = tmp_path / "数据 project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hi')\n")
    (folder / "模型.py").write_text("x" * 2048)
    (folder / "link").symlink_to("train.py")
    return folder


@pytest.fixture
def run(project):
    """Return a function that runs the command in the project: `run(*arguments)`."""

    def run_command(*arguments):
        command = [sys.executable, "-m", "trainjob", "pack", *map(str, arguments)]
        environment = {**os.environ, "COLUMNS": "200", "PYTHONUTF8": "1"}
        return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300, env=environment)

    return run_command


def git(folder, *arguments):
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "init.defaultBranch=main")
    return subprocess.run(
        ["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True
    ).stdout


def test_the_summary_has_digest_files_archive_and_commit(run, project):
    ended = run()
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in ended.stdout.splitlines())
    assert lines["files"] == "3 files, 2.0 KiB"
    assert lines["commit"] == "none"
    assert lines["digest"].startswith("sha256:")
    git(project, "init", "-q")
    git(project, "add", "--all")
    git(project, "commit", "-q", "--message", "first")
    commit = git(project, "rev-parse", "HEAD").strip()
    assert f"commit      {commit} (main)\n" in run().stdout
    (project / "train.py").write_text("")
    assert f"commit      {commit} (main), modified since\n" in run().stdout


def test_the_list_has_sizes_and_links(run):
    lines = [line.split() for line in run("--list").stdout.splitlines()[:4]]
    assert lines == [
        ["SIZE", "NAME"],
        ["0", "bytes", "link", "->", "train.py"],
        ["12", "bytes", "train.py"],
        ["2.0", "KiB", "模型.py"],
    ]


def test_json_has_every_fact(run, project):
    found = json.loads(run("--json", "--list").stdout)
    assert found == {
        "sha256": found["sha256"],
        "files": [
            {"name": "link", "size": 0, "executable": False, "link": "train.py"},
            {"name": "train.py", "size": 12, "executable": False, "link": ""},
            {"name": "模型.py", "size": 2048, "executable": False, "link": ""},
        ],
        "size": 2060,
        "archive_size": found["archive_size"],
        "commit": "",
        "branch": "",
        "modified": False,
        "requirements": "",
    }
    assert json.loads(run(project, "--json").stdout)["files"] == 3


def test_an_archive_is_written_under_its_name_or_its_digest_and_can_be_packed_again(run, tmp_path):
    digest = json.loads(run("--json").stdout)["sha256"]
    (tmp_path / "dist").mkdir()
    named = json.loads(run("--json", "--output", tmp_path / "dist").stdout)
    assert named["output"] == str(tmp_path / "dist" / f"数据 project-{digest}.tar.gz")
    (tmp_path / "code.tar.gz").write_text("an older one")
    ended = run("--output", tmp_path / "code.tar.gz")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"written to  {tmp_path / 'code.tar.gz'}\n" in ended.stdout
    for archive in (named["output"], tmp_path / "code.tar.gz"):
        again = json.loads(run(archive, "--json").stdout)
        assert (again["sha256"], again["files"]) == (digest, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code.tar.gz", "dist", "数据 project"]
    assert (tmp_path / "code.tar.gz").stat().st_mode & 0o777 == 0o666 & ~read_umask()


def read_umask():
    before = os.umask(0)
    os.umask(before)
    return before


def test_an_archive_in_the_project_gets_a_warning_unless_it_is_ignored(run, project):
    ended = run("--output", "code.tar.gz")
    assert ended.returncode == 0
    assert "warning: code.tar.gz is now a file of the project" in ended.stderr
    (project / ".trainjobignore").write_text("*.tar.gz\n")
    ended = run("--output", "code.tar.gz")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing",), "code.path cannot be 'missing'"),
        (("train.py",), "it is neither a folder nor such an archive"),
        (("--requirements", "uv.lock"), "code.requirements cannot be 'uv.lock': uv.lock is needed"),
        (("--requirements", "setup.py"), "requirements cannot be 'setup.py'"),
        (("--output", "code.zip"), "--output cannot be 'code.zip': give an existing folder, or a file NAME.tar.gz"),
        (("/",), "it is no project"),
    ],
)
def test_wrong_arguments_are_refused_and_nothing_is_written(run, project, arguments, message):
    before = sorted(project.iterdir())
    ended = run(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr
    assert json.loads(run(*arguments, "--json").stderr)["error"] == "InvalidSpec"
    assert sorted(project.iterdir()) == before


def test_a_credential_is_refused_without_its_value(run, project):
    (project / ".env").write_text("DB_PASSWORD=s3cr3t\n")
    ended = run()
    assert ended.returncode == 2
    assert "a folder with '.env': line 1 contains the value of a secret variable" in ended.stderr
    assert "s3cr3t" not in ended.stderr


def test_a_folder_without_permission_to_write_is_an_error(run):
    ended = run("--output", "/proc/code.tar.gz")
    assert ended.returncode == 1
    assert "error: the operating system refuses to read or write" in ended.stderr


def test_the_configmap_has_the_archive_and_its_data_do_not_depend_on_the_commit(run, project):
    git(project, "init", "-q")
    git(project, "add", "--all")
    printed = []
    for message in ("first", "second"):
        git(project, "commit", "-q", "--allow-empty", "--message", message)
        ended = run("--config-map")
        assert (ended.returncode, ended.stderr) == (0, "")
        printed.append(yaml.safe_load(ended.stdout))
    commits = [json.loads(each["metadata"].pop("annotations")["trainjob.dev/code"])["commit"] for each in printed]
    assert commits == git(project, "log", "--reverse", "--format=%H").split()
    first, second = printed
    assert first == second
    digest = json.loads(run("--json").stdout)["sha256"]
    assert first["metadata"] == {
        "name": f"trainjob-code-{digest[:40]}",
        "labels": {"app.kubernetes.io/managed-by": "trainjob"},
    }
    assert first["immutable"]
    [archive] = first["binaryData"].values()
    assert hashlib.sha256(gzip.decompress(base64.b64decode(archive))).hexdigest() == digest


@pytest.mark.parametrize("option", ["--json", "--list", "--output=code.tar.gz"])
def test_the_configmap_is_the_only_output(run, project, option):
    before = sorted(project.iterdir())
    ended = run("--config-map", option)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "it prints only YAML" in ended.stderr
    assert sorted(project.iterdir()) == before


def test_a_project_that_does_not_fit_into_a_configmap_is_refused(run, project):
    (project / "data.bin").write_bytes(os.urandom(1_000_000))
    ended = run("--config-map")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "a ConfigMap can have 1000000 bytes of it: name data" in ended.stderr
    assert ".trainjobignore, or build an image with the project" in ended.stderr
