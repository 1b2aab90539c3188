"""`trainjob list` as people and scripts call it."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.bare_apiserver import bare_apiserver, key

MANY = 1000


@pytest.fixture
def alone(tmp_path):
    with bare_apiserver(tmp_path) as server:
        yield server


@pytest.fixture
def listed(alone, trainjob):
    return lambda *arguments: trainjob("list", *arguments, env={"KUBECONFIG": str(alone.kubeconfig)})


def test_each_job_is_one_line_with_its_phase_and_who_asked_for_it(alone, listed):
    alone.trainjob("waits", key("prepare"), queue="gpus")
    alone.status("waits", {"conditions": [_suspended()]})
    alone.trainjob("works", key("train", "kfp"))
    alone.runs("works")
    alone.trainjob("by-hand")
    alone.ends("by-hand", "Failed", "jobset failed due to one or more job failures (first failed job: by-hand-node-0)")
    told = listed()
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


def test_a_program_gets_the_same_facts_as_json_and_chooses_by_phase_and_label(alone, listed):
    alone.trainjob("a", key("a"))
    alone.trainjob("b", key("b", "kfp"))
    alone.runs("b")
    alone.status("b", {"trainerStatus": {"progressPercentage": 42, "lastUpdatedTime": "2026-01-01T00:00:00Z"}})
    [found] = json.loads(listed("--json", "--phase", "running", "--phase", "complete").stdout)
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
    assert [line.split()[0] for line in listed("-l", "trainjob.dev/engine=airflow").stdout.splitlines()] == [
        "NAME",
        "a",
    ]


def test_where_there_is_nothing_only_a_person_is_told(listed):
    told = listed("-n", "empty")
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "no TrainJobs in namespace empty\n")


def test_a_thousand_jobs_of_all_namespaces_are_read_by_pages_and_not_one_by_one(alone, listed):
    for team in range(2):
        alone.namespace(f"team-{team}")
    for number in range(MANY):
        alone.trainjob(f"job-{number:03}", namespace=f"team-{number % 2}")
    told = listed("-A")
    assert told.returncode == 0
    title, *lines = told.stdout.splitlines()
    assert title.split()[:2] == ["NAMESPACE", "NAME"]
    assert len(lines) == MANY
    assert lines[0].split()[0] in ("team-0", "team-1")
    assert dict(alone.server.asked) == {"list trainjobs": 10}


def test_what_can_not_be_is_told_with_code_2(listed):
    selector, phase = listed("-l", "(("), listed("--phase", "dreaming")
    assert (selector.returncode, phase.returncode) == (2, 2)
    assert selector.stderr.startswith("error: ")
    assert "dreaming" in phase.stderr


def _suspended():
    return {
        "type": "Suspended",
        "status": "True",
        "reason": "Suspended",
        "message": "TrainJob is suspended",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
