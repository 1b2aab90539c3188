"""Tests of the workflow files of GitHub: what they run exists, and no job is left out where results are collected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / ".github/workflows").glob("*.yml")}
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def list_targets(workflow):
    """Return the make targets that the jobs of a workflow run."""
    found = set()
    for job in workflow["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {}).get("target", [])
        for step in job.get("steps", []):
            for target in re.findall(r"\bmake PYTHON=\S+ (\S+)", step.get("run", "")):
                found.update(matrix if target == '"${TARGET}"' else [target])
    return found


@pytest.mark.parametrize(("workflow", "collector"), [("test", "gate"), ("nightly", "report"), ("weekly", "report")])
def test_all_jobs_are_collected(workflow, collector):
    """The gate and the reports of scheduled runs need every other job, and run after a failure, too."""
    jobs = WORKFLOWS[workflow]["jobs"]
    assert set(jobs[collector]["needs"]) == set(jobs) - {collector}
    assert jobs[collector]["if"].startswith("always()")


@pytest.mark.parametrize("workflow", sorted(set(WORKFLOWS) - {"report"}))
def test_targets_exist(workflow):
    """Workflows run targets of the Makefile."""
    found = list_targets(WORKFLOWS[workflow])
    assert found
    assert found <= TARGETS


def test_each_suite_runs_in_a_workflow():
    """Each command of CONTRIBUTING's table runs in a workflow, or the page says that people run it."""
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    suites = set(re.findall(r"^\| `make ([a-z0-9-]+)", page, re.MULTILINE))
    by_hand = set(re.findall(r"`make ([a-z0-9-]+)`", re.search(r"No workflow runs (.+?)\.\s", page, re.DOTALL)[1]))
    in_workflows = set().union(*(list_targets(workflow) for workflow in WORKFLOWS.values()))
    assert suites - in_workflows <= by_hand
    assert not by_hand & in_workflows
