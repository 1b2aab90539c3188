"""Waits under log faults, for TrainJobs whose containers are processes of the laptop cluster."""

from __future__ import annotations

import pytest

from tests.chaos.logs.fault_proxy import FaultProxy
from tests.chaos.logs.fault_waits import assert_complete, choose_seed
from tests.chaos.logs.process_waits import run_process_waits
from tests.chaos.logs.scenarios import SCENARIOS

WAITS = 18  # of most scenarios

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def proxy(laptop):
    with FaultProxy(laptop.server, token=laptop.token, pool={"ca_certs": str(laptop.ca_file)}) as opened:
        yield opened


@pytest.mark.parametrize(
    "scenario", [each for each in SCENARIOS if not each.needs_script], ids=lambda scenario: scenario.name
)
def test_no_line_is_repeated_or_lost_silently(proxy, cluster, tmp_path, scenario, evidence):
    waits = int(WAITS * scenario.waits)
    findings = run_process_waits(proxy, cluster, tmp_path, scenario, seed=choose_seed(), count=waits)
    evidence("log waits", fault=scenario.name, cluster="laptop", waits=waits, **findings.counts)
    assert_complete(scenario, findings)
