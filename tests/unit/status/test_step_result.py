"""Tests of the parser of step results in log lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.status import get_model_facts, parse_step_result

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(VALUES)
def test_the_return_value_of_a_function_is_parsed(value):
    assert parse_step_result(f"trainjob result: {json.dumps(value)}") == {"result": value}


def test_the_receipt_of_an_export_is_parsed():
    assert parse_step_result('export: done {"epoch": 3}') == {"epoch": 3}


@given(st.text())
def test_no_line_raises_an_exception(text):
    for line in (text, f"export: done {text}", f"trainjob result: {text}"):
        found = parse_step_result(line)
        assert found is None or isinstance(found, dict)


@pytest.mark.parametrize(
    "line",
    [
        "export: done [1]",
        "export: done 5",
        "export: done {",
        "trainjob result: NaN",
        "a trainjob result: 1",
        pytest.param("trainjob result: " + "[" * 100_000, id="deep"),
        "",
    ],
)
def test_other_lines_have_no_result(line):
    assert parse_step_result(line) is None


def test_empty_facts_of_a_receipt_are_left_out():
    receipt = {"manifest_sha256": "ab", "epoch": 0, "files": 3, "revision": "", "metrics": {}, "destination": "/x"}
    assert get_model_facts(receipt) == {"digest": "sha256:ab", "epoch": 0, "files": 3}
    assert get_model_facts({"result": 1}) == {}
