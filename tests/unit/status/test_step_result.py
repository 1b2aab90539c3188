"""Tests of the parser of step results in log lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.status import get_model_facts, parse_step_result

TEXTS = st.text(st.characters(exclude_characters="\x00"))
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=10,
)


@given(VALUES)
def test_the_return_value_of_a_function_is_parsed(value):
    assert parse_step_result(f"trainjob result: {json.dumps(value)}") == {"result": value}


@given(st.text() | st.recursive(st.integers() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_a_result_can_be_stored(text):
    found = parse_step_result(f"trainjob result: {text}")
    assert json.loads(json.dumps(found, ensure_ascii=False, allow_nan=False).encode()) == found
    assert "\\u0000" not in json.dumps(found)  # PostgreSQL refuses it


def test_characters_that_cannot_be_stored_are_replaced():
    assert parse_step_result(r'trainjob result: {"a\ud800": "b\u0000c"}') == {"result": {"a\ufffd": "b\ufffdc"}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{'loss': 0.1}", "it is not JSON: Expecting property name enclosed in double quotes at character 2"),
        ("NaN", "NaN is not a finite number"),
        ('{"a": 1e999}', "it has a number that is not finite"),
        ('{"a": 9223372036854775808}', "it has an integer of more than 64 bits"),
        pytest.param("9" * 400, "it has an integer of more than 64 bits", id="400 digits"),
        pytest.param("[" * 200 + "]" * 200, "it is nested more than 100 deep", id="200 levels"),
        pytest.param("[" * 100_000, "it is nested more than 100 deep", id="100,000 levels"),
        pytest.param(f'"{"x" * (1 << 18)}'[: (1 << 18) - 17], "it is longer than 256 KiB", id="cut line"),
    ],
)
def test_a_result_that_cannot_be_used_has_the_reason(text, reason):
    found = parse_step_result(f"trainjob result: {text}")
    prefix = "the line `trainjob result: ...` of the training can't be used: "
    assert found.keys() == {"result_error"}
    assert found["result_error"].startswith(prefix + reason)


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
        "a trainjob result: 1",
        pytest.param("export: done " + "[" * 100_000, id="deep"),
        "",
    ],
)
def test_other_lines_have_no_result(line):
    assert parse_step_result(line) is None


def test_empty_facts_of_a_receipt_are_left_out():
    receipt = {"manifest_sha256": "ab", "epoch": 0, "files": 3, "revision": "", "metrics": {}, "destination": "/x"}
    assert get_model_facts(receipt) == {"digest": "sha256:ab", "epoch": 0, "files": 3}
    assert get_model_facts({"result": 1}) == {}
