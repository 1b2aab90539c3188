"""Tests of `trainjob wait`: several names, and the exit codes."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.gated_steps import GatedStep


@pytest.mark.slow
def test_wait_waits_for_all_and_exits_with_the_worst_code(trainjob, start_command, namespace, tmp_path):
    good, bad = GatedStep(tmp_path, "good"), GatedStep(tmp_path, "bad", code=3, max_restarts=None)
    names = [trainjob("submit", work.file, "-n", namespace).stdout.strip() for work in (good, bad)]
    slow = trainjob("wait", *names, "-n", namespace, "--timeout", "1s", "--json")
    assert slow.returncode == 4
    assert [(each["job"], each["error"]) for each in json.loads(slow.stdout)] == [(n, "WaitTimeout") for n in names]
    waiting = start_command("wait", *names, "-n", namespace, "--json")
    seen = ""
    while not all(f"{name}: Running" in seen for name in names):
        line = waiting.stderr.readline()
        assert line, seen
        seen += line
    good.open_gate()
    trainjob("cancel", f"{namespace}/{names[1]}")
    outcomes, phases = waiting.stdout.read(), waiting.stderr.read()
    assert waiting.wait(60) == 3
    assert [(each["job"], each["phase"]) for each in json.loads(outcomes)] == [
        (names[0], "Complete"),
        (names[1], "Deleted"),
    ]
    assert f"TrainJob {namespace}/{names[0]}: Complete" in phases
    assert trainjob("wait", f"{namespace}/{names[0]}").returncode == 0


@pytest.mark.slow
def test_an_unknown_name_is_an_error_that_lists_similar_names(trainjob, namespace, tmp_path):
    name = trainjob("submit", GatedStep(tmp_path, "tune").file, "-n", namespace).stdout.strip()
    done = trainjob("wait", name, name[:-1], "-n", namespace)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: there is no TrainJob {namespace}/{name[:-1]}\n" in done.stderr
    assert f"did you mean {name}? namespace {namespace} has {name}" in done.stderr
    trainjob("cancel", name, "-n", namespace)


def test_an_invalid_timeout_is_an_error(trainjob):
    done = trainjob("wait", "any", "--timeout", "soon")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --timeout cannot be 'soon': ")
