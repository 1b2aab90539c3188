"""A real TorchTune whose pod is killed, and which resumes, is one run on a real MLflow server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.torchtune.tiny_trainings import tiny_config
from tests.support.demo_chain import make_demo_hub
from tests.support.interrupted_trainings import KILLER_PROGRAM
from tests.support.mlflow_server import TRACKING_PYTHON
from tests.support.polling import wait_until
from trainjob import FineTune, MLflow, RunKey, WorkspaceVolume, submit, wait
from trainjob.frameworks.tracking.recorder_process import PYTHON_VARIABLE
from trainjob.lifecycle import KillAction, Limits, Listener

pytestmark = [pytest.mark.torchtune, pytest.mark.slow]

# The training is in a session of its own, whose parent is process 1 of the container.
KILL_THE_POD = KILLER_PROGRAM.replace(
    "os.kill(os.getpid(), signal.SIGKILL)",
    "while not os.path.exists(os.environ['RECORDED']): __import__('time').sleep(0.1)\n"
    '        parent = open(f"/proc/{os.getsid(0)}/stat").read().rpartition(")")[2].split()[1]\n'
    "        os.kill(int(parent), signal.SIGKILL)\n"
    "        signal.pause()",
)
EPOCHS = 3


def test_a_killed_training_that_resumes_is_one_run(cluster, mlflow, unique, tmp_path, torchrun_lock):
    make_demo_hub(tmp_path / "hub")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "hub" / "models" / "demo" / "tiny-llama").rename(workspace / "model")
    (tmp_path / "hub" / "datasets" / "demo" / "tickets").rename(workspace / "dataset")
    (tmp_path / "killer").mkdir()
    stand_in = Path(__file__).parents[1].joinpath("torchtune", "as_on_gpus", "sitecustomize.py").read_text()
    (tmp_path / "killer" / "sitecustomize.py").write_text(stand_in + KILL_THE_POD)
    step = FineTune(
        model="llama3.2-1b",
        workspace=WorkspaceVolume(node_path=str(workspace)),
        config=tiny_config(epochs=EPOCHS, seed=7),
        env={
            PYTHON_VARIABLE: str(TRACKING_PYTHON),
            "PYTHONPATH": str(tmp_path / "killer"),
            "KILL_AT": "epoch_1/model.safetensors.index.json",
            "KILLED": str(tmp_path / "killed"),
            "RECORDED": str(tmp_path / "recorded"),
        },
        on_failure="suspend",
        tracking=MLflow(tracking_uri=mlflow.url, experiment=unique),
    )

    def mark_recorded_step():
        wait_until(lambda: mlflow.has_experiment(unique))
        wait_until(lambda: [run for run in mlflow.list_runs(unique) if run["data"].get("metrics")])
        (tmp_path / "recorded").touch()

    def train():
        lines: list[str] = []
        reference = submit(cluster, step, RunKey("test", "dag", "tune", unique))
        listener = Listener(on_log=lambda line: lines.append(line.text))
        # A failed TrainJob is retained, so the next attempt has another number.
        return wait(cluster, reference, limits=Limits(on_failure=KillAction.SUSPEND), listener=listener), lines

    with ThreadPoolExecutor(1) as pool:
        recorded = pool.submit(mark_recorded_step)
        outcome, lines = train()
        recorded.result()
    killed = (outcome.phase.value, outcome.exit_code, (tmp_path / "killed").exists())
    assert killed == ("Failed", 137, True), "\n".join(lines[-40:])
    [killed] = mlflow.list_runs(unique)
    outcome, lines = train()
    outcome.raise_for_failure()
    assert [line for line in lines if line.startswith("continues from epoch 1 of attempt 1: ")]
    [run] = mlflow.list_runs(unique)
    assert (run["info"]["run_id"], run["info"]["status"]) == (killed["info"]["run_id"], "FINISHED")
    steps = [number for number, _ in mlflow.get_metric_history(run["info"]["run_id"], "loss")]
    assert sorted(set(steps)) == list(range(1, outcome.progress.total + 1))
    assert {"loss", "lr", "tokens_per_second_per_gpu"} <= {each["key"] for each in run["data"]["metrics"]}
    parameters = {each["key"]: each["value"] for each in run["data"]["params"]}
    assert parameters.items() >= {"model": "llama3.2-1b", "epochs": "3", "learning_rate": "0.003"}.items()
    tags = {each["key"]: each["value"] for each in run["data"]["tags"]}
    assert (tags["trainjob.attempt"], tags["trainjob.task"]) == ("2", "tune")
