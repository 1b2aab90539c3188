"""Packages of a project are installed beside those of the image, once for all pods."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.programs.code.packed_project import Pod, find_pythons, pack_texts
from tests.support.package_index import PackageIndex, Wheel
from tests.support.uv import UV
from trainjob.programs.code.uv_program import UV_VERSION
from trainjob.status.failure_rules import Category
from trainjob.status.log_reasons import categorize_log, find_reason

TRAIN = """
import importlib, json, shutil, subprocess, sys
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    print(name, module.VERSION, module.__file__)
"""
DAY = 86_400


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    with PackageIndex([Wheel("tiny", "1.0"), Wheel("tiny", "2.0"), Wheel("model-zoo", "3.1", ("tiny",))]) as index:
        yield index


@pytest.fixture
def pod(tmp_path: Path, index: PackageIndex) -> Pod:
    pod = Pod.create(tmp_path / "pod")
    (pod.folder / "bin" / "uv").symlink_to(UV)
    pod.variables["PIP_INDEX_URL"] = index.url
    return pod


def install(pod: Pod, requirements: str, *modules: str, **files: str) -> subprocess.CompletedProcess[str]:
    return pod.run(*build_start(pod, {"requirements.txt": requirements, **files}, *modules))


def build_start(pod: Pod, files: dict[str, str], *modules: str):
    archive = pack_texts(pod.folder / "code.tgz", {"train.py": TRAIN, **files})
    kind = "uv.lock" if "uv.lock" in files else "requirements.txt"
    return archive, "--requirements", kind, "--cache", str(cache_of(pod)), "--module", "train", "--", *modules


def cache_of(pod: Pod) -> Path:
    return pod.folder / "workspace" / "packages"


def list_entries(pod: Pod) -> list[str]:
    return sorted(path.name.partition("-")[0] for path in cache_of(pod).iterdir())


def add_to_image(pod: Pod, name: str, version: str, *requires: str) -> None:
    image = pod.folder / "image"
    archive = pod.folder / "image.zip"
    archive.write_bytes(Wheel(name, version, requires).content())
    shutil.unpack_archive(archive, image)
    pod.variables["PYTHONPATH"] = str(image)


def imported(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if not line.startswith("code: ")]
    return {name: version for name, version, _ in lines}


@pytest.mark.parametrize("python", find_pythons())
def test_packages_and_their_programs_are_installed(pod, python):
    pod.python = python
    done = install(pod, "model-zoo", "model_zoo", "tiny")
    assert imported(done) == {"model_zoo": "3.1", "tiny": "2.0"}
    assert "code: installing 2 packages with uv\n" in done.stdout
    archive, *options = build_start(pod, {"requirements.txt": "model-zoo"})
    done = pod.run(archive, *options[:4], "--", "model-zoo")
    assert done.stdout.splitlines()[-1] == "3.1", done.stderr


def test_a_second_start_sends_no_request_and_keeps_the_versions(pod, index):
    install(pod, "model-zoo", "tiny")
    index.requests.clear()
    index.wheels.append(Wheel("tiny", "3.0"))
    (pod.folder / "bin" / "uv").unlink()
    done = install(pod, "model-zoo", "tiny", **{"other.py": "changed code"})
    assert imported(done) == {"tiny": "2.0"}
    assert index.requests == []
    assert "installing" not in done.stdout


def test_another_requirement_is_resolved_again(pod):
    assert imported(install(pod, "-r more/list.txt", "tiny", **{"more/list.txt": "tiny<2"})) == {"tiny": "1.0"}
    assert imported(install(pod, "-r more/list.txt", "tiny", **{"more/list.txt": "tiny>1"})) == {"tiny": "2.0"}


# version of the image, requirement -> version that the training imports, number of installed packages
CHOICES = {
    "the image's is kept": ("1.0", "tiny", "1.0", 0),
    "a build is kept": ("1.0+cu126", "tiny==1.0", "1.0+cu126", 0),
    "an unpublished build is kept": ("1.5.0a0+5228986c39.nv25.6", "tiny", "1.5.0a0+5228986c39.nv25.6", 0),
    "too old": ("1.0", "tiny>=2", "2.0", 1),
    "another build than the file's": ("2.1", "tiny==2.0", "2.0", 1),
    "for another platform": ("1.0", "tiny==2.0; sys_platform == 'win32'", "1.0", 0),
    "nothing": ("1.0", "# nothing yet", "1.0", 0),
}


@pytest.mark.parametrize(("image", "requirement", "version", "count"), CHOICES.values(), ids=CHOICES)
def test_the_image_has_precedence_where_the_file_allows_it(pod, image, requirement, version, count):
    add_to_image(pod, "tiny", image)
    done = install(pod, requirement, "tiny")
    assert imported(done) == {"tiny": version}
    assert list_entries(pod) == ["packages", "resolution"][1 - count :]


@pytest.mark.parametrize("requirement", ["tiny", "tiny==1.0"])
def test_a_build_of_the_image_needs_nothing_that_the_image_lacks(pod, requirement):
    add_to_image(pod, "tiny", "1.0+cu126", "cuda-parts==12.6")
    assert imported(install(pod, requirement, "tiny")) == {"tiny": "1.0+cu126"}
    assert list_entries(pod) == ["resolution"]


def test_locked_packages_that_only_another_build_needs_are_not_installed(pod, index, tmp_path):
    index.wheels += [
        Wheel("cuda-driver", "12.8"),
        Wheel("cuda-parts", "12.8", ("cuda-driver",)),
        Wheel("torch-like", "1.0", ("cuda-parts", "tiny")),
    ]
    files = lock(pod, PYPROJECT.replace("only-dev", "torch-like"), tmp_path / "project")
    add_to_image(pod, "torch-like", "1.0+cu126")
    done = pod.run(*build_start(pod, files, "torch_like", "model_zoo", "tiny"))
    assert imported(done) == {"torch_like": "1.0+cu126", "model_zoo": "3.1", "tiny": "2.0"}
    assert "code: installing 2 packages with uv" in done.stdout


def lock(pod: Pod, pyproject: str, folder: Path, **members: str) -> dict[str, str]:
    """Return the files of a project with its lock."""
    files = {"pyproject.toml": pyproject, **members}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    variables = {**pod.variables, "UV_DEFAULT_INDEX": pod.variables["PIP_INDEX_URL"]}
    subprocess.run([UV, "lock", "--python", sys.executable], cwd=folder, env=variables, check=True, capture_output=True)
    return {**files, "uv.lock": (folder / "uv.lock").read_text()}


PYPROJECT = """
[project]
name = "demo"
version = "1"
requires-python = ">=3.8"
dependencies = ["model-zoo", "tiny<2; python_version < '3.7'"]
[dependency-groups]
dev = ["only-dev"]
"""


@pytest.mark.parametrize(("no_dev", "count"), [("", 3), ("1", 2)], ids=["with dev", "without dev"])
def test_a_lock_is_installed_with_its_default_groups(pod, index, tmp_path, no_dev, count):
    index.wheels.append(Wheel("only-dev", "0.1"))
    files = lock(pod, PYPROJECT, tmp_path / "project")
    index.wheels.append(Wheel("tiny", "9.0"))
    if no_dev:
        pod.variables["UV_NO_DEV"] = no_dev
    done = pod.run(*build_start(pod, files, "model_zoo", "tiny"))
    assert imported(done) == {"model_zoo": "3.1", "tiny": "2.0"}
    assert f"code: installing {count} packages with uv" in done.stdout


def test_hashes_of_a_lock_are_checked(pod, index, tmp_path):
    files = lock(pod, PYPROJECT.replace("only-dev", "tiny"), tmp_path / "project")
    index.wheels[2] = Wheel("model-zoo", "3.1", ("tiny", "other"))  # same name, other contents
    pod.variables["UV_CACHE_DIR"] = str(tmp_path / "empty")
    done = pod.run(*build_start(pod, files))
    assert done.returncode == 1
    assert "Hash mismatch" in done.stderr


def test_a_package_of_the_image_in_the_locked_version_is_kept(pod, tmp_path):
    files = lock(pod, PYPROJECT.replace("only-dev", "tiny"), tmp_path / "project")
    add_to_image(pod, "tiny", "2.0+cu126")
    done = pod.run(*build_start(pod, files, "tiny", "model_zoo"))
    assert imported(done) == {"tiny": "2.0+cu126", "model_zoo": "3.1"}


FAILURES = {
    "unknown package": ("no-such-package", "no-such-package"),
    "no such version": ("tiny==7", "tiny==7"),
    "not a requirement": ("tiny===>1", "requirements.txt"),
    "path outside of the project": ("../library", "Distribution not found"),
    "missing file": ("-r missing.txt", "missing.txt"),
    "no git": ("tiny @ git+https://127.0.0.1:1/tiny", "git"),
    "unreachable URL": ("tiny @ http://127.0.0.1:1/tiny-1.0-py3-none-any.whl", "127.0.0.1:1"),
}


@pytest.mark.parametrize(("requirement", "text"), FAILURES.values(), ids=FAILURES)
def test_a_failure_of_uv_is_reported_as_one_of_the_installation(pod, requirement, text):
    pod.variables["UV_HTTP_RETRIES"] = "0"
    done = install(pod, requirement)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("code: failed: packages could not be installed: uv ended with ")
    assert text in lines[-1]
    assert categorize_log(lines) is Category.INSTALLATION
    assert find_reason(lines).startswith("packages could not be installed")
    assert list_entries(pod) == []


def test_a_missing_file_of_requirements_is_reported(pod):
    archive, *options = build_start(pod, {"uv.lock": ""})
    options[1] = "requirements.txt"
    done = pod.run(archive, *options)
    assert "packages could not be installed: there is no requirements.txt at the top of the project" in done.stderr


def test_credentials_are_neither_printed_nor_stored(pod, index):
    pod.variables["UV_HTTP_RETRIES"] = "0"
    pod.variables["PIP_INDEX_URL"] = index.url.replace("http://", "http://user:secret-token@")
    assert imported(install(pod, "tiny", "tiny")) == {"tiny": "2.0"}
    done = install(pod, "no-such-package @ http://user:secret-token@127.0.0.1:1/no_such_package-1-py3-none-any.whl")
    assert done.returncode == 1
    assert "secret-token" not in done.stdout + done.stderr
    texts = [path.read_text("utf-8", "replace") for path in cache_of(pod).rglob("*") if path.is_file()]
    assert not [text for text in texts if "secret-token" in text]


def test_the_project_itself_is_not_installed(pod):
    project = '[project]\nname = "demo"\nversion = "1"\ndependencies = ["tiny"]\n'
    done = install(pod, "-e .", "tiny", **{"pyproject.toml": project})
    assert imported(done) == {"tiny": "2.0"}
    assert "code: installing 1 package with uv" in done.stdout


@pytest.mark.parametrize("editable", ["", "-e "])
def test_a_package_in_the_project_is_installed_again_when_the_code_changes(pod, editable):
    backend = """
import pathlib, zipfile
def build_wheel(folder, *_):
    name = "local-0.1-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        wheel.write("local.py")
        wheel.writestr("local-0.1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: local\\nVersion: 0.1\\n")
        wheel.writestr("local-0.1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("local-0.1.dist-info/RECORD", "")
    return name
build_editable = build_wheel
"""
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    files = {"lib/pyproject.toml": f'{project}[project]\nname = "local"\nversion = "0.1"\n', "lib/backend.py": backend}
    for version in ("a", "b"):
        files["lib/local.py"] = f"VERSION = {version!r}\n"
        assert imported(install(pod, f"{editable}./lib", "local", **files)) == {"local": version}


@pytest.mark.parametrize("home", ["/proc", "/nonexistent/home"])
def test_a_read_only_home_folder_is_enough(pod, home):
    pod.variables["HOME"] = home
    assert imported(install(pod, "tiny", "tiny")) == {"tiny": "2.0"}
    assert not list((pod.folder / "tmp").glob("trainjob-uv-*"))


def test_settings_of_pips_file_apply(pod, index):
    file = pod.folder / "pip.conf"
    file.write_text(f"[global]\nindex_url = {index.url}\ntrusted-host = 127.0.0.1\n")
    del pod.variables["PIP_INDEX_URL"]
    pod.variables["PIP_CONFIG_FILE"] = str(file)
    assert imported(install(pod, "tiny", "tiny")) == {"tiny": "2.0"}


def test_wheels_in_a_folder_are_enough_without_an_index(pod):
    wheel = Wheel("offline", "1.0")
    (pod.folder / wheel.filename).write_bytes(wheel.content())
    pod.variables.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(pod.folder))
    assert imported(install(pod, "offline", "offline")) == {"offline": "1.0"}


def test_an_index_of_the_file_is_used_beside_the_pods(pod):
    with PackageIndex([Wheel("extra", "5.0"), Wheel("tiny", "1.5")]) as other:
        done = install(pod, f"--extra-index-url {other.url}\nextra\ntiny", "extra", "tiny")
    assert imported(done) == {"extra": "5.0", "tiny": "2.0"}


def test_uv_is_installed_by_pip_if_the_image_has_none(pod, tmp_path, index):
    (pod.folder / "bin" / "uv").unlink()
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "image")], check=True)
    pod.python = str(tmp_path / "image" / "bin" / "python")
    done = install(pod, "tiny", "tiny")
    assert done.returncode == 1
    assert "code: failed: packages could not be installed: pip ended with 1: " in done.stderr
    assert f"uv=={UV_VERSION}" in done.stderr.splitlines()[-1]
    index.wheels.append(Wheel("uv", UV_VERSION))  # its program prints the version, and writes no list
    done = install(pod, "tiny", "tiny")
    assert f"code: the image has no uv, installing uv {UV_VERSION} with pip" in done.stdout
    assert f"/files/uv-{UV_VERSION}-py3-none-any.whl" in index.requests


def test_a_killed_installation_does_not_harm_the_next(pod, index):
    index.gate.clear()
    process = pod.start(*build_start(pod, {"requirements.txt": "tiny"}, "tiny"))
    assert index.download_started.wait(60)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    index.gate.set()
    assert "unfinished" in list_entries(pod)
    assert imported(install(pod, "tiny", "tiny")) == {"tiny": "2.0"}
    assert list_entries(pod) == ["packages", "resolution", "unfinished"]
    [unfinished] = cache_of(pod).glob("unfinished-*")
    os.utime(unfinished, (time.time() - 2 * DAY,) * 2)
    install(pod, "tiny", "tiny")
    assert list_entries(pod) == ["packages", "resolution"]


def test_pods_that_install_at_once_share_one_folder(pod, index):
    index.gate.clear()
    start = build_start(pod, {"requirements.txt": "tiny"}, "tiny")
    processes = [pod.start(*start) for _ in range(3)]
    assert index.download_started.wait(60)
    index.gate.set()
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    assert len({output.splitlines()[-1] for output in outputs}) == 1
    assert list_entries(pod) == ["packages", "resolution"]


def test_packages_that_nobody_uses_are_removed(pod):
    install(pod, "tiny<2", "tiny")
    install(pod, "tiny", "tiny")
    for entry in cache_of(pod).iterdir():
        os.utime(entry, (time.time() - 29 * DAY,) * 2)
    install(pod, "tiny", "tiny")  # marks its entries as used
    for entry in cache_of(pod).iterdir():
        mtime = entry.stat().st_mtime
        os.utime(entry, (mtime - 2 * DAY,) * 2)
    done = install(pod, "tiny", "tiny")
    assert imported(done) == {"tiny": "2.0"}
    assert "installing" not in done.stdout
    assert list_entries(pod) == ["packages", "resolution"]
