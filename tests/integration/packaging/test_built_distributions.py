"""Distributions that `make dist` builds: each wheel has its licence, and can be installed and imported."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from tests.support.uv import UV

ROOT = Path(__file__).resolve().parents[3]
DIST = ROOT / "dist"
PACKAGES = {
    "trainjob": "trainjob",
    "trainjob_local": "trainjob_local",
    "trainjob_migrate": "trainjob_migrate",
    "trainjob_demo": "trainjob_demo",
    "airflow_provider_trainjob": "trainjob_airflow",
    "kfp_trainjob": "trainjob_kfp",
}
# Extras with which each distribution is installed, and a program that uses it.
USE_STATEMENTS = {
    "trainjob": ("[cli]", "import trainjob.cli.application as a; a.application()"),
    "trainjob_local": ("", "from trainjob.local import LocalCluster; LocalCluster().start().stop()"),
    "trainjob_migrate": ("", "import trainjob_migrate.cli as c; c.commands()"),
    "trainjob_demo": (
        "",
        "import trainjob_demo.cli as c, trainjob_demo.runner, trainjob_demo.standalone_airflow; c.demo_command()",
    ),
    "airflow_provider_trainjob": (
        "",
        "import trainjob_airflow as p, trainjob_airflow.plugins.page; [getattr(p, name) for name in p.__all__]",
    ),
    "kfp_trainjob": ("[author]", "import trainjob_kfp as p; [getattr(p, name) for name in p.__all__]"),
}

pytestmark = [pytest.mark.slow]


def find_wheel(distribution):
    [found] = DIST.glob(f"{distribution}-*.whl")
    return found


def test_each_distribution_exists_once():
    suffixes = {name: [] for name in PACKAGES}
    for path in DIST.iterdir():
        if path.name != ".gitignore":
            suffixes[path.name.split("-")[0]].append(path.suffix)
    assert {name: sorted(found) for name, found in suffixes.items()} == {name: [".gz", ".whl"] for name in PACKAGES}


@pytest.mark.parametrize("distribution", PACKAGES)
def test_wheel_has_its_licence_and_only_its_package(distribution):
    with zipfile.ZipFile(find_wheel(distribution)) as wheel:
        names = wheel.namelist()
        [info] = {name.split("/")[0] for name in names if ".dist-info/" in name}
        metadata = HeaderParser().parsestr(wheel.read(f"{info}/METADATA").decode())
        licence = wheel.read(f"{info}/licenses/LICENSE").decode()
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert licence == (ROOT / "LICENSE").read_text("utf-8")
    assert {name.split("/")[0] for name in names} == {PACKAGES[distribution], info}
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_the_laptop_clusters_wheel_has_the_locks_of_its_environments():
    with zipfile.ZipFile(find_wheel("trainjob_local")) as wheel:
        names = {name for name in wheel.namelist() if name.startswith("trainjob_local/requirements/")}
    folder = ROOT / "laptop" / "src" / "trainjob_local" / "requirements"
    assert {f"trainjob_local/requirements/{path.name}" for path in folder.glob("*.txt")} <= names
    assert "trainjob_local/requirements/initializer.txt" in names


@pytest.mark.parametrize("distribution", PACKAGES)
def test_metadata_has_the_links_and_the_authors(distribution):
    """A package index shows them beside the README."""
    with zipfile.ZipFile(find_wheel(distribution)) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(wheel.read(name).decode())
    links = dict(line.split(", ") for line in metadata.get_all("Project-URL"))
    assert set(links) == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    assert all(link.startswith("https://github.com/trainjob/trainjob") for link in links.values())
    assert metadata["Author"] == metadata["Maintainer"] == "The trainjob authors"
    assert metadata["Keywords"]


def create_environment(folder, wheels):
    """Return the Python of a new environment in the folder with these wheels in it."""
    environment = folder / "venv"
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, environment], check=True)
    subprocess.run([UV, "pip", "install", "-q", "--python", environment, *wheels], check=True)
    subprocess.run([UV, "pip", "check", "-q", "--python", environment], check=True)
    return environment / "bin" / "python"


@pytest.mark.parametrize("distribution", PACKAGES)
def test_a_wheel_can_be_installed_alone_and_used(distribution, tmp_path):
    extras, program = USE_STATEMENTS[distribution]
    # The core is installed from its file, too: pip must not install another distribution of its name from an index.
    # The demo needs the laptop cluster.
    others = ("trainjob", "trainjob_local") if distribution == "trainjob_demo" else ("trainjob",)
    wheels = {**{find_wheel(name): "" for name in others}, find_wheel(distribution): extras}
    python = create_environment(tmp_path, [f"{path}{extra}" for path, extra in wheels.items()])
    subprocess.run([python, "-I", "-c", program], cwd=tmp_path, check=True)


def test_all_wheels_can_be_installed_together_and_add_their_commands(tmp_path):
    extras = {"trainjob": "[cli,local,demo]"}
    python = create_environment(tmp_path, [f"{find_wheel(name)}{extras.get(name, '')}" for name in PACKAGES])
    command = [python, "-I", "-m", "trainjob"]
    output = subprocess.run([*command, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert {"demo", "local", "migrate"} <= {line.split()[1] for line in output.splitlines() if line.startswith("│ ")}
    for name in ("demo", "local", "migrate"):
        subprocess.run([*command, name, "--help"], cwd=tmp_path, stdout=subprocess.DEVNULL, check=True)


def test_the_core_names_the_package_that_is_missing(tmp_path):
    python = create_environment(tmp_path, [f"{find_wheel('trainjob')}[cli]"])
    for arguments, package in (
        (["-c", "import trainjob.local"], "trainjob-local"),
        (["-m", "trainjob", "local", "up"], "trainjob-local"),
        (["-m", "trainjob", "migrate", "report"], "trainjob-migrate"),
        (["-m", "trainjob", "demo"], "trainjob-demo"),
    ):
        done = subprocess.run([python, "-I", *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode != 0, done.stdout) == (True, "")
        assert f"needs the package {package}" in " ".join(done.stderr.replace("│", " ").split())
