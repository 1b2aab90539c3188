"""Logs of a real API server whose connections break, to its kubelet and to its client."""

from __future__ import annotations

from random import Random

import pytest

from control_plane import ControlPlane
from tests.chaos.logs.fault_proxy import FaultProxy
from tests.chaos.logs.fault_waits import assert_complete, choose_seed
from tests.chaos.logs.kubelet_proxy import proxied_kubelet
from tests.chaos.logs.process_waits import run_process_waits
from tests.chaos.logs.scenarios import SCENARIOS, Scenario
from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import submit, wait

WAITS = 4  # of most scenarios
KUBELET_WAITS = 60

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    if reason := ControlPlane.unavailable_reason():
        pytest.skip(reason)
    with ControlPlane(tmp_path_factory.mktemp("plane") / "state") as running:
        yield running


@pytest.fixture(scope="module")
def cluster(plane):
    opened = Cluster(Connection(kubeconfig=str(plane.kubeconfig)))
    yield opened
    opened.close()


@pytest.fixture
def proxy(plane):
    files = {"ca_certs": "ca.crt", "cert_file": "process-kubelet.crt", "key_file": "process-kubelet.key"}
    with FaultProxy(plane.server, pool={key: str(plane.state / "pki" / name) for key, name in files.items()}) as opened:
        yield opened


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("by_reset", [True, False])
def test_the_api_server_ends_a_log_cleanly_if_the_kubelets_connection_breaks(cluster, unique, follow, by_reset):
    trainer = CustomTrainerContainer(image="busybox", command=["sh", "-c", "seq 100000"])
    reference = submit(cluster, TrainJob(trainer=trainer), RunKey("test", "logs", "kubelet", unique))
    assert wait(cluster, reference).succeeded
    pod = cluster.list_pods(reference.name, "default")[0]["metadata"]["name"]
    with proxied_kubelet(cluster) as kubelet:
        kubelet.cuts.append((100_000, by_reset))
        wait_until(lambda: not kubelet.cuts or not read_log(cluster, pod, follow=follow), 60)
        assert kubelet.broken == 1


def read_log(cluster, pod, *, follow):
    """Read a log to the end of its response, and return whether all its lines came."""
    stream = cluster.open_log(pod, "default", "node", follow=follow)
    content = b"".join(stream.stream(decode_content=False))  # raises if the response is not complete
    return content.endswith(b" 100000\n")


@pytest.mark.parametrize(
    "scenario", [each for each in SCENARIOS if not each.needs_script], ids=lambda scenario: scenario.name
)
def test_no_line_is_repeated_or_lost_silently(proxy, cluster, tmp_path, scenario, evidence):
    waits = max(1, int(WAITS * scenario.waits))
    findings = run_process_waits(proxy, cluster, tmp_path, scenario, seed=choose_seed(), count=waits)
    evidence("log waits", fault=scenario.name, cluster="controlplane-2.3", waits=waits, **findings.counts)
    assert_complete(scenario, findings)


def test_no_line_is_lost_silently_if_the_kubelets_connections_break(proxy, cluster, tmp_path, evidence):
    scenario, seed = Scenario("kubelet's connections break", exact=False), choose_seed()
    with proxied_kubelet(cluster) as kubelet:
        kubelet.break_connections(Random(seed), 20 * KUBELET_WAITS, 40_000)  # noqa: S311 - reproducible
        findings = run_process_waits(proxy, cluster, tmp_path, scenario, seed=seed, count=KUBELET_WAITS)
        assert kubelet.broken > KUBELET_WAITS / 8
    evidence("log waits", fault=scenario.name, cluster="controlplane-2.3", waits=KUBELET_WAITS, **findings.counts)
    assert_complete(scenario, findings)
