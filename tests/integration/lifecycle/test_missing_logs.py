"""Tests of waits that can't read all logs: one notice says which output may be missing."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import pytest

from tests.integration.lifecycle.test_life import make_run_key, recording_listener, shell
from tests.support.polling import wait_until
from trainjob.client import Backoff, Cluster, Connection, LogNotice
from trainjob.errors import ClusterUnreachable
from trainjob.lifecycle import Limits, Listener, evidence, submit, wait, wait_session


@pytest.fixture
def impatient(laptop, monkeypatch):
    """Yield a client that retries nothing, for waits that read logs for a short time."""
    monkeypatch.setattr(evidence, "_LOG_SECONDS", 0.2)
    with closing(Cluster(Connection(kubeconfig=str(laptop.kubeconfig)), retry_seconds=0.0)) as opened:
        yield opened


def notices_of(lines):
    return [str(line) for line in lines if isinstance(line, LogNotice)]


def test_unknown_pods_are_reported(cluster, impatient, unique, trainjob_faults):
    reference = submit(cluster, shell("echo one"), make_run_key(unique))
    assert wait(cluster, reference).succeeded
    trainjob_faults.answer(500, times=1000, verb="list", resource="pods")
    listener, _, lines = recording_listener()
    assert wait(impatient, reference, listener=listener).succeeded
    [notice] = notices_of(lines)
    job = f"{reference.namespace}/{reference.name}"
    assert f"output of TrainJob {job} may be missing from its beginning: its pods can't be listed" in notice
    assert f"kubectl logs -l jobset.sigs.k8s.io/jobset-name={reference.name}" in notice


def test_deleted_pods_are_reported(cluster, impatient, unique):
    reference = submit(cluster, shell("echo one"), make_run_key(unique))
    assert wait(cluster, reference).succeeded
    for pod in cluster.list_pods(reference.name, reference.namespace):
        path = f"/api/v1/namespaces/{reference.namespace}/pods/{pod['metadata']['name']}"
        cluster._http.request("DELETE", path, doing="delete a pod", body={"gracePeriodSeconds": 0})
    wait_until(lambda: not cluster.list_pods(reference.name, reference.namespace))
    listener, _, lines = recording_listener()
    assert wait(impatient, reference, listener=listener).succeeded  # its informer lists the pods anew
    [notice] = notices_of(lines)
    assert "its pods do not exist in this cluster any more" in notice


def test_a_watch_of_pods_that_fails_is_reported_once_and_comes_back(
    laptop, unique, trainjob_faults, monkeypatch, tmp_path
):
    """The Role of a waiter may be edited; logs, restarts and reasons depend on the pods."""
    monkeypatch.setattr(wait_session, "pod_watch_backoff", lambda: Backoff(initial_delay=0.01, max_delay=0.01))
    go, lines = tmp_path / "go", []

    def on_log(line):
        lines.append(line)
        if line.text == "one":
            go.touch()

    with closing(Cluster(Connection(kubeconfig=str(laptop.kubeconfig)), retry_seconds=0.0)) as opened:
        reference = submit(opened, shell(f"echo one; until test -e {go}; do sleep 0.05; done"), make_run_key(unique))
    with closing(Cluster(Connection(kubeconfig=str(laptop.kubeconfig)), retry_seconds=0.0)) as opened:
        trainjob_faults.answer(403, times=3, verb="list", resource="pods")
        limits = Limits(total=timedelta(seconds=30), max_restarts=None)
        assert wait(opened, reference, limits=limits, listener=Listener(on_log=on_log)).succeeded
    [notice] = notices_of(lines)
    assert f"the pods of TrainJob {reference} can't be watched: " in notice
    assert "one" in [line.text for line in lines]


def test_a_log_that_is_silent_before_the_job_is_deleted_is_reported(cluster, impatient, unique, monkeypatch):
    """The wait ends the failed TrainJob, and its log is deleted with it."""

    def refuse(*_, **__):
        raise ClusterUnreachable("no route to the node")

    monkeypatch.setattr(impatient, "open_log", refuse)
    reference = submit(cluster, shell("echo one; exit 3"), make_run_key(unique))
    listener, _, lines = recording_listener()
    assert not wait(impatient, reference, limits=Limits(), listener=listener).succeeded
    notices = notices_of(lines)
    assert notices
    assert all("container node of pod" in notice and "from its beginning" in notice for notice in notices)
    assert len(set(notices)) == len(notices)
