"""Tests of the launcher without kfp: exit codes, run key from its own pod, clean-up."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from tests.support.interruptions import end_running_pod, evict, evictions
from tests.support.laptop_memory import RUN_ON_TWO_NODES, get_large_memory
from tests.support.odd_credentials import ODD_ENDS, write_odd_kubeconfig
from tests.support.polling import wait_until
from trainjob import errors
from trainjob.client import Connection
from trainjob.errors import PermissionDenied
from trainjob.lifecycle import RunKey, cancel, submit
from trainjob.manifest import labels
from trainjob_kfp import steps
from trainjob_kfp.launcher import ExitOnError, clean_up, launch, list_launch_problems

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
LAUNCHER_PROGRAM = """
from trainjob_kfp import launcher, steps
{before}
with launcher.ExitOnError():
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
    output, errors_output = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors_output)


@pytest.fixture
def laptop_environment(laptop):
    return {"KUBECONFIG": str(laptop.kubeconfig)}


def test_a_complete_trainjob_ends_with_exit_code_0(laptop_environment):
    done = run_launcher(laptop_environment, command=["echo", "hello"])
    assert done.returncode == 0, done.stderr
    assert "[node-0] hello" in done.stdout


def test_a_failed_trainjob_ends_with_exit_code_3(laptop_environment):
    done = run_launcher(laptop_environment, command=["sh", "-c", "exit 7"])
    assert done.returncode == 3
    assert "The step failed:" in done.stderr
    assert "exit code 7" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_reason_of_a_failure_is_the_end_of_the_output(laptop_environment):
    """KFP's launcher gives both streams the same pipe (Go's os/exec, backend/src/v2/component/launcher_v2.go)."""
    code = LAUNCHER_PROGRAM.format(
        arguments={"image": "busybox", "command": ["sh", "-c", "echo epoch 1; echo no space left; exit 7"]},
        options={},
        before="",
    )
    environment = {**os.environ, "TRAINJOB_RUN_ID": "", **laptop_environment}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log, reason = done.stdout.split("The step failed:\n")
    assert "[node-0] no space left" in log
    assert "exit code 7" in reason.splitlines()[0]
    assert "  log: no space left" in reason
    assert "[node-0]" not in reason
    assert reason.splitlines()[-1].startswith("  -> ")


def test_control_characters_of_a_log_are_shown_as_text(laptop_environment):
    done = run_launcher(laptop_environment, command=["sh", "-c", r"printf '\033]52;c;aGk=\a\033[2J'; exit 7"])
    assert "[node-0] ^[]52;c;aGk=^G^[[2J\n" in done.stdout
    assert "log: ^[]52;c;aGk=^G^[[2J\n" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_an_invalid_request_ends_with_exit_code_2(laptop_environment):
    done = run_launcher(laptop_environment, env={"PET_NNODES": "2"})
    assert done.returncode == 2
    assert "PET_NNODES" in done.stderr


def test_a_request_that_the_cluster_refuses_ends_with_exit_code_2(laptop_environment):
    done = run_launcher(laptop_environment, runtime="no-such-runtime")
    assert done.returncode == 2
    assert "no-such-runtime" in done.stderr


def test_a_missing_cluster_ends_with_exit_code_1():
    done = run_launcher({"KUBECONFIG": "/no/such/kubeconfig"})
    assert done.returncode == 1
    assert "The cluster could not be used for this step:" in done.stderr
    assert "/no/such/kubeconfig" in done.stderr


@pytest.mark.parametrize("end", ODD_ENDS.values(), ids=ODD_ENDS)
def test_no_launcher_shows_the_token_of_its_kubeconfig(laptop, tmp_path, end):
    token = write_odd_kubeconfig(laptop.kubeconfig, tmp_path / "kubeconfig", end)
    done = run_launcher({"KUBECONFIG": str(tmp_path / "kubeconfig")})
    assert token not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == (1 if end.strip() else 0)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidSpec(errors.Problem("a", "b", "c")), 2),
        (errors.AdmissionRefused("no"), 2),
        (errors.ImageUnavailable("missing"), 3),
        (errors.JobFailed("lost"), 3),
        (errors.JobDeleted("gone"), 3),
        (errors.WaitTimeout("late"), 4),
        (errors.ClusterUnreachable("where"), 1),
        (errors.PermissionDenied("may not"), 1),
        (errors.OwnershipConflict("not ours"), 1),
    ],
)
def test_each_error_has_its_exit_code(error, code, capsys):
    with pytest.raises(SystemExit) as ended, ExitOnError():
        raise error
    assert ended.value.code == code
    assert str(error) in capsys.readouterr().err


def test_an_unexpected_error_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), ExitOnError():
        _ = 1 / 0


@pytest.fixture
def own_pod(cluster, unique):
    """Create a pod like that of Argo for a task's second try, and yield its name."""
    metadata = {
        "name": unique,
        "namespace": "default",
        "labels": {"workflows.argoproj.io/workflow": "tickets-x7d2k", "pipeline/runid": f"run-{unique}"},
        "annotations": {"workflows.argoproj.io/node-name": "tickets-x7d2k.root.tune-it(0).executor(1)"},
    }
    spec = {"containers": [{"name": "main", "image": "busybox", "command": ["sleep", "60"]}], "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    workflow = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{unique}-workflow"}}
    created = cluster._http.request("POST", CONFIGMAPS, doing="create a placeholder of a Workflow", body=workflow)
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "uid": created["metadata"]["uid"]}
    metadata["ownerReferences"] = [{**owner, "name": f"{unique}-workflow", "controller": True}]
    cluster._http.request("POST", PODS, doing="create a pod", body=pod)
    yield unique
    cluster._http.request("DELETE", f"{PODS}/{unique}", doing="delete a pod", body={"gracePeriodSeconds": 0})


def test_in_a_pod_the_trainjob_belongs_to_the_pipeline_task(laptop_environment, cluster, own_pod):
    environment = {**laptop_environment, "KFP_POD_NAME": own_pod}
    first, again = run_launcher(environment), run_launcher(environment)
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    [job] = cluster.list_trainjobs("default", f"{labels.RUN}=run-{own_pod}")
    assert job["metadata"]["name"].startswith("tune-it-")
    assert f"adopted, uid {job['metadata']['uid']}" in again.stdout


def test_a_missing_own_pod_is_an_error(laptop_environment):
    done = run_launcher({**laptop_environment, "KFP_POD_NAME": "nobody"})
    assert done.returncode == 1
    assert "pod nobody does not exist in namespace default, so the pipeline task is not known" in done.stderr


def test_a_caller_can_pass_the_run_key(laptop, cluster, unique):
    """A launcher that KFP did not start can pass a run key."""
    step, connection = (
        steps.train({"image": "busybox", "command": ["true"]}, None),
        Connection(kubeconfig=str(laptop.kubeconfig)),
    )
    outcome = launch(step, key=RunKey("test", "workflow", unique, "run-1"), connection=connection)
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
    _, errors_output = process.communicate()
    return errors_output


@pytest.mark.parametrize("drained", [True, False])
def test_a_drain_keeps_the_trainjob_and_a_termination_deletes_it(laptop_environment, cluster, own_pod, drained):
    environment = {**laptop_environment, "KFP_POD_NAME": own_pod}
    process = start_launcher(environment, {"on_kill": "keep_on_drain"}, command=["sleep", "60"])
    read_until(process, "created")
    [job] = list_trainjobs(cluster, own_pod)
    if drained:
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        body = {"status": {"conditions": [condition]}}
        cluster._http.request("PATCH", f"{PODS}/{own_pod}/status", doing="disrupt a pod", body=body)
        read_until(process, "is being deleted or disrupted")
    output = terminate(process)
    assert process.returncode == 143
    assert ("was retained" in output) == drained
    assert bool(list_trainjobs(cluster, own_pod)) == drained
    cluster.delete_trainjob(job["metadata"]["name"], "default", job["metadata"]["uid"])


def test_on_kill_has_three_allowed_values(laptop_environment):
    done = run_launcher(laptop_environment, {"on_kill": "kepe"})
    assert done.returncode == 2
    assert "on_kill" in done.stderr
    assert "keep_on_drain" in done.stderr


def test_delete_with_run_makes_the_workflow_an_owner_of_the_trainjob(laptop_environment, cluster, own_pod):
    done = run_launcher({**laptop_environment, "KFP_POD_NAME": own_pod}, {"delete_with_run": True})
    assert done.returncode == 0, done.stderr
    [job] = list_trainjobs(cluster, own_pod)
    [owner] = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"]) == ("Workflow", False)


def test_the_workflow_owns_the_trainjob_until_it_has_ended(laptop_environment, cluster, own_pod, tmp_path):
    command = ["sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep 0.1; done"]
    process = start_launcher({**laptop_environment, "KFP_POD_NAME": own_pod}, {}, command=command)
    read_until(process, "created")
    [job] = list_trainjobs(cluster, own_pod)
    assert [owner["kind"] for owner in job["metadata"]["ownerReferences"]] == ["Workflow"]
    (tmp_path / "go").touch()
    _, errors_output = process.communicate()
    assert process.returncode == 0, errors_output
    [job] = list_trainjobs(cluster, own_pod)
    assert "ownerReferences" not in job["metadata"]


def test_keep_without_the_exit_task_has_no_owner(laptop_environment, cluster, own_pod):
    process = start_launcher(
        {**laptop_environment, "KFP_POD_NAME": own_pod}, {"on_kill": "keep"}, command=["sleep", "60"]
    )
    read_until(process, "created")
    [job] = list_trainjobs(cluster, own_pod)
    assert "ownerReferences" not in job["metadata"]
    assert "was retained" in terminate(process)
    cluster.delete_trainjob(job["metadata"]["name"], "default", job["metadata"]["uid"])


def test_delete_with_run_outside_of_a_pipeline_run_is_an_error(laptop_environment):
    done = run_launcher(laptop_environment, {"delete_with_run": True})
    assert done.returncode == 2
    assert "delete_with_run" in done.stderr


def test_clean_up_deletes_only_the_active_trainjobs_of_its_run(laptop, cluster, unique, capsys):
    connection = Connection(kubeconfig=str(laptop.kubeconfig))
    long = f"{unique}-" + "x" * 70  # more than a label holds
    keys = {name: RunKey("kfp", "tickets", name, run) for name, run in (("a", long), ("b", long), ("c", long + "y"))}
    ended = launch(shell_step("true"), key=RunKey("kfp", "tickets", "ended", long), connection=connection)
    jobs = {name: submit(cluster, shell_step("sleep 60"), key) for name, key in keys.items()}
    exit_task = RunKey("kfp", "tickets", "clean-up", long)
    deleted = clean_up(connection=connection, key=exit_task)
    assert sorted(deleted) == sorted([jobs["a"].name, jobs["b"].name])
    assert all(f"TrainJob default/{name} was deleted" in capsys.readouterr().out for name in deleted[:1])
    assert cluster.get_trainjob(jobs["c"].name, "default")
    assert clean_up(connection=connection, key=exit_task, finished=True) == [ended.job]
    assert clean_up(connection=connection, key=exit_task, finished=True) == []
    cancel(cluster, jobs["c"])


def test_clean_up_continues_after_a_trainjob_that_cannot_be_deleted(laptop, cluster, unique, capsys, trainjob_faults):
    connection = Connection(kubeconfig=str(laptop.kubeconfig))
    jobs = [submit(cluster, shell_step("sleep 60"), RunKey("kfp", "tickets", name, unique)) for name in ("a", "b")]
    trainjob_faults.answer(403, verb="delete", resource="trainjobs")
    with pytest.raises(PermissionDenied):
        clean_up(connection=connection, key=RunKey("kfp", "tickets", "clean-up", unique))
    lines = capsys.readouterr().out
    assert lines.count("was not deleted: ") == lines.count("was deleted; ") == 1
    for job in jobs:
        cancel(cluster, job)


def shell_step(script):
    return steps.train({"image": "busybox", "command": ["sh", "-c", script]}, None)


RECORD_LAST_SKIPPED_LINE = """
from pathlib import Path
from trainjob.client import log_queue

class Recording(log_queue._SkippedSource):
    def add(self, line):
        super().add(line)
        if line.text.endswith("050000"):
            Path({path!r}).touch()

log_queue._SkippedSource = Recording
"""


def test_a_slow_standard_output_skips_lines_with_a_notice_and_keeps_the_last_lines(laptop_environment, tmp_path):
    skipped = tmp_path / "skipped"
    before = RECORD_LAST_SKIPPED_LINE.format(path=str(skipped))
    process = start_launcher(laptop_environment, command=["sh", "-c", "seq -f %099.0f 50000"], before=before)
    name = re.search(r"TrainJob default/(\S+):", process.stdout.readline())[1]
    wait_until(skipped.exists, 300)  # the test reads standard output only after that
    with process:  # communicate() would lose what the first readline() has buffered
        output, errors_output = process.stdout.read(), process.stderr.read()
    assert process.returncode == 0, errors_output
    notices = re.findall(r"^\[node-0\] ([0-9,]+) lines .* were skipped", output, re.MULTILINE)
    written = [int(number) for number in re.findall(r"^\[node-0\] (\d+)$", output, re.MULTILINE)]
    assert len(written) + sum(int(count.replace(",", "")) for count in notices) == 50_000
    assert notices
    # The queue keeps 100 lines, or 50 if a phase of the TrainJob is also skipped, because sources share the queue.
    assert written[-50:] == [*range(49_951, 50_001)]
    assert f"kubectl logs {name}-node-0-0" in output


UNTIL_OPEN = "until [ -e {gate} ]; do sleep 0.05; done; echo finished"


def test_an_interrupted_trainjob_is_followed_by_another_attempt(laptop_environment, cluster, own_pod, tmp_path):
    environment, selector = {**laptop_environment, "KFP_POD_NAME": own_pod}, f"{labels.RUN}=run-{own_pod}"
    with evictions(cluster, selector, 2, then=(tmp_path / "gate").touch) as interrupted:
        done = run_launcher(environment, command=["sh", "-c", UNTIL_OPEN.format(gate=tmp_path / "gate")])
    assert done.returncode == 0, done.stderr
    first, second, last = re.split("interruption [12] of 3\n", done.stdout)
    assert "was interrupted by the infrastructure (" in first
    assert "[node-0] finished" not in first + second
    assert "[node-0] finished" in last
    [job] = list_trainjobs(cluster, own_pod)
    assert job["metadata"]["uid"] not in interrupted
    assert job["metadata"]["annotations"][labels.INTERRUPTIONS] == "2"


ELASTIC_PROGRAM = """
from trainjob import CustomTrainerContainer, TrainJob
from trainjob_kfp import launcher
with launcher.ExitOnError():
    launcher.launch(TrainJob(trainer=CustomTrainerContainer(**{trainer!r})))
"""


def test_an_attempt_that_gets_too_few_nodes_is_followed_by_one_with_fewer(laptop_environment, cluster, own_pod):
    trainer = {
        "image": "busybox",
        "command": ["sh", "-c", RUN_ON_TWO_NODES],
        "num_nodes": (1, 4),
        "shrink_after": 1,
        "resources_per_node": {"memory": get_large_memory(cluster)},
    }
    environment = {**os.environ, "TRAINJOB_RUN_ID": "", **laptop_environment, "KFP_POD_NAME": own_pod}
    program = [sys.executable, "-c", ELASTIC_PROGRAM.format(trainer=trainer)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split("the next attempt requests 2 nodes\n")
    assert "no reservation for 4 nodes within 1 s" in first
    assert "requests 2 of 1 to 4 nodes" in second
    assert {"[node-0] of 2", "[node-1] of 2"} <= set(second.splitlines())


def test_a_used_up_budget_fails_the_step(laptop_environment, cluster, own_pod):
    environment = {**laptop_environment, "KFP_POD_NAME": own_pod}
    with evictions(cluster, f"{labels.RUN}=run-{own_pod}", 2):
        done = run_launcher(environment, interruption_retries=1, command=["sleep", "60"])
    assert done.returncode == 3
    assert done.stdout.count("starting another attempt") == 1
    assert "Evicted" in done.stderr


def test_a_termination_after_an_interruption_deletes_the_newest_trainjob(laptop_environment, cluster, own_pod):
    process = start_launcher({**laptop_environment, "KFP_POD_NAME": own_pod}, command=["sleep", "60"])
    interrupted = evict(cluster, f"{labels.RUN}=run-{own_pod}")
    read_until(process, "interruption 1 of 3")
    read_until(process, ": created, uid")
    [newest] = list_trainjobs(cluster, own_pod)
    assert newest["metadata"]["uid"] != interrupted
    assert f"TrainJob default/{newest['metadata']['name']} was deleted" in terminate(process)
    assert process.returncode == 143
    assert not list_trainjobs(cluster, own_pod)


@pytest.mark.parametrize("budget", [-1, 1.5])
def test_the_budget_for_interruptions_is_checked(laptop_environment, budget):
    done = run_launcher(laptop_environment, interruption_retries=budget)
    assert done.returncode == 2
    assert "interruption_retries" in done.stderr


LONG_PAUSES = "from trainjob.lifecycle import resubmission; resubmission._FIRST_PAUSE = 300.0"
SHORT_PAUSES = """
from pathlib import Path
from trainjob.lifecycle import attempts, resubmission

def plan(*arguments):
    planned = resubmission.plan_resubmission(*arguments)
    if planned and planned.failures == {failures}:
        Path({gate!r}).touch()
    return planned

resubmission._FIRST_PAUSE = 0.01
attempts.plan_resubmission = plan
"""


def short_pauses(gate, failures):
    """Return code that shortens the pauses of a launcher.

    It also creates the file `gate` before the attempt that follows this number of failures.
    """
    return SHORT_PAUSES.format(gate=str(gate), failures=failures)


def test_a_failed_trainjob_is_followed_by_further_attempts(laptop_environment, cluster, own_pod, tmp_path):
    environment, gate = {**laptop_environment, "KFP_POD_NAME": own_pod}, tmp_path / "gate"
    command = ["sh", "-c", f"test -e {gate} || exit 7"]
    process = start_launcher(environment, {"attempts": 3}, short_pauses(gate, 2), command=command)
    output, errors_output = process.communicate()
    assert process.returncode == 0, errors_output
    assert re.findall(r"failed \(.*\); (attempt \d of \d) starts in", output) == ["attempt 2 of 3", "attempt 3 of 3"]
    [complete] = [job for job in list_trainjobs(cluster, own_pod) if labels.get_failures(job) == 2]
    assert f"created, uid {complete['metadata']['uid']}" in output


def test_the_last_failed_attempt_fails_the_step(laptop_environment, tmp_path):
    pauses = short_pauses(tmp_path / "gate", 1)
    process = start_launcher(laptop_environment, {"attempts": 2}, pauses, command=["sh", "-c", "exit 7"])
    output, errors_output = process.communicate()
    assert process.returncode == 3
    assert output.count(": created, uid") == 2
    assert "exit code 7" in errors_output


def test_a_launcher_that_adopts_a_further_attempt_continues_the_count(laptop_environment, cluster, own_pod, tmp_path):
    environment, gate = {**laptop_environment, "KFP_POD_NAME": own_pod}, tmp_path / "gate"
    command, pauses = ["sh", "-c", f"test -e {gate} || exit 7; sleep 600"], short_pauses(gate, 1)
    first = start_launcher(environment, {"attempts": 2}, pauses, command=command)
    read_until(first, "attempt 2 of 2")
    read_until(first, ": created, uid")
    first.kill()
    first.communicate()
    [uid] = [job["metadata"]["uid"] for job in list_trainjobs(cluster, own_pod) if labels.get_failures(job) == 1]
    second = start_launcher(environment, {"attempts": 2}, pauses, command=command)
    assert uid in read_until(second, ": adopted, uid")
    end_running_pod(cluster, f"{labels.RUN}=run-{own_pod}", "OOMKilled")
    output, errors_output = second.communicate()
    assert second.returncode == 3
    assert ": created" not in output
    assert "OOMKilled" in errors_output


def test_an_image_that_does_not_exist_is_not_tried_again(laptop_environment):
    done = run_launcher(laptop_environment, {"attempts": 3}, image="UPPER CASE")
    assert done.returncode == 3
    assert done.stdout.count(": created, uid") == 1
    assert "starts in" not in done.stdout


def test_a_termination_before_another_attempt_ends_the_launcher_at_once(laptop_environment, cluster, own_pod):
    environment = {**laptop_environment, "KFP_POD_NAME": own_pod}
    process = start_launcher(environment, {"attempts": 2}, LONG_PAUSES, command=["sh", "-c", "exit 7"])
    output = read_until(process, "attempt 2 of 2 starts in 300 s")
    assert "no further TrainJob was created" in terminate(process)
    assert process.returncode == 143
    assert output.count(": created, uid") == 1
    assert not [job for job in list_trainjobs(cluster, own_pod) if labels.get_failures(job)]


@pytest.mark.parametrize("attempts", [0, 1.5])
def test_the_number_of_attempts_is_checked(laptop_environment, attempts):
    done = run_launcher(laptop_environment, {"attempts": attempts})
    assert done.returncode == 2
    assert "attempts" in done.stderr


@pytest.mark.parametrize("value", [0, -1, 1.5, "3", True, None, float("nan"), float("inf")])
def test_an_invalid_number_of_attempts_is_refused(value):
    [problem] = list_launch_problems({"attempts": value})
    assert problem.field == "attempts"


def test_a_number_of_attempts_may_be_a_whole_float():
    assert not [*list_launch_problems({"attempts": 1}), *list_launch_problems({"attempts": 2.0})]
