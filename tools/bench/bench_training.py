"""A chain with TRL on the laptop cluster, compared with the same commands without any cluster."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.demo_chain import ALL_ENVIRONMENTS, make_demo_hub
from tests.support.markdown import table
from tools.bench.sizes import size
from trainjob import ExportModel, FineTune, InitializeDataset, InitializeModel, RunKey, TRLConfig, WorkspaceVolume
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import submit, wait
from trainjob_local import LocalCluster
from trainjob_local.demo.hub import HubServer

_EPOCHS = size(270, 1)
_MAX_RATIO, _LEAST_SECONDS = 1.3, 120.0
_ARGUMENTS = {
    "num_train_epochs": _EPOCHS,
    "per_device_train_batch_size": 8,
    "learning_rate": 0.003,
    "bf16": "false",
    "save_total_limit": 2,
}
_FETCH = """
import sys, huggingface_hub
huggingface_hub.snapshot_download(sys.argv[1], repo_type=sys.argv[2], local_dir=sys.argv[3])
"""
_COPY = """
import shutil, sys
shutil.copytree(sys.argv[1], sys.argv[2], ignore=shutil.ignore_patterns("checkpoint-*"))
"""


def measure():
    """Return the seconds of the chain, the bare commands, and the bare training alone."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        make_demo_hub(folder / "hub")
        with HubServer(folder / "hub") as hub:
            chain = _measure_chain(folder, hub.url)
            bare, training = _measure_bare_commands(folder / "bare", hub.url)
    return {"chain": chain, "bare": bare, "training": training}


def _measure_chain(folder, hub_url):
    workspace = WorkspaceVolume(node_path=str(folder / "chain"))
    Path(workspace.node_path).mkdir()
    config = TRLConfig(method="sft", epochs=_EPOCHS, batch_size=8, learning_rate=0.003, precision="fp32")
    fetches = [
        InitializeDataset(storage_uri="hf://demo/tickets", workspace=workspace),
        InitializeModel(storage_uri="hf://demo/tiny-llama", workspace=workspace),
    ]
    training = FineTune(model="tiny", workspace=workspace, dataset_path="chats", config=config)
    export = ExportModel(workspace=workspace, destination="/workspace/export")
    with LocalCluster(folder / "state", environments=ALL_ENVIRONMENTS, pod_env={"HF_ENDPOINT": hub_url}) as laptop:
        cluster = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)))

        def run(number, step):
            reference = submit(cluster, step, RunKey("bench", "training", f"step-{number}", "chain"))
            wait(cluster, reference).raise_for_failure()

        begin = time.monotonic()
        with ThreadPoolExecutor() as pool:
            list(pool.map(run, range(2), fetches))
        run(2, training)
        run(3, export)
        seconds = time.monotonic() - begin
        cluster.close()
    return seconds


def _measure_bare_commands(folder, hub_url):
    """Return the seconds of all commands, and of the training alone."""
    words = [f"--{name}={value}" for name, value in _ARGUMENTS.items()]
    torchrun = [_python("trl"), "-m", "torch.distributed.run", "--standalone", "-m", "trl.scripts.sft"]
    paths = [f"--model_name_or_path={folder}/model", f"--dataset_name={folder}/dataset/chats"]
    begin = time.monotonic()
    fetches = [
        _start([_python("initializer"), "-c", _FETCH, f"demo/{name}", kind, folder / kind], hub_url)
        for name, kind in (("tickets", "dataset"), ("tiny-llama", "model"))
    ]
    for process in fetches:
        _finish(process)
    trained = time.monotonic()
    _finish(_start([*torchrun, *paths, f"--output_dir={folder}/output", *words], hub_url))
    training = time.monotonic() - trained
    _finish(_start([_python("initializer"), "-c", _COPY, folder / "output", folder / "export"], hub_url))
    return time.monotonic() - begin, training


def _python(environment):
    return ALL_ENVIRONMENTS[environment] / "bin" / "python"


def _start(command, hub_url):
    extra = {"HF_ENDPOINT": hub_url, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return subprocess.Popen(
        list(map(str, command)),
        env={**os.environ, **extra},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _finish(process):
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{process.args[:4]} failed:\n{output[-4000:]}")


_TEXT = """## A chain with TRL

The chain fetches a dataset and a model, trains with TRL (SFT, {epochs} epochs of the demo's tickets, one process) and
exports the model, as four TrainJobs on the laptop cluster. The bare commands do the same without any cluster:
`huggingface_hub.snapshot_download` twice at once, `torchrun -m trl.scripts.sft`, and a copy of the final model.

{table}"""


def section(found):
    """Format the measured values as a Markdown section."""
    rows = [(name, f"{found[key]:.1f} s", f"{found[key] / found['bare']:.2f}") for name, key in _NAMES.items()]
    return _TEXT.format(epochs=_EPOCHS, table=table(("What", "Time", "Of the bare commands"), rows))


_NAMES = {"chain of TrainJobs": "chain", "bare commands": "bare", "bare training alone": "training"}


def goals(found):
    """Yield each goal as a tuple: text of the goal, whether it is met, measured value."""
    ratio = found["chain"] / found["bare"]
    goal = f"a chain whose training takes at least 2 minutes takes at most {_MAX_RATIO} times the bare commands"
    yield goal, ratio <= _MAX_RATIO and found["training"] >= _LEAST_SECONDS, f"{ratio:.2f}"
