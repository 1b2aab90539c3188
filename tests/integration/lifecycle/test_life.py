"""Tests of the lifecycle of one TrainJob on a laptop cluster: submit, adopt, wait and cancel."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from kubernetes import client
from kubernetes import config as configuration

from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, TrainJob, TrainJobManifest
from trainjob.client import Cluster, Connection, read_failure_log_tail
from trainjob.client.installed_trainer import TRAINER_API
from trainjob.errors import (
    AdmissionRefused,
    InvalidSpec,
    NotFound,
    OwnershipConflict,
    WaitTimeout,
)
from trainjob.lifecycle import (
    KillAction,
    Limits,
    Listener,
    ProgressLog,
    RunKey,
    cancel,
    end_checks,
    submit,
    wait,
    wait_async,
)
from trainjob.manifest import labels
from trainjob.status import Outcome, Phase, derive_verdict, find_failures


def shell(script, **more):
    return TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script], **more))


def make_run_key(unique, run="run-1"):
    return RunKey("test", "workflow", unique, run)


def recording_listener():
    """Return a listener with the lists of the phases and log lines that it receives."""
    phases, lines, progress = [], [], []
    return Listener(phases.append, lines.append, progress.append), phases, lines


def list_trainjobs(cluster, run_key):
    return cluster.list_trainjobs(cluster.namespace, f"{labels.RUN_KEY}={run_key.digest}")


def test_a_finished_job_is_not_waited_for(cluster, unique):
    reference = submit(cluster, shell("echo once"), make_run_key(unique))
    wait(cluster, reference)
    listener, _, lines = recording_listener()
    assert wait(cluster, reference, listener=listener).succeeded
    assert [str(line) for line in lines] == ["[node-0] once"]


def test_progress_that_only_the_trainer_reports_is_in_the_outcome(cluster, laptop, unique):
    """transformers reports to the Trainer with the feature gate TrainJobStatus; the log may have no progress."""
    reference = submit(cluster, shell("echo nothing"), make_run_key(unique))
    assert wait(cluster, reference).progress is None
    metrics = [{"name": name, "value": value} for name, value in (("current_step", "7"), ("total_steps", "9"))]
    with configuration.new_client_from_config(str(laptop.kubeconfig)) as api:
        client.CustomObjectsApi(api).patch_namespaced_custom_object_status(
            *("trainer.kubeflow.org", "v1alpha1", reference.namespace, "trainjobs", reference.name),
            {"status": {"trainerStatus": {"metrics": metrics, "lastUpdatedTime": "2026-01-01T00:00:00Z"}}},
        )
    with closing(Cluster(Connection(kubeconfig=str(laptop.kubeconfig)))) as later:  # its informer lists anew
        progress = wait(later, reference).progress
    assert (progress.step, progress.total) == (7, 9)


def write_trainer_status(laptop, reference, **fields):
    """Write the status that the Trainer's status server writes for a report of the training."""
    with configuration.new_client_from_config(str(laptop.kubeconfig)) as api:
        client.CustomObjectsApi(api).patch_namespaced_custom_object_status(
            *("trainer.kubeflow.org", "v1alpha1", reference.namespace, "trainjobs", reference.name),
            {"status": {"trainerStatus": fields}},
        )


def test_progress_that_the_trainer_reports_arrives_while_the_job_runs(cluster, laptop, unique, tmp_path):
    """An older report, which may arrive later, is left out."""
    script = f"until test -e {tmp_path}/end; do sleep 0.1; done"
    reference = submit(cluster, shell(script), make_run_key(unique))
    found, lines = queue.SimpleQueue(), []
    progress_log = ProgressLog(reference, lines.append)

    def on_progress(progress):
        progress_log.log_progress(progress)
        found.put(progress)

    listener = Listener(on_progress=on_progress)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(wait, cluster, reference, listener=listener)
        report = {"progressPercentage": 10, "metrics": [{"name": "accuracy", "value": "0.5"}]}
        write_trainer_status(laptop, reference, **report, lastUpdatedTime="2026-01-01T00:00:01Z")
        first = found.get(timeout=60)
        write_trainer_status(laptop, reference, progressPercentage=5, lastUpdatedTime="2026-01-01T00:00:00Z")
        report = {"progressPercentage": 20, "estimatedRemainingSeconds": 60}
        write_trainer_status(laptop, reference, **report, lastUpdatedTime="2026-01-01T00:00:02Z")
        second = found.get(timeout=60)
        (tmp_path / "end").touch()
        last = waiting.result(60).progress
    assert (first.percent, first.metrics, first.reported_at) == (10, {"accuracy": 0.5}, "2026-01-01T00:00:01Z")
    assert (str(second), last) == ("20 %, 60 s left", second)
    assert lines[0] == f"TrainJob {reference}: 10 %"


def create_never_restarting_runtime(cluster, name):
    """Create a runtime of the namespace whose pods are not restarted in place."""
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


def test_without_restarts_the_outcome_has_the_reason_of_the_condition(cluster, unique):
    create_never_restarting_runtime(cluster, unique)
    trainer = CustomTrainerContainer(command=["sh", "-c", "echo 'ValueError: row 7' >&2; exit 3"])
    job = TrainJob(trainer=trainer, runtime={"name": unique, "kind": "TrainingRuntime"})
    outcome = wait(cluster, submit(cluster, job, make_run_key(unique)))
    assert (outcome.reason, outcome.step, outcome.rank, outcome.exit_code) == ("FailedJobs", "node", 0, 3)
    assert outcome.log_tail[-1] == "ValueError: row 7"
    assert cluster.get_trainjob(outcome.job, "default") is not None


@pytest.mark.parametrize("action", [KillAction.DELETE, KillAction.KEEP, None])
def test_a_pod_that_runs_after_the_end_is_ended_or_reported(cluster, unique, monkeypatch, action):
    """Without an action, the pod ends before the time is over, which needs no warning."""
    monkeypatch.setattr(end_checks, "ACTIVE_PODS_SECONDS", 2.0 if action else 60.0)
    create_never_restarting_runtime(cluster, unique)
    trainer = CustomTrainerContainer(command=["sh", "-c", "exit 3"])
    job = TrainJob(trainer=trainer, runtime={"name": unique, "kind": "TrainingRuntime"})
    reference = submit(cluster, job, make_run_key(unique))
    pod_labels = {
        "jobset.sigs.k8s.io/jobset-name": reference.name,
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "batch.kubernetes.io/job-completion-index": "1",
    }
    spec = {"containers": [{"name": "node", "image": "busybox"}], "nodeSelector": {"none": "such"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{unique}-left", "labels": pod_labels},
        "spec": spec,
    }
    cluster._http.request("POST", "/api/v1/namespaces/default/pods", doing="create a pod", body=pod)

    def delete_pod():
        path = f"/api/v1/namespaces/default/pods/{unique}-left"
        cluster._http.request("DELETE", path, doing="delete a pod", body={"gracePeriodSeconds": 0})

    listed, list_pods = [], cluster.list_pods

    def list_and_delete(*arguments):
        listed.append(list_pods(*arguments))
        if action is None and len(listed) == 2:  # after the check has begun
            delete_pod()
        return listed[-1]

    monkeypatch.setattr(cluster, "list_pods", list_and_delete)
    outcome = wait(cluster, reference, limits=Limits(on_failure=action or KillAction.DELETE))
    assert (outcome.reason, outcome.exit_code) == ("FailedJobs", 3)
    if action is None:
        assert outcome.warnings == ()
    else:
        [warning] = outcome.warnings
        assert warning.startswith("1 pod (node-1) still ran 2 s after the end")
        assert ("so the TrainJob was deleted" in warning) == (action is KillAction.DELETE)
        delete_pod()
    assert (cluster.get_trainjob(reference.name, "default") is None) == (action is KillAction.DELETE)


def test_a_missing_command_is_explained(cluster, unique):
    job = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["no-such-program"]))
    outcome = wait(cluster, submit(cluster, job, make_run_key(unique)))
    assert outcome.exit_code == 128
    assert "no-such-program" in outcome.explain()


def test_restarts_are_allowed_up_to_the_limit(cluster, unique, tmp_path):
    script = f"echo try >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) -ge 3"
    reference = submit(cluster, shell(script), make_run_key(unique))
    outcome = wait(cluster, reference, limits=Limits(max_restarts=2))
    assert outcome.succeeded
    assert (tmp_path / "tries").read_text() == "try\n" * 3


def test_restarts_before_the_wait_are_reported_with_the_success(cluster, laptop, unique, tmp_path):
    """The script fails twice and succeeds before anybody watches."""
    script = f"echo try >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) -ge 3"
    reference = submit(cluster, shell(script), make_run_key(unique))
    wait_until(lambda: derive_verdict(cluster.get_trainjob(reference.name, "default")).phase is Phase.COMPLETE, 60)
    warnings = []
    outcome = wait(cluster, reference, listener=Listener(on_warning=warnings.append))
    assert (outcome.succeeded, outcome.warnings) == (True, tuple(warnings))
    assert "container node of pod" in warnings[0] and "succeeded after 2 restarts in place" in warnings[0]
    assert "(last failure: Error, exit code 1). max_restarts is 0" in outcome.explain()
    assert wait(cluster, reference, limits=Limits(max_restarts=2)).warnings == ()
    assert Outcome.from_dict(outcome.to_dict()) == outcome


def test_the_outcome_names_the_rank_that_failed(cluster, unique, tmp_path):
    """Rank 1 fails after the line of rank 0 was received, because its failure ends the pod of rank 0."""
    received = tmp_path / "received"
    rank_1 = f"until [ -e {received} ]; do sleep 0.05; done; exit 7"
    script = f'echo "rank $JOB_COMPLETION_INDEX"; [ "$JOB_COMPLETION_INDEX" != 1 ] || {{ {rank_1}; }}; sleep 60'
    lines = []

    def on_log(line):
        lines.append(str(line))
        if lines[-1] == "[node-0] rank 0":
            received.touch()

    reference = submit(cluster, shell(script, num_nodes=2), make_run_key(unique))
    outcome = wait(cluster, reference, listener=Listener(on_log=on_log))
    assert (outcome.rank, outcome.exit_code) == (1, 7)
    assert {line for line in lines if " may be missing " not in line} == {"[node-0] rank 0", "[node-1] rank 1"}


def test_the_log_of_a_failed_run_is_found_after_a_restart(cluster, unique, tmp_path):
    """The container is restarted after its failure was observed, and its current log is that of the next run."""
    script = f"[ -e {tmp_path}/failed ] && {{ echo second; sleep 60; }}; touch {tmp_path}/failed; echo first; exit 3"
    reference = submit(cluster, shell(script), make_run_key(unique))

    def find_restarted():
        found = find_failures(cluster.list_pods(reference.name, "default"))
        return found[0] if found and found[0].restarted else None

    failure = wait_until(find_restarted, 60)
    observed = replace(failure, restarted=False)
    assert wait_until(lambda: read_failure_log_tail(cluster, "default", observed), 60) == ["first"]
    # Two restarts after a failure, its log no longer exists.
    assert read_failure_log_tail(cluster, "default", replace(observed, count=0)) == []
    cancel(cluster, reference)


def test_the_outcome_shows_another_failed_rank_if_the_log_of_the_first_is_deleted(
    cluster, unique, tmp_path, monkeypatch
):
    """When a Job fails, the Job controller may delete a pod that has just failed, and with it the pod's log."""
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


def test_another_renewal_creates_one_new_attempt_which_later_tries_adopt(cluster, unique):
    first = submit(cluster, shell("true"), make_run_key(unique), renewal="1")
    wait(cluster, first)
    assert submit(cluster, shell("true"), make_run_key(unique), renewal="1").uid == first.uid
    second = submit(cluster, shell("true"), make_run_key(unique), renewal="2")
    wait(cluster, second)
    again = submit(cluster, shell("true"), make_run_key(unique), renewal="2")
    assert (again.uid, again.adopted, again.attempt) == (second.uid, True, 2)
    assert second.uid != first.uid


def test_a_known_job_without_the_key_is_adopted_and_waited_for(cluster, unique):
    first = submit(cluster, shell("sleep 2; echo worked"), make_run_key(unique, "before"))
    path = f"{TRAINER_API}/namespaces/default/trainjobs/{first.name}"
    no_labels = dict.fromkeys(cluster.get_trainjob(first.name, "default")["metadata"]["labels"])
    cluster._http.request("PATCH", path, doing="strip labels", body={"metadata": {"labels": no_labels}})
    again = submit(cluster, shell("sleep 2; echo worked"), make_run_key(unique, "after"), known=first)
    assert (again.uid, again.adopted) == (first.uid, True)
    assert [job["metadata"]["uid"] for job in list_trainjobs(cluster, make_run_key(unique, "after"))] == [first.uid]
    listener, _, lines = recording_listener()
    fresh = Cluster(cluster._http.connection)  # the watches of this client have not seen that it lost its labels
    assert wait(fresh, again, listener=listener).succeeded
    fresh.close()
    assert "[node-0] worked" in [str(line) for line in lines]


def test_another_run_has_its_own_job(cluster, unique):
    one = submit(cluster, shell("true"), make_run_key(unique))
    other = submit(cluster, shell("true"), make_run_key(unique, "run-2"))
    assert one.uid != other.uid


def test_a_changed_spec_replaces_the_running_job(cluster, unique):
    first = submit(cluster, shell("sleep 60"), make_run_key(unique))
    second = submit(cluster, shell("true"), make_run_key(unique))
    assert second.uid != first.uid
    assert [job["metadata"]["uid"] for job in list_trainjobs(cluster, make_run_key(unique))] == [second.uid]


def test_a_job_of_another_owner_with_the_same_name_is_not_changed(cluster, unique):
    first = submit(cluster, shell("sleep 60"), make_run_key(unique))
    cancel(cluster, first)
    wait_until(lambda: cluster.get_trainjob(first.name, first.namespace) is None)
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"image": "busybox", "command": ["sleep", "5"]}}
    foreign = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}
    made = cluster.create_trainjob({**foreign, "metadata": {"name": first.name, "namespace": first.namespace}})
    with pytest.raises(OwnershipConflict, match=first.name):
        submit(cluster, shell("sleep 60"), make_run_key(unique))
    cluster.delete_trainjob(first.name, first.namespace, made["metadata"]["uid"])


@pytest.mark.parametrize("action", KillAction)
def test_a_limit_ends_the_wait_and_applies_the_kill_action(cluster, unique, action):
    reference = submit(cluster, shell("sleep 60"), make_run_key(unique))
    limits = Limits(total=timedelta(seconds=0.5), on_timeout=action)
    with pytest.raises(WaitTimeout, match="total time"):
        wait(cluster, reference, limits=limits)
    found = cluster.get_trainjob(reference.name, reference.namespace)
    if action is KillAction.DELETE:
        assert found is None or found["metadata"].get("deletionTimestamp")
    else:
        assert bool(found["spec"].get("suspend")) == (action is KillAction.SUSPEND)
        cancel(cluster, reference)


def test_a_job_that_the_cluster_refuses_is_not_created(cluster, unique):
    manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"labels": {"not a label": "x"}},
        "spec": {"runtimeRef": {"name": "torch-distributed"}},
    }
    job = TrainJobManifest(manifest=manifest)
    with pytest.raises(AdmissionRefused, match="not a label"):
        submit(cluster, job, make_run_key(unique))
    assert list_trainjobs(cluster, make_run_key(unique)) == []


def test_an_invalid_spec_is_refused_before_any_request(cluster, unique):
    with pytest.raises(InvalidSpec):
        submit(cluster, shell("true", env={"PET_NNODES": "2"}), make_run_key(unique))
    assert list_trainjobs(cluster, make_run_key(unique)) == []


def test_a_thousand_waiters_share_two_watches(cluster, unique):
    """This test has 20 waiters on one event loop; each gets its own outcome, and each informer has one thread."""
    others = set(threading.enumerate())  # the watches of earlier tests continue for some seconds
    references = [submit(cluster, shell(f"exit {i % 2}"), make_run_key(f"{unique}-{i}")) for i in range(20)]

    async def wait_for_all():
        return await asyncio.gather(*(wait_async(cluster, reference) for reference in references))

    outcomes = asyncio.run(wait_for_all())
    assert [outcome.job for outcome in outcomes] == [reference.name for reference in references]
    assert [outcome.succeeded for outcome in outcomes] == [i % 2 == 0 for i in range(20)]
    watches = [thread for thread in set(threading.enumerate()) - others if thread.name.startswith("watch-")]
    assert len(watches) <= 2


def test_the_listener_is_called_in_the_callers_context(cluster, unique):
    """Airflow's triggerer finds the log of a task by its context.

    The last phase of a job that fails in place is reported from a thread.
    """
    task, seen = contextvars.ContextVar("task", default="none"), []
    reference = submit(cluster, shell("exit 3"), make_run_key(unique))
    listener = Listener(on_phase=lambda verdict: seen.append((verdict.phase, task.get())))

    async def wait_as_task():
        task.set("mine")
        return await wait_async(cluster, reference, listener=listener)

    assert asyncio.run(wait_as_task()).reason == "RestartLimitExceeded"
    assert seen[-1] == (Phase.FAILED, "mine")
