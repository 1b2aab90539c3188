"""`trainjob logs`: all ranks, some of them, live, and of runs before."""

from __future__ import annotations

import pytest

from tests.integration.cli.gated_steps import GatedStep, wait_for_only_trainjob
from tests.support.polling import wait_until

SECONDS = 60.0


@pytest.fixture
def running_job(trainjob, cluster, namespace, tmp_path):
    """A job of two nodes whose pods have written a line each, and its work."""
    work = GatedStep(tmp_path, "tune", nodes=2)
    name = trainjob("submit", work.file, "-n", namespace).stdout.strip()
    wait_for_only_trainjob(cluster, namespace, phase="Running")
    wait_until(lambda: trainjob("logs", name, "-n", namespace).stdout.count("begun") == 2)
    return name, work


def test_what_is_there_now_and_a_part_of_it(trainjob, namespace, running_job):
    name, _ = running_job
    whole = trainjob("logs", name, "-n", namespace)
    assert (whole.returncode, whole.stderr) == (0, "")
    assert whole.stdout == "[node-0] begun\n[node-1] begun\n"
    assert trainjob("logs", f"{namespace}/{name}", "--rank", 1).stdout == "[node-1] begun\n"
    none = trainjob("logs", f"{namespace}/{name}", "--step", "launcher")
    assert (none.returncode, none.stdout) == (0, "")
    assert "has no such pods" in none.stderr


def test_it_follows_to_the_end_and_nothing_is_lost_or_told_twice(start_command, namespace, running_job):
    name, work = running_job
    process = start_command("logs", "-f", name, "-n", namespace)
    first = process.stdout.readline().rstrip()
    work.finish()
    rest = process.stdout.read().splitlines()
    assert (process.wait(SECONDS), process.stderr.read()) == (0, "")
    assert sorted([first, *rest]) == ["[node-0] begun", "[node-0] done", "[node-1] begun", "[node-1] done"]


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_it_though_nothing_is_written(start_command, namespace, running_job):
    name, _ = running_job
    process = start_command("logs", "-f", name, "-n", namespace)
    for _ in range(2):
        assert "begun" in process.stdout.readline()
    process.stdout.close()
    assert process.wait(SECONDS) == 1
    assert process.stderr.read() == ""


@pytest.mark.slow
def test_runs_before_the_last_restart(trainjob, namespace, tmp_path):
    seen = tmp_path / "seen"
    script = f"if [ -e {seen} ]; then echo again; else touch {seen}; echo first; exit 1; fi"
    work = GatedStep(tmp_path, "tune", first_command=script, max_restarts=None)
    name = trainjob("submit", work.file, "-n", namespace).stdout.strip()
    wait_until(lambda: trainjob("logs", name, "-n", namespace).stdout == "[node-0] again\n", 60.0)
    assert trainjob("logs", name, "-n", namespace, "--previous").stdout == "[node-0] first\n"
    both = trainjob("logs", name, "-n", namespace, "--previous", "-f")
    assert both.returncode == 2
    trainjob("cancel", name, "-n", namespace)
