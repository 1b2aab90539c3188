"""Scores, differences and gates of an evaluation, without the harness."""

from __future__ import annotations

import itertools
import json
import math
import random
from dataclasses import astuple, replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.errors import InvalidSpec
from trainjob.frameworks.evaluation.comparison import Difference, compare
from trainjob.frameworks.evaluation.gates import apply_gates, check_gates
from trainjob.frameworks.evaluation.harness import read_scores
from trainjob.frameworks.evaluation.result_files import ResultFiles
from trainjob.frameworks.evaluation.scores import Score, name_scores

ROWS = {str(row): float(row % 2) for row in range(100)}


def make_score(rows, *, higher_is_better=True):
    return Score(sum(rows.values()) / len(rows), 0.05, higher_is_better, rows)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30))
def test_the_interval_contains_the_difference_and_changes_its_sides_with_the_models(pairs):
    model, champion = ({str(row): values[side] for row, values in enumerate(pairs)} for side in (0, 1))
    found = compare(make_score(model), make_score(champion), 0.95)
    reverse = compare(make_score(champion), make_score(model), 0.95)
    assert found.low - 1e-9 <= found.value <= found.high + 1e-9
    assert found.rows == len(pairs)
    assert (found.value, found.low, found.high) == pytest.approx((-reverse.value, -reverse.high, -reverse.low))


def test_the_interval_is_as_wide_as_the_standard_error_of_paired_rows_says():
    generator = random.Random(1)  # noqa: S311 - only a sample
    champion = {str(row): generator.random() for row in range(400)}
    model = {row: value + generator.gauss(0.1, 0.2) for row, value in champion.items()}
    found = compare(make_score(model), make_score(champion), 0.95)
    assert found.high - found.low == pytest.approx(2 * 1.96 * 0.2 / math.sqrt(400), rel=0.1)
    assert found.low > 0  # two separate intervals would overlap: the rows alone have a standard error of 0.014 each
    assert compare(make_score(model), make_score(champion), 0.95) == found


def test_a_smaller_loss_is_an_advantage():
    better = make_score(dict.fromkeys(ROWS, 0.5), higher_is_better=False)
    found = compare(better, make_score(dict.fromkeys(ROWS, 0.75), higher_is_better=False), 0.95)
    assert found == Difference(0.25, 0.25, 0.25, 100, 10_000)


@pytest.mark.parametrize(
    ("model", "champion"),
    [
        (Score(1.0, higher_is_better=True), Score(1.0, higher_is_better=True)),
        (make_score(ROWS), make_score({**ROWS, "100": 1.0})),
        (make_score(ROWS, higher_is_better=None), make_score(ROWS)),
    ],
    ids=["no rows", "other rows", "no direction"],
)
def test_scores_without_the_same_rows_are_not_compared(model, champion):
    assert compare(model, champion, 0.95) is None


@pytest.mark.parametrize(
    ("gate", "value", "difference", "passed"),
    [
        ({"minimum": 0.5}, 0.5, None, [True]),
        ({"minimum": 0.5}, 0.4999, None, [False]),
        ({"maximum": 2.0}, 2.5, None, [False]),
        ({"minimum": 0.5}, math.nan, None, [False]),
        ({"maximum": 0.5}, math.nan, None, [False]),
        ({"better_than_champion": True}, math.nan, None, [False]),  # a diverged model has no rows
        ({"not_worse_than_champion": 0.0}, 0.5, (0.0, 0.0, 0.0), [True]),
        ({"not_worse_than_champion": 0.02}, 0.5, (0.01, -0.019, 0.04), [True]),
        ({"not_worse_than_champion": 0.02}, 0.5, (0.01, -0.021, 0.04), [False]),
        ({"better_than_champion": True}, 0.5, (0.0, 0.0, 0.0), [False]),
        ({"better_than_champion": True}, 0.5, (0.1, 0.001, 0.2), [True]),
        ({"minimum": 0.5, "better_than_champion": True}, 0.5, (0.1, -0.1, 0.2), [True, False]),
    ],
)
def test_a_gate_passes_only_what_follows_its_rules(gate, value, difference, passed):
    differences = {"t/acc": Difference(*difference, rows=9, resamples=10_000)} if difference else {}
    verdicts = apply_gates({"t/acc": gate}, {"t/acc": Score(value)}, differences)
    assert [verdict.passed for verdict in verdicts] == passed
    assert all(f"{value:.6g}" in verdict.found or "better by" in verdict.found for verdict in verdicts)


def test_without_a_champion_only_the_limits_decide():
    gate = {"minimum": 0.9, "not_worse_than_champion": 0.01, "better_than_champion": True}
    verdicts = apply_gates({"t/acc": gate}, {"t/acc": Score(0.5)}, {}, has_champion=False)
    assert [(verdict.passed, verdict.found) for verdict in verdicts] == [
        (False, "0.5"),
        (True, "there is no champion yet"),
        (True, "there is no champion yet"),
    ]


def test_a_gate_that_the_metrics_do_not_fit_is_refused_with_what_is_allowed():
    scores = {"t/word_perplexity": Score(9.0), "t/acc": Score(0.5)}
    gates = {"t/accuracy": {"minimum": 0.5}, "t/word_perplexity": {"better_than_champion": True}}
    with pytest.raises(InvalidSpec) as refused:
        check_gates(gates, scores)
    check_gates({"t/word_perplexity": {"maximum": 10.0}, "t/acc": {"minimum": 0.5}}, scores)
    check_gates({"t/acc": {"better_than_champion": True}}, {"t/acc": make_score(ROWS)})
    check_gates({"t/acc": {"better_than_champion": True}}, {"t/acc": Score(math.nan)})  # a diverged model is no mistake
    assert str(refused.value).splitlines() == [
        "gates cannot be t/accuracy: the tasks have the metrics t/acc, t/word_perplexity",
        (
            "gates.t/word_perplexity cannot be better_than_champion: this metric has no items of rows, so it can't be "
            "compared with the champion: use minimum or maximum, or another metric"
        ),
    ]


SAMPLES = [
    {"doc_id": row, "filter": name, "exact_match": float(row < last), "bits": (-3.0, 4)}
    for name, last in (("strict-match", 1), ("flexible-extract", 3))
    for row in range(4)
]
RESULTS = {
    "results": {
        "gsm8k": {
            "alias": "gsm8k",
            "sample_len": 4,
            "exact_match,strict-match": 0.25,
            "exact_match_stderr,strict-match": 0.1,
            "exact_match,flexible-extract": 0.75,
            "exact_match_stderr,flexible-extract": 0.2,
            "bits,strict-match": 0.75,
            "bits_stderr,strict-match": "N/A",
        }
    },
    "higher_is_better": {"gsm8k": {"exact_match": True, "bits": False}},
    "samples": {"gsm8k": SAMPLES},
}


def test_scores_are_those_of_the_harness_with_the_rows_of_their_filter():
    scores = name_scores({"gsm8k": read_scores(RESULTS, "gsm8k", find_aggregation)})
    assert scores == {
        "gsm8k/exact_match,strict-match": Score(0.25, 0.1, True, {"0": 1.0, "1": 0.0, "2": 0.0, "3": 0.0}),
        "gsm8k/exact_match,flexible-extract": Score(0.75, 0.2, True, {"0": 1.0, "1": 1.0, "2": 1.0, "3": 0.0}),
        "gsm8k/bits,strict-match": Score(0.75, None, False, {row: [-3.0, 4] for row in "0123"}, is_mean=False),
    }


@pytest.mark.parametrize("aggregate", [None, lambda items: 0.1 * len(items), lambda items: items["x"]])
def test_rows_count_only_if_the_metric_is_computed_from_them(aggregate):
    results = {**RESULTS, "results": {"gsm8k": {"exact_match,strict-match": 0.5, "bits,strict-match": 0.75}}}
    scores = read_scores(results, "gsm8k", lambda *_: aggregate)
    assert [score.rows for score in scores.values()] == [{}, {}]


def weigh(items):
    """Return the ratio of two sums, as the perplexities of the harness compute it."""
    values, weights = zip(*items, strict=True)
    return -sum(values) / sum(weights)


def find_aggregation(task, metric):
    return {"bits": weigh}.get(metric) if task == "gsm8k" else None


ITEMS = st.tuples(st.floats(-100, 0), st.integers(1, 50))


@given(st.lists(st.tuples(ITEMS, ITEMS), min_size=1, max_size=20))
def test_a_metric_that_is_no_mean_is_compared_with_its_own_aggregation(pairs):
    model, champion = (
        Score(weigh(items), None, False, {str(row): item for row, item in enumerate(items)}, is_mean=False)
        for items in zip(*pairs, strict=True)
    )
    found, reverse = compare(model, champion, 0.95, weigh), compare(champion, model, 0.95, weigh)
    assert found.value == pytest.approx(champion.value - model.value)
    assert (found.value, found.low, found.high) == pytest.approx((-reverse.value, -reverse.high, -reverse.low))
    assert compare(model, champion, 0.95) is None


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20))
def test_a_mean_has_the_same_interval_as_with_an_aggregation(pairs):
    model, champion = ({str(row): values[side] for row, values in enumerate(pairs)} for side in (0, 1))
    first, second = make_score(model), make_score(champion)
    found = compare(first, second, 0.9)
    other = compare(replace(first, is_mean=False), second, 0.9, lambda items: sum(items) / len(items))
    assert astuple(found) == pytest.approx(astuple(other))


@pytest.mark.parametrize(("seconds", "resamples"), [(0.005, 10_000), (0.05, 1000), (0.5, 100), (100.0, 100)])
def test_a_slow_aggregation_gets_fewer_resamples(monkeypatch, seconds, resamples):
    clock = SimpleNamespace(monotonic=itertools.count(0, seconds).__next__)
    monkeypatch.setattr("trainjob.frameworks.evaluation.comparison.time", clock)
    score = Score(0.5, None, True, ROWS, is_mean=False)
    assert compare(score, score, 0.95, lambda items: items[0]).resamples == resamples


@pytest.mark.parametrize(
    "aggregate", [lambda items: math.exp(1000 * items[0]), lambda items: 1 / items[0], lambda _: math.nan]
)
def test_a_metric_that_a_resample_does_not_have_is_not_compared(aggregate):
    score = Score(0.5, None, True, ROWS, is_mean=False)
    assert compare(score, score, 0.95, aggregate) is None


@pytest.mark.parametrize("value", [0.5, math.nan, math.inf])
def test_results_of_an_earlier_attempt_are_read_only_under_the_same_conditions(tmp_path, value):
    files = ResultFiles(tmp_path / "model", {"seed": 0})
    assert files.read("org/task") is None
    scores = {"acc": Score(value, 0.1, True, {"0": 1.0})}
    scores["bits"] = Score(value, None, False, {"0": [-3.0, 4]}, is_mean=False)
    files.write("org/task", scores, [{"doc_id": 0, "acc": 1.0}])
    found, bits = files.read("org/task").values()
    assert (found.stderr, found.higher_is_better, found.rows, found.is_mean) == (0.1, True, {"0": 1.0}, True)
    assert (bits.higher_is_better, bits.rows, bits.is_mean) == (False, {"0": [-3.0, 4]}, False)
    assert found.value == value or not math.isfinite(value)
    assert ResultFiles(tmp_path / "model", {"seed": 1}).read("org/task") is None
    json.loads((tmp_path / "model" / "org_task.json").read_text(), parse_constant=pytest.fail)
    (tmp_path / "model" / "org_task.json").write_text('{"digest"')
    assert files.read("org/task") is None


def test_results_of_an_earlier_version_are_read(tmp_path):
    files = ResultFiles(tmp_path, {})
    files.write("task", {"acc": make_score(ROWS)}, [])
    record = json.loads((tmp_path / "task.json").read_text())
    del record["scores"]["acc"]["is_mean"]
    (tmp_path / "task.json").write_text(json.dumps(record))
    assert files.read("task") == {"acc": make_score(ROWS)}
