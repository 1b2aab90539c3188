"""Waits under log faults, for TrainJobs whose containers are scripted."""

from __future__ import annotations

import contextlib

import pytest

from tests.chaos.logs.fault_proxy import FaultProxy
from tests.chaos.logs.fault_waits import assert_complete, choose_seed
from tests.chaos.logs.scenarios import SCENARIOS
from tests.chaos.logs.scripted_jobs import ScriptedCluster
from tests.chaos.logs.scripted_waits import run_scripted_waits
from trainjob.client import Cluster, Connection, LogLine
from trainjob.lifecycle import Listener, wait

WAITS = 80  # of most scenarios
QUICK = ("none", "stream reset", "stream ends early, within a line or not")

pytestmark = pytest.mark.timeout(900)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_line_is_repeated_or_lost_silently(scenario, evidence):
    waits = int(WAITS * scenario.waits)
    findings = run_scripted_waits(scenario, choose_seed(), waits)
    evidence("log waits", fault=scenario.name, cluster="scripted", waits=waits, **findings.counts)
    assert_complete(scenario, findings)


@pytest.mark.parametrize(
    "scenario", [each for each in SCENARIOS if each.name in QUICK], ids=lambda scenario: scenario.name
)
def test_no_line_of_a_few_waits_is_repeated_or_lost_silently(scenario):
    assert_complete(scenario, run_scripted_waits(scenario, "1", 3))


def test_a_wait_that_begins_after_a_restart_has_the_log_of_the_failed_run():
    """The current run has printed nothing yet, and the waiter ends it."""
    with ScriptedCluster() as scripted, FaultProxy(scripted.url, token=scripted.token) as proxy:
        job = scripted.create_job("restarted", 1, ["node"], 0.001)
        [[container]] = job.containers.values()
        container.runs[-1].write([b"1\n", b"2\n"])
        job.restart(container)
        job.report(container.pod)
        lines: list[LogLine] = []
        with contextlib.closing(Cluster(Connection(server=proxy.url, namespace="default"))) as cluster:
            outcome = wait(cluster, job.reference, listener=Listener(on_log=lines.append))
    assert outcome.reason == "RestartLimitExceeded"
    assert [str(line) for line in lines] == ["[node-0] 1", "[node-0] 2"]
