"""Tests of the parts of the page without I/O: pages of the list, comparison, and the view of a task instance."""

from __future__ import annotations

import math

import pytest

from trainjob_airflow.plugins.comparison import Trial, collect_metrics, compare, flatten_fields, get_better_direction
from trainjob_airflow.plugins.job_list import select_page
from trainjob_airflow.plugins.task_view import find_tracked_run, merge_attempts, select_failure, summarize


def row(number, *, dag="d", phase="Running"):
    finished = phase in ("Complete", "Failed")
    texts = {"name": f"job-{number}", "dag": dag, "task": "train", "run": "manual__1", "queue": "", "phase": phase}
    return {**texts, "created": f"2026-01-01T00:{number:02}:00Z", "finished": finished}


def names(page):
    return [each["name"] for each in page.rows]


def test_a_page_has_active_trainjobs_first_and_the_newest_of_each_group_first():
    rows = [row(1), row(2, phase="Complete"), row(3), row(4, phase="Failed")]
    assert names(select_page(rows, limit=3)) == ["job-3", "job-1", "job-4"]
    assert names(select_page(rows, limit=3, offset=3)) == ["job-2"]


@pytest.mark.parametrize(("offset", "first", "shown"), [(0, 0, 2), (2, 2, 2), (4, 4, 1), (6, 4, 1), (1000, 4, 1)])
def test_an_offset_behind_the_end_shows_the_last_page(offset, first, shown):
    page = select_page([row(number) for number in range(5)], limit=2, offset=offset)
    assert (page.offset, len(page.rows), page.total) == (first, shown, 5)


def test_an_empty_list_has_an_empty_page():
    page = select_page([], limit=2, offset=10)
    assert (page.rows, page.total, page.offset, page.dags, page.phases) == ([], 0, 0, {}, {})


def test_filters_limit_the_rows_and_the_counts_show_what_else_can_be_selected():
    rows = [row(1, dag="a"), row(2, dag="a", phase="Failed"), row(3, dag="b"), row(4, dag="b", phase="Complete")]
    page = select_page(rows, dag="a", phase="Failed", limit=10)
    assert (names(page), page.total) == (["job-2"], 1)
    assert page.dags == {"a": 2, "b": 2}
    assert page.phases == {"Failed": 1, "Running": 1}  # of the selected DAG
    assert names(select_page(rows, text="JOB-3 manual", limit=10)) == ["job-3"]
    assert names(select_page(rows, text="job-3 complete", limit=10)) == []


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


@pytest.mark.parametrize("url", [None, "", 5, "javascript:alert(1)"])
def test_only_web_addresses_are_tracked_runs(url):
    assert find_tracked_run({"tracking_url": url}) == []
    assert find_tracked_run({}) == []
