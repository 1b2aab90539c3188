"""Tests of TrainJobs that have the labels and annotations of a step, and were not created by it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.lifecycle import JobSelector, Listener, RunKey, check_external, submit, wait
from trainjob.lifecycle.job_guard import JobGuard
from trainjob.manifest import labels
from trainjob.retention import sweep

# A list is in the order of the names, so a copy comes before or after the original.
COPIES = ["a-colleague", "zz-backup"]


def shell(script):
    return TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script]))


@pytest.fixture
def key(unique):
    return RunKey("test", "copies", unique, "run-1")


@pytest.fixture
def copy(cluster, unique):
    """Return a function that copies a TrainJob, as `kubectl get` and `kubectl create` do."""
    created = []

    def create(reference, name, command, **annotations):
        job = cluster.get_trainjob(reference.name, reference.namespace)
        metadata = {part: job["metadata"][part] for part in ("namespace", "labels", "annotations")}
        metadata["annotations"] = {**metadata["annotations"], **annotations}
        spec = {**job["spec"], "trainer": {**job["spec"]["trainer"], "command": ["sh", "-c", command]}}
        body = {**{part: job[part] for part in ("apiVersion", "kind")}, "metadata": {**metadata, "name": name}}
        created.append(cluster.create_trainjob({**body, "spec": spec}))
        return created[-1]["metadata"]["uid"]

    yield create
    for each in created:
        cluster.delete_trainjob(each["metadata"]["name"], "default", each["metadata"]["uid"])


def exists(cluster, name, uid):
    job = cluster.get_trainjob(name, "default")
    return job is not None and job["metadata"]["uid"] == uid


@pytest.mark.parametrize("prefix", COPIES)
def test_a_running_copy_is_neither_adopted_nor_deleted(cluster, key, copy, unique, prefix):
    original, notices = submit(cluster, shell("sleep 60"), key), []
    name = f"{prefix}-{unique}"
    uid = copy(original, name, "echo 'trainjob result: 1'; sleep 60")
    again = submit(cluster, shell("sleep 60"), key, on_notice=notices.append)
    assert (again.uid, again.attempt) == (original.uid, 1)
    [notice] = notices
    assert notice.startswith(f"TrainJob default/{name} has the label trainjob.dev/run-key of this step, but was not ")
    assert exists(cluster, name, uid)

    changed = submit(cluster, shell("sleep 61"), key)  # it deletes the first attempt
    assert changed.uid not in (original.uid, uid)
    assert exists(cluster, name, uid)
    cluster.delete_trainjob(changed.name, changed.namespace, changed.uid)


@pytest.mark.parametrize("prefix", COPIES)
def test_the_result_of_another_trainjob_is_not_taken(cluster, key, copy, unique, prefix):
    """It has the digest of the run key as its label, and the run key of another step."""
    first = submit(cluster, shell("echo 'trainjob result: 1'"), key)
    assert wait(cluster, first).succeeded
    name, other = f"{prefix}-{unique}", RunKey("test", "copies", "somebody", "run-1")
    uid = copy(first, name, "echo 'trainjob result: 2'", **{labels.RUN_KEY: other.canonical})
    wait_until(lambda: check_external(cluster, JobSelector("default", name=name)))
    cluster.delete_trainjob(first.name, first.namespace, first.uid)
    wait_until(lambda: cluster.get_trainjob(first.name, "default") is None)

    assert check_external(cluster, JobSelector("default", run_key=key)) is None
    again = submit(cluster, shell("echo 'trainjob result: 1'"), key)
    assert not again.adopted
    lines = []
    assert wait(cluster, again, listener=Listener(on_log=lambda line: lines.append(line.text))).succeeded
    assert lines == ["trainjob result: 1"]
    assert labels.get_annotation(cluster.get_trainjob(name, "default"), labels.RUN_KEY) == other.canonical
    assert exists(cluster, name, uid)


def test_a_kill_and_a_sweep_leave_a_copy_alone(cluster, key, copy, unique):
    original = submit(cluster, shell("true"), key)
    assert wait(cluster, original).succeeded
    name = f"{COPIES[0]}-{unique}"
    uid = copy(original, name, "sleep 60")
    assert JobGuard().apply_kill_action(cluster, key, "default", "delete") == []
    swept = sweep(cluster, has_ended=key.__eq__, active_for=timedelta(0))
    results = {result.reference.name: result for result in swept}
    assert results[name].action == "kept"
    assert "was not created by a step" in results[name].reason
    assert exists(cluster, name, uid)
