"""Trainings that are killed at a given file or drained, and the comparison of their weights."""

from __future__ import annotations

import filecmp
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from trainjob import Cluster, JobReference, Outcome, wait
from trainjob.client import LogLine
from trainjob.lifecycle import Listener
from trainjob.local import LocalCluster
from trainjob.spec import FrameworkConfig

__all__ = [
    "KILLER_PROGRAM",
    "assert_same_weights",
    "check_kills",
    "delete_pod",
    "drain_training",
    "killing_environment",
    "resumed_steps",
    "saved_step",
]

# Every Python of the pod runs this program. It kills the first process that opens a file for writing whose path ends
# with KILL_AT, or in which the audit event KILL_EVENT, such as os.remove, has such a path. If the kubelet restarts the
# container in place, the container waits for the end of the pod: a short training could otherwise be complete before
# anybody sees the restart.
KILLER_PROGRAM = """
import os, signal, sys

def kill(event, arguments):
    if event != os.environ.get("KILL_EVENT", "open") or (event == "open" and "w" not in str(arguments[1])):
        return
    if str(arguments[0]).endswith(os.environ["KILL_AT"]):
        try:
            killed = os.open(os.environ["KILLED"], os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return
        os.write(killed, os.environ["HOME"].encode())
        os.kill(os.getpid(), signal.SIGKILL)

if os.path.exists(os.environ["KILLED"]):
    with open(os.environ["KILLED"]) as killed:
        if killed.read() == os.environ["HOME"]:
            signal.pause()
sys.addaudithook(kill)
"""
WEIGHTS = ("model.safetensors", "adapter_model.safetensors", "merged/model.safetensors")


@pytest.fixture
def killing_environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a training that is killed once."""
    folder = tmp_path / "killer"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(KILLER_PROGRAM)
    return {"PYTHONPATH": str(folder), "KILLED": str(tmp_path / "killed")}


def resumed_steps(lines: list[str]) -> list[int]:
    return [int(line.split()[3].rstrip(":")) for line in lines if line.startswith("continues from step ")]


def assert_same_weights(one: Path, other: Path) -> None:
    """Compare bit for bit: trainings in one CPU process without dropout are deterministic."""
    names = [name for name in WEIGHTS if (one / name).exists()]
    assert names
    assert filecmp.cmpfiles(one, other, names, shallow=False) == (names, [], [])


def check_kills(
    run_training: Callable[..., tuple[Outcome, list[str]]],
    workspace: Path,
    environment: Mapping[str, str],
    config: FrameworkConfig,
    kills: Mapping[str, int | None],
) -> None:
    """Kill a training at each given file, and compare its next attempt's weights.

    Args:
        run_training: the fixture.
        workspace: folder of the workspace.
        environment: the fixture `killing_environment`.
        config: configuration of the training.
        kills: file at which a training is killed -> step from which the next attempt resumes. 0 means from the
            beginning, and None that the model is trained and the attempt only merges. OUTPUT is replaced by the name of
            the output folder.
    """
    outputs, killed = workspace / "output", Path(environment["KILLED"])
    outcome, lines = run_training("unbroken", config)
    outcome.raise_for_failure()
    assert resumed_steps(lines) == []
    for number, (kill_at, step) in enumerate(kills.items()):
        name = f"broken-{number}"
        variables = {**environment, "KILL_AT": kill_at.replace("OUTPUT", name)}
        outcome, _ = run_training(name, config, env=variables)
        assert (outcome.phase.value, killed.exists()) == ("Failed", True), kill_at
        outcome, lines = run_training(name, config, env=variables)
        outcome.raise_for_failure()
        assert resumed_steps(lines) == ([step] if step else []), kill_at
        assert any(line.startswith("the model is trained already") for line in lines) == (step is None), kill_at
        assert_same_weights(outputs / "unbroken", outputs / name)
        killed.unlink()


@pytest.fixture
def drain_training(
    cluster: Cluster, laptop: LocalCluster, submit_training: Callable[..., JobReference]
) -> Callable[..., tuple[Outcome, list[str]]]:
    """Return a function that drains a node of a training.

    It returns the outcome and the log of the TrainJob.
    """

    def run(config: FrameworkConfig, node: int, **fields: Any) -> tuple[Outcome, list[str]]:
        reference = submit_training("run", config, **fields)
        lines: list[str] = []
        has_begun = threading.Event()

        def follow(line: LogLine) -> None:
            lines.append(line.text)
            if "'step': 20," in line.text:
                has_begun.set()

        with ThreadPoolExecutor(1) as pool:
            outcome = pool.submit(wait, cluster, reference, listener=Listener(on_log=follow))
            assert has_begun.wait(120)
            delete_pod(laptop, reference, node)
            return outcome.result(240), lines

    return run


def saved_step(lines: list[str]) -> int:
    [saved] = [line for line in lines if line.startswith("SIGTERM: ")]
    return int(saved.split("checkpoint-")[1].split()[0])


def delete_pod(laptop: LocalCluster, reference: JobReference, node: int) -> None:
    """Delete one pod of a TrainJob, as `kubectl drain` does."""
    from kubernetes import client
    from kubernetes import config as configuration

    with configuration.new_client_from_config(str(laptop.kubeconfig)) as api:
        pods = client.CoreV1Api(api)
        [name] = [
            pod.metadata.name
            for pod in pods.list_namespaced_pod(reference.namespace).items
            if pod.metadata.name.startswith(f"{reference.name}-node-0-{node}-")
        ]
        pods.delete_namespaced_pod(name, reference.namespace)
