"""A project arrives in the pod as it was packed, or the command does not start."""

from __future__ import annotations

import gzip
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.integration.programs.code.packed_project import (
    create_link,
    create_member,
    find_pythons,
    pack_texts,
    write_archive,
)
from trainjob import errors
from trainjob.packing import program_command
from trainjob.programs.code.failure import INSTALLATION_FAILED

LOCALES = {
    "none": {},
    "C": {"LANG": "C"},
    "POSIX": {"LC_ALL": "POSIX"},
    "ASCII": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "UTF-8": {"LANG": "C.UTF-8"},
}
LONG_NAME = "/".join(["a" * 60] * 4) + "/模型.py"


@pytest.mark.parametrize("python", find_pythons())
@pytest.mark.parametrize("variables", LOCALES.values(), ids=LOCALES)
def test_files_arrive_with_names_modes_and_links(pod, tmp_path, python, variables):
    members = [
        create_member("数据/配置 файл.yaml", "学习率: 1"),
        create_member("scripts/run.sh", "#!/bin/sh\n", mode=0o755),
        create_member(LONG_NAME, b"\0\xff"),
        create_member("empty"),
        create_member("caf\udce9.txt", "not UTF-8"),
        create_link("最新", "数据/配置 файл.yaml"),
        create_link("数据/folder", "../scripts"),
        create_link("dangling", "not-there"),
    ]
    pod.python = python
    pod.variables.update(variables)
    done = pod.run(write_archive(tmp_path / "code.tgz", members), "--", "pwd")
    assert done.returncode == 0, done.stderr
    [folder] = pod.unpacked
    assert done.stdout.splitlines()[-1] == str(folder)
    assert f", {len(members)} files, in {folder}" in done.stdout
    assert (folder / "数据/配置 файл.yaml").read_text("utf-8") == "学习率: 1"
    assert (folder / "最新").read_text("utf-8") == "学习率: 1"
    assert (folder / LONG_NAME).read_bytes() == b"\0\xff"
    assert b"caf\xe9.txt" in os.listdir(os.fsencode(folder))  # noqa: PTH208 - names are bytes
    assert (folder / "dangling").readlink() == Path("not-there")
    modes = {
        name: (folder / name).stat().st_mode & 0o777 for name in ("", "empty", "scripts/run.sh", "数据/folder/run.sh")
    }
    assert modes == {"": 0o755, "empty": 0o644, "scripts/run.sh": 0o755, "数据/folder/run.sh": 0o755}


def test_a_program_and_words_in_any_language_start(pod, tmp_path):
    pod.variables.update(LOCALES["ASCII"])
    pod.add_python()
    archive = pack_texts(tmp_path / "code.tgz", {"训练.py": "import os, sys; print(ascii(os.fsencode(sys.argv[1])))"})
    done = pod.run(archive, "--script", "训练.py", "--", "小")
    assert done.stdout.splitlines()[-1:] == [ascii("小".encode())], done.stderr


def damage_end(data: bytes) -> bytes:
    return data[: len(data) // 2]


def damage_middle(data: bytes) -> bytes:
    return data[:40] + b"\0" * 40 + data[80:]


DAMAGES = {
    "cut": (damage_end, "is damaged"),
    "overwritten": (damage_middle, "is damaged"),
    "an error page": (lambda _: b"<html>503</html>", "is damaged"),
    "empty": (lambda _: b"", "has other code"),
    "other code": (lambda data: gzip.compress(gzip.decompress(data) + b"\0" * 512), "has other code"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_nothing_of_a_wrong_archive_is_unpacked(pod, tmp_path, damage, message):
    archive = write_archive(tmp_path / "code.tgz", [create_member("train.py", os.urandom(1000))])
    archive.path.write_bytes(damage(archive.path.read_bytes()))
    done = pod.run(archive, "--", "echo", "started")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("code: failed: ")
    assert message in done.stderr
    assert "submit the job again" in done.stderr
    assert not pod.unpacked


def test_a_missing_archive_is_reported_with_what_to_check(pod, tmp_path):
    archive = pack_texts(tmp_path / "code.tgz", {})
    archive.path.unlink()
    done = pod.run(archive, "--", "true")
    assert done.returncode == 1
    assert "code: failed: the code cannot be read: [Errno 2] No such file or directory" in done.stderr
    assert "ConfigMap" in done.stderr


OUTSIDE = {
    "parent": [create_member("../x", "bad")],
    "parent in the middle": [create_member("a/../../x", "bad")],
    "absolute": [create_member("/tmp/trainjob-test-x", "bad")],
    "absolute link": [create_link("x", "/etc/passwd")],
    "link to the parent": [create_link("x", "..")],
    "link to a sibling with the same prefix": [create_link("x", "../trainjob-code-")],
    "link by another link": [create_link("a", "."), create_link("x", "a/../..")],
    "file through a link": [create_link("a", "/tmp"), create_member("a/trainjob-test-x", "bad")],
    "link through a link": [create_link("a", ".."), create_link("a/x", "y")],
    "hard link": [create_member("a"), create_link("x", "a", tarfile.LNKTYPE)],
    "hard link out": [create_link("x", "/etc/passwd", tarfile.LNKTYPE)],
    "pipe": [create_member("x", type=tarfile.FIFOTYPE)],
    "device": [create_member("x", type=tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "the same file twice": [create_member("a", "1"), create_member("a", "2")],
    "the folder itself": [create_link(".", "x")],
}


@pytest.mark.parametrize("members", OUTSIDE.values(), ids=OUTSIDE)
def test_a_hostile_archive_is_refused_even_with_the_right_digest(pod, tmp_path, members):
    before = sorted(tmp_path.rglob("*"))
    done = pod.run(
        write_archive(pod.folder / "code.tgz", [create_member("ok", "1"), *members]), "--", "echo", "started"
    )
    assert done.returncode == 1
    assert done.stderr.startswith("code: failed: ")
    assert "started" not in done.stdout
    left = sorted(path for path in tmp_path.rglob("*") if "pod/tmp/" not in str(path) and path.name != "code.tgz")
    assert left == before
    assert not pod.unpacked
    assert not Path("/tmp/trainjob-test-x").exists()


@pytest.mark.parametrize("megabytes", [10, 100])
def test_memory_does_not_grow_with_the_archive(pod, tmp_path, megabytes):
    archive = write_archive(tmp_path / "code.tgz", [create_member("weights", os.urandom(1 << 20) * megabytes)])
    limited = [
        "sh",
        "-c",
        'ulimit -d 49152 && exec "$@"',
        "sh",
        *pod.build_command(archive, "--", "wc", "-c", "weights"),
    ]
    done = subprocess.run(limited, **pod.options)
    assert done.stdout.splitlines()[-1:] == [f"{megabytes << 20} weights"], done.stderr


def test_a_failed_write_is_reported(pod, tmp_path):
    archive = write_archive(tmp_path / "code.tgz", [create_member("weights", os.urandom(1 << 20))])
    limited = ["sh", "-c", 'trap "" XFSZ; ulimit -f 512 && exec "$@"', "sh", *pod.build_command(archive, "--", "true")]
    done = subprocess.run(limited, **pod.options)
    assert done.returncode == 1
    assert "cannot be unpacked: [Errno 27] File too large" in done.stderr
    assert not pod.unpacked


def test_the_program_fits_into_a_command():
    assert max(map(len, program_command("trainjob.programs.code"))) < 20_000  # 65,536 with the archive's options


def test_the_failure_is_recognized_in_logs():
    assert INSTALLATION_FAILED == errors.INSTALLATION_FAILED
