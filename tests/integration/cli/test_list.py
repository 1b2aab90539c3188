"""Tests of `trainjob list`."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.bare_apiserver import bare_apiserver, make_run_key

MANY = 1000


@pytest.fixture
def api_server(tmp_path):
    with bare_apiserver(tmp_path) as server:
        yield server


@pytest.fixture
def run_list(api_server, trainjob):
    return lambda *arguments: trainjob("list", *arguments, env={"KUBECONFIG": str(api_server.kubeconfig)})


def test_the_list_has_a_line_for_each_trainjob_with_its_phase_and_run_key(api_server, run_list):
    api_server.create_trainjob("waits", make_run_key("prepare"), queue="gpus")
    api_server.set_status("waits", {"conditions": [_suspended_condition()]})
    api_server.create_trainjob("works", make_run_key("train", "kfp"))
    api_server.set_running("works")
    api_server.create_trainjob("by-hand")
    api_server.set_finished(
        "by-hand", "Failed", "jobset failed due to one or more job failures (first failed job: by-hand-node-0)"
    )
    listed = run_list()
    assert (listed.returncode, listed.stderr) == (0, "")
    title, *lines = listed.stdout.splitlines()
    assert title.split() == ["NAME", "PHASE", "STEP", "QUEUE", "PROGRESS", "AGE", "DURATION", "RUN", "KEY"]
    rows = {line.split()[0]: line for line in lines}
    assert rows["waits"].split()[1:5] == ["Queued", "-", "gpus", "-"]
    assert rows["works"].split()[1:5] == ["Running", "node", "-", "-"]
    assert rows["by-hand"].split()[1:4] == ["Failed", "node", "-"]
    assert [
        rows[name].rstrip().endswith(end) for name, end in (("works", "kfp nightly.train run-1"), ("by-hand", " -"))
    ]
    assert "\x1b" not in listed.stdout  # no colors, because standard output is not a terminal


def test_json_has_the_same_values_and_phase_and_selector_filter_the_list(api_server, run_list):
    api_server.create_trainjob("a", make_run_key("a"))
    api_server.create_trainjob("b", make_run_key("b", "kfp"))
    api_server.set_running("b")
    api_server.set_status("b", {"trainerStatus": {"progressPercentage": 42, "lastUpdatedTime": "2026-01-01T00:00:00Z"}})
    [found] = json.loads(run_list("--json", "--phase", "running", "--phase", "complete").stdout)
    run_key = {"engine": "kfp", "workflow": "nightly", "task": "b", "run": "run-1", "map_index": "", "origin": ""}
    values = {name: found[name] for name in ("namespace", "name", "phase", "step", "percent", "attempt", "run_key")}
    assert values == {
        "namespace": "default",
        "name": "b",
        "phase": "Running",
        "step": "node",
        "percent": 42,
        "attempt": 1,
        "run_key": run_key,
    }
    assert [line.split()[0] for line in run_list("-l", "trainjob.dev/engine=airflow").stdout.splitlines()] == [
        "NAME",
        "a",
    ]


def test_an_empty_list_is_reported_on_standard_error(run_list):
    listed = run_list("-n", "empty")
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "", "no TrainJobs in namespace empty\n")


def test_a_thousand_trainjobs_of_all_namespaces_are_listed_in_pages(api_server, run_list):
    for team in range(2):
        api_server.create_namespace(f"team-{team}")
    for number in range(MANY):
        api_server.create_trainjob(f"job-{number:03}", namespace=f"team-{number % 2}")
    listed = run_list("-A")
    assert listed.returncode == 0
    title, *lines = listed.stdout.splitlines()
    assert title.split()[:2] == ["NAMESPACE", "NAME"]
    assert len(lines) == MANY
    assert lines[0].split()[0] in ("team-0", "team-1")
    assert dict(api_server.server.request_counts) == {"list trainjobs": 10}


def test_an_invalid_selector_or_phase_exits_with_code_2(run_list):
    selector, phase = run_list("-l", "(("), run_list("--phase", "dreaming")
    assert (selector.returncode, phase.returncode) == (2, 2)
    assert selector.stderr.startswith("error: ")
    assert "dreaming" in phase.stderr


def _suspended_condition():
    return {
        "type": "Suspended",
        "status": "True",
        "reason": "Suspended",
        "message": "TrainJob is suspended",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
