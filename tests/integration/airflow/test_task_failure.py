"""Tests of the XCom that keeps the reason of a task's failure."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tests.integration.airflow.airflow_runs import read_xcom, run_dag
from trainjob.errors import JobFailed, QuotaExceeded, TrainJobError
from trainjob.lifecycle import JobReference
from trainjob.status import Category, Outcome, Phase
from trainjob_airflow import TrainJobOperator
from trainjob_airflow.task_failure import FAILURE_KEY, build_failure, store_failure
from trainjob_airflow.version_compat import AirflowFailException

pytestmark = pytest.mark.usefixtures("airflow_environment")

REFERENCE = JobReference("job", "team", "uid-1", attempt=2)


def failed_outcome(**more):
    return Outcome(
        "job",
        "team",
        "uid-1",
        Phase.FAILED,
        Category.APPLICATION,
        "FailedJobs",
        "row 7",
        step="node",
        rank=1,
        exit_code=3,
        **more,
    )


def raised_by(outcome):
    with pytest.raises(JobFailed) as raised:
        outcome.raise_for_failure()
    return raised.value


def test_the_failure_has_the_evidence_of_the_outcome():
    error = raised_by(failed_outcome(events=("Evicted",), log_tail=("a", "ValueError: b")))
    failure = build_failure(error, REFERENCE)
    assert failure == json.loads(json.dumps(failure))
    assert {**failure, "hint": ""} == {
        "kind": "CommandFailed",
        "trainjob": "team/job",
        "uid": "uid-1",
        "attempt": 2,
        "phase": "Failed",
        "category": Category.APPLICATION.value,
        "reason": "FailedJobs",
        "message": "row 7",
        "step": "node",
        "rank": 1,
        "exit_code": 3,
        "hang": "",
        "events": ["Evicted"],
        "log": ["a", "ValueError: b"],
        "hint": "",
    }


def test_the_failure_of_a_training_that_hung_has_the_rank():
    hang = "rank 1 of 2 on node-0 has made no step for 60 s since step 5: it is in train (train.py:7)"
    assert build_failure(raised_by(failed_outcome(hang=hang)), REFERENCE)["hang"] == hang


def test_an_error_without_an_outcome_has_its_message():
    failure = build_failure(QuotaExceeded("no quota", hint="wait"), None)
    assert (failure["kind"], failure["message"], failure["hint"]) == ("QuotaExceeded", "no quota", "wait")
    assert (failure["trainjob"], failure["log"], failure["exit_code"]) == ("", [], None)


def test_the_failure_is_bounded_and_has_no_control_characters():
    failure = build_failure(raised_by(failed_outcome(log_tail=("\x1b[2J", *("x" * 5000 for _ in range(200))))), None)
    assert len(failure["log"]) == 50
    assert {len(line) for line in failure["log"]} == {1003}
    assert "\x1b" not in str(build_failure(raised_by(failed_outcome(log_tail=("\x1b[2J",))), None))


def test_secrets_that_airflow_knows_are_redacted():
    from airflow.sdk._shared.secrets_masker import mask_secret

    mask_secret("correct-horse-battery")
    failure = build_failure(raised_by(failed_outcome(log_tail=("token=correct-horse-battery",))), None)
    assert failure["log"] == ["token=***"]


def test_an_error_of_airflow_does_not_replace_the_error_of_the_task():
    def refuse(*_):
        raise RuntimeError("no response")

    context = {"ti": SimpleNamespace(xcom_push=refuse)}
    with pytest.raises(TrainJobError, match="no quota"), store_failure(context, lambda: None):
        raise QuotaExceeded("no quota")


@pytest.mark.parametrize(
    ("event", "error", "kind"),
    [
        ({"outcome": failed_outcome().to_dict()}, JobFailed, "CommandFailed"),
        ({"error": "too long", "kind": "WaitTimeout", "retryable": True}, TrainJobError, "WaitTimeout"),
        (
            {"error": "no image", "kind": "ImageUnavailable", "retryable": False},
            AirflowFailException,
            "ImageUnavailable",
        ),
    ],
)
def test_a_resumed_task_stores_its_failure(event, error, kind):
    xcoms = {}
    ti = SimpleNamespace(dag_id="d", task_id="t", map_index=-1, xcom_push=xcoms.__setitem__, xcom_pull=lambda **_: None)
    operator = TrainJobOperator(task_id="t", trainer={"image": "x"}, kubernetes_conn_id=None)
    with pytest.raises(error):
        operator.execute_complete({"ti": ti}, {"reference": REFERENCE.to_dict(), **event})
    assert (xcoms[FAILURE_KEY]["kind"], xcoms[FAILURE_KEY]["trainjob"]) == (kind, "team/job")


@pytest.mark.slow
@pytest.mark.parametrize("deferrable", ["1", "0"], ids=["deferrable", "on the worker"])
def test_the_failure_of_a_deleted_trainjob_is_kept(airflow, cluster, tmp_path, deferrable):
    (tmp_path / "go").touch()
    printed, tasks, _ = run_dag(
        airflow, "interruptions", DEFERRABLE=deferrable, GO=str(tmp_path / "go"), CODE="7", ON_FAILURE="delete"
    )
    assert tasks == {"train": ("failed", 1)}, printed[-6000:]
    failure = read_xcom("interruptions", FAILURE_KEY)
    assert (failure["exit_code"], failure["step"], failure["phase"]) == (7, "node", "Failed")
    assert failure["log"]
    namespace, name = failure["trainjob"].split("/")
    assert cluster.get_trainjob(name, namespace) is None
