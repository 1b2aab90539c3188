"""Wheels of `make dist`, installed with pip on each promised Python; Airflow and kfp need separate environments."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.packaging.test_built_distributions import PACKAGES, find_wheel
from tests.integration.packaging.versions import PYTHONS, ROOT, promised_pythons
from tests.support.uv import find_python

FOLDERS = {
    "trainjob": "core",
    "trainjob_local": "laptop",
    "trainjob_migrate": "migrate",
    "trainjob_demo": "demo",
    "airflow_provider_trainjob": "providers/airflow",
    "kfp_trainjob": "components/kfp",
}
EXTRAS = {"trainjob": "[cli,local,demo]", "kfp_trainjob": "[author]"}
ENGINES = {
    "airflow": set(FOLDERS) - {"kfp_trainjob"},
    "kfp": {"trainjob", "trainjob_local", "trainjob_demo", "kfp_trainjob"},
}
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


def write_constraints(engine: str, path: Path) -> None:
    """Write the versions of the engine's lock.

    They have no hashes, because pip would want one for each wheel, too.
    """
    lines = (ROOT / "requirements" / f"{engine}.txt").read_text("utf-8").splitlines()
    path.write_text(
        "\n".join(line.removesuffix("\\").strip() for line in lines if re.match(r"[\w.-]+==", line)), "utf-8"
    )


def list_wheels(engine: str, version: str) -> dict[str, str]:
    """Return the requirements of an engine's distributions for this Python, by package."""
    names = [name for name in FOLDERS if name in ENGINES[engine] and version in promised_pythons(FOLDERS[name])]
    return {PACKAGES[name]: f"{find_wheel(name)}{EXTRAS.get(name, '')}" for name in names}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheels_work_with_pip(engine, version, tmp_path):
    found = find_python(version)
    if found is None:
        pytest.skip(f"Python {version} is not installed")
    wheels = list_wheels(engine, version)
    subprocess.run([found, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"

    def run(*words):
        done = subprocess.run([python, "-I", *words], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    write_constraints(engine, tmp_path / "constraints.txt")
    pip = ("-m", "pip", "--disable-pip-version-check", "-q")
    run(*pip, "install", "-c", "constraints.txt", *wheels.values())
    run(*pip, "check")
    versions = run("-W", "error", "-c", USE, *wheels).splitlines()
    assert [line.split()[0] for line in versions] == list(wheels)
    assert len({line.split()[1] for line in versions}) == 1
    assert len(run("-m", "trainjob", "--version").splitlines()) == len(wheels)
    assert {"demo", "local"} <= set(re.findall(r"^│ (\w+)", run("-m", "trainjob", "--help"), re.MULTILINE))
    if "trainjob_airflow" in wheels:
        assert run("-c", PROVIDER) == "airflow-provider-trainjob\n"
    if "trainjob_kfp" in wheels:
        (tmp_path / "pipeline.py").write_text(PIPELINE, "utf-8")
        run("-W", "ignore", "pipeline.py")
        assert (tmp_path / "hello.yaml").stat().st_size > 0
