"""Tests of the check that make runs before it creates environments."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from tools import check_setup
from tools.check_setup import ENVIRONMENTS, find_disk_problem, find_python_problem
from trainjob_local.environments import stock_locks

ROOT = Path(__file__).resolve().parents[2]
DEMO = ["core", "initializer", "torchtune", "airflow"]
OTHER_VERSION = """#!/bin/sh
exec {python} -c 'import runpy, sys
sys.version_info, sys.argv = (3, 10, 12, "final", 0), sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
"""


@pytest.fixture
def checkout(tmp_path):
    """Return a folder with the files of the checkout, without environments."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for each in ROOT.iterdir():
        if not each.name.startswith("."):
            (folder / each.name).symlink_to(each)
    return folder


@pytest.fixture
def python_3_10(tmp_path):
    """Return a program that runs this Python, and says that it is Python 3.10.12."""
    program = tmp_path / "python3"
    program.write_text(OTHER_VERSION.format(python=f"'{sys.executable}'"), "utf-8")
    program.chmod(0o755)
    return program


def test_old_pythons_can_read_it():
    ast.parse(Path(check_setup.__file__).read_text("utf-8"), feature_version=(3, 6))


def test_make_refuses_an_old_python_before_it_downloads(checkout, python_3_10):
    command = ["make", "--no-print-directory", "demo", f"PYTHON={python_3_10}", "UV=/bin/false"]
    done = subprocess.run(command, cwd=checkout, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
    assert done.returncode == 2
    first, use, instead, *_ = done.stderr.splitlines()
    assert (done.stdout, first) == ("", f"make demo needs Python 3.11 or newer; {python_3_10} is 3.10.12")
    assert re.fullmatch(r"  -> (use|install) another one: make demo PYTHON=python3\.1[123]", use)
    assert instead == "  -> with Python 3.10: make demo-kfp"
    assert not (checkout / ".venv").exists()


def test_make_says_what_it_downloads(checkout):
    command = ["make", "--no-print-directory", "demo-kfp", f"PYTHON={sys.executable}", "UV=/bin/false"]
    environment = {"PATH": os.environ["PATH"], "UV_CACHE_DIR": str(checkout / "cache")}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if "are free" in done.stderr:
        pytest.skip("this disk has not enough free space for the demo")
    assert done.stdout.splitlines() == [
        f"make demo-kfp creates these Python environments in {checkout}/.venv, once:",
        "  core         download of about 130 MB",
        "  initializer  download of about 120 MB",
        "  torchtune    download of about 2.9 GB",
        "  kfp          download of about 35 MB",
        f"They need up to 6.5 GB of disk, with the packages that uv keeps in {checkout}/cache.",
        "To delete them: make clean",
        "setting up .venv/core",
    ]


@pytest.mark.parametrize(
    ("names", "version", "needed"),
    [
        (DEMO, (3, 11, 2), ""),
        (DEMO, (3, 10, 13), "3.11"),
        (["core", "initializer", "torchtune", "kfp"], (3, 10, 6), ""),
        (["core", "kfp"], (3, 9, 18), "3.10"),
        (["core", "initializer", "trl", "kfp"], (3, 10, 6), "3.11"),
        (["core"], (3, 14, 0), ""),
    ],
)
def test_lowest_python(names, version, needed):
    problem = find_python_problem(names, "make x", "python3", version)
    assert re.findall(r"needs Python (\S+) or newer", problem) == ([needed] if needed else [])


def test_only_a_demo_that_lacks_airflow_alone_points_to_the_other_engine():
    assert "demo-kfp" in find_python_problem(DEMO, "make demo", "python3", (3, 10, 6))
    assert "demo-kfp" not in find_python_problem(DEMO, "make demo", "python3", (3, 9, 6))
    assert "demo-kfp" not in find_python_problem(["trl", "airflow"], "make demo FRAMEWORK=trl", "python3", (3, 10, 6))
    assert "demo-kfp" not in find_python_problem(["core", "airflow"], "make test", "python3", (3, 10, 6))


# Free MB on the checkout's disk, on the cache's (None: the same disk), MB in the cache, and the disk that is too full.
DISKS = {
    "enough": (7000, None, 0, ""),
    "too little": (6000, None, 0, ".venv"),
    "too little, but the packages are there": (1000, None, 6000, ""),
    "two disks": (7000, 7000, 0, ""),
    "two disks, no space for the cache": (7000, 6000, 0, "cache"),
    "two disks, the cache has the packages": (7000, 1000, 6000, ""),
    "two disks, no space for the environments": (6000, 7000, 5500, ".venv"),
}


@pytest.mark.parametrize(("free", "free_of_cache", "cached", "full"), DISKS.values(), ids=DISKS)
def test_free_disk(monkeypatch, tmp_path, free, free_of_cache, cached, full):
    folder, cache = tmp_path / "checkout" / ".venv", tmp_path / "cache"
    folder.parent.mkdir()
    cache.mkdir()
    usage = namedtuple("usage", "free")
    of_cache = free if free_of_cache is None else free_of_cache
    monkeypatch.setattr(shutil, "disk_usage", lambda p: usage((of_cache if p == cache else free) * 10**6))
    monkeypatch.setattr(check_setup, "_device", lambda place: 1 if free_of_cache is None or place == cache else 2)
    monkeypatch.setattr(check_setup, "_megabytes_in", lambda place: cached)
    problem = find_disk_problem(DEMO, "make demo", folder, cache)
    place = {"": None, ".venv": folder, "cache": cache}[full]
    assert (
        problem.startswith(f"make demo needs up to 6.9 GB of disk for {place}; 6.0 GB are free")
        if full
        else not problem
    )


def test_every_environment_is_listed():
    locks = [*(ROOT / "requirements").glob("*.txt"), *(ROOT / "laptop/src/trainjob_local/requirements").glob("*.txt")]
    # launcher-kfp is a second lock of `launcher`. uv selects the Python of the metadata store.
    assert {lock.stem for lock in locks} - {"launcher-kfp", "metadata_store"} == set(ENVIRONMENTS)
    for name, lock in stock_locks().items():
        lowest, download, _ = ENVIRONMENTS[name]
        assert (f"{lowest[0]}.{lowest[1]}", download) == (lock.min_python, lock.download_mb)
