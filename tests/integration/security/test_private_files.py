"""Files with secrets are readable by their owner only, and temporary ones are deleted at exit."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import stat
import subprocess
import sys

import pytest
from kubernetes import client, config

from trainjob import CustomTrainerContainer, RunKey, SecretKeyReference, TrainJob, Volume
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import submit, wait
from trainjob_local import LocalCluster

VALUE = "hunter2-0123456789"
CONNECT_PROGRAM = """
import json, os, sys
from pathlib import Path
from trainjob.client import Connection
from trainjob.client.connection import open_client
os.umask(0)
opened, _ = open_client(Connection(kubeconfig_json=sys.stdin.read()))
files = [path for path in Path(os.environ["TMPDIR"]).rglob("*") if path.is_file()]
print(json.dumps({path.read_text(): oct(path.stat().st_mode & 0o777) for path in files}))
"""


def test_temporary_certificate_files_are_private_and_deleted_at_exit(tmp_path, evidence):
    """The client writes the certificates of a kubeconfig to private files (kubernetes 30 to 36), deleted at exit."""
    parts = {"client-certificate-data": "certificate", "client-key-data": "key"}
    user = {name: base64.b64encode(text.encode()).decode() for name, text in parts.items()}
    authority = base64.b64encode(b"authority").decode()
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://h", "certificate-authority-data": authority}}],
        "users": [{"name": "u", "user": user}],
    }
    done = subprocess.run(
        [sys.executable, "-c", CONNECT_PROGRAM],
        input=json.dumps(content),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    modes = json.loads(done.stdout)
    remaining = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert modes == dict.fromkeys(("certificate", "key", "authority"), "0o600")
    assert remaining == []
    result = f"{len(modes)} files, modes {', '.join(sorted(set(modes.values())))}; {len(remaining)} left at the end"
    evidence("security", check="certificates and keys of a kubeconfig, as files", result=result)


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
