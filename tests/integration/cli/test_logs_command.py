"""Tests of `trainjob logs`: all ranks, selected ranks, `--follow` and `--previous`."""

from __future__ import annotations

import signal

import pytest

from tests.integration.cli.gated_steps import GatedStep, wait_for_only_trainjob
from tests.support.polling import wait_until

SECONDS = 300.0


@pytest.fixture
def running_job(trainjob, cluster, namespace, tmp_path):
    """Return the name and the step file of a job with two pods that have each printed a line."""
    work = GatedStep(tmp_path, "tune", nodes=2)
    name = trainjob("submit", work.file, "-n", namespace).stdout.strip()
    wait_for_only_trainjob(cluster, namespace, phase="Running")
    wait_until(lambda: trainjob("logs", name, "-n", namespace).stdout.count("begun") == 2)
    return name, work


def test_logs_prints_existing_lines_of_all_or_selected_ranks(trainjob, namespace, running_job):
    name, _ = running_job
    whole = trainjob("logs", name, "-n", namespace)
    assert (whole.returncode, whole.stderr) == (0, "")
    assert whole.stdout == "[node-0] begun\n[node-1] begun\n"
    assert trainjob("logs", f"{namespace}/{name}", "--rank", 1).stdout == "[node-1] begun\n"
    none = trainjob("logs", f"{namespace}/{name}", "--step", "launcher")
    assert (none.returncode, none.stdout) == (0, "")
    assert "has no pods of this step and rank" in none.stderr


def test_follow_prints_each_line_once_until_the_end(start_command, namespace, running_job):
    name, work = running_job
    process = start_command("logs", "-f", name, "-n", namespace)
    first = process.stdout.readline().rstrip()
    work.open_gate()
    rest = process.stdout.read().splitlines()
    assert (process.wait(SECONDS), process.stderr.read()) == (0, "")
    assert sorted([first, *rest]) == ["[node-0] begun", "[node-0] done", "[node-1] begun", "[node-1] done"]


@pytest.mark.slow
def test_a_closed_output_pipe_ends_follow_without_new_lines(start_command, namespace, running_job):
    name, _ = running_job
    process = start_command("logs", "-f", name, "-n", namespace)
    for _ in range(2):
        assert "begun" in process.stdout.readline()
    process.stdout.close()
    assert process.wait(SECONDS) == -signal.SIGPIPE
    assert process.stderr.read() == ""


@pytest.mark.slow
def test_previous_prints_the_logs_before_the_last_restart(trainjob, namespace, tmp_path):
    seen = tmp_path / "seen"
    script = f"if [ -e {seen} ]; then echo again; else touch {seen}; echo first; exit 1; fi"
    work = GatedStep(tmp_path, "tune", first_command=script, max_restarts=None)
    name = trainjob("submit", work.file, "-n", namespace).stdout.strip()
    wait_until(lambda: trainjob("logs", name, "-n", namespace).stdout == "[node-0] again\n", 60.0)
    assert trainjob("logs", name, "-n", namespace, "--previous").stdout == "[node-0] first\n"
    both = trainjob("logs", name, "-n", namespace, "--previous", "-f")
    assert both.returncode == 2
    trainjob("cancel", name, "-n", namespace)
