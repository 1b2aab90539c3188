"""Scores of a user's function: what it may return, and its errors."""

from __future__ import annotations

import base64
import json
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.errors import InvalidSpec
from trainjob.frameworks.evaluation.comparison import compare
from trainjob.frameworks.evaluation.function import parse_result, run_function
from trainjob.frameworks.evaluation.program import main
from trainjob.frameworks.evaluation.scores import Score
from trainjob.function_source import pack_function


@pytest.fixture(autouse=True)
def no_module(monkeypatch):
    yield monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("trainjob_function", None)


def measure(model_path):
    from pathlib import Path

    return {"length": len(Path(model_path).name)}


def fails(model_path):
    raise KeyError(f"{model_path} of SECRET")


def test_the_function_gets_the_path_of_each_model(tmp_path):
    packed = pack_function(measure)
    assert run_function(packed, tmp_path / "export") == {"length": 6}
    assert run_function(packed, tmp_path / "champion") == {"length": 8}


def test_an_error_of_the_function_has_its_traceback_without_credentials(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("API_TOKEN", "SECRET")
    with pytest.raises(RuntimeError, match="the function fails failed: KeyError"):
        run_function(pack_function(fails), tmp_path)
    shown = capsys.readouterr().err
    assert "in fails" in shown
    assert "SECRET" not in shown


def test_one_number_for_each_metric_has_no_rows():
    scores, samples = parse_result("score", {"acc": 0.5, "passed": True})
    assert scores == {"acc": Score(0.5, None, True), "passed": Score(1.0, None, True)}
    assert samples == [{"acc": 0.5, "passed": 1.0}]
    assert compare(scores["acc"], scores["acc"], 0.95) is None


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=20))
def test_rows_have_a_mean_a_standard_error_and_a_difference(values):
    scores, samples = parse_result("score", [{"acc": value} for value in values])
    assert samples == [{"acc": value} for value in values]
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    assert scores["acc"].value == pytest.approx(mean)
    assert scores["acc"].stderr == pytest.approx(math.sqrt(variance / len(values)), abs=1e-9)
    others, _ = parse_result("score", [{"acc": value - 1} for value in values])
    assert compare(scores["acc"], others["acc"], 0.95).low == pytest.approx(1)
    fewer, _ = parse_result("score", [{"acc": 1.0}])
    assert fewer["acc"].stderr is None
    assert compare(scores["acc"], fewer["acc"], 0.95) is None


def test_a_value_that_is_not_finite_has_no_rows():
    scores, _ = parse_result("score", [{"acc": 1.0}, {"acc": math.inf}])
    assert math.isnan(scores["acc"].value)
    assert scores["acc"].rows == {}


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (None, "it must return numbers by metric, or a list of them, and not a NoneType"),
        ([], "it must have a row"),
        ({}, "it must return numbers by metric"),
        ([{"a": 1}, {"b": 1}], "each row of its list must have the same metrics"),
        ({"a": "0.5"}, "a must be a number, and not a str"),
        ({"a": None}, "a must be a number, and not a NoneType"),
        ({"a/b": 1}, "the name of a metric must be a text without /, and not 'a/b'"),
        ([1.0], "and not a float"),
    ],
)
def test_another_result_is_refused(result, problem):
    with pytest.raises(InvalidSpec, match="function cannot be score") as refused:
        parse_result("score", result)
    assert problem in str(refused.value)


def count_files(model_path):
    from pathlib import Path

    return [{"files": len(list(Path(model_path).iterdir())), "row": row} for row in range(5)]


def test_a_function_alone_needs_no_harness_and_is_scored_again_only_if_it_has_changed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, count in (("export", 3), ("champion", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text('{"model_type": "llama"}')
        for number in range(1, count):
            (tmp_path / name / f"{number}.safetensors").touch()
    gates = json.dumps({"count_files/files": {"minimum": 3, "better_than_champion": True}})
    folders = ["--model", tmp_path / "export", "--champion", tmp_path / "champion", "--output", tmp_path / "evaluation"]
    words = [*map(str, folders), "--workspace", str(tmp_path), "--gates", gates, "--function"]
    packed = pack_function(count_files)
    assert main([*words, packed]) == 0
    report = json.loads((tmp_path / "evaluation/report.json").read_text())
    assert report["passed"]
    assert report["differences"]["count_files/files"]["value"] == 2
    assert "earlier attempt" not in capsys.readouterr().out
    assert main([*words, packed]) == 0
    assert capsys.readouterr().out.count("scored by an earlier attempt") == 2
    name, _, source = packed.partition(":")
    changed = base64.b64decode(source) + b"\n# another function"
    assert main([*words, f"{name}:{base64.b64encode(changed).decode()}"]) == 0
    assert "earlier attempt" not in capsys.readouterr().out
