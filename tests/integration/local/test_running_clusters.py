"""Records of running clusters, also without a writable home folder."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trainjob_local import running_clusters


@pytest.fixture
def without_cache(monkeypatch, tmp_path):
    """Make the cache folder unusable, and return a new folder for the files of this session."""
    file = tmp_path / "no-folder"
    file.touch()
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    return runtime


def test_a_cluster_is_listed_without_a_writable_home_folder(without_cache, tmp_path):
    with running_clusters.register_cluster("https://127.0.0.1:1", tmp_path, tmp_path / "kubeconfig", temporary=False):
        [found] = running_clusters.list_clusters()
        assert found.file.startswith(str(without_cache))
        done = subprocess.run([sys.executable, "-m", "trainjob", "local", "status", "--json"], capture_output=True)
        assert [one["server"] for one in json.loads(done.stdout)] == ["https://127.0.0.1:1"]
    assert running_clusters.list_clusters() == []


def test_a_folder_that_others_can_write_to_is_not_used(without_cache, tmp_path, caplog):
    without_cache.chmod(0o777)
    with running_clusters.register_cluster("https://127.0.0.1:1", tmp_path, tmp_path / "kubeconfig", temporary=False):
        assert running_clusters.list_clusters() == []
    assert "`trainjob local status` will not list this cluster" in caplog.text


def test_the_folder_of_temporary_files_is_the_last_choice(without_cache, monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with running_clusters.register_cluster("https://127.0.0.1:1", tmp_path, tmp_path / "kubeconfig", temporary=False):
        [found] = running_clusters.list_clusters()
        assert found.file.startswith(str(tmp_path / "trainjob-"))
