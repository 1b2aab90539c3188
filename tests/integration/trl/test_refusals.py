"""Wrong input ends the pod within its first seconds, and the error names the field and the rule."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.trl.tiny_trl import tiny_config
from trainjob import FineTune, RunKey, TRLLoraConfig, WorkspaceVolume, submit, wait
from trainjob.errors import CommandFailed, InstallationFailed
from trainjob.spec.trainers import trainer_image

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

CASES = {
    "missing columns": (
        tiny_config(columns={}),
        {},
        "dataset_path cannot be a dataset with input, output: sft needs prompt + completion or messages or text",
    ),
    "unknown column": (
        tiny_config(columns={"prompt": "question", "completion": "output"}),
        {},
        "config.columns cannot be 'question': there is no such column: ",
    ),
    "no dataset": (tiny_config(), {"dataset_path": "nothing"}, "it does not exist; "),
    "no model": (tiny_config(), {"model_path": "dataset"}, "it must be the folder of a model with config.json"),
    "no evaluation rows": (tiny_config(eval_dataset_path="nothing"), {}, "it does not exist; "),
    "4 bits without a GPU": (
        tiny_config(peft_config=TRLLoraConfig(load_in_4bit=True)),
        {},
        "config.peft_config.load_in_4bit cannot be True: it requires a GPU, and this node has none",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_input_is_refused_in_the_pod(run_training, workspace, case):
    config, fields, rule = CASES[case]
    outcome, _ = run_training("run", config, **fields)
    with pytest.raises(CommandFailed) as raised:
        outcome.raise_for_failure()
    assert rule in str(raised.value)
    assert not list((workspace / "output").glob("run/checkpoint-*"))


def test_a_failed_installation_is_an_error_of_its_own(cluster, unique, workspace, torchrun_lock):
    """This image has torch, but not TRL, and the folder with the wheels is empty."""
    (workspace / "wheels").mkdir()
    step = FineTune(
        model="tiny",
        workspace=WorkspaceVolume(node_path=str(workspace)),
        config=tiny_config(wheels_path="wheels"),
        image=trainer_image("torchtune-trainer"),
    )
    outcome = wait(cluster, submit(cluster, step, RunKey("test", "trl", unique, "install")))
    with pytest.raises(InstallationFailed, match=r"pip ended with 1 for TRL 1\.16\.0") as raised:
        outcome.raise_for_failure()
    assert "No matching distribution found for accelerate" in str(raised.value)
    assert outcome.retryable


TWO_NODES = """
import json, multiprocessing, os, sys
from pathlib import Path
from torch.distributed import TCPStore
from trainjob.errors import InvalidSpec
from trainjob.frameworks.fine_tuning import start
from trainjob.frameworks.trl.pod.run_arguments import parse_run_arguments

start._VISIBLE_WITHIN = 1.0

def run(rank, port, output):
    os.environ |= {"RANK": str(rank), "GROUP_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    words = ["--model", output, "--dataset", output, "--output", output, "--trl-version", "1.16.0", "sft"]
    try:
        start.agree_on_start(parse_run_arguments(words), {})
        print(f"node {rank} starts", flush=True)
    except InvalidSpec as error:
        print(f"node {rank}: {error}", flush=True)

if __name__ == "__main__":
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes = [multiprocessing.Process(target=run, args=(n, store.port, each)) for n, each in enumerate(sys.argv[1:])]
    [process.start() for process in processes]
    [process.join() for process in processes]
"""


def test_nodes_without_a_shared_workspace_are_refused(tmp_path):
    """The second node does not see the record that the first one wrote."""
    folders = [tmp_path / name for name in ("a", "b")]
    script = tmp_path / "two_nodes.py"
    script.write_text(TWO_NODES)

    def run(*outputs):
        command = [ROOT / ".venv" / "trl" / "bin" / "python", script, *outputs]
        done = subprocess.run(command, env={"PYTHONPATH": str(ROOT / "core" / "src")}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return sorted(line for line in done.stdout.splitlines() if line.startswith("node "))

    assert run(folders[0], folders[0]) == ["node 0 starts", "node 1 starts"]
    first, second = run(*folders)
    assert first == "node 0 starts"
    assert "workspace cannot be " in second and "node 1 does not see the file that node 0 wrote" in second
