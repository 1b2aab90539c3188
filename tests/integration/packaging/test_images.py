"""Tests of the Containerfiles. Their pip lines run as written, with the packages of the base image's Python version."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

from tests.support.component_runs import run_component
from tests.support.containerfile import COMPONENTS_IMAGE, PROGRAMS_IMAGE, ROOT, Containerfile
from tests.support.uv import UV, find_python
from trainjob.version import VERSION, VERSION_OPTION
from trainjob_local.demo.hub import HubServer

GOLDEN = ROOT / "tests" / "integration" / "kfp" / "golden"


@pytest.fixture(params=[COMPONENTS_IMAGE, PROGRAMS_IMAGE])
def containerfile(request):
    return Containerfile.read(request.param)


def test_the_base_image_has_a_version(containerfile):
    assert re.fullmatch(r"3\.\d+", containerfile.python_version)


def test_the_user_is_a_number_and_not_root(containerfile):
    """Kubernetes' runAsNonRoot cannot check a user that is given by name."""
    instruction, user = containerfile.steps[-1]
    assert instruction == "USER"
    assert all(int(number) >= 1000 for number in user.split(":"))


def test_pip_uses_no_cache_checks_hashes_and_resolves_no_dependencies(containerfile):
    """Wheels of this project have no hashes in a lock, so that they need a pip line of their own."""
    [locked, wheels] = containerfile.pip_lines
    for words in (locked, wheels):
        assert {"--no-cache-dir", "--no-deps"} <= set(words)
    assert "--require-hashes" in locked
    assert all(word.startswith("/dist/") for word in wheels if not word.startswith("--"))


def test_mounted_folders_exist(containerfile):
    sources = set(containerfile.mounts.values()) - {"dist"}
    assert sources
    assert all((ROOT / source).is_dir() for source in sources)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Return a folder with the wheels of the packages that the images contain."""
    folder = tmp_path_factory.mktemp("dist")
    for project in ("core", "components/kfp"):
        subprocess.run([UV, "build", "-q", "--wheel", "-o", folder, ROOT / project], check=True, timeout=200)
    return folder


def install(containerfile, folder, wheels):
    """Return an environment with the content of the image."""
    python = find_python(containerfile.python_version)
    if python is None:
        pytest.skip(f"Python {containerfile.python_version} is not installed")
    environment = folder / "image"
    subprocess.run([python, "-m", "venv", environment], check=True, timeout=300)
    containerfile.run_in(environment, wheels)
    return environment


@pytest.mark.slow
def test_a_component_runs_with_the_packages_of_its_image(laptop, tmp_path, unique, wheels):
    containerfile = Containerfile.read(COMPONENTS_IMAGE)
    environment = install(containerfile, tmp_path, wheels)
    arguments = {"image": "busybox", "command": ["echo", "hello"]}
    run = {"KUBECONFIG": str(laptop.kubeconfig), "TRAINJOB_RUN_ID": unique, **containerfile.environment}
    done, outputs = run_component(
        (GOLDEN / "train.yaml").read_text("utf-8"), tmp_path, arguments, python=environment, **run
    )
    assert done.returncode == 0, done.stdout
    assert outputs["status"] == "Complete"


@pytest.mark.slow
def test_the_fetch_program_runs_with_the_packages_of_its_image(tmp_path, wheels):
    containerfile = Containerfile.read(PROGRAMS_IMAGE)
    environment = install(containerfile, tmp_path, wheels)
    files = tmp_path / "hub" / "datasets" / "acme" / "tickets"
    files.mkdir(parents=True)
    (files / "data.jsonl").write_text("{}\n", "utf-8")
    with HubServer(tmp_path / "hub") as hub:
        command = [environment / "bin" / "python", "-m", "trainjob.programs.fetch", VERSION_OPTION, VERSION]
        variables = {**containerfile.environment, "HF_ENDPOINT": hub.url, "STORAGE_URI": "hf://acme/tickets"}
        done = subprocess.run(
            [*command, "--kind", "dataset", "--folder", tmp_path / "dataset"],
            env={"PATH": os.environ["PATH"], **variables},
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1].partition("fetch: done ")[2])
    assert (tmp_path / "dataset" / "data.jsonl").read_text("utf-8") == "{}\n"
