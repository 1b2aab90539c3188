"""Fixtures that make projects: real files, and real repositories of git."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

_IDENTITY = ("-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "init.defaultBranch=main")


@pytest.fixture(autouse=True)
def home(tmp_path_factory, monkeypatch):
    """Use an empty home, so that no setting of this machine's user counts, and return it."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return folder


@pytest.fixture
def git():
    """Return a function that runs git in a folder: `git(folder, *arguments)`."""

    def run(folder, *arguments):
        command = ["git", "-C", folder, *_IDENTITY, "-c", "protocol.file.allow=always", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    return run


@pytest.fixture
def write():
    """Return a function that writes files and returns the folder: `write(folder, files)`."""

    def write_all(folder, files):
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return folder

    return write_all


@pytest.fixture
def make_repository(git, write):
    """Return a function that makes a repository with one commit and returns its folder."""

    def make(folder, files):
        folder.mkdir(exist_ok=True)
        write(folder, files)
        git(folder, "init", "-q")
        git(folder, "add", "--all")
        git(folder, "commit", "-q", "--allow-empty", "--message", "first")
        return folder

    return make


@pytest.fixture
def unprivileged_folder():
    """Yield a folder; the test runs as another user than root, who may read everything."""
    with tempfile.TemporaryDirectory() as name:  # another user cannot enter pytest's own folders
        Path(name).chmod(0o755)
        is_root = os.geteuid() == 0
        if is_root:
            os.chown(name, 65534, -1)
            os.seteuid(65534)
        yield Path(name)
        if is_root:
            os.seteuid(0)


@pytest.fixture
def git_on_path(tmp_path_factory, monkeypatch):
    """Return a function that replaces git by a script; without a script, there is no git."""

    def replace(script=""):
        folder = tmp_path_factory.mktemp("bin")
        if script:
            (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
            (folder / "git").chmod(0o755)
        monkeypatch.setenv("PATH", os.fspath(folder))

    return replace
