"""Errors of frameworks of other packages."""

from __future__ import annotations

import sys

import pytest

from tests.support.framework_packages import forget_frameworks
from trainjob import FineTune, InvalidSpec
from trainjob.spec import FrameworkConfig

MODULE = """
from typing import ClassVar
from trainjob.spec import FrameworkConfig

class Config(FrameworkConfig):
    framework: ClassVar[str] = "{framework}"

class Framework:
    config_class = Config
    {members} = None

FRAMEWORK = Framework()
WRONG_CLASS = Framework()
WRONG_CLASS.config_class = dict
"""
MEMBERS = "canonical_model_name = check_step = check_builtin = can_resume = build_trainer = build_builtin_arguments"


@pytest.fixture
def add_package(tmp_path, monkeypatch):
    """Return a function that adds a package with an entry point to this process."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = []

    def add(name, target, source):
        modules.append(name)
        (tmp_path / f"{name}.py").write_text(source)
        folder = tmp_path / f"{name}-2.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.1\n")
        (folder / "entry_points.txt").write_text(f"[trainjob.frameworks]\nother = {target}\n")

    yield add
    forget_frameworks()
    for name in modules:
        sys.modules.pop(name, None)


def find_problem(config):
    with pytest.raises(InvalidSpec) as raised:
        FineTune(model="m", workspace="w", config=config)
    [problem] = raised.value.problems
    return problem


@pytest.mark.parametrize("name", ["other", ""])
def test_a_framework_that_no_package_adds(name):
    problem = find_problem({"framework": name})
    assert (problem.field, problem.value) == ("config.framework", repr(name))
    known = "llamafactory, torchtune, trl, unsloth"
    assert problem.allowed.startswith(f"it must be one of {known}; for another one, install its package where")


def test_a_name_that_is_no_text():
    assert find_problem({"framework": ["trl"]}).field == "config.framework"


def test_a_configuration_whose_package_adds_no_framework():
    class Config(FrameworkConfig):
        framework = "other"

    assert find_problem(Config()).field == "config.framework"


def test_two_packages_with_the_same_framework(add_package):
    add_package("first", "first:FRAMEWORK", MODULE.format(framework="other", members=MEMBERS))
    add_package("second", "second:FRAMEWORK", MODULE.format(framework="other", members=MEMBERS))
    assert find_problem({"framework": "other"}).allowed == (
        "only one package may add it, but first 2.1 and second 2.1 do: uninstall one of them"
    )


@pytest.mark.parametrize(
    ("target", "framework", "members", "words"),
    [
        ("package:FRAMEWORK", "{", MEMBERS, "its package package 2.1 cannot be loaded: ModuleNotFoundError"),
        ("package:MISSING", "other", MEMBERS, "its package package 2.1 cannot be loaded: AttributeError"),
        ("package:FRAMEWORK", "other", "check_step", "of the package package 2.1 lacks build_builtin_"),
        ("package:WRONG_CLASS", "other", MEMBERS, "config_class that is not a subclass of FrameworkConfig"),
        ("package:FRAMEWORK", "trl", MEMBERS, "config_class whose attribute framework is not 'other'"),
    ],
)
def test_a_package_that_cannot_be_used(add_package, target, framework, members, words):
    source = MODULE.format(framework=framework, members=members)
    add_package("package", target, "import missing_module" if framework == "{" else source)
    problem = find_problem({"framework": "other"})
    assert problem.field == "config.framework"
    assert words in problem.allowed


def test_our_frameworks_cannot_be_replaced(add_package):
    add_package("package", "package:FRAMEWORK", MODULE.format(framework="trl", members=MEMBERS))
    config = FineTune(model="m", workspace="w", config={"framework": "trl", "method": "sft"}).config
    assert type(config).__module__ == "trainjob.frameworks.trl.config"


def test_a_request_without_a_framework_gets_the_lines_of_all_that_are_installed(add_package):
    line = 'config={"framework": "other"} trains no model at all'
    source = MODULE.format(framework="other", members=MEMBERS)
    source = source.replace("class Framework:", f"    usage: ClassVar[str] = {line!r}\n\nclass Framework:")
    add_package("with_usage", "with_usage:FRAMEWORK", source)
    rule = find_problem({"framework": None}).allowed
    assert rule.splitlines()[-1] == f"  {line}"
    assert sum("trains another model" in each for each in rule.splitlines()) >= 1


def test_a_broken_package_has_no_line(add_package):
    before = find_problem({"framework": None}).allowed
    add_package("broken_package", "broken_package:FRAMEWORK", "raise RuntimeError('broken')")
    forget_frameworks()
    assert find_problem({"framework": None}).allowed == before
