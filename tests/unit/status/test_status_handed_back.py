"""What a log line hands back, and that no other line is taken for one."""

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
def test_what_a_function_returns_comes_back(value):
    assert parse_step_result(f"trainjob result: {json.dumps(value)}") == {"result": value}


def test_an_exports_receipt_comes_back():
    assert parse_step_result('export: done {"epoch": 3}') == {"epoch": 3}


@given(st.text())
def test_no_line_is_too_strange(text):
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
def test_other_lines_hand_nothing_back(line):
    assert parse_step_result(line) is None


def test_an_exports_facts_are_those_that_say_something():
    receipt = {"manifest_sha256": "ab", "epoch": 0, "files": 3, "revision": "", "metrics": {}, "destination": "/x"}
    assert get_model_facts(receipt) == {"digest": "sha256:ab", "epoch": 0, "files": 3}
    assert get_model_facts({"result": 1}) == {}
