"""What a task tells of its TrainJob: links, progress, the receipt of an export."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from trainjob import CustomTrainerContainer
from trainjob.client import LogLine, LogWriter
from trainjob.lifecycle import JobReference
from trainjob.programs.export import Receipt
from trainjob.status import Outcome, Phase, Verdict
from trainjob.status.outcome import Category
from trainjob_airflow import ExportModelOperator, TrainJobOperator
from trainjob_airflow.links.trainjob import build_link_addresses
from trainjob_airflow.task_progress import TaskProgress, publish_progress


@pytest.fixture
def log():
    """A task's log that keeps nothing."""
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
def test_links_are_filled_and_only_web_addresses_pass(templates, expected):
    assert build_link_addresses(templates, reference(), lambda: "https://k:6443") == expected


def test_the_server_is_not_asked_for_when_no_link_needs_it():
    def server():
        raise AssertionError("asked")

    assert build_link_addresses({"a": "https://x/{name}"}, reference(), server) == {"a": "https://x/job"}


@pytest.mark.parametrize(("said", "expected"), [(None, True), ("True", True), ("False", False)])
def test_tasks_defer_unless_the_environment_says_otherwise(monkeypatch, said, expected):
    monkeypatch.delenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", raising=False)
    if said:
        monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", said)
    trainer = CustomTrainerContainer(image="x", command=["y"])
    assert TrainJobOperator(task_id="t", trainer=trainer).deferrable is expected
    assert TrainJobOperator(task_id="t", trainer=trainer, deferrable=not expected).deferrable is not expected


def test_an_exports_last_line_becomes_its_digest_and_metrics(log):
    receipt = Receipt("s3://b/m", "model", 2, 7, 99, 8, "ab" * 32, metrics={"loss": 0.5})
    account = TaskProgress(reference(), log)
    for text in ("export: done not json", f"export: done {json.dumps(receipt.to_dict())}"):
        account.listener.on_log(LogLine("node-0", text))
    operator = ExportModelOperator(task_id="t", workspace="w", destination="s3://b/m")
    outcome = Outcome("job", "ns", "uid-1", Phase.COMPLETE, Category.SUCCEEDED)
    assert operator.extra_values(outcome, account.step_result) == {
        "location": "s3://b/m",
        "digest": "sha256:" + "ab" * 32,
        "kind": "model",
        "epoch": 2,
        "files": 7,
        "bytes": 99,
        "metrics": {"loss": 0.5},
    }
    assert operator.extra_values(outcome, {}) == {"location": "s3://b/m"}


def test_progress_that_can_not_be_written_ends_no_waiting(log):
    """There is no supervisor here, so every write fails."""
    account = TaskProgress(reference(), log)

    async def wait():
        async with publish_progress(SimpleNamespace(dag_id="d", task_id="t", run_id="r", map_index=-1), account):
            account.listener.on_phase(Verdict(Phase.QUEUED, "WaitingForQuota", "waiting for quota in queue q"))
            await asyncio.sleep(0.2)
        return account.xcom_value()

    assert asyncio.run(wait()) == {
        "phase": "Queued",
        "reason": "waiting for quota in queue q",
        **dict.fromkeys(("percent", "step", "total", "epoch", "epochs", "loss")),
    }
