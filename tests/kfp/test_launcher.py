"""The launcher without kfp: exit codes, identity from its own pod, metrics."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from trainjob import errors
from trainjob.cluster import Connection
from trainjob.manifest import labels
from trainjob.run import RunKey
from trainjob.status import Category, Outcome, Phase, Progress
from trainjob_kfp import steps
from trainjob_kfp.launcher import Explained, exit_code, log_progress, outputs
from trainjob_kfp.launcher import launch as launch_here

STEP = """
from trainjob_kfp import launcher, steps
with launcher.Explained():
    step = steps.train({arguments!r}, None)
    launcher.launch(step)
"""
COMPLETE = Outcome("tune", "ml", "uid-1", Phase.COMPLETE, Category.SUCCEEDED)


def launch(environment, **arguments):
    """A launcher process: what it ended with and what it said."""
    code = STEP.format(arguments={"image": "busybox", "command": ["true"], **arguments})
    environment = {**os.environ, "TRAINJOB_RUN_ID": "", **environment}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)


@pytest.fixture
def at_laptop(laptop):
    return {"KUBECONFIG": str(laptop.kubeconfig)}


def test_success_is_zero(at_laptop):
    done = launch(at_laptop, command=["echo", "hello"])
    assert done.returncode == 0, done.stderr
    assert "[node-0] hello" in done.stdout


def test_a_failed_job_is_one(at_laptop):
    done = launch(at_laptop, command=["sh", "-c", "exit 3"])
    assert done.returncode == 1
    assert "The step failed:" in done.stderr
    assert "exit code 3" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_request_is_two(at_laptop):
    done = launch(at_laptop, env={"PET_NNODES": "2"})
    assert done.returncode == 2
    assert "PET_NNODES" in done.stderr


def test_a_request_that_the_cluster_refuses_is_two(at_laptop):
    done = launch(at_laptop, runtime="no-such-runtime")
    assert done.returncode == 2
    assert "no-such-runtime" in done.stderr


def test_no_cluster_is_three():
    done = launch({"KUBECONFIG": "/no/such/kubeconfig"})
    assert done.returncode == 3
    assert "The cluster could not be used for this step:" in done.stderr
    assert "/no/such/kubeconfig" in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidSpec(errors.Problem("a", "b", "c")), 2),
        (errors.AdmissionRefused("no"), 2),
        (errors.JobFailed("lost"), 1),
        (errors.JobDeleted("gone"), 1),
        (errors.WaitTimeout("late"), 1),
        (errors.ClusterUnreachable("where"), 3),
        (errors.PermissionDenied("may not"), 3),
        (errors.OwnershipConflict("not ours"), 3),
    ],
)
def test_who_has_to_act(error, code, capsys):
    assert exit_code(error) == code
    with pytest.raises(SystemExit) as ended, Explained():
        raise error
    assert ended.value.code == code
    assert str(error) in capsys.readouterr().err


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), Explained():
        _ = 1 / 0


@pytest.fixture
def own_pod(cluster, unique):
    """A pod such as Argo makes for a task's second try."""
    metadata = {
        "name": unique,
        "namespace": "default",
        "labels": {"workflows.argoproj.io/workflow": "tickets-x7d2k", "pipeline/runid": f"run-{unique}"},
        "annotations": {"workflows.argoproj.io/node-name": "tickets-x7d2k.root.tune-it(0).executor(1)"},
    }
    spec = {"containers": [{"name": "main", "image": "busybox", "command": ["sleep", "60"]}], "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    path = "/api/v1/namespaces/default/pods"
    cluster._door.ask("POST", path, doing="create a pod", body=pod)
    yield unique
    cluster._door.ask("DELETE", f"{path}/{unique}", doing="delete a pod", body={"gracePeriodSeconds": 0})


def test_in_a_pod_the_job_belongs_to_the_pipelines_task(at_laptop, cluster, own_pod):
    environment = {**at_laptop, "KFP_POD_NAME": own_pod}
    first, again = launch(environment), launch(environment)
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    [job] = cluster.list_trainjobs("default", f"{labels.RUN}=run-{own_pod}")
    assert job["metadata"]["name"].startswith("tune-it-")
    assert f"adopted, uid {job['metadata']['uid']}" in again.stdout


def test_a_pod_that_is_not_there_says_what_was_wanted(at_laptop):
    done = launch({**at_laptop, "KFP_POD_NAME": "nobody"})
    assert done.returncode == 3
    assert "no pod nobody in namespace default, so which pipeline task this is can't be learned" in done.stderr


def test_a_run_key_can_be_given(laptop, cluster, unique):
    """For launchers that are started by something else than KFP."""
    step, connection = (
        steps.train({"image": "busybox", "command": ["true"]}, None),
        Connection(kubeconfig=str(laptop.kubeconfig)),
    )
    outcome = launch_here(step, key=RunKey("test", "workflow", unique, "run-1"), connection=connection)
    assert outcome.succeeded
    assert cluster.get_trainjob(outcome.job, "default")["metadata"]["labels"][labels.TASK] == unique


class Recorded(dict):
    """Stands where KFP's Metrics artifact does."""

    def log_metric(self, metric, value):
        self[metric] = value


def test_metrics_are_the_last_progress():
    told = Recorded()
    log_progress(replace(COMPLETE, progress=Progress(step=168, total=168, loss=0.0079)), told)
    assert told == {"steps": 168.0, "loss": 0.0079}
    nothing = Recorded()
    log_progress(COMPLETE, nothing)
    assert nothing == {}


def test_outputs_name_the_job():
    assert outputs(COMPLETE, "/workspace/output") == ("tune", "ml", "uid-1", "Complete", "/workspace/output")
