"""Many trainings of 1 to 4 pods, with and without a planted hang: `make watchdog` counts what is found.

A stub stands for the training ([tests.integration.supervision.stub_training][]). The pods are the packed programs.
"""

from __future__ import annotations

import random

import pytest

from tests.integration.supervision.test_watchdog import HANGS
from tests.integration.supervision.watched_trainings import run_watched

pytestmark = pytest.mark.slow

SHAPES = [(1, 2), (1, 4), (2, 1), (2, 2), (4, 1)]  # nodes, and ranks of each
HEALTHY = {
    "": "none",
    "save": "a rank writes a file for 3.5 times the limit",
    "evaluation": "a rank evaluates for so long",
    "compilation": "a rank compiles for so long",
    "native": "a rank computes in C for so long",
    "merge": "a rank continues after the last step for so long",
}
SILENCE = 2.0
# A pod whose only rank was killed ends with it, and needs no watchdog.
PLANTED = [(fault, shape) for fault in HANGS for shape in SHAPES if fault != "kill" or shape[1] > 1]


def run(fault, shape, seed):
    nodes, per_node = shape
    rank = random.Random(f"{fault}{shape}{seed}").randrange(nodes * per_node)  # noqa: S311 - no cryptography
    return rank, run_watched(fault, rank, nodes=nodes, per_node=per_node, silence=SILENCE)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("fault", "shape"), PLANTED, ids=str)
def test_a_planted_hang_is_found(fault, shape, seed, evidence):
    rank, watched = run(fault, shape, seed)
    size, seconds = shape[0] * shape[1], max(state.seconds for report in watched.alarms for state in report.ranks)
    expected = f"rank {rank} of {size} on node-{rank // shape[1]} has made no step for "
    is_right = watched.verdict.startswith(expected) and f" since step 4: {HANGS[fault]}" in watched.verdict
    evidence("hangs", fault=fault, runs=1, found=int(is_right), slowest=round(seconds / SILENCE, 1))
    assert is_right, watched.verdict
    assert 1 in watched.codes


@pytest.mark.parametrize("seed", range(7))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("fault", HEALTHY)
def test_a_healthy_training_raises_no_alarm(fault, shape, seed, evidence):
    _, watched = run(fault, shape, seed)
    evidence("healthy", fault=HEALTHY[fault], runs=1, alarms=len(watched.alarms))
    assert watched.alarms == []
    assert set(watched.codes) == {0}
