"""A converted MPIJob on a real control plane: the launcher and an init container read hostfile and ssh keys."""

from __future__ import annotations

import contextlib
import shutil

import pytest

from control_plane import ControlPlane
from tests.support.kubernetes_client import Client
from tests.support.trainjobs import IMAGE, conditions, is_finished, list_pods
from trainjob_migrate import convert

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="OpenSSH's ssh-keygen is not installed"),
]
# ssh-keygen reads a private key as ssh does, and refuses one that others can read.
READ = 'stat -L -c "mode %a" /root/.ssh/id_rsa && ssh-keygen -y -f /root/.ssh/id_rsa | cut -d " " -f 1'


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    if reason := ControlPlane.unavailable_reason():
        pytest.skip(reason)
    with ControlPlane(tmp_path_factory.mktemp("plane")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(plane):
    with contextlib.closing(Client.from_kubeconfig(str(plane.kubeconfig))) as opened:
        yield opened


def mpi_job(name):
    """Return an MPIJob of mpi-operator whose init container orders the hosts."""
    order = {
        "name": "order",
        "image": IMAGE,
        "command": ["sh", "-ec", f"{READ} && sort -r /etc/mpi/hostfile > /ordered/hosts"],
        "volumeMounts": [
            {"name": "ordered", "mountPath": "/ordered"},
            {"name": "mpi-job-config", "mountPath": "/etc/mpi"},
            {"name": "ssh-auth", "mountPath": "/root/.ssh"},
        ],
    }
    launcher = {
        "initContainers": [order],
        "volumes": [{"name": "ordered", "emptyDir": {}}],
        "containers": [
            {
                "name": "mpi",
                "image": IMAGE,
                "command": ["sh", "-ec", f"{READ} && cat /ordered/hosts"],
                "volumeMounts": [{"name": "ordered", "mountPath": "/ordered"}],
            }
        ],
    }
    worker = {"containers": [{"name": "mpi", "image": IMAGE, "command": ["sleep", "600"]}]}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "slotsPerWorker": 3,
            "mpiReplicaSpecs": {
                "Launcher": {"template": {"spec": launcher}},
                "Worker": {"replicas": 2, "template": {"spec": worker}},
            },
        },
    }


def test_root_reads_hostfile_and_ssh_keys(plane, client, unique):
    conversion = convert(mpi_job(unique))
    client.create(conversion.runtime, plane.namespace)
    client.create(conversion.train_job, plane.namespace)
    ended = client.wait_for("TrainJob", plane.namespace, unique, is_finished, seconds=120)
    assert [condition[0] for condition in conditions(ended)] == ["Complete"], conditions(ended)
    [launcher] = [
        pod["metadata"]["name"]
        for pod in list_pods(client, plane.namespace, unique)
        if "-launcher-" in pod["metadata"]["name"]
    ]
    assert client.log(plane.namespace, launcher).splitlines() == [
        "mode 600",
        "ecdsa-sha2-nistp521",
        f"{unique}-node-0-1.{unique} slots=3",
        f"{unique}-node-0-0.{unique} slots=3",
    ]
