"""Tests of limits on the queue and on the start that go on in another process, through a laptop cluster."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.integration.lifecycle.apiserver_proxy import ApiServerProxy
from trainjob import TrainJobManifest
from trainjob.client import Cluster, Connection
from trainjob.errors import WaitTimeout
from trainjob.lifecycle import KillAction, Limits, RunKey, cancel, submit, wait, wait_policy

MANIFEST = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "suspended"},
    "spec": {"runtimeRef": {"name": "torch-distributed"}, "suspend": True},
}
LIMITS = Limits(queued=timedelta(minutes=30), on_timeout=KillAction.KEEP)


@pytest.fixture
def proxy(laptop):
    with ApiServerProxy(laptop) as server:
        yield server


def connect(proxy):
    return Cluster(Connection(kubeconfig_text=proxy.kubeconfig_text), retry_seconds=5.0)


def test_a_process_that_comes_later_continues_the_limit_by_the_servers_clock(laptop, proxy, unique, monkeypatch):
    """An hour after the creation by the server's clock, 30 minutes are over, whatever this machine's clock says.

    A TrainJob that the limit did not delete is waited for anew by the next try.
    """
    monkeypatch.setattr(wait_policy, "_MIN_LIMIT_SECONDS", 0.2)
    proxy.clock_shift = 3600.0
    with closing(connect(proxy)) as later, closing(connect(proxy)) as next_try:
        reference = submit(later, TrainJobManifest(manifest=MANIFEST), RunKey("test", "limits", unique, "run-1"))
        try:
            with pytest.raises(WaitTimeout, match=r"queued time is reached after 3[56]\d\d s; it continues to run"):
                wait(later, reference, limits=LIMITS)
            with pytest.raises(WaitTimeout, match="total time is reached"):
                wait(next_try, reference, limits=replace(LIMITS, total=timedelta(seconds=1)))
        finally:
            cancel(later, reference)
