"""Files with secrets are readable by their owner only."""

from __future__ import annotations

import contextlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from kubernetes import client, config

from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, RunKey, SecretKeyReference, TrainJob, Volume
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import Listener, submit, wait
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


def list_files_with_value(folder):
    return [path for path in folder.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]


@pytest.mark.parametrize("state", ["new", "readable by all"])
def test_other_users_cannot_read_secrets_in_the_laptop_clusters_state(tmp_path, open_umask, evidence, state):
    """Tokens, Secrets, mounted files and logs are private, in a state folder that is new or was readable by all."""
    if state == "readable by all":
        (tmp_path / "state").mkdir(mode=0o755)
    mount = Volume(name="v", source={"secret": {"secretName": "s"}}, mount_path="/secret")
    trainer = CustomTrainerContainer(
        image="busybox",
        command=["sh", "-c", f"echo $T; cat /secret/T; echo; until [ -e {tmp_path}/end ]; do sleep 0.1; done"],
        env={"T": SecretKeyReference(name="s", key="T")},
    )
    with LocalCluster(tmp_path / "state") as laptop:
        api = config.new_client_from_config(config_file=str(laptop.kubeconfig))
        secret = {"metadata": {"name": "s"}, "stringData": {"T": VALUE}}
        client.CoreV1Api(api).create_namespaced_secret("default", secret)
        api.close()
        with contextlib.closing(Cluster(Connection(kubeconfig=str(laptop.kubeconfig)))) as opened:
            job, lines = TrainJob(trainer=trainer, volumes=[mount]), []
            reference = submit(opened, job, RunKey("security", "files", "t", "r"))
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(wait, opened, reference, listener=Listener(on_log=lines.append))
                wait_until(lambda: len(lines) == 2)
                holding = list_files_with_value(laptop.state)  # the volumes are removed at the end of the pod
                others = readable_by_others(laptop.state)
                (tmp_path / "end").touch()
                assert waiting.result().succeeded
        modes = {path.name: path.stat().st_mode & 0o777 for path in (laptop.kubeconfig, laptop.state / "admin-token")}
        assert "T" not in {path.name for path in list_files_with_value(laptop.state)}
    assert {path.name for path in holding} >= {"T", "node.0.log"}
    assert not {*others} & {*holding, laptop.kubeconfig, laptop.state / "admin-token"}
    assert others == []
    assert set(modes.values()) == {0o600}
    seen = len({*others} & {*holding})
    result = f"others may read {seen} of {len(holding)} files with a Secret's value"
    evidence("security", check=f"the laptop cluster's state folder, {state}, umask 000", result=result)
