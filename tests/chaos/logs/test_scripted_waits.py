"""Waits under log faults, for TrainJobs whose containers are scripted."""

from __future__ import annotations

import pytest

from tests.chaos.logs.fault_waits import assert_complete, choose_seed
from tests.chaos.logs.scenarios import SCENARIOS
from tests.chaos.logs.scripted_waits import run_scripted_waits

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
