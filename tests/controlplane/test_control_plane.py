"""Tests of the control plane's processes: start, complete stop, and errors at the start."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import programs
from control_plane import ControlPlane
from leftovers import (
    all_ended,
    find_command_lines,
    is_alive,
    list_processes_and_ports,
    open_client,
    process_tree,
    start_in_other_process,
)
from tests.support.polling import wait_until
from tests.support.trainjobs import conditions, counters, is_finished, list_pods, shell
from trainjob.errors import ClusterError

COMPLETE = [("Complete", "True", "AllJobsCompleted", "jobset completed successfully")]
HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def control_plane_required(request):
    """Skip the test, with the reason, if a control plane cannot run on this machine."""
    trainer = getattr(request.node, "callspec", None) and request.node.callspec.params.get("trainer")
    if reason := ControlPlane.unavailable_reason(trainer or "2.3"):
        pytest.skip(reason)


def start_sleeping_pod(cluster: ControlPlane) -> int:
    """Start a pod whose process leaves its group, and return the ID of its first process."""
    with open_client(cluster) as client:
        client.create(shell("setsid sleep 600 & sleep 600", name="sleeper"), "default")
        client.wait_for("TrainJob", "default", "sleeper", lambda job: counters(job).get("node", {}).get("ready"))
        (pod,) = list_pods(client, "default", "sleeper")
    process = int(pod["status"]["containerStatuses"][0]["containerID"].removeprefix("process://"))
    wait_until(lambda: len(process_tree(process)) == 3)
    return process


def run_echo(cluster: ControlPlane) -> str:
    """Run a TrainJob to its end, and return its pod's log."""
    with open_client(cluster) as client:
        client.create(shell("echo $GREETING"), "default")
        ended = client.wait_for("TrainJob", "default", "job", is_finished)
        assert conditions(ended) == COMPLETE
        (pod,) = list_pods(client, "default")
        return client.log("default", pod["metadata"]["name"])


def test_two_control_planes_run_at_the_same_time(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    pair = [ControlPlane(tmp_path / name, pod_env={"GREETING": f"hello {name}"}) for name in ("a", "b")]
    with pytest.MonkeyPatch.context() as patched, contextlib.ExitStack() as stack:
        patched.setenv("TMPDIR", str(temporary))
        for cluster in pair:
            stack.callback(cluster.stop)
        with ThreadPoolExecutor() as pool:
            assert list(pool.map(ControlPlane.start, pair)) == pair
            assert list(pool.map(run_echo, pair)) == ["hello a\n", "hello b\n"]
        assert pair[0].start() is pair[0]
        assert pair[0].server != pair[1].server
        trails = [list_processes_and_ports(cluster) for cluster in pair]
        pod = start_sleeping_pod(pair[0])
        pair[0].stop()
        assert all_ended(*trails[0]) and not is_alive(pod)
        assert all(map(is_alive, trails[1][0]))
        pair[1].stop()
        assert all_ended(*trails[1])
        pair[1].stop()  # a second stop has no effect
    assert list(temporary.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"tmp", "a", "b"}


def test_the_state_folder_is_retained_with_its_logs(tmp_path):
    with ControlPlane(tmp_path) as cluster:
        modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("kubeconfig", "images.json")}
        assert modes == {"kubeconfig": 0o600, "images.json": 0o600}
        parts = set(cluster.info["pids"])
    assert {path.stem for path in (tmp_path / "logs").iterdir()} == parts
    assert not (tmp_path / "etcd").exists()
    with pytest.raises(ClusterError, match="is in use or was used: give a new folder"):
        ControlPlane(tmp_path).start()


def test_the_reason_is_known_after_a_component_has_ended(tmp_path):
    with ControlPlane(tmp_path) as cluster:
        assert cluster.find_failure() is None
        os.kill(cluster.info["pids"]["etcd"], signal.SIGKILL)
        assert "etcd ended (signal: killed)" in wait_until(cluster.find_failure)


@pytest.mark.parametrize("victim", ["parent", "supervisor", "etcd", "apiserver", "trainer", "kubelet"])
def test_sigkill_leaves_nothing(tmp_path, victim):
    with start_in_other_process(tmp_path / "state") as (cluster, pids):
        pod = start_sleeping_pod(cluster)
        processes, ports = list_processes_and_ports(cluster)
        assert pod in processes
        os.kill(pids[victim], signal.SIGKILL)
        wait_until(lambda: all_ended(processes, ports))


@pytest.mark.parametrize("after", [0.0, 0.05, 0.5, 2.0, 3.5, 4.5])
def test_sigkill_while_it_starts_leaves_nothing(tmp_path, after):
    """If the supervisor is killed during the start, no process remains.

    What has already started after `after` seconds differs from machine to machine.
    """
    arguments = ControlPlane(tmp_path)._command()
    ControlPlane(tmp_path)._write_images()
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as supervisor:
        with contextlib.suppress(subprocess.TimeoutExpired):
            supervisor.wait(after)
        processes = process_tree(supervisor.pid)
        supervisor.kill()
    wait_until(lambda: all_ended(processes, []))
    assert find_command_lines(tmp_path) == []


def replace_program(program: str, script: str, folder: Path) -> None:
    """Fill a folder with links to the built programs, and replace one of them by a script.

    With an empty script the program is missing.
    """
    for built in programs.list_used_folders():
        (folder / built.name).mkdir(parents=True)
        for file in built.glob("*"):
            (folder / built.name / file.name).symlink_to(file)
    (victim,) = folder.glob(program)
    victim.unlink()
    if script:
        victim.write_text(f"#!/bin/sh\n{script}\n")
        victim.chmod(0o755)


@pytest.mark.parametrize(
    ("program", "script", "said"),
    [
        ("*/etcd", "echo disk full >&2; exit 3", r"etcd ended \(exit status 3\).*\ndisk full"),
        ("*/kube-scheduler", "echo no plan; exit 0", r"scheduler ended \(exit status 0\).*\nno plan"),
        ("trainer-2.3-*/jobset", "kill -9 $$", r"jobset ended \(signal: killed\)"),
        ("trainer-2.3-*/trainer.json", "", "not built .trainer.json.: run `make controlplane`"),
    ],
)
def test_a_component_that_ends_is_reported(tmp_path, monkeypatch, program, script, said):
    replace_program(program, script, tmp_path / "built")
    monkeypatch.setattr(programs, "BUILD_ROOT", tmp_path / "built")
    with pytest.raises(ClusterError, match=f"(?s){said}"):
        ControlPlane(tmp_path / "state").start()
    assert find_command_lines(tmp_path) == []
    assert (tmp_path / "state").exists() == bool(script)


def test_a_port_in_use_is_reported(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=r"(?s)apiserver ended .*address already in use"):
            ControlPlane(tmp_path, apiserver_args=[f"--secure-port={port}"]).start()


def test_an_unknown_trainer_version_is_rejected(tmp_path):
    with pytest.raises(ClusterError, match=r"no control plane with Trainer 1\.9, only with 2\.3"):
        ControlPlane(tmp_path, trainer="1.9").start()


def test_arguments_reach_the_apiserver(tmp_path):
    with ControlPlane(tmp_path, apiserver_args=["--watch-cache=false"]) as cluster:
        command = Path(f"/proc/{cluster.info['pids']['apiserver']}/cmdline").read_text().split("\0")
        assert "--watch-cache=false" in command
        with open_client(cluster) as client:
            assert client.request("GET", "/version").body["gitVersion"] == "v1.36.3"


@pytest.mark.parametrize("trainer", sorted(programs.TRAINERS))
def test_a_trainjob_runs_with_every_trainer(tmp_path, trainer):
    with ControlPlane(tmp_path, trainer=trainer, pod_env={"GREETING": f"Trainer {trainer}"}) as cluster:
        assert run_echo(cluster) == f"Trainer {trainer}\n"
        with open_client(cluster) as client:
            found = client.request("GET", "/openapi/v3/apis/trainer.kubeflow.org/v1alpha1").body
            spec = json.dumps(found["components"]["schemas"])
    assert {"2.0": "podSpecOverrides", "2.1": "podTemplateOverrides"}.get(trainer, "runtimePatches") in spec


def test_a_complete_build_needs_no_go(tmp_path):
    """A build that has nothing to do needs neither Go nor a network."""
    built = subprocess.run(
        [sys.executable, str(HERE / "build.py"), "--trainer", "2.3"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (built.returncode, built.stdout.split(":")[0]) == (0, "the control plane is built")


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--require-go"], 1)])
def test_a_build_without_go(tmp_path, options, code):
    """A build without Go skips or fails, with the install instructions in its output."""
    copy = tmp_path / "tests" / "controlplane"
    copy.mkdir(parents=True)
    for name in ("build.py", "programs.py", "go.mod", "go.sum"):
        (copy / name).write_bytes((HERE / name).read_bytes())
    (copy / "versions").symlink_to(HERE / "versions")
    (copy / "cmd").symlink_to(HERE / "cmd")
    command = [sys.executable, str(copy / "build.py"), *options]
    skipped = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (skipped.returncode, skipped.stderr) == (code, "")
    assert skipped.stdout.startswith("skipped: Go >= 1.26.0 is not installed")
