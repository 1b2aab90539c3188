"""A compiled component in pods on a laptop cluster, with proxies of four latencies."""

from __future__ import annotations

import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.chaos.kfp_pods.delaying_proxy import DelayingProxy
from tests.support.kfp_pods import LATENCIES, ONE_SECOND_JOB, CompiledComponent, Pods

PODS_PER_LATENCY = 25


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
def plan_pods(pod_seconds, random_numbers):
    """Return a function that plans what happens to a hundred pods.

    It returns (latency, moment, choice) in any order. The moment is up to `lifetimes` times the seconds of a pod.
    """

    def plan(lifetimes, choices):
        print({latency: f"{seconds:.1f} s" for latency, seconds in pod_seconds.items()})
        plans = [
            (latency, random_numbers.uniform(0.0, lifetimes * pod_seconds[latency]), random_numbers.choice(choices))
            for latency in LATENCIES
            for _ in range(PODS_PER_LATENCY)
        ]
        random_numbers.shuffle(plans)
        return plans

    return plan
