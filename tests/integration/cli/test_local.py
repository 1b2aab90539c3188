"""Tests of `trainjob local`: one shell starts a cluster, another shell lists and stops it, and cleans up."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.cli.pipe_reader import PipeReader
from tests.support.package_index import PackageIndex, Wheel
from tests.support.polling import wait_until
from trainjob.errors import ClusterError
from trainjob_local import LocalCluster, running_clusters
from trainjob_local.environments import EnvironmentLock, create_environment, use_environment

pytestmark = pytest.mark.slow


@pytest.fixture
def separate_environment(tmp_path):
    """Return an environment in which commands see no other clusters of this machine."""
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "COLUMNS": "40"}


@pytest.fixture
def run_local(separate_environment):
    """Return a function that runs a subcommand to its end."""

    def run(*arguments):
        command = [sys.executable, "-m", "trainjob", "local", *map(str, arguments)]
        return subprocess.run(command, env=separate_environment, capture_output=True, text=True, timeout=300)

    return run


@pytest.fixture
def start_cluster(separate_environment, tmp_path):
    """Return a function that starts a laptop cluster; it returns the process and its output."""
    started = []

    def start(name):
        command = [sys.executable, "-m", "trainjob", "local", "up", "--state", str(tmp_path / name)]
        process = subprocess.Popen(command, env=separate_environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output = PipeReader(process.stdout.fileno())
        started.append((process, output))
        output.wait_for("Stop it with", 60)
        return process, output

    yield start
    for process, output in started:
        process.terminate()
        process.wait(60)
        output.read_to_end()
        process.stdout.close()


def test_another_shell_lists_and_stops_a_cluster(run_local, start_cluster, tmp_path):
    process, output = start_cluster("mine")
    [one] = json.loads(run_local("status", "--json").stdout)
    assert (one["state"], one["trainjobs"], one["active"], one["temporary"]) == (str(tmp_path / "mine"), 0, 0, False)
    ended = run_local("down")
    kept = f"its folder remains: {tmp_path / 'mine'}"
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr == f"the laptop cluster at {one['server']} was stopped; {kept}\n"
    assert process.wait(60) == 0
    assert output.read_to_end().endswith("The laptop cluster was stopped by another process.\n")
    assert not list((tmp_path / "cache").rglob("*.json"))


def test_down_needs_a_selection_and_status_omits_killed_clusters(run_local, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with LocalCluster() as first, LocalCluster() as second:
        server = second.server
        assert {one.pid for one in running_clusters.list_clusters()} == {first.pid, second.pid}
        ambiguous = run_local("down")
        assert (ambiguous.returncode, "several laptop clusters are running" in ambiguous.stderr) == (2, True)
        os.kill(first.pid, signal.SIGKILL)
        with pytest.raises(ClusterError, match="has ended"):
            first.wait_ended()
        assert [one.pid for one in running_clusters.list_clusters()] == [second.pid]
        ended = run_local("down")
        assert ended.stderr == f"the laptop cluster at {server} was stopped; its folder was deleted\n"
        second.wait_ended()
    assert run_local("down", "--state", tmp_path).stderr == f"no laptop cluster is running in {tmp_path}\n"


def test_a_process_with_the_reused_id_of_a_dead_cluster_is_not_stopped(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with running_clusters.register_cluster("http://127.0.0.1:1", tmp_path, tmp_path / "kubeconfig", temporary=False):
        [one] = running_clusters.list_clusters()
        with subprocess.Popen(["sleep", "300"]) as another:
            file = Path(one.file)
            file.write_text(file.read_text().replace(str(one.pid), str(another.pid)))
            [seen] = running_clusters.list_clusters()
            left = tmp_path / "left.json"
            left.write_bytes(file.read_bytes())  # like the file of a dead cluster, which no process locks
            assert seen.pid == another.pid
            assert running_clusters.stop_cluster(replace(seen, file=str(left))) is False
            assert another.poll() is None
            another.kill()
    assert running_clusters.list_clusters() == []
    assert running_clusters.stop_cluster(seen) is False


def test_a_cluster_that_ignores_sigterm_is_killed(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(running_clusters, "_STOP_SECONDS", 1.0)
    script = "import signal,sys,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(300)"
    held = tmp_path / "held.json"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process, held.open("w") as file:
        assert process.stdout.readline() == b"\n"
        fcntl.flock(file, fcntl.LOCK_EX)
        one = running_clusters.ClusterRecord(process.pid, "", "", "", temporary=False, started="", file=str(held))
        assert running_clusters.stop_cluster(one) is True
        assert wait_until(process.poll) == -signal.SIGKILL


# -- clean --------------------------------------------------------------------------------------------------------


@pytest.fixture
def create_tiny(monkeypatch, separate_environment, tmp_path):
    """Return a function that creates an environment and returns its folder."""
    tiny = Wheel("tiny", "1.0")
    with PackageIndex([tiny]) as index:
        monkeypatch.setenv("XDG_CACHE_HOME", separate_environment["XDG_CACHE_HOME"])
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)

        def create(name):
            requirements = tmp_path / f"{name}.txt"
            requirements.write_text(tiny.requirement)
            return create_environment(EnvironmentLock(name, requirements), report=print)

        yield create


def test_clean_lists_and_deletes_environments(run_local, create_tiny):
    folders = [create_tiny("first"), create_tiny("second")]
    ended = run_local("clean")
    assert ended.returncode == 0, ended.stderr
    title, *rows = ended.stdout.splitlines()
    assert title.split() == ["ENVIRONMENT", "SIZE", "RESULT", "PATH"]
    for name, folder, row in zip(("first", "second"), folders, rows, strict=True):
        assert (row.split()[0], row.split()[-2:]) == (name, ["deleted", str(folder)])
        assert not folder.exists()
    assert ended.stderr.endswith("uv cache clean\n")
    assert run_local("clean").stderr == f"no environments in {folders[0].parent}\n"
    assert json.loads(run_local("clean", "--json").stdout) == []


def test_clean_refuses_an_environment_in_use(run_local, create_tiny):
    used, unused = create_tiny("used"), create_tiny("unused")
    with use_environment(used):
        ended = run_local("clean", "--json")
    assert ended.returncode == 1
    found = {one["name"]: one for one in json.loads(ended.stdout)}
    assert {name: (one["path"], one["deleted"]) for name, one in found.items()} == {
        "used": (str(used), False),
        "unused": (str(unused), True),
    }
    assert all(one["bytes"] > 0 for one in found.values())
    error = json.loads(ended.stderr)
    assert (error["error"], error["hint"]) == ("EnvironmentInUse", "stop the cluster: trainjob local down")
    assert str(used) in error["message"]
    assert used.exists()
