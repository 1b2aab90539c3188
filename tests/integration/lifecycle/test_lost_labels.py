"""Tests of TrainJobs whose labels others change, and of lists and watches that do not show a TrainJob that exists."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading

import pytest

from tests.integration.lifecycle.apiserver_proxy import ApiServerProxy
from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.errors import MetadataChanged, WaitTimeout
from trainjob.inspection.live_status import watch
from trainjob.lifecycle import JobSelector, Listener, RunKey, check_external, submit, wait, wait_external
from trainjob.manifest import labels
from trainjob.status import Phase, derive_verdict

JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
MANAGED_BY = "app.kubernetes.io/managed-by"
OWN_LABELS = [labels.RUN_KEY, labels.ATTEMPT, labels.ENGINE, labels.WORKFLOW, labels.TASK, labels.RUN]
# Label changes as a merge patch writes them; None removes a label.
CHANGES = {
    "another manager": {MANAGED_BY: "Helm"},
    "run key removed": {labels.RUN_KEY: None},
    "another run key": {labels.RUN_KEY: "0123456789abcdef"},
    "all removed": dict.fromkeys([MANAGED_BY, *OWN_LABELS]),
}
LOSES_LABEL = {"run key removed", "all removed"}


def shell(script):
    return TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script]))


@pytest.fixture
def key(unique):
    return RunKey("test", "labels", unique, "run-1")


@pytest.fixture
def proxy(laptop):
    with ApiServerProxy(laptop) as server:
        yield server


@pytest.fixture
def proxied_cluster(proxy):
    connection = Connection(kubeconfig_text=proxy.kubeconfig_text)
    with contextlib.closing(Cluster(connection, retry_seconds=5.0)) as opened:
        yield opened


def change_labels(cluster, reference, changes):
    cluster.patch_trainjob(reference.name, reference.namespace, reference.uid, labels=changes)


def labels_of(cluster, reference):
    return cluster.get_trainjob(reference.name, reference.namespace)["metadata"]["labels"]


def list_active(cluster, prefix):
    """Return the names of the active TrainJobs whose names begin with a prefix."""
    return [
        job["metadata"]["name"]
        for job in cluster.list_trainjobs("default", "")
        if job["metadata"]["name"].startswith(prefix) and not derive_verdict(job).phase.finished
    ]


def wait_with(cluster, reference, at_start):
    """Wait for a TrainJob, and call a function on another thread when it first runs."""
    lines, threads = [], []

    def on_phase(verdict):
        if verdict.phase is Phase.RUNNING and not threads:  # a busy machine may also report it again
            threads.append(threading.Thread(target=at_start, args=(lines,), daemon=True))
            threads[0].start()

    listener = Listener(on_phase, lambda line: lines.append(line.text))
    return wait(cluster, reference, listener=listener), lines


@pytest.mark.parametrize("moment", ["before the wait", "during the wait"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_wait_sees_the_end_of_a_job_whose_labels_were_changed(cluster, key, tmp_path, change, moment):
    """The watch reports a TrainJob without the selected label as deleted, and later not at all."""
    go = tmp_path / "go"
    reference = submit(cluster, shell(f"until test -e {go}; do sleep 0.05; done"), key)
    loses_label = change in LOSES_LABEL

    def change_and_go(lines):
        if moment == "during the wait":
            change_labels(cluster, reference, CHANGES[change])
        if loses_label:
            wait_until(lambda: any(labels.RUN_KEY in line for line in lines))
        go.touch()

    if moment == "before the wait":
        change_labels(cluster, reference, CHANGES[change])
    outcome, lines = wait_with(cluster, reference, change_and_go)
    assert outcome.phase is Phase.COMPLETE
    assert len([line for line in lines if f"{reference} has lost its label {labels.RUN_KEY}" in line]) == loses_label


def test_a_job_without_labels_that_is_deleted_ends_the_wait(cluster, key):
    reference = submit(cluster, shell("sleep 60"), key)

    def delete_without_labels(lines):
        change_labels(cluster, reference, CHANGES["all removed"])
        wait_until(lambda: any(labels.RUN_KEY in line for line in lines))
        cluster.delete_trainjob(reference.name, reference.namespace, reference.uid)

    outcome, _ = wait_with(cluster, reference, delete_without_labels)
    assert outcome.phase is Phase.DELETED


def serve_incomplete_lists(cluster, proxy, reference):
    """Serve 410 to watches, and empty lists until a GET by name has checked that."""
    # The list may report the TrainJob before the watch is open, and only an open watch can be ended.
    wait_until(lambda: any(JOBS in stream.url for stream in list(proxy.streams)))
    get = f"GET {JOBS}/{reference.name}"
    before, job = proxy.request_counts[get], cluster.get_trainjob(reference.name, "default")
    empty = {"metadata": {"resourceVersion": job["metadata"]["resourceVersion"]}, "items": []}
    proxy.responses[f"GET {JOBS}"] = (200, json.dumps(empty).encode())
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    proxy.replacements[f"WATCH {JOBS}"] = [json.dumps({"type": "ERROR", "object": expired}).encode() + b"\n"]
    proxy.end_streams()
    wait_until(lambda: proxy.request_counts[get] > before + 1)
    proxy.responses.clear()


@pytest.mark.parametrize("waiter", ["operator", "sensor", "watch"])
def test_a_list_without_the_job_does_not_end_the_wait(proxied_cluster, proxy, key, tmp_path, waiter):
    """A caching proxy may serve such a list."""
    go = tmp_path / "go"
    reference = submit(proxied_cluster, shell(f"until test -e {go}; do sleep 0.05; done"), key)

    def act(*_):
        serve_incomplete_lists(proxied_cluster, proxy, reference)
        go.touch()

    def act_if_running(status):
        if "Running" in str(status):
            threading.Thread(target=act, daemon=True).start()

    if waiter == "operator":
        outcome, _ = wait_with(proxied_cluster, reference, act)
        assert outcome.phase is Phase.COMPLETE
    elif waiter == "sensor":
        selector = JobSelector("default", reference.name)
        assert asyncio.run(wait_external(proxied_cluster, selector, report=act_if_running)).outcome.succeeded
    else:
        phases = []
        for status in watch(proxied_cluster, "default", [reference.name]):
            if status.summary.phase is Phase.RUNNING and Phase.RUNNING not in phases:
                act_if_running("Running")
            phases.append(status.summary.phase)
        assert phases[-1] is Phase.COMPLETE


def test_a_sensor_sees_the_end_of_a_job_whose_labels_were_removed(cluster, key, tmp_path):
    go = tmp_path / "go"
    reference = submit(cluster, shell(f"until test -e {go}; do sleep 0.05; done"), key)

    def remove_labels(line):
        if "Running" in line and not go.exists():
            change_labels(cluster, reference, CHANGES["all removed"])
            go.touch()

    ended = asyncio.run(wait_external(cluster, JobSelector("default", run_key=key), report=remove_labels))
    assert (ended.reference.uid, ended.outcome.succeeded) == (reference.uid, True)
    found = check_external(cluster, JobSelector("default", run_key=key))
    assert found.reference.uid == reference.uid


def mutate_labels(changes):
    """Return a mutation that sets and removes labels as a MutatingAdmissionPolicy does."""

    def mutate(body):
        found = body.get("metadata", {}).setdefault("labels", {})
        for name, value in changes.items():
            if value is None:
                found.pop(name, None)
            else:
                found[name] = value

    return mutate


@pytest.mark.parametrize("change", CHANGES)
def test_labels_that_a_policy_changes_at_the_creation_are_written_again(proxied_cluster, proxy, key, change):
    proxy.mutations["POST"] = mutate_labels(CHANGES[change])
    reference = submit(proxied_cluster, shell("true"), key, first_submission=True)
    assert not reference.adopted
    found = labels_of(proxied_cluster, reference)
    assert (found[labels.RUN_KEY], found[labels.ATTEMPT]) == (key.digest, "1")
    assert wait(proxied_cluster, reference).succeeded
    # Others may own the well-known label, so this project never writes it again.
    assert proxy.request_counts[f"PATCH {JOBS}/{reference.name}"] == (change != "another manager")


def test_a_policy_that_changes_labels_again_is_an_error_that_leaves_no_job(proxied_cluster, proxy, key):
    for method in ("POST", "PATCH"):
        proxy.mutations[method] = mutate_labels({labels.RUN_KEY: None, labels.TASK: "other"})
    with pytest.raises(MetadataChanged, match=f"the labels {labels.RUN_KEY}, {labels.TASK} of TrainJob") as raised:
        submit(proxied_cluster, shell("sleep 60"), key)
    assert "It was deleted" in str(raised.value)
    assert not raised.value.retryable
    wait_until(lambda: not list_active(proxied_cluster, key.task))


@pytest.mark.parametrize("first_submission", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_job_whose_labels_were_changed_is_adopted_and_gets_them_again(cluster, key, change, first_submission):
    created = submit(cluster, shell("sleep 60"), key)
    change_labels(cluster, created, CHANGES[change])
    adopted = submit(cluster, shell("sleep 60"), key, first_submission=first_submission)
    assert (adopted.uid, adopted.adopted, adopted.attempt) == (created.uid, True, 1)
    assert labels_of(cluster, created)[labels.RUN_KEY] == key.digest
    cluster.delete_trainjob(created.name, created.namespace, created.uid)


@pytest.mark.parametrize("script", ["sleep 60", "sleep 61"])
def test_a_running_job_without_annotations_is_adopted_if_its_spec_is_the_requested_one(cluster, key, script):
    created = submit(cluster, shell("sleep 60"), key)
    removed = dict.fromkeys([labels.RUN_KEY, labels.SPEC_HASH])
    cluster.patch_trainjob(created.name, created.namespace, created.uid, annotations=removed)
    reference = submit(cluster, shell(script), key)
    assert (reference.uid == created.uid) == (script == "sleep 60")
    for _ in range(2):  # the annotations were written again
        assert submit(cluster, shell(script), key).uid == reference.uid
    cluster.delete_trainjob(reference.name, reference.namespace, reference.uid)


def test_a_finalizer_that_stays_is_named(cluster, key):
    created = submit(cluster, shell("sleep 60"), key)
    path = f"{JOBS}/{created.name}"
    cluster._http.request("PATCH", path, doing="add", body={"metadata": {"finalizers": ["example.org/stuck"]}})
    cluster.delete_trainjob(created.name, created.namespace, created.uid)
    with pytest.raises(WaitTimeout, match=r"metadata\.finalizers example\.org/stuck"):
        submit(cluster, shell("sleep 60"), key, timeout=0.5)
    cluster._http.request("PATCH", path, doing="remove", body={"metadata": {"finalizers": []}})


def test_a_later_attempt_without_labels_is_found_although_the_first_attempt_was_swept(cluster, key):
    first = submit(cluster, shell("true"), key)
    assert wait(cluster, first).succeeded
    second = submit(cluster, shell("sleep 60"), key)
    assert second.attempt == 2
    cluster.delete_trainjob(first.name, first.namespace, first.uid)
    wait_until(lambda: not cluster.has_dependents(first.name, first.namespace))
    change_labels(cluster, second, CHANGES["all removed"])
    adopted = submit(cluster, shell("sleep 60"), key)
    assert (adopted.uid, adopted.attempt) == (second.uid, 2)
    assert list_active(cluster, key.task) == [second.name]
    cluster.delete_trainjob(second.name, second.namespace, second.uid)
