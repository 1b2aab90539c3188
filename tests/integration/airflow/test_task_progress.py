"""Tests of a task's links, progress and step result."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from trainjob import CustomTrainerContainer
from trainjob.client import LogLine, LogWriter
from trainjob.client.log_lines import LoggedContainer
from trainjob.errors import InvalidSpec
from trainjob.lifecycle import JobReference
from trainjob.programs.export import Receipt
from trainjob.status import Outcome, Phase, Progress, Verdict
from trainjob.status.outcome import Category
from trainjob.status.watchdog import RankSteps
from trainjob_airflow import ExportModelOperator, TrainJobOperator
from trainjob_airflow.links.trainjob import build_link_addresses
from trainjob_airflow.task_log import create_line_writer
from trainjob_airflow.task_progress import ProgressPublisher, TaskProgress


@pytest.fixture
def log():
    """Open a task's log that discards all lines."""
    with LogWriter().open(lambda _: None) as opened:
        yield opened


def reference(name="job"):
    return JobReference(name, "ns", "uid-1")


@pytest.mark.parametrize(
    ("templates", "expected"),
    [
        ({}, {}),
        ({"a": "https://x/{namespace}/{name}/{uid}"}, {"a": "https://x/ns/job/uid-1"}),
        ({"a": "http://x/?s={server}&panes={1}"}, {"a": "http://x/?s=https://k:6443&panes={1}"}),
        ({"a": "javascript:alert(1)", "b": "{server}/api"}, {"b": "https://k:6443/api"}),
    ],
)
def test_links_are_filled_and_only_web_addresses_are_returned(templates, expected):
    assert build_link_addresses(templates, reference(), lambda: "https://k:6443") == expected


def test_the_server_is_read_only_if_a_link_needs_it():
    def get_server():
        raise AssertionError("called")

    assert build_link_addresses({"a": "https://x/{name}"}, reference(), get_server) == {"a": "https://x/job"}


@pytest.mark.parametrize(
    ("in_file", "in_environment", "expected"),
    [(None, None, True), ("true", None, True), ("false", None, False), ("false", "True", True), (None, "False", False)],
)
def test_tasks_are_deferrable_unless_the_configuration_disables_it(tmp_path, in_file, in_environment, expected):
    if in_file:
        (tmp_path / "airflow.cfg").write_text(f"[operators]\ndefault_deferrable = {in_file}\n")
    variables = {name: value for name, value in os.environ.items() if name != "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE"}
    if in_environment:
        variables["AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE"] = in_environment
    code = "from trainjob_airflow import TrainJobSensor; print(TrainJobSensor(task_id='t', name='x').deferrable)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**variables, "AIRFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == str(expected)


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_task_decides_itself_whether_it_is_deferrable(deferrable):
    trainer = CustomTrainerContainer(image="x", command=["y"])
    assert TrainJobOperator(task_id="t", trainer=trainer, deferrable=deferrable).deferrable is deferrable


def test_the_last_line_of_an_export_is_its_digest_and_metrics(log):
    receipt = Receipt("s3://b/m", "model", 2, 7, 99, 8, "ab" * 32, metrics={"loss": 0.5})
    progress = TaskProgress(reference(), log)
    for text in ("export: done not json", f"export: done {json.dumps(receipt.to_dict())}"):
        progress.listener.on_log(LogLine("node-0", text))
    operator = ExportModelOperator(task_id="t", workspace="w", destination="s3://b/m")
    outcome = Outcome("job", "ns", "uid-1", Phase.COMPLETE, Category.SUCCEEDED)
    assert operator.extra_values(outcome, progress.step_result) == {
        "location": "s3://b/m",
        "digest": "sha256:" + "ab" * 32,
        "kind": "model",
        "epoch": 2,
        "files": 7,
        "bytes": 99,
        "metrics": {"loss": 0.5},
    }
    assert operator.extra_values(outcome, {}) == {"location": "s3://b/m"}


def test_a_result_that_cannot_be_stored_is_a_warning_and_a_reason(log, monkeypatch):
    lines = []
    monkeypatch.setattr(log, "report", lines.append)
    trainer = CustomTrainerContainer(image="x", command=["y"])
    progress, operator = TaskProgress(reference(), log), TrainJobOperator(task_id="t", trainer=trainer)
    for text in ('trainjob result: {"a": 0.9}', 'trainjob result: {"a": 1e999}'):
        progress.listener.on_log(LogLine("node-0", text))
    outcome = Outcome("job", "ns", "uid-1", Phase.COMPLETE, Category.SUCCEEDED)
    error = "the line `trainjob result: ...` of the training can't be used: it has a number that is not finite"
    assert operator.extra_values(outcome, progress.step_result) == {"result_error": error}
    assert [line for line in lines if "warning" in line] == [f"TrainJob ns/job: warning: {error}"]


def test_the_xcom_has_metrics_if_there_are_any(log):
    progress = TaskProgress(reference(), log)
    progress.listener.on_progress(Progress(step=1, total=4, loss=0.5))
    assert "metrics" not in progress.xcom_value()
    progress.listener.on_progress(Progress(step=2, total=4, loss=0.5, metrics={"reward": 1.5}))
    assert progress.xcom_value() == {
        "phase": "",
        "reason": "",
        "percent": 50.0,
        "step": 2,
        "total": 4,
        "epoch": None,
        "epochs": None,
        "loss": 0.5,
        "metrics": {"reward": 1.5},
    }
    progress.listener.on_progress(Progress(step=2, total=4, ranks=RankSteps(1, 2, 0, 3, 4.0)))
    assert progress.xcom_value()["ranks"] == "rank 1 at step 2 and rank 0 at step 3, active 4 s ago"


def test_the_lines_of_named_containers_and_notices_about_all_of_them_are_logged():
    written = []
    with LogWriter().open(written.append) as log:
        progress = TaskProgress(reference(), log, log_containers=["node"])
        for container, text in (("node", "a"), ("proxy", "b"), ("proxy", "c"), ("", "d"), ("node", "e")):
            logged = LoggedContainer(container, "ns", "p", "u", container) if container else None
            progress.listener.on_log(LogLine(container or "all", text, log=logged))
    assert written == [
        "[node] a",
        (
            "TrainJob ns/job: lines of container proxy are not written here, because log_containers names only node; "
            "print them with: kubectl logs p -c proxy -n ns"
        ),
        "[all] d",
        "[node] e",
    ]


@pytest.mark.parametrize("names", ["node", [], [""], [1]])
def test_log_containers_must_be_a_list_of_names(names):
    trainer = CustomTrainerContainer(image="x", command=["y"])
    with pytest.raises(
        InvalidSpec, match=r"log_containers cannot be .*give a list of container names, such as \['node'\]"
    ):
        TrainJobOperator(task_id="t", trainer=trainer, log_containers=names)


def test_a_failed_write_of_the_progress_does_not_end_the_wait(log):
    """Every write fails, because the test has no supervisor."""
    progress = TaskProgress(reference(), log)

    async def wait():
        async with ProgressPublisher(SimpleNamespace(dag_id="d", task_id="t", run_id="r", map_index=-1), progress):
            progress.listener.on_phase(Verdict(Phase.QUEUED, "WaitingForQuota", "waiting for quota in queue q"))
            await asyncio.sleep(0.2)
        return progress.xcom_value()

    assert asyncio.run(wait()) == {
        "phase": "Queued",
        "reason": "waiting for quota in queue q",
        **dict.fromkeys(("percent", "step", "total", "epoch", "epochs", "loss")),
    }


def test_the_task_log_keeps_colors_and_shows_other_control_characters_as_text():
    lines = []
    create_line_writer(lines.append)("[node-0] \x1b[32mgreen\x1b[2J")
    assert lines == ["[node-0] \x1b[32mgreen^[[2J\x1b[0m"]
