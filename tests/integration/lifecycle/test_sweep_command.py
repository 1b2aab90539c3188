"""`trainjob sweep` as a person calls it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.lifecycle import submit, wait

PROGRAM = Path(sys.executable).with_name("trainjob")


@pytest.fixture
def namespace(cluster, unique):
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}}
    cluster._http.request("POST", "/api/v1/namespaces", doing="create a namespace", body=body)
    return unique


def run_sweep(kubeconfig, *arguments):
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    return subprocess.run([PROGRAM, "sweep", *arguments], env=environment, capture_output=True, text=True)


def test_it_tells_first_and_then_does_what_it_told(laptop, cluster, namespace):
    work = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=("true",)))
    reference = submit(cluster, work, RunKey("test", "sweep", "task", "run-1"), namespace=namespace)
    wait(cluster, reference)
    nothing, told, done = (
        run_sweep(laptop.kubeconfig, "-n", namespace, *more)
        for more in ([], ["--finished-for", "0s", "--dry-run"], ["--finished-for", "0s"])
    )
    assert [(one.returncode, one.stderr) for one in (nothing, told, done)] == [(0, "")] * 3
    assert nothing.stdout == ""
    assert told.stdout == f"{namespace}/{reference.name} would be deleted: it has been Complete for more than 0s\n"
    assert done.stdout == told.stdout.replace("would be deleted", "deleted")
    assert cluster.get_trainjob(reference.name, namespace) is None


def test_what_goes_wrong_is_one_readable_text_and_a_code(laptop, tmp_path):
    wrong = run_sweep(laptop.kubeconfig, "--finished-for", "soon")
    nowhere = run_sweep(tmp_path / "none")
    assert (wrong.returncode, nowhere.returncode) == (2, 1)
    assert re.match(r"error: --finished-for: 'soon' is not allowed; .*7d", wrong.stderr)
    assert nowhere.stderr.startswith("error: ")
    assert "Traceback" not in wrong.stderr + nowhere.stderr
