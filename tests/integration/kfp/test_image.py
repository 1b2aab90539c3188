"""Tests that the components' image is the launcher environment; tests/integration/packaging tests both images."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import version

import yaml
from packaging.requirements import Requirement

from tests.support.component_runs import LAUNCHER
from tests.support.containerfile import COMPONENTS_IMAGE, ROOT, Containerfile
from trainjob_kfp.image import BASE_IMAGE

IMAGE = Containerfile.read(COMPONENTS_IMAGE)
LOCKS = ("launcher.txt", "launcher-kfp.txt")


def read_lock(name):
    """Return the requirements of a lock without their hashes."""
    lines = (ROOT / "requirements" / name).read_text("utf-8").splitlines()
    return [Requirement(line.removesuffix("\\")) for line in lines if line[0] not in " #"]


def test_a_release_publishes_the_image_that_the_components_name():
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
    images = {row["file"]: row for row in release["jobs"]["images"]["strategy"]["matrix"]["include"]}
    published = images[COMPONENTS_IMAGE]
    assert published["suffix"] == f"-python{IMAGE.python_version}"
    assert f"{published['image']}:{version('kfp-trainjob')}{published['suffix']}" == BASE_IMAGE


def test_the_image_has_the_packages_of_the_launcher_environment():
    """Tests in the launcher environment are therefore also valid for the image."""
    [locked, _wheels] = IMAGE.pip_lines
    assert [word for word in locked if word.startswith("/")] == [f"/requirements/{name}" for name in LOCKS]
    listing = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()), sep='\\n')"
    done = subprocess.run([LAUNCHER / "bin" / "python3", "-c", listing], capture_output=True, text=True, check=True)
    found = {re.sub(r"[-_.]+", "-", line.lower()) for line in done.stdout.split()}
    requirements = [item for name in LOCKS for item in read_lock(name) if item.marker is None or item.marker.evaluate()]
    assert found == {re.sub(r"[-_.]+", "-", f"{item.name}{item.specifier}") for item in requirements}


def test_the_image_has_the_kfp_of_the_tests():
    assert [str(item) for item in read_lock("launcher-kfp.txt")] == [f"kfp=={version('kfp')}"]
