"""Tests of projects that travel to the pods of their TrainJobs, on the laptop cluster."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.integration.lifecycle.code_actor import AFTER_CONFIG_MAP, BEFORE_CONFIG_MAP
from tests.support.accounts import kubeconfig_with_token
from tests.support.crash_points import arm_trap
from tests.support.export_runs import make_trl_run
from tests.support.kubernetes_client import Client
from tests.support.polling import wait_until
from tests.support.s3_server import S3Server, StoredObject
from tests.support.shipped_manifests import apply_roles, create_restricted_token
from trainjob import (
    Code,
    CustomTrainer,
    CustomTrainerContainer,
    ExportModel,
    RunKey,
    TensorBoard,
    TrainJob,
    WorkspaceVolume,
    cancel,
    submit,
    wait,
)
from trainjob.client import Cluster, Connection
from trainjob.errors import InvalidSpec, JobFailed, PermissionDenied
from trainjob.inspection.description import describe
from trainjob.lifecycle import Listener
from trainjob.lifecycle.prepared_job import prepare_job
from trainjob.manifest.code import CODE_FOLDER
from trainjob.manifest.tracking import build_tracked_run
from trainjob.project_code import pack
from trainjob.retention import sweep
from trainjob.spec.code import MAX_CONFIG_MAP_BYTES
from trainjob.spec.trainers import trainer_image

ROOT = Path(__file__).resolve().parents[3]
ACTOR = Path(__file__).with_name("code_actor.py")
SECONDS = 120.0
TRAIN = """
import os, pathlib, sys
from model import NAME
files = sorted(str(each) for each in pathlib.Path().rglob("*") if each.is_file() and "__pycache__" not in str(each))
print("arrived", NAME, files, os.access("run.sh", os.X_OK), sys.argv[1:], flush=True)
"""


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "model.py").write_text("NAME = 'first'\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o700)
    (folder / "data" / "词汇 🙂.txt").write_text("x")
    return folder


@pytest.fixture
def client(laptop):
    opened = Client.from_kubeconfig(str(laptop.kubeconfig))
    yield opened
    opened.close()


@pytest.fixture
def key(unique):
    return RunKey("test", "code", "train", unique)


def container(project, **fields):
    """Return a request that runs `train.py` of a project."""
    given = {"image": "busybox", "command": ("python", "train.py"), "num_nodes": 1, **fields}
    return TrainJob(trainer=CustomTrainerContainer(code=Code(path=str(project)), **given))


def large(project, workspace, megabytes):
    """Add a file that cannot be compressed, and return a request with a workspace."""
    workspace.mkdir(exist_ok=True)
    (project / "weights.bin").write_bytes(os.urandom(megabytes * 1_000_000))
    return container(project).model_copy(update={"workspace": WorkspaceVolume(node_path=str(workspace))})


def run(cluster, request, key):
    """Run a TrainJob to its end; return its reference, its log, and the notices."""
    lines, notices = [], []
    reference = submit(cluster, request, key, on_notice=notices.append)
    outcome = wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(line.text)))
    outcome.raise_for_failure()
    return reference, lines, notices


def find_config_map(client, reference):
    return client.find("ConfigMap", reference.namespace, f"{reference.name}-code")


def list_own(client, kind):
    """Return the names of the objects of a kind that carry code."""
    found = client.list(kind, "default")
    return {
        one["metadata"]["name"] for one in found if "trainjob.dev/code" in (one["metadata"].get("annotations") or {})
    }


def test_the_files_arrive_on_every_node_and_the_configmap_goes_with_the_trainjob(cluster, client, project, key):
    request = container(project, num_nodes=2, args=("--name", "$HOME $$(X)"))
    reference, lines, _ = run(cluster, request, key)
    arrived = f"arrived first {['data/词汇 🙂.txt', 'model.py', 'run.sh', 'train.py']} True ['--name', '$HOME $(X)']"
    assert lines.count(arrived) == 2
    created = find_config_map(client, reference)
    assert created["immutable"] is True
    assert [owner["uid"] for owner in created["metadata"]["ownerReferences"]] == [reference.uid]
    cancel(cluster, reference, ignore_end=True)
    client.wait_until_deleted("ConfigMap", reference.namespace, created["metadata"]["name"])


def import_from_project():
    import model  # type: ignore[import-not-found]  # a module of the project

    return model.NAME


def test_a_function_imports_modules_of_the_project(cluster, project, key):
    trainer = CustomTrainer(func=import_from_project, code=str(project), image="busybox", num_nodes=1)
    _, lines, _ = run(cluster, TrainJob(trainer=trainer, runtime="jax-distributed"), key)
    assert 'trainjob result: "first"' in lines


def test_the_same_code_is_adopted_and_a_changed_byte_is_another_request(cluster, project, key):
    first, _, _ = run(cluster, container(project), key)
    (project / "model.py").touch()  # only its time
    assert submit(cluster, container(project), key).uid == first.uid
    (project / "model.py").write_text("NAME = 'second'\n")
    second, lines, _ = run(cluster, container(project), key)
    assert second.uid != first.uid
    assert any(line.startswith("arrived second") for line in lines)


def test_without_the_permission_no_trainjob_is_left(laptop, client, project, key, unique, tmp_path):
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}})
    token = create_restricted_token(client, unique, "person")
    text = kubeconfig_with_token(str(laptop.kubeconfig), token, unique)
    limited = Cluster(Connection(kubeconfig_text=text), retry_seconds=5.0)
    with pytest.raises(PermissionDenied, match="create configmaps") as refused:
        submit(limited, container(project), key)
    assert "manifests/code" in refused.value.hint
    assert client.list("TrainJob", unique) == []
    apply_roles(client, unique, "code", "robot")
    run(limited, container(project), key)
    limited.close()


def test_a_lost_answer_to_the_creation_of_the_configmap_is_repeated(cluster, trainjob_faults, project, key):
    trainjob_faults.answer(503, verb="create", resource="configmaps", executed=True)
    _, lines, _ = run(cluster, container(project), key)
    assert any(line.startswith("arrived first") for line in lines)


def test_a_configmap_of_an_earlier_trainjob_of_the_name_is_replaced(cluster, client, project, key):
    first = submit(cluster, container(project), key)
    name = f"{first.name}-code"
    wait(cluster, first).raise_for_failure()
    cancel(cluster, first, ignore_end=True)
    client.wait_until_deleted("ConfigMap", first.namespace, name)
    meta = {"name": name, "annotations": {"trainjob.dev/code": "{}"}}
    client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"x": "old"}}, first.namespace)
    again, lines, _ = run(cluster, container(project), key)
    assert again.name == first.name
    assert any(line.startswith("arrived first") for line in lines)


def test_other_content_of_the_configmap_is_never_run(cluster, client, project, key, unique):
    """An account that may write ConfigMaps must not be able to change what a TrainJob runs."""
    reference, _, _ = run(cluster, container(project), key)
    stolen = find_config_map(client, reference)
    meta = {"name": f"other-{unique}"}
    client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "binaryData": stolen["binaryData"]}, "default"
    )
    code = {"sha256": "0" * 64, "config_map": f"other-{unique}", "size": 1}
    trainer = CustomTrainerContainer(image="busybox", command=("python", "train.py"), code=code, num_nodes=1)
    with pytest.raises(JobFailed, match="has other code than the job was created with"):
        run(cluster, TrainJob(trainer=trainer), RunKey("test", "code", "stolen", unique))


@pytest.mark.parametrize("point", [BEFORE_CONFIG_MAP, AFTER_CONFIG_MAP], ids=lambda point: point.slug)
def test_a_killed_submission_is_completed_by_its_next_try(laptop, client, project, unique, tmp_path, point):
    before = list_own(client, "TrainJob")
    output = start_twice(laptop, project, unique, tmp_path, point, "")
    assert "arrived first" in output
    assert len(list_own(client, "TrainJob") - before) == 1


@pytest.mark.parametrize("point", [BEFORE_CONFIG_MAP, AFTER_CONFIG_MAP], ids=lambda point: point.slug)
def test_an_upload_to_the_workspace_that_is_killed_is_completed(laptop, client, project, unique, tmp_path, point):
    before = {kind: list_own(client, kind) for kind in ("TrainJob", "ConfigMap")}
    large(project, tmp_path / "workspace", 3)
    output = start_twice(laptop, project, unique, tmp_path, point, str(tmp_path / "workspace"))
    assert "code: sending 3 MB to the workspace, in 4 ConfigMaps" in output
    assert "arrived first" in output
    wait_until(lambda: list_own(client, "ConfigMap") == before["ConfigMap"], SECONDS)
    [job] = list_own(client, "TrainJob") - before["TrainJob"]
    assert job.startswith("train-")


def start_twice(laptop, project, unique, folder, point, workspace):
    """Start the actor, which is killed at a point, and then again; return its output."""
    arm_trap(folder / "actor", point)
    command = [sys.executable, ACTOR, laptop.kubeconfig, folder / "actor", project, unique, workspace]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    again = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    return again.stdout


def test_large_code_is_in_the_workspace_once_and_found_again(cluster, client, project, unique, tmp_path):
    before = {kind: list_own(client, kind) for kind in ("TrainJob", "ConfigMap")}
    request = large(project, tmp_path / "workspace", 2)
    first, lines, notices = run(cluster, request, RunKey("test", "code", "train", f"{unique}-1"))
    assert any(line.startswith("arrived first") for line in lines)
    assert notices[1] == "code: sending 2 MB to the workspace, in 3 ConfigMaps"
    [archive] = (tmp_path / "workspace" / CODE_FOLDER.removeprefix("/workspace/")).iterdir()
    _, _, notices = run(cluster, request, RunKey("test", "code", "train", f"{unique}-2"))
    assert notices == ["code: the workspace has this code"]
    archive.write_bytes(archive.read_bytes()[:-1])
    _, lines, notices = run(cluster, request, RunKey("test", "code", "train", f"{unique}-3"))
    assert "code: sending 2 MB to the workspace, in 3 ConfigMaps" in notices
    assert any(line.startswith("arrived first") for line in lines)
    wait_until(lambda: list_own(client, "ConfigMap") == before["ConfigMap"], SECONDS)
    assert len(list_own(client, "TrainJob") - before["TrainJob"]) == 3
    assert first.attempt == 1


def test_two_submissions_of_the_same_large_code_share_its_transfer(laptop, client, project, unique, tmp_path):
    before = {kind: list_own(client, kind) for kind in ("TrainJob", "ConfigMap")}
    request, found = large(project, tmp_path / "workspace", 3), {}

    def submit_one(number):
        opened = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)), retry_seconds=30.0)
        found[number] = run(opened, request, RunKey("test", "code", "train", f"{unique}-{number}"))
        opened.close()

    threads = [threading.Thread(target=submit_one, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert [any(line.startswith("arrived first") for line in lines) for _, lines, _ in found.values()] == [True, True]
    wait_until(lambda: list_own(client, "ConfigMap") == before["ConfigMap"], SECONDS)
    assert len(list_own(client, "TrainJob") - before["TrainJob"]) == 2


@pytest.mark.slow
def test_a_hundred_megabytes_arrive(cluster, project, key, tmp_path):
    request = large(project, tmp_path / "workspace", 100)
    _, lines, notices = run(cluster, request, key)
    assert notices[1] == "code: sending 100 MB to the workspace, in 101 ConfigMaps"
    assert any(line.startswith("arrived first") and "weights.bin" in line for line in lines)


def test_large_code_without_a_workspace_is_refused_before_anything_is_sent(cluster, client, project, key):
    before = list_own(client, "TrainJob")
    (project / "weights.bin").write_bytes(os.urandom(MAX_CONFIG_MAP_BYTES))
    with pytest.raises(InvalidSpec, match=r"trainer.code cannot be .* need a workspace: give one, or leave files out"):
        submit(cluster, container(project), key)
    assert list_own(client, "TrainJob") == before


def test_a_sweep_deletes_the_code_of_finished_trainjobs_only(cluster, client, project, unique):
    finished, _, _ = run(cluster, container(project), RunKey("test", "code", "train", f"{unique}-1"))
    waiting = ("sh", "-c", "sleep 600")
    running = submit(cluster, container(project, command=waiting), RunKey("test", "code", "train", f"{unique}-2"))
    sweep(cluster, dry_run=True)
    assert find_config_map(client, finished)
    sweep(cluster)
    assert find_config_map(client, finished) is None
    assert client.get("TrainJob", "default", finished.name)
    assert find_config_map(client, running)
    cancel(cluster, running)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"command": None}, "give module, script or command"),
        ({"command": None, "module": "a b"}, "it must be the name of a module"),
        ({"command": None, "script": "../x.py"}, "it must be the path of a .py file in the project"),
        ({"module": "train"}, "command is given, too: remove one of them"),
    ],
)
def test_a_start_that_cannot_work_is_refused(project, fields, rule):
    with pytest.raises(InvalidSpec, match=rule):
        container(project, **fields)


RECORDING = """
import json, os, pathlib, sys
record = pathlib.Path(sys.argv[1], "trainjob_run.json")
written = {"trained_by": os.environ["TRAINJOB_NAME"], "workflow_run": os.environ["TRAINJOB_WORKFLOW_RUN"]}
record.write_text(json.dumps({**json.loads(record.read_text()), **written}))
"""


def git(folder, *arguments):
    identity = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.parametrize("is_modified", [False, True])
def test_the_commit_is_in_the_description_the_tracked_run_and_the_model_card(
    cluster, project, unique, tmp_path, is_modified
):
    workspace = tmp_path / "workspace"
    make_trl_run(workspace / "output")
    (project / "train.py").write_text(RECORDING)
    git(project, "init", "-q", "-b", "topic/digits")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    if is_modified:
        (project / "model.py").write_text("NAME = 'changed'\n")
    volume = WorkspaceVolume(node_path=str(workspace))
    request = container(project, args=("/workspace/output",)).model_copy(update={"workspace": volume})
    key = RunKey("test", "code", "train", unique)
    reference, _, _ = run(cluster, request, key)

    commit = git(project, "rev-parse", "HEAD")
    described = describe(cluster, cluster.get_trainjob(reference.name, reference.namespace)).spec["code"]
    expected = {"commit": commit, "branch": "topic/digits", **({"modified": True} if is_modified else {})}
    assert described == {"sha256": described["sha256"], **expected}

    tracked = build_tracked_run(TensorBoard(), prepare_job(request, key, "").build_metadata(1))
    assert {name: text for name, text in tracked.tags.items() if "code_" in name} == {
        f"trainjob.code_{name}": text if isinstance(text, str) else json.dumps(text) for name, text in described.items()
    }

    export = ExportModel(workspace=volume, destination="/workspace/export", any_run=True)
    run(cluster, export, RunKey("test", "code", "export", unique))
    assert json.loads((workspace / "export" / "manifest.json").read_text())["code"] == described
    card = (workspace / "export" / "README.md").read_text()
    assert f"| code.commit | {commit} |" in card


@pytest.fixture
def store(client, unique):
    """Yield an S3 server with a bucket, and create a Secret `unique` with its credentials."""
    with S3Server(buckets=["models"], access_key="key-of-the-test") as server:
        data = {"ACCESS_KEY_ID": "key-of-the-test", "SECRET_ACCESS_KEY": "any"}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": unique}, "stringData": data}
        client.create(secret, "default")
        yield server


def put_archive(store, project):
    """Upload the archive of a project as CI does, and return its address."""
    packed = pack(Code(path=str(project)), Path())
    key = f"models/code/digits-{packed.sha256}.tar.gz"
    store.objects[key] = StoredObject(base64.b64decode(packed.archive), {})
    return f"s3://{key}"


def from_store(store, unique, uri):
    code = Code(path=uri, secret=unique, endpoint=store.url)
    image = trainer_image("dataset-initializer")  # its environment has opendal
    trainer = CustomTrainerContainer(image=image, script="train.py", code=code, num_nodes=2)
    return TrainJob(trainer=trainer, runtime="jax-distributed")


def test_an_archive_in_a_store_is_fetched_with_the_secret_on_every_node(cluster, client, project, key, unique, store):
    uri = put_archive(store, project)
    (project / "model.py").unlink()  # neither the folder nor git is needed any more
    request = from_store(store, unique, uri)
    reference, lines, _ = run(cluster, request, key)
    assert sum(line.startswith("arrived first") for line in lines) == 2
    assert find_config_map(client, reference) is None


def test_an_archive_in_a_store_that_was_replaced_is_not_run(cluster, project, key, unique, store):
    uri = put_archive(store, project)
    (project / "model.py").write_text("NAME = 'stolen'\n")
    other = pack(Code(path=str(project)), Path()).archive
    store.objects[uri.removeprefix("s3://")] = StoredObject(base64.b64decode(other), {})
    request = from_store(store, unique, uri)
    with pytest.raises(JobFailed, match="has other code than the job was created with"):
        run(cluster, request, key)


def test_a_missing_archive_in_a_store_is_reported(cluster, key, unique, store):
    uri = f"s3://models/code/digits-{'0' * 64}.tar.gz"
    request = from_store(store, unique, uri)
    with pytest.raises(JobFailed, match=f"code: failed: {uri} cannot be fetched: "):
        run(cluster, request, key)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"path": "s3://models/digits.tar.gz"}, "its name must end with -DIGEST.tar.gz"),
        ({"path": f"hf://org/digits-{'0' * 64}.tar.gz"}, "path"),
        ({"path": ".", "secret": "s3"}, "it is for the address of an archive in a store"),
    ],
)
def test_an_address_without_a_digest_is_refused(fields, rule):
    with pytest.raises(InvalidSpec, match=rule):
        Code(**fields)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "trainer.command"),
        ({"command": None, "script": "train.py", "code": f"s3://models/a-{'0' * 64}.tar.gz"}, "trainer.code"),
    ],
)
def test_code_that_only_the_launcher_of_mpirun_would_have_is_refused(cluster, project, key, fields, field):
    trainer = container(project).trainer.model_copy(update=fields)
    trainer = CustomTrainerContainer(**dict(trainer))
    with pytest.raises(InvalidSpec, match=f"{field} cannot be .*only the launcher of deepspeed-distributed"):
        submit(cluster, TrainJob(trainer=trainer, runtime="deepspeed-distributed"), key)
