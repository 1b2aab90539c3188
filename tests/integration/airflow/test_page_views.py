"""Tests of the parts of the page without I/O: comparison, and the view of a task instance."""

from __future__ import annotations

import math

import pytest

from trainjob_airflow.plugins.comparison import Trial, collect_metrics, compare, flatten_fields, get_better_direction
from trainjob_airflow.plugins.task_view import (
    find_tracked_run,
    merge_attempts,
    select_failure,
    select_score_curves,
    summarize,
)


def trial(index, rate, metrics, operator="FineTuneOperator", phase="Complete", **config):
    fields = {"model": "m", "config": {"learning_rate": rate, "epochs": 1, **config}, "rendered_trainjob": str(index)}
    return Trial("tune", index, operator, phase, fields=fields, metrics=metrics)


def test_a_comparison_has_the_parameters_that_differ_and_marks_the_best_values():
    trials = [
        trial(1, 0.1, {"loss": 0.5, "num_tokens": 8, "eval_accuracy": 0.7}),
        trial(0, 0.01, {"loss": 0.9, "num_tokens": 9, "eval_accuracy": 0.8}),
        trial(2, 0.2, {}, dtype="bf16"),
        trial(0, 0.3, {"loss": 0.1}, operator="AnotherOperator"),
    ]
    [group] = compare(trials)
    assert (group["operator"], group["parameters"]) == ("FineTuneOperator", ["config.learning_rate", "config.dtype"])
    assert group["metrics"] == [
        {"name": "loss", "better": "lower"},
        {"name": "eval_accuracy", "better": "higher"},
        {"name": "num_tokens", "better": ""},
    ]
    assert [each["index"] for each in group["rows"]] == [0, 1, 2]
    assert [each["best"] for each in group["rows"]] == [["eval_accuracy"], ["loss"], []]
    assert group["rows"][2]["parameters"] == {"config.learning_rate": "0.2", "config.dtype": "bf16"}
    assert (group["rows"][2]["metrics"], group["rows"][2]["job"]) == ({}, None)


def test_equal_values_are_not_marked_but_several_best_ones_are():
    [group] = compare([trial(0, 1, {"loss": 0.5}), trial(1, 2, {"loss": 0.5})])
    assert [each["best"] for each in group["rows"]] == [[], []]
    [group] = compare([trial(0, 1, {"loss": 0.5}), trial(1, 2, {"loss": 0.5}), trial(2, 3, {"loss": 0.6})])
    assert [each["best"] for each in group["rows"]] == [["loss"], ["loss"], []]


@pytest.mark.parametrize("phase", ["Failed", "Running", "Terminating", "failed", "up_for_retry"])
def test_only_a_trial_that_succeeded_is_the_best(phase):
    trials = [
        trial(0, 1, {"eval_loss": 0.3}, phase=phase),
        trial(1, 2, {"eval_loss": 0.5}),
        trial(2, 3, {"eval_loss": 0.4}, phase="success"),
        trial(3, 4, {"eval_loss": 0.4}, phase=phase),
    ]
    [group] = compare(trials)
    assert [each["best"] for each in group["rows"]] == [[], [], ["eval_loss"], []]


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("loss", "lower"),
        ("eval_loss", "lower"),
        ("reward", "higher"),
        ("rewards/margins", "higher"),
        ("mean_token_accuracy", "higher"),
        ("rewards/rejected", ""),
        ("reward_std", ""),
        ("learning_rate", ""),
        ("num_tokens", ""),
        ("glossary", ""),
    ],
)
def test_the_name_of_a_metric_shows_which_values_are_better(metric, direction):
    assert get_better_direction(metric) == direction


def test_metrics_are_loss_metrics_and_returned_numbers_but_no_values_that_json_lacks():
    progress = {"loss": math.nan, "step": 3, "metrics": {"eval_loss": 1, "grad_norm": math.inf}}
    result = {"seconds": 3.0, "result": {"accuracy": 0.9, "passed": True, "name": "x"}}
    assert collect_metrics(progress, result) == {"eval_loss": 1.0, "accuracy": 0.9}
    assert collect_metrics({}, {"result": 5}) == {}


def test_fields_are_flat_texts():
    fields = {"config": {"a": {"b": [1, 2]}, "none": None}, "text": "x" * 400, "rendered_trainjob": "kind: TrainJob"}
    assert flatten_fields(fields) == {"config.a.b": "[1, 2]", "text": "x" * 300}


def cluster_row(uid, attempt, phase="Running"):
    return {"connection": "c", "namespace": "ns", "name": f"job-{attempt}", "uid": uid, "attempt": attempt} | {
        "phase": phase,
        "created": "2026-01-01T00:00:00Z",
        "ended": "",
    }


def test_all_attempts_are_listed_also_those_that_were_deleted():
    recorded = [
        {"name": "job-1", "namespace": "ns", "uid": "u1", "attempt": 1, "try_number": 1, "connection": "other"},
        {"name": "job-2", "namespace": "ns", "uid": "u2", "attempt": 2, "try_number": 2, "connection": ""},
        {"name": "no uid"},
    ]
    attempts = merge_attempts([cluster_row("u2", 2), cluster_row("u3", 3)], recorded, "default")
    assert [(each["uid"], each["try_number"], each["phase"], each["connection"]) for each in attempts] == [
        ("u3", None, "Running", "c"),
        ("u2", 2, "Running", "c"),
        ("u1", 1, "", "other"),
    ]
    # a record of an earlier version of the provider has neither try nor connection
    [attempt] = merge_attempts([], [{"name": "job-1", "namespace": "ns", "uid": "u1", "attempt": 1}], "default")
    assert (attempt["try_number"], attempt["connection"]) == (None, "default")


def test_the_summary_has_only_known_values():
    attempts = [cluster_row("u2", 2, "Complete")]
    progress = {
        "phase": "Complete",
        "reason": "",
        "step": 10,
        "total": 10,
        "loss": 0.123456,
        "metrics": {"reward": 2.0},
    }
    result = {"seconds": 61.5, "location": "s3://b/m", "result": {"total": 3}, "unknown": "x"}
    assert summarize("success", 2, attempts, progress, result) == [
        ("State", "success, try 2"),
        ("TrainJob", "ns/job-2, attempt 2"),
        ("Phase", "Complete"),
        ("Seconds", "61.5"),
        ("Step", "10 of 10"),
        ("Loss", "0.1235"),
        ("reward", "2"),
        ("Location", "s3://b/m"),
        ("Result", "{'total': 3}"),
    ]
    assert summarize("", 0, [], {}, {}) == [("State", "no state, try 0")]


def test_a_stored_failure_has_log_and_description_only_with_the_permission_for_logs():
    shown = {"kind": "OutOfMemory", "reason": "OOMKilled", "trainjob": "ns/j", "uid": "u", "attempt": 2}
    place = {"step": "node", "rank": 0, "exit_code": 137, "message": "it failed", "hint": "", "events": ["an event"]}
    stored = {**shown, **place, "log": ["x", 1], "unknown": "y"}
    description = ["it failed", "step node, rank 0, exit code 137", "an event"]
    assert select_failure(stored, with_log=True) == {**shown, "description": description, "log": ["x", "1"]}
    assert select_failure(stored, with_log=False) == {**shown, "description": [], "log": []}
    minimal = select_failure({"kind": "WaitTimeout"}, with_log=True)
    assert (minimal["kind"], minimal["description"], minimal["log"]) == ("WaitTimeout", [], [])
    assert select_failure({}, with_log=True) is None


def test_scores_of_several_runs_are_curves():
    first = {"scores": {"t/acc": {"value": 0.5}, "t/once": {"value": 1}}, "champion_scores": {}}
    odd = {"scores": {"t/acc": {"value": None}, "t/once": 5}, "champion_scores": [1]}
    last = {"scores": {"t/acc": {"value": 0.7}}, "champion_scores": {"t/acc": {"value": 0.5}}}
    assert select_score_curves([first, {}, odd, last]) == [
        {"metric": "t/acc", "points": [(1, 0.5), (4, 0.7)], "champion_points": [(4, 0.5)]}
    ]


@pytest.mark.parametrize("url", [None, "", 5, "javascript:alert(1)"])
def test_only_web_addresses_are_tracked_runs(url):
    assert find_tracked_run({"tracking_url": url}) == []
    assert find_tracked_run({}) == []
