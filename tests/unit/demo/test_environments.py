"""The environments of `trainjob demo`: which ones a demo needs, what it announces, and what their locks contain."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from trainjob.errors import InvalidSpec
from trainjob_demo.announcement import format_announcement
from trainjob_demo.environments import parse_environments, select_locks

ROOT = Path(__file__).resolve().parents[3]
OUR_DISTRIBUTIONS = {"airflow": "providers/airflow", "kfp": "components/kfp"}


def read_pins(path):
    return set(re.findall(r"^([a-z0-9][a-z0-9._-]*)==([^\s;\\]+)", path.read_text("utf-8"), re.MULTILINE))


@pytest.mark.parametrize("framework", ["torchtune", "trl"])
@pytest.mark.parametrize("engine", ["airflow", "kfp"])
def test_a_demo_needs_the_initializer_the_framework_and_the_engine(engine, framework):
    assert list(select_locks(engine, framework)) == ["initializer", framework, engine]


@pytest.mark.parametrize("engine", OUR_DISTRIBUTIONS)
def test_the_engine_gets_this_release(engine):
    packages = [Requirement(text) for text in select_locks(engine, "trl")[engine].packages]
    assert {str(package.specifier) for package in packages} == {f"=={version('trainjob')}"}
    project = tomllib.loads((ROOT / OUR_DISTRIBUTIONS[engine] / "pyproject.toml").read_text("utf-8"))["project"]
    assert [package.name for package in packages] == [project["name"], "trainjob"]


@pytest.mark.parametrize("engine", OUR_DISTRIBUTIONS)
def test_the_lock_has_what_our_packages_require(engine):
    """The lock has hashes, so a requirement that it lacked would be installed without them."""
    locked = {name for name, _ in read_pins(select_locks(engine, "trl")[engine].requirements)}
    for folder in (OUR_DISTRIBUTIONS[engine], "core"):
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
        extras = project.get("optional-dependencies", {}).get("author", [])
        required = {canonicalize_name(Requirement(text).name) for text in [*project["dependencies"], *extras]}
        assert required - {"trainjob"} <= locked


@pytest.mark.parametrize("engine", OUR_DISTRIBUTIONS)
def test_this_checkout_tests_the_versions_of_the_lock(engine):
    tested = read_pins(ROOT / "requirements" / f"{engine}.txt")
    assert read_pins(select_locks(engine, "trl")[engine].requirements) <= tested


def test_the_announcement_names_what_is_missing_where_and_its_size():
    locks = select_locks("kfp", "torchtune")
    missing = [locks["torchtune"], locks["kfp"]]
    first, torchtune, kfp, last = format_announcement(missing, Path("/home/new user/environments")).splitlines()
    assert first == "The demo creates these Python environments in /home/new user/environments, once:"
    assert re.fullmatch(r"  torchtune    download of about \d\.\d GB, \d minutes at 10 MB/s \(.+\)", torchtune)
    assert re.fullmatch(r"  kfp          download of about \d+ MB, some seconds at 10 MB/s", kfp)
    assert re.fullmatch(r"They need at most \d\.\d GB of disk\. To delete them: trainjob local clean", last)


def test_existing_environments_are_used():
    here = Path(sys.prefix)
    assert parse_environments([f"airflow={here}", f"trl={here}"]) == {"airflow": here, "trl": here}


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("airflow", "write it as NAME=DIR"),
        ("airflow=", "write it as NAME=DIR"),
        ("spark=/tmp", "NAME is one of initializer, torchtune, trl, airflow, kfp"),
        ("airflow=/dev", "name the folder of a Python environment"),
    ],
)
def test_a_wrong_environment_is_refused(text, allowed):
    with pytest.raises(InvalidSpec, match=allowed) as refused:
        parse_environments([text])
    assert (refused.value.problems[0].field, refused.value.problems[0].value) == ("--environment", repr(text))
