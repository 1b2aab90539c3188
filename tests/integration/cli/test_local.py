"""`trainjob local`: a cluster in one shell, looked at and ended from another; and how one is told from a dead one's."""

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
from tests.support.polling import wait_until
from trainjob.errors import ClusterError
from trainjob_local import LocalCluster, running_clusters

pytestmark = pytest.mark.slow


@pytest.fixture
def separate_environment(tmp_path):
    """The environment of commands that see no other clusters of this machine."""
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "COLUMNS": "200"}


@pytest.fixture
def run_local(separate_environment):
    """Runs a subcommand to its end."""

    def run(*arguments):
        command = [sys.executable, "-m", "trainjob", "local", *map(str, arguments)]
        return subprocess.run(command, env=separate_environment, capture_output=True, text=True, timeout=60)

    return run


@pytest.fixture
def start_cluster(separate_environment, tmp_path):
    """Starts a laptop cluster in a folder of a name; its process, and what it has said, once it is up."""
    started = []

    def start(name):
        command = [sys.executable, "-m", "trainjob", "local", "up", "--state", str(tmp_path / name)]
        process = subprocess.Popen(command, env=separate_environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = PipeReader(process.stdout.fileno())
        started.append((process, said))
        said.wait_for("Stop it with", 60)
        return process, said

    yield start
    for process, said in started:
        process.terminate()
        process.wait(60)
        said.rest()
        process.stdout.close()


def test_another_shell_sees_a_cluster_and_ends_it(run_local, start_cluster, tmp_path):
    process, said = start_cluster("mine")
    [one] = json.loads(run_local("status", "--json").stdout)
    assert (one["state"], one["trainjobs"], one["active"], one["temporary"]) == (str(tmp_path / "mine"), 0, 0, False)
    ended = run_local("down")
    kept = f"its folder stays: {tmp_path / 'mine'}"
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr == f"the laptop cluster at {one['server']} was ended; {kept}\n"
    assert process.wait(60) == 0
    assert said.rest().endswith("It was ended.\n")
    assert not list((tmp_path / "cache").rglob("*.json"))


def test_of_several_one_is_named_and_one_that_is_killed_is_not_seen_any_more(run_local, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with LocalCluster() as first, LocalCluster() as second:
        server = second.server
        assert {one.pid for one in running_clusters.list_clusters()} == {first.pid, second.pid}
        unsaid = run_local("down")
        assert (unsaid.returncode, "several laptop clusters run" in unsaid.stderr) == (2, True)
        os.kill(first.pid, signal.SIGKILL)
        with pytest.raises(ClusterError, match="has ended"):
            first.wait_ended()
        assert [one.pid for one in running_clusters.list_clusters()] == [second.pid]
        ended = run_local("down")
        assert ended.stderr == f"the laptop cluster at {server} was ended; its folder went with it\n"
        second.wait_ended()
    assert run_local("down", "--state", tmp_path).stderr == f"no laptop cluster runs in {tmp_path}\n"


def test_a_process_that_got_the_id_of_a_dead_cluster_is_left_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with running_clusters.register_cluster("http://127.0.0.1:1", tmp_path, tmp_path / "kubeconfig", temporary=False):
        [one] = running_clusters.list_clusters()
        with subprocess.Popen(["sleep", "300"]) as another:
            file = Path(one.file)
            file.write_text(file.read_text().replace(str(one.pid), str(another.pid)))
            [seen] = running_clusters.list_clusters()
            left = tmp_path / "left.json"
            left.write_bytes(file.read_bytes())  # as a dead cluster's: nobody has it locked
            assert seen.pid == another.pid
            assert running_clusters.stop_cluster(replace(seen, file=str(left))) is False
            assert another.poll() is None
            another.kill()
    assert running_clusters.list_clusters() == []
    assert running_clusters.stop_cluster(seen) is False


def test_a_cluster_that_does_not_heed_is_killed(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(running_clusters, "_STOP_SECONDS", 1.0)
    script = "import signal,sys,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(300)"
    held = tmp_path / "held.json"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as deaf, held.open("w") as file:
        assert deaf.stdout.readline() == b"\n"
        fcntl.flock(file, fcntl.LOCK_EX)
        one = running_clusters.ClusterRecord(deaf.pid, "", "", "", temporary=False, started="", file=str(held))
        assert running_clusters.stop_cluster(one) is True
        assert wait_until(deaf.poll) == -signal.SIGKILL
