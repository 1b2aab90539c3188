"""The life of one TrainJob over HTTP: submit, adopt, wait, cancel, on a laptop cluster."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from datetime import timedelta

import pytest

from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.client import Cluster
from trainjob.client.installed_trainer import TRAINER_API
from trainjob.errors import (
    AdmissionRefused,
    InvalidSpec,
    NotFound,
    OwnershipConflict,
    WaitTimeout,
)
from trainjob.lifecycle import KillAction, Limits, Listener, RunKey, cancel, submit, wait, wait_async
from trainjob.manifest import labels
from trainjob.status import Phase


def shell(script, **more):
    return TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script], **more))


def make_run_key(unique, run="run-1"):
    return RunKey("test", "workflow", unique, run)


def recording_listener():
    """A listener and what it was told."""
    phases, lines, progress = [], [], []
    return Listener(phases.append, lines.append, progress.append), phases, lines


def list_trainjobs(cluster, run_key):
    return cluster.list_trainjobs(cluster.namespace, f"{labels.RUN_KEY}={run_key.digest}")


def test_a_finished_job_is_not_waited_for(cluster, unique):
    reference = submit(cluster, shell("echo once"), make_run_key(unique))
    wait(cluster, reference)
    _, _, lines = heard = recording_listener()
    assert wait(cluster, reference, listener=heard[0]).succeeded
    assert [str(line) for line in lines] == ["[node-0] once"]


def create_never_restarting_runtime(cluster, name):
    """A runtime of the namespace's own whose pods are not restarted in place."""
    container = {"name": "node", "image": "busybox"}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    role = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    node = {"name": "node", "template": {"metadata": role, "spec": {"backoffLimit": 0, "template": pod}}}
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [node]}}},
    }
    path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainingruntimes"
    cluster._http.request("POST", path, doing="create a runtime", body=runtime)


def test_where_nothing_restarts_the_conditions_reason_is_told(cluster, unique):
    create_never_restarting_runtime(cluster, unique)
    trainer = CustomTrainerContainer(command=["sh", "-c", "echo 'ValueError: row 7' >&2; exit 3"])
    job = TrainJob(trainer=trainer, runtime={"name": unique, "kind": "TrainingRuntime"})
    outcome = wait(cluster, submit(cluster, job, make_run_key(unique)))
    assert (outcome.reason, outcome.step, outcome.rank, outcome.exit_code) == ("FailedJobs", "node", 0, 3)
    assert outcome.log_tail[-1] == "ValueError: row 7"
    assert cluster.get_trainjob(outcome.job, "default") is not None


def test_a_command_that_is_not_there_is_told(cluster, unique):
    job = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["no-such-program"]))
    outcome = wait(cluster, submit(cluster, job, make_run_key(unique)))
    assert outcome.exit_code == 128
    assert "no-such-program" in outcome.explain()


def test_restarts_are_allowed_when_asked_for(cluster, unique, tmp_path):
    script = f"echo try >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) -ge 3"
    reference = submit(cluster, shell(script), make_run_key(unique))
    outcome = wait(cluster, reference, limits=Limits(max_restarts=2))
    assert outcome.succeeded
    assert (tmp_path / "tries").read_text() == "try\n" * 3


def test_several_nodes_name_the_rank_that_failed(cluster, unique, tmp_path):
    """Rank 1 fails when the other rank's line has been heard: a failure ends the other pod, read or not."""
    heard = tmp_path / "heard"
    rank_1 = f"until [ -e {heard} ]; do sleep 0.05; done; exit 7"
    script = f'echo "rank $JOB_COMPLETION_INDEX"; [ "$JOB_COMPLETION_INDEX" != 1 ] || {{ {rank_1}; }}; sleep 60'
    lines = []

    def hear(line):
        lines.append(str(line))
        if lines[-1] == "[node-0] rank 0":
            heard.touch()

    reference = submit(cluster, shell(script, num_nodes=2), make_run_key(unique))
    outcome = wait(cluster, reference, listener=Listener(on_log=hear))
    assert (outcome.rank, outcome.exit_code) == (1, 7)
    assert set(lines) == {"[node-0] rank 0", "[node-1] rank 1"}


def test_where_the_log_of_the_first_to_fail_is_gone_the_lines_of_another_are_told(
    cluster, unique, tmp_path, monkeypatch
):
    """The Job controller deletes pods that it has not seen fail, with their logs: the first to fail may be one."""
    script = f"""
        case $JOB_COMPLETION_INDEX in
        1) [ -e {tmp_path}/failed ] && sleep 60; touch {tmp_path}/failed; echo unread; exit 3;;
        0) until [ -e {tmp_path}/failed ]; do sleep 0.05; done; sleep 3.1; echo peer lost; exit 5;;
        esac"""
    read = cluster.open_log

    def open_log(pod, *arguments, **options):
        if "-node-0-1-" in pod:
            raise NotFound(f"pod {pod} is gone")
        return read(pod, *arguments, **options)

    monkeypatch.setattr(cluster, "open_log", open_log)
    outcome = wait(
        cluster, submit(cluster, shell(script, num_nodes=2), make_run_key(unique)), limits=Limits(max_restarts=1)
    )
    assert (outcome.rank, outcome.exit_code) == (1, 3)
    assert outcome.log_tail[-1] == "[node-0] peer lost"


def test_work_that_is_asked_for_again_is_done_again_however_often_the_new_try_is_killed(cluster, unique):
    first = submit(cluster, shell("true"), make_run_key(unique), renewal="1")
    wait(cluster, first)
    assert submit(cluster, shell("true"), make_run_key(unique), renewal="1").uid == first.uid
    second = submit(cluster, shell("true"), make_run_key(unique), renewal="2")
    wait(cluster, second)
    again = submit(cluster, shell("true"), make_run_key(unique), renewal="2")
    assert (again.uid, again.adopted, again.attempt) == (second.uid, True, 2)
    assert second.uid != first.uid


def test_a_remembered_job_is_adopted_and_waited_for_when_it_carries_the_key_no_more(cluster, unique):
    first = submit(cluster, shell("sleep 2; echo worked"), make_run_key(unique, "before"))
    path = f"{TRAINER_API}/namespaces/default/trainjobs/{first.name}"
    gone = dict.fromkeys(cluster.get_trainjob(first.name, "default")["metadata"]["labels"])
    cluster._http.request("PATCH", path, doing="strip labels", body={"metadata": {"labels": gone}})
    again = submit(cluster, shell("sleep 2; echo worked"), make_run_key(unique, "after"), known=first)
    assert (again.uid, again.adopted) == (first.uid, True)
    assert [job["metadata"]["uid"] for job in list_trainjobs(cluster, make_run_key(unique, "after"))] == [first.uid]
    listener, _, lines = recording_listener()
    fresh = Cluster(cluster._http.connection)  # whose watches have not seen it leave
    assert wait(fresh, again, listener=listener).succeeded
    fresh.close()
    assert "[node-0] worked" in [str(line) for line in lines]


def test_another_run_has_its_own_job(cluster, unique):
    one = submit(cluster, shell("true"), make_run_key(unique))
    other = submit(cluster, shell("true"), make_run_key(unique, "run-2"))
    assert one.uid != other.uid


def test_a_changed_spec_replaces_what_runs(cluster, unique):
    first = submit(cluster, shell("sleep 60"), make_run_key(unique))
    second = submit(cluster, shell("true"), make_run_key(unique))
    assert second.uid != first.uid
    assert [job["metadata"]["uid"] for job in list_trainjobs(cluster, make_run_key(unique))] == [second.uid]


def test_a_foreign_job_of_that_name_is_left_alone(cluster, unique):
    wanted = submit(cluster, shell("sleep 60"), make_run_key(unique))
    cancel(cluster, wanted)
    wait_until(lambda: cluster.get_trainjob(wanted.name, wanted.namespace) is None)
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"image": "busybox", "command": ["sleep", "5"]}}
    foreign = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}
    made = cluster.create_trainjob({**foreign, "metadata": {"name": wanted.name, "namespace": wanted.namespace}})
    with pytest.raises(OwnershipConflict, match=wanted.name):
        submit(cluster, shell("sleep 60"), make_run_key(unique))
    cluster.delete_trainjob(wanted.name, wanted.namespace, made["metadata"]["uid"])


@pytest.mark.parametrize("what", KillAction)
def test_a_limit_ends_the_waiting(cluster, unique, what):
    reference = submit(cluster, shell("sleep 60"), make_run_key(unique))
    limits = Limits(total=timedelta(seconds=0.5), on_timeout=what)
    with pytest.raises(WaitTimeout, match="total time"):
        wait(cluster, reference, limits=limits)
    left = cluster.get_trainjob(reference.name, reference.namespace)
    if what is KillAction.DELETE:
        assert left is None or left["metadata"].get("deletionTimestamp")
    else:
        assert bool(left["spec"].get("suspend")) == (what is KillAction.SUSPEND)
        cancel(cluster, reference)


def test_what_the_cluster_refuses_is_told_and_makes_nothing(cluster, unique):
    trainer = CustomTrainerContainer(image="busybox", command=["true"])
    job = TrainJob(trainer=trainer, labels={"not a label": "x"})
    with pytest.raises(AdmissionRefused, match="not a label"):
        submit(cluster, job, make_run_key(unique))
    assert list_trainjobs(cluster, make_run_key(unique)) == []


def test_bad_input_is_refused_before_anything_is_sent(cluster, unique):
    with pytest.raises(InvalidSpec):
        submit(cluster, shell("true", env={"PET_NNODES": "2"}), make_run_key(unique))
    assert list_trainjobs(cluster, make_run_key(unique)) == []


def test_a_thousand_waiters_share_two_watches(cluster, unique):
    """Here 20, on one event loop: each gets its own outcome, and there is one thread for each feed."""
    others = set(threading.enumerate())  # watches of earlier tests last some seconds
    references = [submit(cluster, shell(f"exit {i % 2}"), make_run_key(f"{unique}-{i}")) for i in range(20)]

    async def all_of_them():
        return await asyncio.gather(*(wait_async(cluster, reference) for reference in references))

    outcomes = asyncio.run(all_of_them())
    assert [outcome.job for outcome in outcomes] == [reference.name for reference in references]
    assert [outcome.succeeded for outcome in outcomes] == [i % 2 == 0 for i in range(20)]
    watches = [thread for thread in set(threading.enumerate()) - others if thread.name.startswith("watch-")]
    assert len(watches) <= 2


def test_the_listener_is_called_in_the_callers_context(cluster, unique):
    """Airflow's triggerer finds a task's log by it; the last phase of a job that fails in place comes from a thread."""
    task, seen = contextvars.ContextVar("task", default="none"), []
    reference = submit(cluster, shell("exit 3"), make_run_key(unique))
    listener = Listener(on_phase=lambda verdict: seen.append((verdict.phase, task.get())))

    async def wait_as_task():
        task.set("mine")
        return await wait_async(cluster, reference, listener=listener)

    assert asyncio.run(wait_as_task()).reason == "RestartLimitExceeded"
    assert seen[-1] == (Phase.FAILED, "mine")
