"""`trainjob logs`: all ranks, some of them, live, and of runs before."""

from __future__ import annotations

import pytest

from tests.integration.cli.gated_steps import GatedStep, only_trainjob
from tests.support.polling import until

SECONDS = 60.0


@pytest.fixture
def running(trainjob, cluster, namespace, tmp_path):
    """A job of two nodes whose pods have written a line each, and its work."""
    work = GatedStep(tmp_path, "tune", nodes=2)
    name = trainjob("submit", work.file, "-n", namespace).stdout.strip()
    only_trainjob(cluster, namespace, phase="Running")
    until(lambda: trainjob("logs", name, "-n", namespace).stdout.count("begun") == 2)
    return name, work


def test_what_is_there_now_and_a_part_of_it(trainjob, namespace, running):
    name, _ = running
    whole = trainjob("logs", name, "-n", namespace)
    assert (whole.returncode, whole.stderr) == (0, "")
    assert whole.stdout == "[node-0] begun\n[node-1] begun\n"
    assert trainjob("logs", f"{namespace}/{name}", "--rank", 1).stdout == "[node-1] begun\n"
    none = trainjob("logs", f"{namespace}/{name}", "--step", "launcher")
    assert (none.returncode, none.stdout) == (0, "")
    assert "has no such pods" in none.stderr


def test_it_follows_to_the_end_and_nothing_is_lost_or_told_twice(started, namespace, running):
    name, work = running
    process = started("logs", "-f", name, "-n", namespace)
    first = process.stdout.readline().rstrip()
    work.finish()
    rest = process.stdout.read().splitlines()
    assert (process.wait(SECONDS), process.stderr.read()) == (0, "")
    assert sorted([first, *rest]) == ["[node-0] begun", "[node-0] done", "[node-1] begun", "[node-1] done"]


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_it_though_nothing_is_written(started, namespace, running):
    name, _ = running
    process = started("logs", "-f", name, "-n", namespace)
    for _ in range(2):
        assert "begun" in process.stdout.readline()
    process.stdout.close()
    assert process.wait(SECONDS) == 1
    assert process.stderr.read() == ""


@pytest.mark.slow
def test_runs_before_the_last_restart(trainjob, namespace, tmp_path):
    seen = tmp_path / "seen"
    script = f"if [ -e {seen} ]; then echo again; else touch {seen}; echo first; exit 1; fi"
    work = GatedStep(tmp_path, "tune", say=script, max_restarts=None)
    name = trainjob("submit", work.file, "-n", namespace).stdout.strip()
    until(lambda: trainjob("logs", name, "-n", namespace).stdout == "[node-0] again\n", 60.0)
    assert trainjob("logs", name, "-n", namespace, "--previous").stdout == "[node-0] first\n"
    both = trainjob("logs", name, "-n", namespace, "--previous", "-f")
    assert both.returncode == 2
    trainjob("cancel", name, "-n", namespace)
