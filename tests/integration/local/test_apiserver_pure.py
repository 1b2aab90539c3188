"""Tests of selectors, merge patches and names, with examples and with properties."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob_local.apiserver.naming import metadata_problems, name_problems
from trainjob_local.apiserver.selectors import SelectorError, parse_fields, parse_labels
from trainjob_local.apiserver.writer import merge_patch

WORDS = st.text("abcxyz0189-_.", min_size=1, max_size=8).filter(lambda text: text[0].isalnum() and text[-1].isalnum())
LABELS = st.dictionaries(WORDS, WORDS, max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab~/", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/", max_size=2), inner, max_size=3),
    max_leaves=8,
)

# RFC 7386, appendix A
RFC_7386 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "expected"), RFC_7386)
def test_merge_patch_as_in_the_rfc(target: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(target, patch) == expected


@given(JSON, JSON)
def test_merge_patch_is_idempotent_and_changes_no_argument(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once
    assert (target, patch) == before


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("", {"red", "blue", "bare"}),
        ("color=red", {"red"}),
        ("color==red", {"red"}),
        ("color!=red", {"blue", "bare"}),
        ("color", {"red", "blue"}),
        ("!color", {"bare"}),
        ("color in (red, green)", {"red"}),
        ("color notin (red)", {"blue", "bare"}),
        ("color in (red,blue),size>3", {"blue"}),
        ("size<3", {"red"}),
        ("color=", set()),
        ("a.io/color,size", set()),
        (" color = red , size ", {"red"}),
    ],
)
def test_label_selectors(selector: str, selected: set[str]) -> None:
    labels = {"red": {"color": "red", "size": "2"}, "blue": {"color": "blue", "size": "10"}, "bare": None}
    found = parse_labels(selector)
    assert {name for name, has in labels.items() if found.matches({"metadata": {"labels": has}})} == selected


@pytest.mark.parametrize("selector", ["a in (", "a=b c", "a in b", "ain (b)", "=b", "-a=b", "a=b,", ",", "!a=b"])
def test_label_selectors_that_cannot_be_parsed(selector: str) -> None:
    with pytest.raises(SelectorError, match="unable to parse requirement: "):
        parse_labels(selector)


@given(LABELS, LABELS)
def test_equality_selects_exactly_the_supersets(wanted: dict[str, str], labels: dict[str, str]) -> None:
    selector = parse_labels(",".join(f"{key}={value}" for key, value in wanted.items()))
    assert selector.matches({"metadata": {"labels": labels}}) == (wanted.items() <= labels.items())


@given(WORDS, st.lists(WORDS, min_size=1, max_size=3), LABELS)
def test_in_and_notin_are_opposites(key: str, values: list[str], labels: dict[str, str]) -> None:
    listed, body = ",".join(values), {"metadata": {"labels": labels}}
    inside, outside = parse_labels(f"{key} in ({listed})"), parse_labels(f"{key} notin ({listed})")
    assert inside.matches(body) != outside.matches(body)


@given(WORDS, LABELS)
def test_exists_and_absent_are_opposites(key: str, labels: dict[str, str]) -> None:
    body = {"metadata": {"labels": labels}}
    assert parse_labels(key).matches(body) != parse_labels(f"!{key}").matches(body)


@given(st.text("ab=,\\", max_size=6))
def test_field_selectors_escape_any_value(value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
    selector = parse_fields(f"metadata.name={escaped}", ())
    assert selector.matches({"metadata": {"name": value}})
    assert not selector.matches({"metadata": {"name": value + "x"}})


def test_field_selectors() -> None:
    pod = {"metadata": {"name": "p"}, "status": {"phase": "Running"}, "spec": {"hostNetwork": True}}
    fields = ("status.phase", "spec.nodeName", "spec.hostNetwork")
    for selector, matches in [
        ("status.phase=Running", True),
        ("status.phase!=Running,metadata.name=p", False),
        ("spec.nodeName=", True),
        ("spec.hostNetwork=true", True),
        ("metadata.name==p,metadata.namespace!=x", True),
    ]:
        assert parse_fields(selector, fields).matches(pod) is matches, selector
    with pytest.raises(SelectorError, match=r"field label not supported: spec\.foo"):
        parse_fields("spec.foo=b", fields)
    with pytest.raises(SelectorError, match="can't understand 'foo'"):
        parse_fields("foo", fields)


@pytest.mark.parametrize(
    ("rule", "name", "problems"),
    [
        ("subdomain", "a.b-c", 0),
        ("subdomain", "A", 1),
        ("subdomain", "x" * 254, 1),
        ("subdomain", "A" * 254, 2),
        ("subdomain", "", 1),
        ("label", "a.b", 1),
        ("path", "a:b", 0),
        ("path", "a/b", 1),
        ("path", "..", 1),
    ],
)
def test_names(rule: str, name: str, problems: int) -> None:
    assert len(name_problems(rule, name)) == problems


def test_labels_and_annotations() -> None:
    assert not metadata_problems({"labels": {"a.io/b": "", "c": "x" * 63}, "annotations": {"Any/Key": "any value"}})
    wrong = {"labels": {"a b": "x", "ok": "-x", "long": "x" * 64, "/": "x"}, "annotations": {"big": "x" * 262145}}
    assert len(metadata_problems(wrong)) == 7  # three of them of `/`
