"""Environments that replace images: the first container of an image creates its environment."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.local.cluster_client import NAMESPACE, ClusterClient
from tests.integration.local.environment_locks import TINY
from tests.support.package_index import Wheel
from tests.support.polling import wait_until
from trainjob import Connection, CustomTrainerContainer, RunKey, TrainJob, connect, submit, wait
from trainjob.lifecycle import Listener
from trainjob_local import Image, LocalCluster
from trainjob_local.environments import EnvironmentInUse, delete_environment, list_environments

IMAGE = "acme/tiny:1"
SHOW = ("python", "-c", "import tiny; print(tiny.VERSION)")


@pytest.fixture
def laptop(cache, write_lock):
    """Yield a cluster that creates the environment of `acme/tiny` from a lock with one wheel."""
    images = [Image("acme/tiny", lock=write_lock(TINY, download_mb=1200))]
    with LocalCluster(images=images, backoff=0.2, backoff_max=0.4) as cluster:
        yield cluster


@pytest.fixture
def kube(laptop):
    opened = ClusterClient(laptop.kubeconfig)
    yield opened
    opened.close()


def create_pod(kube, name, *command, image=IMAGE):
    container = {"name": "main", "image": image, "command": list(command)}
    body = {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    kube.core.create_namespaced_pod(NAMESPACE, body)


def get_pod(kube, name):
    return kube.core.read_namespaced_pod_status(name, NAMESPACE)


def waiting_state(kube, name):
    """Return reason and message of a container that waits; both are empty if it runs."""
    statuses = get_pod(kube, name).status.container_statuses
    waiting = statuses[0].state.waiting if statuses else None
    return (waiting.reason, waiting.message or "") if waiting else ("", "")


def wait_until_succeeded(kube, name):
    wait_until(lambda: get_pod(kube, name).status.phase == "Succeeded")


def is_running(pid):
    return Path(f"/proc/{pid}").exists()


def find_creators(cache):
    """Return the IDs of the processes that create environments in a cache directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command, variables = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue
        if f"XDG_CACHE_HOME={cache}".encode() in variables and (b"/uv\0pip" in command or b".environments" in command):
            found.append(int(entry.name))
    return found


def test_pods_wait_for_one_creation_while_other_pods_run(kube, index):
    index.gate.clear()
    create_pod(kube, "first", *SHOW)
    assert index.download_started.wait(60)
    create_pod(kube, "second", *SHOW)
    create_pod(kube, "other", "echo", "hello", image="busybox")
    wait_until_succeeded(kube, "other")
    text = f"Pulling image \"{IMAGE}\": creating the environment 'tiny', download of about 1.2 GB, 2 minutes at 10 MB/s"
    for name in ("first", "second"):
        assert wait_until(lambda name=name: waiting_state(kube, name)[1] and waiting_state(kube, name)) == (
            "ContainerCreating",
            text,
        )
    index.gate.set()
    for name in ("first", "second"):
        wait_until_succeeded(kube, name)
        assert kube.read_log(name) == "1.0\n"
    assert index.downloads("tiny") == 1
    events = kube.list_events(name_prefix="first")
    assert ("Pod", "Pulling", text) in events
    assert any(reason == "Pulled" and f'Successfully pulled image "{IMAGE}" in ' in said for _, reason, said in events)
    assert "Installed 1 package" in (kube.state / "cluster.log").read_text()


def test_a_wait_reports_the_creation(laptop, index):
    """The task log of a step says what is downloaded, and the wait does not end for that reason."""
    index.gate.clear()
    cluster = connect(Connection(kubeconfig=str(laptop.kubeconfig)))
    verdicts = []

    def on_phase(verdict):
        verdicts.append(str(verdict))
        if "creating the environment 'tiny', download of about 1.2 GB" in verdicts[-1]:
            index.gate.set()

    job = TrainJob(trainer=CustomTrainerContainer(image=IMAGE, command=SHOW))
    reference = submit(cluster, job, RunKey("tests", "images", "wait", "run-1"))
    assert wait(cluster, reference, listener=Listener(on_phase=on_phase)).succeeded
    assert index.gate.is_set()
    cluster.close()


def test_a_failed_creation_is_retried_with_a_back_off(kube, index):
    index.wheels.clear()
    create_pod(kube, "first", *SHOW)
    wait_until(lambda: waiting_state(kube, "first")[0] == "ImagePullBackOff")
    _, message = waiting_state(kube, "first")
    start = f'Back-off pulling image "{IMAGE}": ErrImagePull: failed to pull image "{IMAGE}": the environment \'tiny\''
    assert message.startswith(f"{start} could not be created: `uv pip install ")
    assert "tiny was not found" in message
    assert "\n" not in message
    failed = [said for _, why, said in kube.list_events(name_prefix="first") if why == "Failed"]
    assert "Error: ErrImagePull" in failed
    index.wheels.append(TINY)
    wait_until_succeeded(kube, "first")


@pytest.mark.parametrize("end", ["pod", "cluster", "kill"])
def test_a_creation_ends_with_its_pod_and_with_the_cluster(laptop, kube, index, cache, end):
    index.gate.clear()
    create_pod(kube, "first", *SHOW)
    assert index.download_started.wait(60)
    creators = find_creators(cache)
    assert len(creators) == 2  # the program and uv
    if end == "pod":
        kube.core.delete_namespaced_pod("first", NAMESPACE)
    elif end == "cluster":
        laptop.stop()
    else:
        os.kill(laptop.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, creators)))
    assert not any(one.ready for one in list_environments())
    if end == "pod":
        assert list_environments() == []
        index.gate.set()
        create_pod(kube, "second", *SHOW)
        wait_until_succeeded(kube, "second")


def test_an_environment_is_in_use_until_the_cluster_stops(laptop, kube):
    create_pod(kube, "first", *SHOW)
    wait_until_succeeded(kube, "first")
    [environment] = list_environments()
    with pytest.raises(EnvironmentInUse):
        delete_environment(environment)
    laptop.stop()
    delete_environment(environment)
    assert list_environments() == []


def test_a_missing_module_has_a_command_that_adds_it(kube, index, cache):
    """The log names the environment, and the command as printed adds a package, which remains."""
    program = ("python", "-c", "print('start'); import added; print(added.VERSION)")
    create_pod(kube, "first", *program)
    wait_until(lambda: get_pod(kube, "first").status.phase == "Failed")
    last = kube.read_log("first").splitlines()[-1]
    [environment] = list_environments()
    assert last.startswith(
        f"laptop cluster: this container ran in the environment {environment.path}, which has no module 'added'; add "
    )
    index.wheels.append(Wheel("added", "3.0"))
    command = shlex.split(last.rpartition(": ")[2])
    assert command[-1] == "PACKAGE"
    subprocess.run([*command[:-1], "added"], check=True)
    create_pod(kube, "second", *program)
    wait_until_succeeded(kube, "second")
    assert kube.read_log("second") == "start\n3.0\n"


def test_a_missing_program_is_reported_with_the_environment(kube):
    create_pod(kube, "first", "tune", "run")
    wait_until(lambda: get_pod(kube, "first").status.phase == "Failed")
    [environment] = list_environments()
    end = get_pod(kube, "first").status.container_statuses[0].state.terminated
    assert end.reason == "StartError"
    assert end.message == (
        "[Errno 2] exec: 'tune': executable file not found in $PATH; "
        f"the local environment of this image is {environment.path}"
    )


def test_a_module_that_a_successful_program_lacks_is_not_reported(kube):
    program = "import traceback\ntry:\n import added\nexcept ImportError:\n traceback.print_exc()"
    create_pod(kube, "first", "python", "-c", program)
    wait_until_succeeded(kube, "first")
    assert "laptop cluster" not in kube.read_log("first")
