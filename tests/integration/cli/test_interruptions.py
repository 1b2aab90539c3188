"""Tests of `trainjob run --interruption-retries`: attempts after interruptions by the infrastructure."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.gated_steps import GatedStep, wait_for_only_trainjob
from tests.support.interruptions import evict, evictions
from tests.support.polling import wait_until
from tests.support.pseudo_terminal import CTRL_C

SECONDS = 300.0


def test_an_interrupted_trainjob_is_followed_by_another_attempt(start_command, cluster, namespace, tmp_path):
    work = GatedStep(tmp_path, "tune")
    with evictions(cluster, "", 1, namespace=namespace, then=work.open_gate) as interrupted:
        process = start_command("run", work.file, "-n", namespace)
        printed, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (0, "")
    before, notice, after = printed.partition("starting another attempt, interruption 1 of 3\n")
    assert "was interrupted by the infrastructure (" in before
    assert notice
    assert "[node-0] done\n" in after
    assert wait_for_only_trainjob(cluster, namespace)["metadata"]["uid"] not in interrupted


@pytest.mark.parametrize("budget", [0, 1])
def test_a_used_up_budget_ends_the_command_with_the_exit_code_of_a_failure(
    start_command, cluster, namespace, tmp_path, budget
):
    work = GatedStep(tmp_path, "tune")
    with evictions(cluster, "", budget + 1, namespace=namespace):
        arguments = ("-n", namespace, "--interruption-retries", budget, "--json")
        process = start_command("run", work.file, *arguments)
        printed, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 3
    assert errors.count("starting another attempt") == budget
    [outcome] = json.loads(printed)
    assert outcome["category"] == "Infrastructure"


def test_ctrl_c_after_an_interruption_deletes_the_newest_trainjob(terminal, cluster, namespace, tmp_path):
    screen = terminal("run", GatedStep(tmp_path, "tune").file, "-n", namespace)
    interrupted = evict(cluster, "", namespace=namespace)
    screen.wait_for_text("interruption 1 of 3")
    newest = wait_until(lambda: find_other_trainjob(cluster, namespace, interrupted))
    wait_until(lambda: screen.output.count("created") == 2)
    screen.send_keys(CTRL_C)
    assert screen.wait_for_exit() == 130
    assert f"TrainJob {newest}: it was deleted" in screen.output
    assert not cluster.list_trainjobs(namespace)


def find_other_trainjob(cluster, namespace, uid):
    """Return the name of a TrainJob with another UID."""
    names = [job["metadata"]["name"] for job in cluster.list_trainjobs(namespace) if job["metadata"]["uid"] != uid]
    return f"{namespace}/{names[0]}" if names else None


def test_a_negative_budget_is_refused(trainjob, tmp_path):
    done = trainjob("run", GatedStep(tmp_path, "tune").file, "--interruption-retries", "-1")
    assert done.returncode == 2
    assert "--interruption-retries" in done.stderr
