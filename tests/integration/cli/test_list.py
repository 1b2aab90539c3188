"""`trainjob list` as people and scripts call it."""

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


def test_each_job_is_one_line_with_its_phase_and_who_asked_for_it(api_server, run_list):
    api_server.trainjob("waits", make_run_key("prepare"), queue="gpus")
    api_server.status("waits", {"conditions": [_suspended_condition()]})
    api_server.trainjob("works", make_run_key("train", "kfp"))
    api_server.runs("works")
    api_server.trainjob("by-hand")
    api_server.ends(
        "by-hand", "Failed", "jobset failed due to one or more job failures (first failed job: by-hand-node-0)"
    )
    told = run_list()
    assert (told.returncode, told.stderr) == (0, "")
    title, *lines = told.stdout.splitlines()
    assert title.split() == ["NAME", "PHASE", "STEP", "QUEUE", "PROGRESS", "AGE", "TOOK", "ASKED", "BY"]
    rows = {line.split()[0]: line for line in lines}
    assert rows["waits"].split()[1:5] == ["Queued", "-", "gpus", "-"]
    assert rows["works"].split()[1:5] == ["Running", "node", "-", "-"]
    assert rows["by-hand"].split()[1:4] == ["Failed", "node", "-"]
    assert [
        rows[name].rstrip().endswith(end) for name, end in (("works", "kfp nightly.train run-1"), ("by-hand", " -"))
    ]
    assert "\x1b" not in told.stdout  # no colours, as this is no terminal


def test_a_program_gets_the_same_facts_as_json_and_chooses_by_phase_and_label(api_server, run_list):
    api_server.trainjob("a", make_run_key("a"))
    api_server.trainjob("b", make_run_key("b", "kfp"))
    api_server.runs("b")
    api_server.status("b", {"trainerStatus": {"progressPercentage": 42, "lastUpdatedTime": "2026-01-01T00:00:00Z"}})
    [found] = json.loads(run_list("--json", "--phase", "running", "--phase", "complete").stdout)
    asked_by = {"engine": "kfp", "workflow": "nightly", "task": "b", "run": "run-1", "map_index": "", "origin": ""}
    told = {name: found[name] for name in ("namespace", "name", "phase", "step", "percent", "attempt", "asked_by")}
    assert told == {
        "namespace": "default",
        "name": "b",
        "phase": "Running",
        "step": "node",
        "percent": 42,
        "attempt": 1,
        "asked_by": asked_by,
    }
    assert [line.split()[0] for line in run_list("-l", "trainjob.dev/engine=airflow").stdout.splitlines()] == [
        "NAME",
        "a",
    ]


def test_where_there_is_nothing_only_a_person_is_told(run_list):
    told = run_list("-n", "empty")
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "no TrainJobs in namespace empty\n")


def test_a_thousand_jobs_of_all_namespaces_are_read_by_pages_and_not_one_by_one(api_server, run_list):
    for team in range(2):
        api_server.namespace(f"team-{team}")
    for number in range(MANY):
        api_server.trainjob(f"job-{number:03}", namespace=f"team-{number % 2}")
    told = run_list("-A")
    assert told.returncode == 0
    title, *lines = told.stdout.splitlines()
    assert title.split()[:2] == ["NAMESPACE", "NAME"]
    assert len(lines) == MANY
    assert lines[0].split()[0] in ("team-0", "team-1")
    assert dict(api_server.server.asked) == {"list trainjobs": 10}


def test_what_can_not_be_is_told_with_code_2(run_list):
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
