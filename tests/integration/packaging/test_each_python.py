"""Wheels of `make dist`, installed with pip on each promised Python; Airflow and kfp need separate environments."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.packaging.test_built_distributions import PACKAGES, find_wheel
from tests.integration.packaging.versions import ROOT, promised_pythons
from tests.support.uv import UV, find_python

FOLDERS = {
    "trainjob": "core",
    "trainjob_local": "laptop",
    "trainjob_migrate": "migrate",
    "trainjob_demo": "demo",
    "airflow_provider_trainjob": "providers/airflow",
    "kfp_trainjob": "components/kfp",
}
EXTRAS = {"trainjob": "[cli,local,demo]", "kfp_trainjob": "[author]"}
# An environment has every distribution except that of the other engine.
ENGINES = {"airflow": "airflow_provider_trainjob", "kfp": "kfp_trainjob"}
COMBINATIONS = [(version, engine) for engine, name in ENGINES.items() for version in promised_pythons(FOLDERS[name])]
USE = """
import importlib, sys
for package in sys.argv[1:]:
    print(package, importlib.import_module(package).__version__)
"""
PROVIDER = """
from importlib.metadata import distribution
[entry] = distribution("airflow-provider-trainjob").entry_points.select(group="apache_airflow_provider")
print(entry.load()()["package-name"])
"""
PIPELINE = """
from kfp import compiler, dsl
from trainjob_kfp import train


@dsl.pipeline
def hello():
    train(image="busybox", command=["echo", "hello"])


compiler.Compiler().compile(hello, "hello.yaml")
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def test_every_distribution_has_a_row():
    assert set(FOLDERS) == set(PACKAGES)


def create_environment(engine: str, python: str, folder: Path) -> Path:
    """Return the Python of a new environment with pip and the packages of a lock.

    uv installs the packages within seconds. Without the hashes, the lock can be read without the checkout's folders.
    """
    lines = (ROOT / "requirements" / f"{engine}.txt").read_text("utf-8").splitlines()
    locked = folder / "locked.txt"
    locked.write_text(
        "\n".join(line.removesuffix("\\").strip() for line in lines if re.match(r"[\w.-]+==", line)), "utf-8"
    )
    subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
    created = folder / "venv" / "bin" / "python"
    subprocess.run([UV, "pip", "install", "-q", "--no-deps", "--python", created, "-r", locked], check=True)
    return created


def list_wheels(engine: str) -> dict[str, str]:
    """Return the requirements of an engine's distributions, by package."""
    others = set(ENGINES.values()) - {ENGINES[engine]}
    return {PACKAGES[name]: f"{find_wheel(name)}{EXTRAS.get(name, '')}" for name in FOLDERS if name not in others}


@pytest.mark.parametrize(("version", "engine"), COMBINATIONS)
def test_the_wheels_work_with_pip(version, engine, tmp_path):
    found = find_python(version)
    if found is None:
        pytest.skip(f"Python {version} is not installed")
    wheels = list_wheels(engine)
    python = create_environment(engine, found, tmp_path)

    def run(*words):
        done = subprocess.run([python, "-I", *words], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    pip = ("-m", "pip", "--disable-pip-version-check", "-q")
    run(*pip, "install", *wheels.values())
    run(*pip, "check")
    versions = run("-W", "error", "-c", USE, *wheels).splitlines()
    assert [line.split()[0] for line in versions] == list(wheels)
    assert len({line.split()[1] for line in versions}) == 1
    assert len(run("-m", "trainjob", "--version").splitlines()) == len(wheels)
    assert {"demo", "local", "migrate"} <= set(re.findall(r"^│ (\w+)", run("-m", "trainjob", "--help"), re.MULTILINE))
    if "trainjob_airflow" in wheels:
        assert run("-c", PROVIDER) == "airflow-provider-trainjob\n"
    if "trainjob_kfp" in wheels:
        (tmp_path / "pipeline.py").write_text(PIPELINE, "utf-8")
        run("-W", "ignore", "pipeline.py")
        assert (tmp_path / "hello.yaml").stat().st_size > 0
