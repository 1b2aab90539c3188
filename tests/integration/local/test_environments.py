"""Environments that are created on first use: real uv, real environments, an index on loopback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from tests.integration.local.environment_locks import TINY
from tests.support.package_index import PackageIndex, Wheel
from trainjob_local.environments import (
    EnvironmentInUse,
    EnvironmentLock,
    EnvironmentNotCreated,
    create_environment,
    delete_environment,
    environment_folder,
    environments_folder,
    find_environment,
    list_environments,
    stock_locks,
    use_environment,
)
from trainjob_local.environments.torch_builds import require_cpu_torch, without_torch

CREATE = """
import sys
from pathlib import Path
from trainjob_local.environments import EnvironmentLock, create_environment
lock = EnvironmentLock("tiny", Path(sys.argv[1]))
print(create_environment(lock, report=lambda line: print(line, file=sys.stderr, flush=True)), flush=True)
"""


pytestmark = pytest.mark.usefixtures("cache")


def installed_version(folder, module):
    """Return the version of a module in an environment, or an empty string."""
    program = f"import {module}; print({module}.VERSION)"
    found = subprocess.run([folder / "bin" / "python", "-c", program], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def start_creation(lock):
    """Start a process that creates an environment."""
    command = [sys.executable, "-c", CREATE, str(lock.requirements)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_an_environment_is_created_once(write_lock, index, cache):
    lock = write_lock(TINY)
    assert find_environment(lock) is None
    lines = []
    folder = create_environment(lock, report=lines.append)
    assert folder.parent == environments_folder() == cache / "trainjob" / "environments"
    assert folder.name.startswith("tiny-")
    assert find_environment(lock) == folder
    assert installed_version(folder, "tiny") == "1.0"
    assert " + tiny==1.0" in lines
    seen = len(index.requests)
    assert create_environment(lock) == folder
    assert len(index.requests) == seen


def test_packages_that_a_user_adds_remain(write_lock, index):
    lock = write_lock(TINY)
    folder = create_environment(lock, report=print)
    index.wheels.append(Wheel("added", "3.0"))
    subprocess.run([find_uv_bin(), "pip", "install", "-q", "--python", folder, "added"], check=True)
    assert installed_version(create_environment(lock), "added") == "3.0"


def test_two_processes_create_an_environment_once(write_lock, index):
    lock = write_lock(TINY)
    index.gate.clear()
    first = start_creation(lock)
    assert index.download_started.wait(60)
    second = start_creation(lock)
    assert "waiting for another process" in second.stderr.readline()
    index.gate.set()
    errors = ""
    for process in (first, second):
        output, errors = process.communicate(timeout=300)
        assert (process.returncode, output.strip()) == (0, str(environment_folder(lock))), errors
    assert "+ tiny" not in errors
    assert index.downloads("tiny") == 1


def test_a_creation_that_was_killed_is_done_again(write_lock, index):
    """uv outlives its parent: the next creation waits for its end, then starts from nothing."""
    lock = write_lock(TINY)
    index.gate.clear()
    first = start_creation(lock)
    assert index.download_started.wait(60)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert find_environment(lock) is None
    half = environment_folder(lock)
    assert (half / "bin").is_dir()
    assert [(one.name, one.ready) for one in list_environments()] == [("tiny", False)]
    (half / "rest-of-the-first").touch()
    second = start_creation(lock)
    assert "waiting for another process" in second.stderr.readline()
    index.gate.set()
    output, errors = second.communicate(timeout=300)
    assert output.strip() == str(half), errors
    assert installed_version(half, "tiny") == "1.0"
    assert not (half / "rest-of-the-first").exists()


def test_another_lock_gives_another_folder(write_lock, index):
    old = create_environment(write_lock(TINY), report=print)
    newer = Wheel("tiny", "2.0")
    index.wheels.append(newer)
    new = create_environment(write_lock(newer), report=print)
    assert (installed_version(old, "tiny"), installed_version(new, "tiny")) == ("1.0", "2.0")
    assert create_environment(write_lock(newer, packages=("tiny",)), report=print) not in (old, new)


def test_a_package_with_another_hash_is_refused(write_lock, index):
    lock = write_lock(Wheel("tiny", "1.0", requires=("other",)))
    with pytest.raises(EnvironmentNotCreated, match=r"(?i)hash"):
        create_environment(lock, report=print)
    assert list_environments() == []


def test_additional_packages_take_their_dependencies_from_the_lock(write_lock, index, tmp_path, monkeypatch):
    """The additional package comes from a folder that pip's settings name, as wheels that are not public yet."""
    index.wheels += [Wheel("tiny", "2.0")]
    addon = Wheel("addon", "0.1.0", requires=("tiny", "loose"))
    for wheel in (addon, Wheel("loose", "5.0")):
        (tmp_path / wheel.filename).write_bytes(wheel.content())
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv("PIP_FIND_LINKS", tmp_path.name)
    folder = create_environment(write_lock(TINY, packages=("addon==0.1.0",)), report=print)
    assert [installed_version(folder, name) for name in ("addon", "tiny", "loose")] == ["0.1.0", "1.0", "5.0"]


def test_a_failure_names_environment_command_output_and_advice(write_lock, refusing_url, monkeypatch):
    monkeypatch.setenv("UV_DEFAULT_INDEX", refusing_url.replace("://", "://me:a-secret@"))
    with pytest.raises(EnvironmentNotCreated) as caught:
        create_environment(write_lock(TINY), report=print)
    text = str(caught.value)
    assert text.startswith("the environment 'tiny' could not be created: `uv pip install ")
    for part in ("failed:\n", "Connection refused", "UV_DEFAULT_INDEX", "PIP_INDEX_URL"):
        assert part in text
    assert "a-secret" not in text
    assert "--environment" not in text  # only the environments of images have this option
    assert list_environments() == []


@pytest.mark.parametrize("report", [print, None], ids=["captured", "terminal"])
def test_a_missing_wheel_of_this_project_is_named(write_lock, report):
    with pytest.raises(EnvironmentNotCreated, match=r"set UV_FIND_LINKS to a folder with wheels of addon==0\.1\.0"):
        create_environment(write_lock(TINY, packages=("addon==0.1.0",)), report=report)


def test_a_failure_of_a_stock_environment_names_the_option_that_replaces_it(refusing_url, monkeypatch):
    monkeypatch.setenv("UV_DEFAULT_INDEX", refusing_url)
    with pytest.raises(EnvironmentNotCreated, match="--environment initializer=DIR"):
        create_environment(stock_locks()["initializer"], report=print)


def test_a_failure_to_write_leaves_no_environment(write_lock, index):
    """A limit of the file size has the effect of a full disk."""
    lock = write_lock(TINY)
    limited = ["prlimit", "--fsize=0", sys.executable, "-c", CREATE, str(lock.requirements)]
    failed = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert failed.returncode
    assert find_environment(lock) is None
    assert installed_version(create_environment(lock, report=print), "tiny") == "1.0"


def test_a_cache_directory_that_cannot_be_written_is_named(write_lock, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(EnvironmentNotCreated, match="set XDG_CACHE_HOME") as caught:
        create_environment(write_lock(TINY))
    assert str(tmp_path / "file") in str(caught.value)


def test_a_missing_python_is_named(write_lock):
    with pytest.raises(EnvironmentNotCreated, match=r"install Python 3\.99 or newer"):
        create_environment(write_lock(TINY, min_python="3.99"), report=print)


def test_without_a_report_the_output_goes_to_standard_error(write_lock, capfd, refusing_url, monkeypatch):
    create_environment(write_lock(TINY))
    assert "+ tiny==1.0" in capfd.readouterr().err
    monkeypatch.setenv("UV_DEFAULT_INDEX", refusing_url)
    with pytest.raises(EnvironmentNotCreated, match="failed; its output is above"):
        create_environment(write_lock(TINY, name="other"))


# -- deletion -----------------------------------------------------------------------------------------------------


def test_an_environment_is_deleted_unless_it_is_used(write_lock):
    folder = create_environment(write_lock(TINY), report=print)
    [found] = list_environments()
    assert (found.name, found.path, found.ready) == ("tiny", folder, True)
    assert found.measure_bytes() > 0
    with use_environment(folder) as ready:
        assert ready
        with pytest.raises(EnvironmentInUse, match="trainjob local down"):
            delete_environment(found)
        assert find_environment(write_lock(TINY))
    delete_environment(found)
    assert list(environments_folder().iterdir()) == []
    with use_environment(folder) as ready:
        assert not ready


def test_an_environment_that_is_being_created_is_not_deleted(write_lock, index):
    index.gate.clear()
    creation = start_creation(write_lock(TINY))
    assert index.download_started.wait(60)
    [found] = list_environments()
    with pytest.raises(EnvironmentInUse):
        delete_environment(found)
    index.gate.set()
    output, _ = creation.communicate(timeout=300)
    assert output.strip() == str(found.path)


# -- torch --------------------------------------------------------------------------------------------------------

TORCH = Wheel("torch", "2.0.0", requires=("nvidia-cublas",))
CUBLAS = Wheel("nvidia-cublas", "1.0")
CPU_TORCH = Wheel("torch", "2.0.0+cpu")


@pytest.fixture
def torch_lock(write_lock, index):
    """Return a lock with torch as PyPI has it, with a library for GPUs."""
    index.wheels += [TORCH, CUBLAS]
    return write_lock(TINY, TORCH, CUBLAS)


def torch_packages(folder):
    return installed_version(folder, "torch"), installed_version(folder, "nvidia_cublas")


def test_torch_is_a_cpu_build_if_the_index_of_these_can_be_reached(torch_lock):
    with PackageIndex([CPU_TORCH]) as cpu_index:
        folder = create_environment(torch_lock, report=print, cpu_torch_index=cpu_index.url)
    assert torch_packages(folder) == ("2.0.0+cpu", "")
    assert installed_version(folder, "tiny") == "1.0"


def test_torch_is_the_locked_build_if_the_index_is_not_reached(torch_lock, refusing_url):
    lines = []
    folder = create_environment(torch_lock, report=lines.append, cpu_torch_index=refusing_url)
    assert torch_packages(folder) == ("2.0.0", "1.0")
    assert not any("error" in line.lower() for line in lines)


def test_torch_is_the_locked_build_if_the_index_lacks_it(torch_lock):
    with PackageIndex([Wheel("torch", "1.9.0+cpu")]) as cpu_index:
        folder = create_environment(torch_lock, report=print, cpu_torch_index=cpu_index.url)
    assert torch_packages(folder) == ("2.0.0", "1.0")


def test_torch_is_the_locked_build_if_another_backend_is_selected(torch_lock, monkeypatch):
    monkeypatch.setenv("UV_TORCH_BACKEND", "cu128")
    with PackageIndex([CPU_TORCH]) as cpu_index:
        folder = create_environment(torch_lock, report=print, cpu_torch_index=cpu_index.url)
        assert cpu_index.requests == []
    assert torch_packages(folder) == ("2.0.0", "1.0")


def test_additional_packages_keep_the_cpu_build(write_lock, index):
    index.wheels += [TORCH, CUBLAS, Wheel("addon", "1.0", requires=("torch",))]
    lock = write_lock(TINY, TORCH, CUBLAS, packages=("addon",))
    with PackageIndex([CPU_TORCH]) as cpu_index:
        folder = create_environment(lock, report=print, cpu_torch_index=cpu_index.url)
    assert torch_packages(folder) == ("2.0.0+cpu", "")
    assert installed_version(folder, "addon") == "1.0"


@pytest.mark.parametrize("name", ["torchtune", "trl", "llamafactory"])
def test_stock_locks_without_torch_have_no_libraries_for_gpus(name):
    text = stock_locks()[name].requirements.read_text()
    assert require_cpu_torch(text).startswith("torch==2.")
    assert require_cpu_torch(text).endswith("+cpu\n")
    rest = without_torch(text)
    assert not any(line.startswith(("nvidia", "cuda", "triton", "torch==")) for line in rest.splitlines())
    assert "transformers==" in rest


@pytest.mark.parametrize("name", ["initializer", "runtimes"])
def test_stock_locks_without_torch_stay_as_they_are(name):
    text = stock_locks()[name].requirements.read_text()
    assert require_cpu_torch(text) == ""
    assert without_torch(text) == text


# -- what users read, and pip's settings --------------------------------------------------------------------------


def test_the_announcement_has_size_and_duration():
    assert stock_locks()["initializer"].announcement == "download of about 120 MB, some seconds at 10 MB/s"
    assert stock_locks()["trl"].announcement == (
        "download of about 2.8 GB, 5 minutes at 10 MB/s "
        "(310 MB, a minute if PyTorch's index of CPU builds can be reached)"
    )
    assert EnvironmentLock("mine", Path("mine.txt")).announcement == ""
