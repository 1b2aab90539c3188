"""Tests that the packages of a function are installed in its container, with real pip and local indexes."""

from __future__ import annotations

import contextlib
import http.server
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainjob import CustomTrainer
from trainjob.manifest.function import function_command
from trainjob.status import parse_step_result


def create_wheel(folder: Path, name: str, version: str) -> None:
    """Create a package with a module of its name, and list it on the index page."""
    page = folder / "simple" / name.replace("_", "-")
    page.mkdir(parents=True, exist_ok=True)
    file = page / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    links = "".join(f'<a href="{wheel.name}">{wheel.name}</a>' for wheel in sorted(page.glob("*.whl")))
    (page / "index.html").write_text(f"<!doctype html><html><body>{links}</body></html>")


@contextlib.contextmanager
def serve_index(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve an index; yield its URL and the list of the requested paths."""
    requested_paths: list[str] = []

    class IndexHandler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *_: object) -> None:
            requested_paths.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), IndexHandler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple", requested_paths
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def image_environment(tmp_path_factory):
    """Create a Python with pip, as in an image; the environments of this project have no pip."""
    return create_environment(tmp_path_factory.mktemp("image"))


def create_environment(folder, *options):
    subprocess.run([sys.executable, "-m", "venv", *options, folder], check=True)
    return folder / "bin" / "python"


def run_trainer(python, trainer, **more):
    command = [str(python), *function_command(trainer)[1:]]
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PET_", "PYTHON"))}
    environment = {**variables, "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return subprocess.run(command, env={**environment, **more}, capture_output=True, text=True)


def import_versions():
    import first_package  # type: ignore[import-not-found]
    import second_package  # type: ignore[import-not-found]

    return [first_package.VERSION, second_package.VERSION]


@pytest.mark.slow
def test_packages_are_installed_from_the_given_indexes(image_environment, tmp_path):
    create_wheel(tmp_path / "one", "first_package", "1.0")
    create_wheel(tmp_path / "one", "first_package", "2.0")
    create_wheel(tmp_path / "two", "second_package", "3.1")
    with serve_index(tmp_path / "one") as (one, paths_one), serve_index(tmp_path / "two") as (two, paths_two):
        packages = ("first_package<2", "second-package")
        done = run_trainer(
            image_environment,
            CustomTrainer(func=import_versions, packages_to_install=packages, pip_index_urls=(one, two)),
        )
    assert done.returncode == 0, done.stderr
    assert parse_step_result(done.stdout.splitlines()[-1]) == {"result": ["1.0", "3.1"]}
    assert "/simple/first-package/first_package-1.0-py3-none-any.whl" in paths_one
    assert "/simple/second-package/second_package-3.1-py3-none-any.whl" in paths_two


@pytest.mark.slow
def test_packages_are_installed_for_a_random_user_without_a_home(tmp_path):
    """Not even root can create the home, and PIP_USER keeps pip out of the image's folder, as if it were read-only."""
    python = create_environment(tmp_path / "image", "--system-site-packages")
    for name in ("first_package", "second_package"):
        create_wheel(tmp_path, name, "1.0")
    (tmp_path / "file").touch()
    variables = {"HOME": str(tmp_path / "file" / "home"), "PIP_USER": "1", "TMPDIR": str(tmp_path)}
    with serve_index(tmp_path) as (one, _):
        packages = ("first_package", "second-package")
        trainer = CustomTrainer(func=import_versions, packages_to_install=packages, pip_index_urls=(one,))
        done = run_trainer(python, trainer, **variables)
    assert done.returncode == 0, done.stderr
    assert parse_step_result(done.stdout.splitlines()[-1]) == {"result": ["1.0", "1.0"]}
    assert list((tmp_path / "image").rglob("first_package.py")) == []
    assert list(tmp_path.glob("tmp*/lib/python*/site-packages/first_package.py"))


@pytest.mark.slow
def test_a_missing_package_fails_with_the_error_of_pip(image_environment, tmp_path):
    create_wheel(tmp_path, "first_package", "1.0")
    with serve_index(tmp_path) as (one, _):
        done = run_trainer(
            image_environment,
            CustomTrainer(func=import_versions, packages_to_install=("no-such-package",), pip_index_urls=(one,)),
        )
    assert done.returncode == 1
    assert "No matching distribution found for no-such-package" in done.stderr
    assert done.stderr.splitlines()[-1] == "function: failed: packages could not be installed: pip ended with 1"
    assert done.stdout == ""
