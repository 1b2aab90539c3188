"""The folder of `trainjob demo`: where it is, and that one demo of an engine uses it at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainjob.errors import InvalidSpec
from trainjob_demo.errors import DemoError
from trainjob_demo.paths import default_folder, display_path, exclusive_lock, find_workflow


def test_the_folder_is_in_the_cache_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder("demo") == tmp_path / "trainjob" / "demo"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/new user")
    assert default_folder("demo") == Path("/home/new user/.cache/trainjob/demo")


def test_a_second_demo_of_an_engine_is_refused(tmp_path):
    with exclusive_lock(tmp_path, "kfp"):
        with pytest.raises(DemoError, match="already running in this folder: it holds the lock") as error:
            exclusive_lock(tmp_path, "kfp").__enter__()
        assert "start the command `trainjob` with another folder" in error.value.hint  # make has no such option
        with exclusive_lock(tmp_path, "airflow"):
            pass
    with exclusive_lock(tmp_path, "kfp"):
        pass


def test_a_folder_that_cannot_be_created_is_refused():
    with pytest.raises(DemoError, match="--state DIR"):
        exclusive_lock(Path("/proc/demo"), "kfp").__enter__()


def test_paths_below_the_current_folder_are_short(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert display_path(tmp_path / "a" / "b") == Path("a/b")
    assert display_path(Path("/dev/null")) == Path("/dev/null")


def test_a_workflow_of_the_user_has_to_exist(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("changed.py").touch()
    assert find_workflow(Path("changed.py")) == tmp_path / "changed.py"
    with pytest.raises(InvalidSpec, match=r"--workflow cannot be missing\.py: name the Python file"):
        find_workflow(Path("missing.py"))
