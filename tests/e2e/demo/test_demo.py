"""The demos of this checkout: complete chains with the real TorchTune and TRL that leave no processes."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.e2e.demo.demo_processes import find_processes
from tests.support.polling import wait_until

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / ".cache" / "demo"
TRAINJOB = str(Path(sys.executable).with_name("trainjob"))
ENVIRONMENTS = [
    f"--environment={name}={ROOT / '.venv' / name}" for name in ("initializer", "torchtune", "trl", "airflow", "kfp")
]
DEMO = [TRAINJOB, "demo", "--state", str(FOLDER), *ENVIRONMENTS]

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("torchrun_lock")]


@pytest.fixture
def demo_processes(monkeypatch):
    """Return a function that lists the processes of this test's demos."""
    value = uuid.uuid4().hex
    monkeypatch.setenv("DEMO_MARK", value)
    return lambda: find_processes(value, FOLDER)


# 340 rows in batches of 8, four times; TorchTune leaves out the last batch of each epoch, which is not full.
STEPS = {"torchtune": 168, "trl": 172}


@pytest.mark.parametrize("framework", STEPS)
@pytest.mark.parametrize("engine", ["airflow", "kfp"])
def test_the_model_learns(engine, framework, demo_processes):
    done = subprocess.run([*DEMO, "--engine", engine, "--framework", framework], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    *lines, score_line, model, workflow, trainjobs, tutorial = done.stdout.splitlines()
    score = re.fullmatch(r"exact match: (\d+)/60 -> (\d+)/60", score_line)
    assert score, score_line
    assert int(score[1]) <= 5
    assert int(score[2]) >= 50
    assert [line for line in lines if re.match(r"chain +\d+\.\d s", line)], lines
    [export] = [line.removeprefix("export: ") for line in lines if line.startswith("export: ")]
    steps = STEPS[framework]
    assert any(f"{steps}/{steps} (100 %)" in line for line in lines)
    wait_until(lambda: not demo_processes())
    assert model == f"the model:     ls {shlex.quote(export)}"
    names = run_shell(model.partition(":")[2]).split()
    assert {"config.json", "model.safetensors", "tokenizer.json", "manifest.json"} <= set(names)
    assert "export_model" in run_shell(workflow.partition(":")[2]).replace("ExportModel", "export_model")
    assert (ROOT / tutorial.partition("/main/")[2]).is_file()
    check_that_the_cluster_starts_again(shlex.split(trainjobs.partition(":")[2]))


def run_shell(command):
    """Return the output of a command that the demo printed."""
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout


def check_that_the_cluster_starts_again(command):
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as cluster:
        kubeconfig = next(line for line in cluster.stdout if "kubeconfig" in line).split(maxsplit=1)[1].strip()
        listed = subprocess.run(
            [TRAINJOB, "--kubeconfig", kubeconfig, "list", "--json"], capture_output=True, text=True, check=True
        )
        cluster.send_signal(signal.SIGINT)
        cluster.stdout.read()
    assert listed.stdout.count('"phase": "Complete"') == 4


def test_a_second_demo_is_refused_and_an_interrupted_demo_stops_its_processes(demo_processes):
    with subprocess.Popen([*DEMO, "--engine", "kfp"], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("fine-tune") and "Running" in line:
                assert demo_processes()
                second = subprocess.run([*DEMO, "--engine", "kfp"], capture_output=True, text=True)
                assert (second.returncode, second.stdout) == (1, "")
                assert "already running in this folder" in second.stderr
                os.kill(process.pid, signal.SIGINT)
                break
        process.stdout.read()
    assert process.returncode == 130
    wait_until(lambda: not demo_processes())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("phase", ["creating the tiny model", "creating Airflow's database", "running airflow"])
def test_a_signal_in_each_phase_leaves_no_process(phase, number, tmp_path, demo_processes):
    command = [TRAINJOB, "demo", "--state", str(tmp_path), *ENVIRONMENTS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        next(line for line in process.stdout if line.startswith(phase))
        os.kill(process.pid, number)
        _, errors = process.communicate()
    assert (process.returncode, errors) == (128 + number, "")
    wait_until(lambda: not demo_processes())


def test_a_workflow_that_fails_shows_the_end_of_its_log(tmp_path):
    """The error has the last lines of the log. Here `python` of the environment fails, as with a broken kfp."""
    program = tmp_path / "broken kfp" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho No module named kfp\nexit 7\n")
    program.chmod(0o755)
    state = tmp_path / "with a space"
    command = [
        TRAINJOB,
        "demo",
        "--engine=kfp",
        f"--state={state}",
        *ENVIRONMENTS,
        f"--environment=kfp={program.parents[1]}",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "error: python run_pipeline.py tickets_llm.py run failed with exit code 7:\nNo module named kfp\n"
        f"  -> read the whole log: {state / 'kfp.log'}\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--environment", "tune=/tmp"],
            "NAME is one of initializer, torchtune, trl, llamafactory, runtimes, airflow, kfp",
        ),
        (["--environment", "airflow=/none"], "name the folder of a Python environment"),
    ],
)
def test_a_wrong_environment_is_refused(arguments, message):
    done = subprocess.run([TRAINJOB, "demo", *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_folder_that_is_not_writable_is_refused():
    done = subprocess.run([TRAINJOB, "demo", "--state", "/proc/demo", *ENVIRONMENTS], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "name another folder: --state DIR" in done.stderr
