"""Tests of the archive: the same files give the same digest, whoever packs them with which Python."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tracemalloc
import unicodedata
from pathlib import Path

import pytest

from trainjob.errors import InvalidSpec
from trainjob.project_code import ProjectFile, list_files
from trainjob.project_code.archive import DamagedArchive, copy_archive, pack_files, read_archive
from trainjob.project_code.repository import Origin

FILES = {
    "train.py": "print('hi')\n",
    "run.sh": "#!/bin/sh\n",
    "empty": "",
    "数据/模型.py": "x = 1\n",
    "🚀 تدريب.txt": "y",
    unicodedata.normalize("NFD", "é.py"): "nfd",
    "-rf": "dash",
    "d" * 60 + "/" + "e" * 60 + "/f.py": "more than 100 bytes",
    "/".join(["deep" * 10] * 10): "more than 255 bytes",
    "block": "b" * 512,
    "large": "0123456789abcdef" * 50_000,
}
# Of the files above, with the links below. A change of it changes the name of every archive of every user.
GOLDEN = "6bb26df3ad86d6aadd7c31235a468c3e9a0c82828138885e8d15c67b4ed175c1"
CORE = Path(__file__).parents[3] / "core" / "src"
ORIGIN = Origin("0a" * 20, "feature/数据", modified=True)


@pytest.fixture
def project(tmp_path, write):
    """Return a folder with files of every kind."""
    return make_project(tmp_path / "p", write)


def make_project(folder, write):
    write(folder, FILES)
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("train.py")
    (folder / "long link").symlink_to("/".join(["deep" * 10] * 10))
    return folder


def pack(folder, origin=ORIGIN):
    sink = io.BytesIO()
    digest = pack_files(folder, list_files(folder), origin, sink)
    return digest, sink.getvalue()


def test_the_digest_is_that_of_the_tar_and_never_changes(project):
    digest, archive = pack(project)
    assert hashlib.sha256(gzip.decompress(archive)).hexdigest() == digest
    assert digest == GOLDEN


def list_pythons():
    found = {path for minor in range(10, 16) if (path := shutil.which(f"python3.{minor}"))}
    runnable = [path for path in found if subprocess.run([path, "-c", ""], capture_output=True).returncode == 0]
    return [sys.executable, *sorted(runnable)]


@pytest.mark.parametrize("python", list_pythons())
def test_each_python_gives_the_same_digest(project, python):
    # The packages are made without their __init__, because other interpreters have no pydantic.
    script = """
import io, sys, types
for name in ("trainjob", "trainjob.project_code"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [sys.argv[1] + "/" + name.replace(".", "/")]
from pathlib import Path
from trainjob.project_code.archive import Origin, pack_files
from trainjob.project_code.files import list_folder
folder = Path(sys.argv[2])
print(pack_files(folder, list_folder(folder), Origin(), io.BytesIO()))
"""
    ended = subprocess.run([python, "-c", script, CORE, project], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == GOLDEN


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_umask_owner_and_times_do_not_matter(tmp_path, write, umask):
    before = os.umask(umask)
    try:
        project = make_project(tmp_path / "p", write)
    finally:
        os.umask(before)
    (project / "run.sh").chmod(0o700 | (0o777 & ~umask))
    os.utime(project / "train.py", (1, 1))
    if os.geteuid() == 0:
        os.chown(project / "train.py", 1234, 1234)
    assert pack(project)[0] == GOLDEN


def test_two_clones_with_other_commits_have_the_same_digest(tmp_path, make_repository, write, git):
    project = make_project(tmp_path / "p", write)
    make_repository(project, {})
    git(tmp_path, "clone", "-q", project, tmp_path / "clone")
    git(tmp_path / "clone", "commit", "-q", "--allow-empty", "--message", "another commit")
    git(tmp_path / "clone", "repack", "-adq")
    assert pack(tmp_path / "clone", Origin())[0] == pack(project)[0] == GOLDEN


@pytest.mark.parametrize("change", ["content", "name", "mode", "link", "new"])
def test_each_change_changes_the_digest(project, write, change):
    if change == "content":
        write(project, {"train.py": "print('Hi')\n"})
    elif change == "name":
        (project / "train.py").rename(project / "tr4in.py")
    elif change == "mode":
        (project / "train.py").chmod(0o755)
    elif change == "link":
        (project / "link").unlink()
        (project / "link").symlink_to("./train.py")
    else:
        write(project, {"sub/new": ""})
    assert pack(project)[0] != GOLDEN


def test_other_programs_unpack_it(project, tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(pack(project)[1])
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "-xzf", tmp_path / "a.tar.gz", "-C", tmp_path / "out"], check=True)
    assert pack(tmp_path / "out")[0] == GOLDEN
    listed = subprocess.run(
        ["tar", "--numeric-owner", "-tvzf", tmp_path / "a.tar.gz"], capture_output=True, text=True
    ).stdout
    assert "-rwxr-xr-x 0/0 " in listed
    assert {line.split()[0] for line in listed.splitlines()} == {"-rwxr-xr-x", "-rw-r--r--", "lrwxrwxrwx"}


def test_reading_returns_the_digest_the_files_and_the_origin(project):
    digest, archive = pack(project)
    read = read_archive(io.BytesIO(archive))
    assert (read.sha256, read.files, read.origin) == (digest, list_files(project), ORIGIN)
    copy = io.BytesIO()
    assert copy_archive(io.BytesIO(archive), copy) == digest
    assert copy.getvalue() == archive


def repack(archive, change):
    """Return an archive with its header, after a change of the uncompressed tar."""
    end = archive.index(b"\0", 10) + 1
    return archive[:end] + gzip.compress(change(gzip.decompress(archive)), mtime=0)[10:]


def add_member(name, kind=tarfile.REGTYPE):
    member = tarfile.TarInfo(name)
    member.type = kind
    return lambda tar: member.tobuf(tarfile.PAX_FORMAT) + tar


DAMAGES = {
    "empty": lambda archive: b"",
    "text": lambda archive: b"not an archive",
    "zip": lambda archive: b"PK\x03\x04" + archive,
    "plain gzip": lambda archive: gzip.compress(b""),
    "of tar": lambda archive: gzip.compress(gzip.decompress(archive)),
    "half": lambda archive: archive[: len(archive) // 2],
    "without the checksum": lambda archive: archive[:-8],
    "a changed byte": lambda archive: archive[:-6] + bytes([archive[-6] ^ 1]) + archive[-5:],
    "junk at the end": lambda archive: archive + b"junk",
    "another member": lambda archive: archive + gzip.compress(b"junk"),
    "hidden bytes": lambda archive: repack(archive, lambda tar: tar + b"junk" * 128),
    "a folder": lambda archive: repack(archive, add_member("a", tarfile.DIRTYPE)),
    "a device": lambda archive: repack(archive, add_member("a", tarfile.CHRTYPE)),
    "a hard link": lambda archive: repack(archive, add_member("a", tarfile.LNKTYPE)),
    "an absolute name": lambda archive: repack(archive, add_member("/a")),
    "a name outside": lambda archive: repack(archive, add_member("../a")),
    "a wrong order": lambda archive: repack(archive, add_member("zzz")),
    "the same name again": lambda archive: repack(archive, add_member("-rf")),
    "another mode": lambda archive: repack(archive, lambda tar: tar.replace(b"0000755", b"0004755", 1)),
    "no origin": lambda archive: archive[:10] + b"{" + archive[archive.index(b"\0", 10) :],
    "another origin": lambda archive: archive[:10] + b'{"a": 1}' + archive[archive.index(b"\0", 10) :],
}


def test_the_damages_below_begin_with_a_good_archive(project):
    archive = pack(project)[1]
    assert read_archive(io.BytesIO(repack(archive, lambda tar: tar))).sha256 == GOLDEN


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_archives_of_other_programs_and_damaged_ones_are_refused(project, damage):
    with pytest.raises(DamagedArchive):
        read_archive(io.BytesIO(damage(pack(project)[1])))


def test_a_bomb_is_refused(project, monkeypatch):
    monkeypatch.setattr("trainjob.project_code.archive._MAX_TAR_BYTES", 100_000)
    with pytest.raises(DamagedArchive, match="more than"):
        read_archive(io.BytesIO(pack(project)[1]))


@pytest.mark.parametrize("change", ["shorter", "longer", "gone", "link", "pipe"])
def test_a_file_that_changes_while_it_is_packed_is_an_error(project, change):
    files = list_files(project)
    path = project / "train.py"
    if change in ("shorter", "longer"):
        path.write_text("x" * (1 if change == "shorter" else 10_000))
    else:
        path.unlink()
    if change == "link":
        path.symlink_to("/etc/passwd")
    elif change == "pipe":
        os.mkfifo(path)
    with pytest.raises(InvalidSpec, match=r"train\.py"):
        pack_files(project, files, Origin(), io.BytesIO())


def test_memory_does_not_grow_with_the_files(tmp_path):
    (tmp_path / "big").touch()
    os.truncate(tmp_path / "big", 40 << 20)
    (tmp_path / "a.tar.gz").touch()
    files = [ProjectFile("big", 40 << 20, executable=False, link="")]
    tracemalloc.start()
    with (tmp_path / "a.tar.gz").open("r+b") as opened:
        pack_files(tmp_path, files, Origin(), opened)
        opened.seek(0)
        read_archive(opened)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
