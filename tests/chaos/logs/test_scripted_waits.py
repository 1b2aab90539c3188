"""Waits under log faults, for TrainJobs whose containers are scripted: no line is repeated, and none lost silently.

Each run has another seed. If a wait fails, its message has the seed; `LOG_SEED=SEED/WAIT pytest -k NAME` repeats it.
"""

from __future__ import annotations

import os
import secrets

import pytest

from tests.chaos.logs.scenarios import SCENARIOS
from tests.chaos.logs.scripted_waits import run_scripted_waits

WAITS = 80  # of most scenarios

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def seed():
    """Return the seed for random decisions; the environment variable LOG_SEED sets it."""
    return os.environ.get("LOG_SEED") or str(secrets.randbelow(1_000_000))


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_line_is_repeated_or_lost_silently(scenario, seed, evidence):
    waits = int(WAITS * scenario.waits)
    findings = run_scripted_waits(scenario, seed, waits)
    evidence("log waits", fault=scenario.name, cluster="scripted API", waits=waits, **findings.counts)
    assert_complete(scenario, findings)


def assert_complete(scenario, findings):
    problems = "\n".join(findings.problems[:20])
    assert (findings.repeated, findings.disordered, findings.lost) == (0, 0, 0), problems
    if scenario.exact:
        assert (findings.reported, findings.unneeded) == (0, 0), problems
