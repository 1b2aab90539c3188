"""Tests of the live status while the pods cannot be watched."""

from __future__ import annotations

from contextlib import closing

from tests.integration.lifecycle.test_life import make_run_key, shell
from trainjob.client import Backoff, Cluster, Connection
from trainjob.inspection import live_status
from trainjob.lifecycle import submit
from trainjob.status import Phase


def test_a_watch_of_pods_that_fails_comes_back(cluster, laptop, unique, trainjob_faults, monkeypatch, tmp_path):
    monkeypatch.setattr(live_status, "pod_watch_backoff", lambda: Backoff(initial_delay=0.01, max_delay=0.01))
    monkeypatch.setattr(live_status, "refresh_diagnosis", lambda *_: None)  # it lists the pods of a pending TrainJob
    go, seen = tmp_path / "go", []
    reference = submit(cluster, shell(f"until test -e {go}; do sleep 0.05; done"), make_run_key(unique))
    with closing(Cluster(Connection(kubeconfig=str(laptop.kubeconfig)), retry_seconds=0.0)) as opened:
        trainjob_faults.answer(403, times=3, verb="list", resource="pods")
        for status in live_status.watch(opened, reference.namespace, [reference.name]):
            seen.append((status.ranks_ready, status.ranks))
            if status.ranks_ready:
                go.touch()
    assert status.summary.phase is Phase.COMPLETE
    assert (1, 1) in seen
