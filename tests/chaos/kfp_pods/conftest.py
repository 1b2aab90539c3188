"""A compiled component in pods on a laptop cluster, with proxies of four latencies."""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.chaos.kfp_pods.delaying_proxy import DelayingProxy
from tests.support.kfp_pods import LATENCIES, ONE_SECOND_JOB, CompiledComponent, Pods


@pytest.fixture(scope="session")
def component(tmp_path_factory):
    from trainjob_kfp import train

    return CompiledComponent(train, tmp_path_factory.mktemp("component"))


@pytest.fixture(scope="session")
def pods(cluster, component, tmp_path_factory):
    return Pods(cluster, component, tmp_path_factory.mktemp("pods"))


@pytest.fixture(scope="session")
def proxies(laptop):
    """Return a proxy for each latency."""
    with contextlib.ExitStack() as stack:
        yield {latency: stack.enter_context(DelayingProxy(laptop, latency)) for latency in LATENCIES}


@pytest.fixture(scope="session")
def kubeconfigs(proxies, tmp_path_factory):
    paths = {latency: tmp_path_factory.mktemp("kubeconfigs") / f"{latency}" for latency in proxies}
    for latency, path in paths.items():
        path.write_text(json.dumps(proxies[latency].kubeconfig))
    return paths


@pytest.fixture(scope="session")
def pod_seconds(pods, kubeconfigs):
    """Return the seconds that a pod runs for a job of one second, by latency.

    All pods run at the same time. The time starts with the pod's first process.
    """

    def measure(latency):
        pod = pods.start(pods.new_run(), kubeconfigs[latency], **ONE_SECOND_JOB)
        pod.wait_for_process()
        began = time.monotonic()
        assert pod.wait_for_end() == "Succeeded", pods.read_log(pod)
        return time.monotonic() - began

    with ThreadPoolExecutor(len(LATENCIES)) as threads:
        return dict(zip(LATENCIES, threads.map(measure, LATENCIES), strict=True))


@pytest.fixture
def random_numbers():
    """Return a random number generator; set PODS_SEED to repeat its numbers."""
    seed = os.environ.get("PODS_SEED") or str(random.randrange(10**6))  # noqa: S311
    print(f"PODS_SEED={seed}")
    return random.Random(seed)  # noqa: S311
