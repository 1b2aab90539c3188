"""A PyTorchJob's script on the laptop cluster: converted, it trains on two nodes; copied unchanged, twice on one.

The script reads RANK and WORLD_SIZE and trains alone without them, as the Training Operator's own examples do.
"""

from __future__ import annotations

import contextlib

import pytest

from tests.support.kubernetes_client import Client
from tests.support.trainjobs import conditions, is_finished, list_pods, train_job
from trainjob_migrate import Launch, convert

pytestmark = [pytest.mark.timeout(300), pytest.mark.torchtune, pytest.mark.usefixtures("torchrun_lock")]
IMAGE = "docker.io/pytorch/pytorch:2.1.2-cuda11.8-cudnn8-runtime"
TRAIN = """
import os

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
if size > 1:
    torch.distributed.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    inputs = torch.full((2, 1), float(rank + step))
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
trained = torch.ones(1)
if size > 1:
    torch.distributed.all_reduce(trained)
weight = next(model.parameters()).item()
print(f"rank {rank} of {size}: {int(trained)} trained together, weight {weight:.6f}", flush=True)
if size > 1:
    torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def client(laptop):
    with contextlib.closing(Client.from_kubeconfig(str(laptop.kubeconfig))) as opened:
        yield opened


@pytest.fixture
def script(tmp_path):
    """Write the training script, whose path is the same in a pod of the laptop cluster."""
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return str(path)


def pytorch_job(name, script):
    """Return a PyTorchJob with Master and one worker, as in most examples of v1."""
    pod = {"spec": {"containers": [{"name": "pytorch", "image": IMAGE, "command": ["python", script]}]}}
    replica = {"replicas": 1, "restartPolicy": "OnFailure", "template": pod}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}},
    }


def run_and_read_lines(client, job):
    """Run a TrainJob to its success, and return the result of each pod's program.

    On a busy machine torchrun may log an error of its own after it, if the other node ends first.
    """
    name = job["metadata"]["name"]
    client.create(job, "default")
    ended = client.wait_for("TrainJob", "default", name, is_finished, seconds=240)
    assert [condition[0] for condition in conditions(ended)] == ["Complete"], conditions(ended)
    logs = [client.log("default", pod["metadata"]["name"]) for pod in list_pods(client, "default", name)]
    return sorted(find_result(log) for log in logs)


def find_result(log):
    """Return the line of a log in which the program reports its result."""
    return next(line for line in log.splitlines() if line.startswith("rank "))


@pytest.mark.parametrize("launch", Launch)
def test_a_converted_job_trains_on_two_nodes(client, unique, script, launch):
    conversion = convert(pytorch_job(unique, script), launch=launch)
    assert [finding.topic for finding in conversion.findings].count("environment") == 1
    if conversion.runtime:
        client.create(conversion.runtime, "default")
    # Operators and `trainjob run` create the TrainJob of a file under another name.
    conversion.train_job["metadata"]["name"] = f"{unique}-renamed"
    first, second = run_and_read_lines(client, conversion.train_job)
    assert first.startswith("rank 0 of 2: 2 trained together")
    assert second.startswith("rank 1 of 2: 2 trained together")
    assert first.partition("weight")[2] == second.partition("weight")[2]


def test_an_unconverted_command_trains_on_each_node_alone(client, unique, script):
    """The same image and command on two nodes: each node trains alone, and yet the job is Complete."""
    trainer = {"image": IMAGE, "command": ["python", script], "numNodes": 2}
    first, second = run_and_read_lines(client, train_job(name=unique, trainer=trainer))
    assert first == second
    assert first.startswith("rank 0 of 1: 1 trained together")
