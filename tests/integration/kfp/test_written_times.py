"""Tests of the times that launchers store at a TrainJob; one of the TrainJob's pods acts as the launcher's."""

from __future__ import annotations

import json

import pytest

from tests.support.polling import wait_until
from tests.support.refused_threads import RefusedStarts
from trainjob.client import LogLine
from trainjob.client.log_lines import LoggedContainer
from trainjob.lifecycle import RunKey, cancel, submit
from trainjob_kfp import steps
from trainjob_kfp.written_times import ANNOTATION, TimeStore, load_times

CONTAINER = LoggedContainer("node-0", "default", "pod", "pod-uid", "node")
TIME = (1_700_000_000, b"000000000")
LINE = LogLine("node-0", "line 1", log=CONTAINER, time=TIME)


@pytest.fixture
def job(cluster, request):
    """Return a running TrainJob that this task has adopted."""
    step = steps.train({"image": "busybox", "command": ["sleep", "600"]}, None)
    key = RunKey("kfp", "times", "train", request.node.name)
    created = submit(cluster, step, key)
    request.addfinalizer(lambda: cancel(cluster, created))
    wait_until(lambda: cluster.list_pods(created.name, created.namespace))
    return submit(cluster, step, key)


@pytest.fixture
def pod(cluster, job):
    return cluster.list_pods(job.name, job.namespace)[0]


def store(cluster, pod, job):
    """Store the time of one line."""
    written_times = load_times(cluster, cluster, pod, job)
    with TimeStore(cluster, pod, job, written_times):
        written_times.record(LINE)


def read_annotations(cluster, job):
    return cluster.get_trainjob(job.name, job.namespace)["metadata"]["annotations"]


def test_a_launcher_continues_the_log_of_a_pod_that_still_exists(cluster, pod, job, capsys):
    store(cluster, pod, job)
    assert load_times(cluster, cluster, pod, job).find(CONTAINER.key) == TIME
    assert capsys.readouterr().out.endswith("may appear again, in the pod of an earlier launcher\n")
    assert ANNOTATION not in cluster.get_pod(pod["metadata"]["name"], job.namespace)["metadata"]["annotations"]


@pytest.mark.parametrize("changed", [{"uid": "another"}, {"name": "gone"}, {"name": ""}, {"name": 5}])
def test_a_log_that_is_gone_with_its_pod_starts_again(cluster, pod, job, changed):
    store(cluster, {"metadata": pod["metadata"] | changed}, job)
    assert not load_times(cluster, cluster, pod, job).resumption


@pytest.mark.parametrize("text", ["", "no JSON", "5", "[]", "{}", '{"pod": 5}', '{"pod": {}}', "[" * 100_000])
def test_times_that_cannot_be_read_are_ignored(cluster, pod, job, text):
    cluster.patch_trainjob(job.name, job.namespace, job.uid, annotations={ANNOTATION: text})
    assert not load_times(cluster, cluster, pod, job).resumption


def test_nothing_is_said_about_the_log_of_a_deleted_trainjob(cluster, pod, job, capsys):
    cancel(cluster, job)
    store(cluster, pod, job)
    assert not capsys.readouterr().out


def test_the_annotation_names_the_pod_that_has_the_log(cluster, pod, job):
    store(cluster, pod, job)
    stored = json.loads(read_annotations(cluster, job)[ANNOTATION])
    assert stored["pod"] == {name: pod["metadata"][name] for name in ("name", "uid")}


def test_without_a_thread_nothing_is_stored_and_the_log_says_so(cluster, pod, job, capsys):
    with RefusedStarts(lambda _: True):
        store(cluster, pod, job)
    assert ANNOTATION not in read_annotations(cluster, job)
    assert "prints its whole log again: the operating system refuses" in capsys.readouterr().out
