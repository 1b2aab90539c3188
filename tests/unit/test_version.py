"""The version of `trainjob`, and its check by programs that pods run from their image."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from importlib import metadata

import pytest

from trainjob.errors import InvalidSpec
from trainjob.version import VERSION, VERSION_OPTION, check_version

MAJOR, MINOR, _ = VERSION.split(".")
PROGRAMS = (
    "programs.fetch",
    "programs.export",
    "frameworks.torchtune.pod",
    "frameworks.trl.pod",
    "frameworks.llamafactory.pod",
    "frameworks.unsloth.pod",
)
# Fails for each import of a package that the images of the Trainer lack.
NO_DEPENDENCIES = """\
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pydantic", "yaml", "kubernetes"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""


@pytest.fixture
def run_program(tmp_path):
    """Return a function that runs a program without the dependencies of `trainjob`."""
    (tmp_path / "sitecustomize.py").write_text(NO_DEPENDENCIES)

    def run(program, *arguments):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-m", f"trainjob.{program}", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    return run


def test_the_version_is_that_of_the_distribution():
    assert metadata.version("trainjob") == VERSION


def test_packed_arguments_have_no_version():
    assert check_version(["--kind", "model"]) == ["--kind", "model"]
    assert check_version([]) == []


@pytest.mark.parametrize("version", [VERSION, f"{MAJOR}.{MINOR}.999", f"{MAJOR}.{MINOR}.0rc1"])
def test_versions_that_differ_in_the_last_number_have_the_same_arguments(version):
    assert check_version([VERSION_OPTION, version, "--kind", "model"]) == ["--kind", "model"]


@pytest.mark.parametrize("version", [f"{MAJOR}.{int(MINOR) + 1}.0", f"{int(MAJOR) + 1}.{MINOR}.0", "other"])
def test_another_version_is_refused(version):
    with pytest.raises(InvalidSpec) as refused:
        check_version([VERSION_OPTION, version, "--kind", "model"])
    [problem] = refused.value.problems
    assert (problem.field, problem.value) == ("image", f"trainjob {VERSION}")
    assert f"trainjob {version} created this TrainJob" in problem.allowed
    assert "program='packed'" in problem.allowed


def test_a_missing_version_is_refused():
    with pytest.raises(InvalidSpec, match="of an unknown version created this TrainJob"):
        check_version([VERSION_OPTION])


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_refuses_another_version_before_it_parses_its_arguments(program, run_program):
    done = run_program(program, VERSION_OPTION, "99.0.0", "--option-of-that-version", "x")
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert f": failed: image cannot be trainjob {VERSION}: trainjob 99.0.0 created this TrainJob" in line


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_runs_as_a_module_without_the_dependencies_of_trainjob(program, run_program):
    done = run_program(program, VERSION_OPTION, VERSION, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")


@pytest.mark.parametrize("package", ["torchtune", "trl"])
def test_the_names_of_a_framework_are_imported_on_first_use(package):
    module = importlib.import_module(f"trainjob.frameworks.{package}")
    assert all(getattr(module, name).__name__ == name for name in module.__all__ if name.endswith("Config"))
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        _ = module.nope
