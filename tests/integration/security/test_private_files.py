"""Files with secrets are readable by their owner only."""

from __future__ import annotations

import contextlib
import os
import stat

import pytest
from kubernetes import client, config

from trainjob import CustomTrainerContainer, RunKey, SecretKeyReference, TrainJob, Volume
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import submit, wait
from trainjob_local import LocalCluster

VALUE = "hunter2-0123456789"


@pytest.fixture
def open_umask():
    """Set a umask with which everybody may read new files by default."""
    before = os.umask(0o000)
    yield
    os.umask(before)


def readable_by_others(folder):
    """Return the files below a folder that other users may read."""
    if not folder.stat().st_mode & stat.S_IXOTH:
        return []
    inner = [path for path in folder.iterdir() if not path.is_symlink()]
    files = [path for path in inner if path.is_file() and path.stat().st_mode & stat.S_IROTH]
    return files + [file for path in inner if path.is_dir() for file in readable_by_others(path)]


@pytest.mark.parametrize("state", ["new", "open to all"])
def test_other_users_cannot_read_secrets_in_the_laptop_clusters_state(tmp_path, open_umask, evidence, state):
    """Tokens, Secrets, mounted files and logs are private, in a new state folder and in one that is open to all."""
    if state == "open to all":
        (tmp_path / "state").mkdir(mode=0o777)
    mount = Volume(name="v", source={"secret": {"secretName": "s"}}, mount_path="/secret")
    trainer = CustomTrainerContainer(
        image="busybox",
        command=["sh", "-c", "echo $T; cat /secret/T"],
        env={"T": SecretKeyReference(name="s", key="T")},
    )
    with LocalCluster(tmp_path / "state") as laptop:
        api = config.new_client_from_config(config_file=str(laptop.kubeconfig))
        secret = {"metadata": {"name": "s"}, "stringData": {"T": VALUE}}
        client.CoreV1Api(api).create_namespaced_secret("default", secret)
        api.close()
        with contextlib.closing(Cluster(Connection(kubeconfig=str(laptop.kubeconfig)))) as opened:
            job = submit(opened, TrainJob(trainer=trainer, volumes=[mount]), RunKey("security", "files", "t", "r"))
            assert wait(opened, job).succeeded
        holding = [path for path in laptop.state.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]
        modes = {path.name: path.stat().st_mode & 0o777 for path in (laptop.kubeconfig, laptop.state / "admin-token")}
        others = readable_by_others(laptop.state)
    assert {path.name for path in holding} >= {"T", "node.0.log"}
    assert not {*others} & {*holding, laptop.kubeconfig, laptop.state / "admin-token"}
    assert others == [] or state == "open to all"
    assert set(modes.values()) == {0o600}
    seen = len({*others} & {*holding})
    result = f"others may read {seen} of {len(holding)} files with a Secret's value"
    evidence("security", check=f"the laptop cluster's state folder, {state}, umask 000", result=result)
