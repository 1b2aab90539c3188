"""Tests of `trainjob sweep` as a user runs it."""

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


def test_the_dry_run_reports_what_the_sweep_then_deletes(laptop, cluster, namespace):
    work = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=("true",)))
    reference = submit(cluster, work, RunKey("test", "sweep", "task", "run-1"), namespace=namespace)
    wait(cluster, reference)
    no_options, dry_run, sweep = (
        run_sweep(laptop.kubeconfig, "-n", namespace, *more)
        for more in ([], ["--finished-for", "0s", "--dry-run"], ["--finished-for", "0s"])
    )
    assert [(each.returncode, each.stderr) for each in (no_options, dry_run, sweep)] == [(0, "")] * 3
    assert no_options.stdout == ""
    assert dry_run.stdout == f"{namespace}/{reference.name} would be deleted: it has been Complete for more than 0s\n"
    assert sweep.stdout == dry_run.stdout.replace("would be deleted", "deleted")
    assert cluster.get_trainjob(reference.name, namespace) is None


def test_a_sweep_continues_after_a_job_that_cannot_be_deleted(laptop, cluster, namespace, trainjob_faults):
    work = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=("true",)))
    for task in ("a", "b"):
        wait(cluster, submit(cluster, work, RunKey("test", "sweep", task, "run-1"), namespace=namespace))
    trainjob_faults.answer(403, verb="delete", resource="trainjobs")
    done = run_sweep(laptop.kubeconfig, "-n", namespace, "--finished-for", "0s")
    assert done.returncode == 1
    assert (done.stdout.count("deleted: it has been"), done.stdout.count("kept: a request failed: ")) == (1, 1)
    assert len(cluster.list_trainjobs(namespace)) == 1


def test_an_error_is_one_line_and_an_exit_code(laptop, tmp_path):
    invalid = run_sweep(laptop.kubeconfig, "--finished-for", "soon")
    no_kubeconfig = run_sweep(tmp_path / "none")
    assert (invalid.returncode, no_kubeconfig.returncode) == (2, 1)
    assert re.match(r"error: --finished-for cannot be 'soon': .*7d", invalid.stderr)
    assert no_kubeconfig.stderr.startswith("error: ")
    assert "Traceback" not in invalid.stderr + no_kubeconfig.stderr
