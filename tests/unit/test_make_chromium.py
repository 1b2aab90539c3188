"""Tests of `make chromium`, which `make system` and `make screenshots` run first."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("sh", "make", "grep", "sed", "find", "expand")
BROWSER = ("chromium", "chromedriver")


@pytest.fixture
def run_make(tmp_path):
    """Return a function that runs `make chromium` as a user, with some programs installed.

    `id` and `apt-get` are replaced, so that the test installs nothing. The calls of `apt-get` are in the second result.
    """
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    for name in PROGRAMS:
        if found := shutil.which(name):
            (programs / name).symlink_to(found)

    def add_program(name, script):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        (programs / name).chmod(0o755)

    def run(user, installed=()):
        add_program("id", f"echo {user}")
        add_program("apt-get", f'echo "$@" >> {calls}')
        for name in installed:
            add_program(name, "exit 1")
        done = subprocess.run(
            ["make", "--no-print-directory", "chromium", "UV=uv"],
            cwd=ROOT,
            env={**os.environ, "PATH": str(programs), "MAKEFLAGS": ""},
            capture_output=True,
            text=True,
        )
        return done, calls.read_text("utf-8").splitlines() if calls.exists() else []

    return run


def test_root_installs_the_missing_packages(run_make):
    done, calls = run_make(0, installed=BROWSER[:1])
    assert done.returncode == 0, done.stderr
    assert calls == ["update", "install -y chromium chromium-driver"]


def test_other_users_get_the_command_to_run(run_make):
    done, calls = run_make(1000)
    assert done.returncode != 0
    assert "Run as root:\napt-get update && apt-get install -y chromium chromium-driver\n" in done.stderr
    assert calls == []


def test_nothing_happens_if_the_packages_are_installed(run_make):
    done, calls = run_make(1000, installed=BROWSER)
    assert (done.returncode, done.stdout, done.stderr, calls) == (0, "", "", [])


@pytest.mark.parametrize("target", ["system", "screenshots"])
def test_the_targets_that_need_a_browser_install_it(target):
    [line] = [line for line in (ROOT / "Makefile").read_text("utf-8").splitlines() if line.startswith(f"{target}:")]
    assert "chromium" in line.partition("##")[0].split()
