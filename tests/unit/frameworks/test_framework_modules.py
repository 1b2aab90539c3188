"""Modules of frameworks of other packages, also of packages that have mistakes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.framework_packages import forget_frameworks
from trainjob.errors import ExportError
from trainjob.framework_modules import list_modules, load_modules
from trainjob.frameworks.log_parser import JobLogParser
from trainjob.manifest.model_check import origin_program
from trainjob.manifest.steps import export_program
from trainjob.manifest.supervision import supervision_program
from trainjob.packing import read_packed_code
from trainjob.programs.export.finished_run import find_run
from trainjob.programs.export.origin import Origin, read_origin

TORCHTUNE_LINE = "1|6|Loss: 2.5:  50%|     | 5/10 [00:00<00:00]"
FINISHED_RUN = """
from trainjob.errors import ExportError

def get_last_write(output):
    record = output / "other.json"
    return record.stat().st_mtime if record.is_file() else 0.0

def read_run(output, adapter):
    raise ExportError(f"found, to {adapter}")
"""
ORIGIN = """
import json
RECORD_FILE = "other.json"

def read_origin(record):
    return json.loads(record.read_text())
"""


@pytest.fixture
def add_framework(tmp_path, monkeypatch):
    """Return a function that adds a package with a framework and modules of these sources."""
    folder = tmp_path / "packages"
    (folder / "other_framework").mkdir(parents=True)
    (folder / "other_framework" / "__init__.py").touch()
    (folder / "other_framework-1.dist-info").mkdir()
    (folder / "other_framework-1.dist-info" / "METADATA").write_text("Name: other-framework\nVersion: 1\n")
    entry = "[trainjob.frameworks]\nother = other_framework.framework:FRAMEWORK\n"
    (folder / "other_framework-1.dist-info" / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(str(folder))

    def add(**modules):
        for name, source in modules.items():
            (folder / "other_framework" / f"{name}.py").write_text(source)
        forget_frameworks()
        return folder

    yield add
    forget_frameworks()
    for name in [name for name in sys.modules if name.startswith("other_framework")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import missing", "ModuleNotFoundError: No module named 'missing'"),
        ("def", "SyntaxError: "),
        ("LOG_PARSER = 1 / 0", "ZeroDivisionError"),
        ("", "has no attribute 'LOG_PARSER'"),
        ("def LOG_PARSER(): raise ValueError('a setting is missing')", "ValueError: a setting is missing"),
        ("class LOG_PARSER:\n    def feed(self, line): raise KeyError(line)", "KeyError: 'line 0'"),
        ("class LOG_PARSER:\n    def feed(self, line): return {'step': 6}", "'dict' object has no attribute 'unit'"),
    ],
)
def test_a_broken_log_parser_is_left_out_and_logged_once(add_framework, caplog, source, problem):
    add_framework(log_parser=source)
    for number in range(2):
        parser = JobLogParser()
        assert parser.feed(f"line {number}") is None
        assert parser.feed(TORCHTUNE_LINE).step == 6
    [message] = [record.getMessage() for record in caplog.records]
    assert "other_framework.log_parser" in message
    assert problem in message


def test_a_run_is_found_by_the_module_of_its_framework(add_framework, tmp_path):
    add_framework(finished_run=FINISHED_RUN, origin=ORIGIN)
    with pytest.raises(ExportError, match="no checkpoint"):
        find_run(tmp_path)
    (tmp_path / "other.json").write_text(json.dumps({"trained_by": "tune-1", "workflow_run": "a/b"}))
    with pytest.raises(ExportError, match="found, to keep"):
        find_run(tmp_path, "keep")
    assert read_origin(tmp_path) == Origin("tune-1", "a/b")


@pytest.mark.parametrize("module", ["finished_run", "origin"])
def test_a_model_is_not_exported_if_a_module_is_broken(add_framework, tmp_path, module):
    """The model of an earlier run of another framework would be exported."""
    add_framework(**{module: "import missing"})
    with pytest.raises(ImportError, match=f"other_framework.{module} cannot be imported: ModuleNotFoundError"):
        find_run(tmp_path) if module == "finished_run" else read_origin(tmp_path)


def test_programs_in_pods_have_the_modules_of_other_packages(add_framework, tmp_path):
    """Python finds them without the package."""
    add_framework(log_parser="LOG_PARSER = list", finished_run="", origin="")
    names = []
    for number, command in enumerate([supervision_program("mlflow"), export_program(), origin_program()]):
        archive = tmp_path / f"{number}.zip"
        archive.write_bytes(read_packed_code(command[3]).archive)
        source = (
            "from trainjob.framework_modules import list_modules; "
            "print(*(name for each in ('log_parser', 'finished_run', 'origin') for name in list_modules(each)))"
        )
        done = subprocess.run(
            [sys.executable, "-S", "-c", source], env={"PYTHONPATH": str(archive)}, capture_output=True, text=True
        )
        names.append(done.stdout.split())
    ours, other = "trainjob.frameworks.torchtune", "other_framework"
    assert names == [
        [f"{package}.log_parser" for package in (ours, other)],
        [f"{package}.{name}" for name in ("finished_run", "origin") for package in (ours, other)],
        [f"{package}.origin" for package in (ours, other)],
    ]


def test_modules_are_found_without_an_import(add_framework):
    add_framework(log_parser="raise SystemExit")
    assert list_modules("log_parser") == ("trainjob.frameworks.torchtune.log_parser", "other_framework.log_parser")
    assert "other_framework" not in sys.modules
    assert [module.__name__ for module in load_modules("builtin_trainer")] == [
        "trainjob.frameworks.torchtune.builtin_trainer"
    ]
