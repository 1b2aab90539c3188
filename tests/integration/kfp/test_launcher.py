"""The launcher without kfp: exit codes, identity from its own pod, metrics."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from tests.support.polling import wait_until
from trainjob import errors
from trainjob.client import Connection
from trainjob.lifecycle import RunKey, cancel, submit
from trainjob.manifest import labels
from trainjob_kfp import steps
from trainjob_kfp.launcher import ExitOnError, clean_up
from trainjob_kfp.launcher import launch as launch_here

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
LAUNCHER_PROGRAM = """
from trainjob_kfp import launcher, steps
{before}
with launcher.Explained():
    step = steps.train({arguments!r}, None)
    launcher.launch(step, **{options!r})
"""


def start_launcher(environment, options=None, before="", **arguments):
    """Start a launcher process."""
    arguments = {"image": "busybox", "command": ["true"], **arguments}
    code = LAUNCHER_PROGRAM.format(arguments=arguments, options=options or {}, before=before)
    environment = {**os.environ, "TRAINJOB_RUN_ID": "", **environment}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run_launcher(environment, options=None, **arguments):
    """Run a launcher to its end, and return the finished process with its output."""
    process = start_launcher(environment, options, **arguments)
    said, complained = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, said, complained)


@pytest.fixture
def laptop_environment(laptop):
    return {"KUBECONFIG": str(laptop.kubeconfig)}


def test_success_is_zero(laptop_environment):
    done = run_launcher(laptop_environment, command=["echo", "hello"])
    assert done.returncode == 0, done.stderr
    assert "[node-0] hello" in done.stdout


def test_a_failed_job_is_three(laptop_environment):
    done = run_launcher(laptop_environment, command=["sh", "-c", "exit 7"])
    assert done.returncode == 3
    assert "The step failed:" in done.stderr
    assert "exit code 7" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_request_is_two(laptop_environment):
    done = run_launcher(laptop_environment, env={"PET_NNODES": "2"})
    assert done.returncode == 2
    assert "PET_NNODES" in done.stderr


def test_a_request_that_the_cluster_refuses_is_two(laptop_environment):
    done = run_launcher(laptop_environment, runtime="no-such-runtime")
    assert done.returncode == 2
    assert "no-such-runtime" in done.stderr


def test_no_cluster_is_one():
    done = run_launcher({"KUBECONFIG": "/no/such/kubeconfig"})
    assert done.returncode == 1
    assert "The cluster could not be used for this step:" in done.stderr
    assert "/no/such/kubeconfig" in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidSpec(errors.Problem("a", "b", "c")), 2),
        (errors.AdmissionRefused("no"), 2),
        (errors.ImageUnavailable("not there"), 3),
        (errors.JobFailed("lost"), 3),
        (errors.JobDeleted("gone"), 3),
        (errors.WaitTimeout("late"), 4),
        (errors.ClusterUnreachable("where"), 1),
        (errors.PermissionDenied("may not"), 1),
        (errors.OwnershipConflict("not ours"), 1),
    ],
)
def test_who_has_to_act(error, code, capsys):
    with pytest.raises(SystemExit) as ended, ExitOnError():
        raise error
    assert ended.value.code == code
    assert str(error) in capsys.readouterr().err


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), ExitOnError():
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
    workflow = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{unique}-workflow"}}
    made = cluster._http.request("POST", CONFIGMAPS, doing="create what stands for a Workflow", body=workflow)
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "uid": made["metadata"]["uid"]}
    metadata["ownerReferences"] = [{**owner, "name": f"{unique}-workflow", "controller": True}]
    cluster._http.request("POST", PODS, doing="create a pod", body=pod)
    yield unique
    cluster._http.request("DELETE", f"{PODS}/{unique}", doing="delete a pod", body={"gracePeriodSeconds": 0})


def test_in_a_pod_the_job_belongs_to_the_pipelines_task(laptop_environment, cluster, own_pod):
    environment = {**laptop_environment, "KFP_POD_NAME": own_pod}
    first, again = run_launcher(environment), run_launcher(environment)
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    [job] = cluster.list_trainjobs("default", f"{labels.RUN}=run-{own_pod}")
    assert job["metadata"]["name"].startswith("tune-it-")
    assert f"adopted, uid {job['metadata']['uid']}" in again.stdout


def test_a_pod_that_is_not_there_says_what_was_wanted(laptop_environment):
    done = run_launcher({**laptop_environment, "KFP_POD_NAME": "nobody"})
    assert done.returncode == 1
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


def read_until(process, text):
    """Return the lines up to the first one that contains a text."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return "".join(lines)
    raise AssertionError(f"no {text!r} in {lines}; {process.stderr.read()}")


def list_trainjobs(cluster, own_pod):
    return cluster.list_trainjobs("default", f"{labels.RUN}=run-{own_pod}")


def terminate(process):
    process.send_signal(signal.SIGTERM)
    _, complained = process.communicate()
    return complained


@pytest.mark.parametrize("drained", [True, False])
def test_a_drain_keeps_the_job_and_a_termination_does_not(laptop_environment, cluster, own_pod, drained):
    environment = {**laptop_environment, "KFP_POD_NAME": own_pod}
    process = start_launcher(environment, {"on_kill": "keep_on_drain"}, command=["sleep", "60"])
    read_until(process, "created")
    [job] = list_trainjobs(cluster, own_pod)
    if drained:
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        body = {"status": {"conditions": [condition]}}
        cluster._http.request("PATCH", f"{PODS}/{own_pod}/status", doing="disrupt a pod", body=body)
        read_until(process, "is being taken away")
    said = terminate(process)
    assert process.returncode == 143
    assert ("was left alone" in said) == drained
    assert bool(list_trainjobs(cluster, own_pod)) == drained
    cluster.delete_trainjob(job["metadata"]["name"], "default", job["metadata"]["uid"])


def test_what_becomes_of_the_job_is_one_of_three_words(laptop_environment):
    done = run_launcher(laptop_environment, {"on_kill": "kepe"})
    assert done.returncode == 2
    assert "on_kill" in done.stderr
    assert "keep_on_drain" in done.stderr


def test_the_job_goes_with_the_workflow_when_asked_for(laptop_environment, cluster, own_pod):
    done = run_launcher({**laptop_environment, "KFP_POD_NAME": own_pod}, {"delete_with_run": True})
    assert done.returncode == 0, done.stderr
    [job] = list_trainjobs(cluster, own_pod)
    [owner] = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"]) == ("Workflow", False)


def test_outside_of_a_run_there_is_no_workflow_to_go_with(laptop_environment):
    done = run_launcher(laptop_environment, {"delete_with_run": True})
    assert done.returncode == 2
    assert "delete_with_run" in done.stderr


def test_clean_up_deletes_what_is_active_in_this_run_and_nothing_else(laptop, cluster, unique, capsys):
    connection = Connection(kubeconfig=str(laptop.kubeconfig))
    long = f"{unique}-" + "x" * 70  # more than a label holds
    keys = {name: RunKey("kfp", "tickets", name, run) for name, run in (("a", long), ("b", long), ("c", long + "y"))}
    ended = launch_here(shell_step("true"), key=RunKey("kfp", "tickets", "ended", long), connection=connection)
    jobs = {name: submit(cluster, shell_step("sleep 60"), key) for name, key in keys.items()}
    exit_task = RunKey("kfp", "tickets", "clean-up", long)
    deleted = clean_up(connection=connection, key=exit_task)
    assert sorted(deleted) == sorted([jobs["a"].name, jobs["b"].name])
    assert all(f"TrainJob default/{name}: deleted" in capsys.readouterr().out for name in deleted[:1])
    assert cluster.get_trainjob(jobs["c"].name, "default")
    assert clean_up(connection=connection, key=exit_task, finished=True) == [ended.job]
    assert clean_up(connection=connection, key=exit_task, finished=True) == []
    cancel(cluster, jobs["c"])


def shell_step(script):
    return steps.train({"image": "busybox", "command": ["sh", "-c", script]}, None)


RECORD_LAST_SKIPPED_LINE = """
from pathlib import Path
from trainjob.client import log_queue

class Noting(log_queue._Skipping):
    def add(self, line):
        super().add(line)
        if line.text.endswith("050000"):
            Path({path!r}).touch()

log_queue._Skipping = Noting
"""


def test_a_job_that_prints_more_than_standard_output_takes_ends_with_a_notice_and_its_last_lines(
    laptop_environment, tmp_path
):
    skipped = tmp_path / "skipped"
    before = RECORD_LAST_SKIPPED_LINE.format(path=str(skipped))
    process = start_launcher(laptop_environment, command=["sh", "-c", "seq -f %099.0f 50000"], before=before)
    name = re.search(r"TrainJob default/(\S+):", process.stdout.readline())[1]
    wait_until(skipped.exists, 300)  # nobody reads its standard output until then
    with process:  # communicate() would lose what the first readline() has buffered
        said, complained = process.stdout.read(), process.stderr.read()
    assert process.returncode == 0, complained
    notices = re.findall(r"^\[node-0\] ([0-9,]+) lines .* were skipped", said, re.MULTILINE)
    written = [int(number) for number in re.findall(r"^\[node-0\] (\d+)$", said, re.MULTILINE)]
    assert len(written) + sum(int(count.replace(",", "")) for count in notices) == 50_000
    assert notices
    # 100 lines are kept, or 50 if a phase of the TrainJob is skipped meanwhile: sources share them.
    assert written[-50:] == [*range(49_951, 50_001)]
    assert f"kubectl logs {name}-node-0-0" in said
