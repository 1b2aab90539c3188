"""A PyTorch training with a loop of its own resumes, with real torchrun processes on CPUs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.trl.small_training import train
from tests.support.interrupted_trainings import KILLER_PROGRAM, delete_pod, resumed_steps, saved_step
from trainjob import CustomTrainer, RunKey, TrainJob, WorkspaceVolume, submit, wait
from trainjob.lifecycle import Listener

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv/trl/bin/python"
PROGRAMS = ROOT / "tests/integration/trl"
STEPS = 12
# Where each attempt is killed: the audit event, and the file. The next attempt resumes from this step.
KILLS = (
    ("open", "checkpoint-4/__0_0.distcp", 0),
    ("open", "checkpoint-8/__1_0.distcp", 4),
    ("open", "checkpoint-8/.metadata.tmp", 4),
    ("open", "checkpoint-8/trainjob_complete.new", 4),
    ("os.rename", "checkpoint-12/trainjob_complete.new", 8),
    ("os.remove", "checkpoint-4/trainjob_complete", 12),
)


@pytest.fixture
def torchrun(tmp_path):
    """Return a function that starts torchrun, and returns its exit code and lines."""
    killer = tmp_path / "killer"
    killer.mkdir()
    (killer / "sitecustomize.py").write_text(KILLER_PROGRAM)
    attempts = 0

    def start(processes, program, *arguments, kill=("open", "nothing")):
        nonlocal attempts
        attempts += 1
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": os.pathsep.join([str(killer), str(ROOT / "core/src")]),
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "error::UserWarning:trainjob",
            "TRAINJOB_RUN": json.dumps({"run": "test", "fields": {}}),
            "TRAINJOB_ATTEMPT": str(attempts),
            "TRAINJOB_NAME": f"attempt-{attempts}",  # so that it takes the lease of a killed one at once
            "KILLED": f"{tmp_path}/killed-{attempts}",
            "KILL_EVENT": kill[0],
            "KILL_AT": kill[1],
        }
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = ["--master-addr", "127.0.0.1", "--master-port", str(free.getsockname()[1])]
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), *address]
        command = [PYTHON, *launcher, PROGRAMS / program, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
        print(done.stdout, done.stderr)
        return done.returncode, done.stdout.splitlines()

    return start


@pytest.fixture
def run(tmp_path, torchrun):
    """Return a function that trains the small model."""

    def start(name, kind, processes, *, kill=("open", "nothing"), **arguments):
        given = {"kind": kind, "output": f"{tmp_path}/{name}", "record": f"{tmp_path}/{name}.json", "steps": STEPS}
        return torchrun(processes, "small_training.py", json.dumps({**given, **arguments}), kill=kill)

    return start


def read_result(tmp_path, name):
    return json.loads((tmp_path / f"{name}.json").read_text())


def read_samples(tmp_path, name):
    """Return the samples of each step, in the order of the processes.

    A repeated step must have the same ones.
    """
    parts = {}
    for path in sorted(tmp_path.glob(f"{name}.json.*")):
        for line in path.read_text().splitlines():
            size, step, samples = json.loads(line)
            parts.setdefault((size, step), {})[path.suffix] = samples
    steps = {}
    for (_, step), found in parts.items():
        samples = [sample for each in found.values() for sample in each]
        assert steps.setdefault(step, samples) == samples
    return [steps[step] for step in sorted(steps)]


@pytest.mark.parametrize(("kind", "processes"), [("plain", 1), ("ddp", 2), ("fsdp", 2)])
def test_a_training_that_is_killed_in_each_save_ends_with_the_weights_of_an_unbroken_one(
    run, tmp_path, kind, processes
):
    code, lines = run("unbroken", kind, processes, random=True)
    assert (code, resumed_steps(lines)) == (0, [])
    expected = 0
    for event, path, step in KILLS:
        at = path.replace("__1_0", f"__{processes - 1}_0")
        code, lines = run("broken", kind, processes, kill=(event, at), random=True)
        assert code, path
        assert resumed_steps(lines) == ([expected] if expected else []), path
        assert not (tmp_path / "broken.json").exists()
        expected = step
    code, lines = run("broken", kind, processes, random=True)
    assert (code, resumed_steps(lines)) == (0, [12])
    assert [line for line in lines if line.startswith("{'loss'")] == []  # no step more
    assert read_result(tmp_path, "broken") == read_result(tmp_path, "unbroken")
    assert [path.name for path in (tmp_path / "broken").glob("checkpoint-*")] == ["checkpoint-12"]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_training_saves_and_ends_when_one_of_its_processes_gets_sigterm(run, tmp_path, kind):
    run("unbroken", kind, 4, random=True)
    code, lines = run("broken", kind, 4, random=True, sigterm=[1, 5])
    assert (code, saved_step(lines)) == (1, 6)
    code, lines = run("broken", kind, 4, random=True)
    assert (code, resumed_steps(lines)) == (0, [6])
    assert read_result(tmp_path, "broken") == read_result(tmp_path, "unbroken")


def test_another_number_of_processes_continues_with_the_same_samples(run, tmp_path):
    run("fixed", "fsdp", 4)
    for kind, processes, sigterm in (("fsdp", 4, [3, 2]), ("ddp", 2, [1, 4]), ("fsdp", 3, [0, 8]), ("plain", 1, None)):
        code, _ = run("changed", kind, processes, sigterm=sigterm)
        assert bool(code) == bool(sigterm)
    fixed, changed = read_result(tmp_path, "fixed"), read_result(tmp_path, "changed")
    assert read_samples(tmp_path, "changed") == read_samples(tmp_path, "fixed")
    # Each step adds the same numbers in another order, so only the last bits of float32 (1e-7) may differ.
    assert changed["loss"] == pytest.approx(fixed["loss"], rel=1e-6)


def test_several_models_optimizers_and_other_objects_resume(torchrun, tmp_path):
    folder = str(tmp_path / "output")
    assert torchrun(2, "training_objects.py", folder, "save")[0] == 0
    assert torchrun(2, "training_objects.py", folder, "load")[0] == 0
    assert torchrun(1, "training_objects.py", folder, "refuse")[0] == 0


def test_a_trainjob_whose_node_is_drained_ends_with_the_weights_of_an_unbroken_one(
    cluster, laptop, unique, tmp_path, torchrun_lock, evidence
):
    has_begun = threading.Event()

    def start(name, **arguments):
        lines = []

        def follow(line):
            lines.append(line.text)
            if "'step': 5," in line.text:
                has_begun.set()

        given = {"kind": "fsdp", "steps": 24, "random": True, "output": f"{tmp_path}/{name}"}
        trainer = CustomTrainer(
            func=train,
            func_args={**given, "record": f"{tmp_path}/{name}.json", **arguments},
            image="trl",
            num_proc_per_node=2,
            resume=True,
            env={"OMP_NUM_THREADS": "1"},
        )
        job = TrainJob(trainer=trainer, workspace=WorkspaceVolume(node_path=str(tmp_path)))
        reference = submit(cluster, job, RunKey("test", "torch", unique, name))
        outcome = ThreadPoolExecutor(1).submit(wait, cluster, reference, listener=Listener(on_log=follow))
        return reference, outcome, lines

    _, outcome, _ = start("unbroken")
    outcome.result(240).raise_for_failure()
    has_begun.clear()
    reference, outcome, lines = start("drained", seconds=0.5)
    assert has_begun.wait(120)
    delete_pod(laptop, reference, 0)
    found = outcome.result(240)
    found.raise_for_failure()
    assert resumed_steps(lines) == [saved_step(lines)]
    assert (found.progress.step, found.progress.total) == (24, 24)
    assert read_result(tmp_path, "drained") == read_result(tmp_path, "unbroken")
    evidence("features", row="resume", cell="real run")
