"""YAML is read as kubectl reads it; `tests/e2e/local/test_kubectl_yaml.py` runs the real kubectl."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.yaml_corpus import recorded_answers, to_document
from trainjob.errors import InvalidSpec
from trainjob.spec import TrainJobManifest, yaml_documents
from trainjob.spec.yaml_documents import MAX_LENGTH, SourceDocument, find_lines, parse_yaml
from trainjob.spec.yaml_output import dump_yaml

# kubectl refuses this escape sequence in YAML, and accepts it in JSON.
ACCEPTED = {'k: "\\/"', '"\\/": v'}
# PyYAML's Python parser refuses a tab within a text without quotes.
REFUSED_BY_PYTHON = {"k: a\tb"}


@pytest.fixture(params=[yaml.CSafeLoader, yaml.SafeLoader], ids=["C", "Python"])
def parser(request, monkeypatch):
    monkeypatch.setattr(yaml_documents, "_PARSER", request.param)
    return request.param


def read_spec(text):
    try:
        return {"spec": parse_yaml(to_document(text)).get("spec")}
    except InvalidSpec:
        return "refused"


def error_of(text, **options):
    with pytest.raises(InvalidSpec) as caught:
        parse_yaml(text, **options)
    return caught.value.problems[0].allowed


def test_the_corpus_is_read_as_kubectl_reads_it(parser):
    allowed = ACCEPTED | (REFUSED_BY_PYTHON if parser is yaml.SafeLoader else set())
    different = {}
    for text, answer in recorded_answers().items():
        expected, found = answer if "spec" in answer else "refused", read_spec(text)
        # As JSON, so that 1, 1.0 and true differ.
        if json.dumps(found, sort_keys=True) != json.dumps(expected, sort_keys=True) and text not in allowed:
            different[text] = found, answer
    assert not different


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 2026-11-22T10:00:00Z", "2026-11-22T10:00:00Z"),
        ("a: 2026-11-22", "2026-11-22"),
        ("a: 12:30:00", "12:30:00"),
        ("a: 0644", 420),
        ("a: yes", True),
    ],
)
def test_times_are_texts_and_booleans_and_octal_numbers_are_those_of_yaml_1_1(parser, text, value):
    """Findings row 6: times became dates, and 12:30:00 became 45000."""
    assert parse_yaml(text) == {"a": value}


def test_a_manifest_as_text_has_the_same_values():
    text = """
        apiVersion: trainer.kubeflow.org/v1alpha1
        kind: TrainJob
        metadata: {name: tune, annotations: {since: 2026-11-22, at: 12:30:00}}
        spec: {runtimeRef: {name: torch-distributed}, trainer: {env: [{name: MODE, value: 0644}]}}
    """
    manifest = TrainJobManifest(manifest=text).manifest
    assert manifest["metadata"]["annotations"] == {"since": "2026-11-22", "at": "12:30:00"}
    assert manifest["spec"]["trainer"]["env"] == [{"name": "MODE", "value": 420}]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\na: 2", "the key a occurs twice in line 2, column 1"),
        ("on: 1\ntrue: 2", "the key true occurs twice in line 2, column 1"),
        ('1: a\n"1": b', "the key 1 occurs twice in line 2, column 1"),
        ('{"a": 1,\n "a": 2}', "the key a occurs twice in line 2, column 2"),
        ("a: 1\n---\nb: 2", "it must be a single document in line 2, column 1"),
        ("a: 1\n...\nb: 2", "in line 3, column 1"),
        ("a:\n- .nan", "a number must be finite: write .inf and .nan in quotes in line 2, column 3"),
        ('{"a": 1e999}', "it is too large for a number: write it in quotes"),
        ("a:\n  ~: 1", "a key must be a text: write it in quotes in line 2, column 3"),
        ("a: b\nc: \x00", "the character U+0000 is not allowed in line 2"),
        ('a: "\\ud800"', " in line 1, column "),
        ("a: &x [*x]", "a value contains itself in line 1, column 8"),
        ("a: *x", "in line 1, column 4"),
        ("a: !!binary /w==", "in line 1, column 4"),
    ],
)
def test_what_kubectl_changes_silently_or_cannot_send_is_refused_with_its_line(parser, text, problem):
    assert problem in error_of(text)


def test_line_numbers_are_those_of_the_file(parser):
    assert "in line 42, column 1" in error_of("a: 1\na: 2", first_line=41)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a: ", "}"), ('{"a": ', "}"), ("- ", "")])
def test_nesting_is_limited(parser, opening, closing):
    assert parse_yaml(opening * 250 + "1" + closing * 250)
    for levels in (301, 990, 20_000):
        assert "nested too deeply" in error_of(opening * levels + "1" + closing * levels)


def test_expanded_references_count_towards_the_limit(parser):
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "too large after its references are expanded in line 7" in error_of("\n".join(["l0: &l0 aaaa", *levels]))
    merged = "\n".join(["b: &b {" + ", ".join(f"k{n}: {'x' * 100}" for n in range(1000)) + "}", *["- <<: *b"] * 20])
    assert "too large after" in error_of(merged.replace("b: &b", "- &b"))
    assert f"at most {MAX_LENGTH}" in error_of("a" * (MAX_LENGTH + 1))


def test_references_and_merged_mappings_are_expanded(parser):
    text = "base: &b {a: 1, q: [1]}\nc: {a: 2, <<: *b}\nd: {<<: *b, a: 3}\ne: [*b, *b]"
    base = {"a": 1, "q": [1]}
    assert parse_yaml(text) == {"base": base, "c": base, "d": {"a": 3, "q": [1]}, "e": [base, base]}


def test_lines_of_fields(parser):
    text = """kind: TrainJob
spec:
  trainer:
    env:
    - name: A
      value: b
    -
      name: C
  x: {a: 1,
    z: 2}
"""
    lines = find_lines(text, first_line=11)
    assert lines == {
        "kind": 11, "spec": 12, "spec.trainer": 13, "spec.trainer.env": 14, "spec.trainer.env[0]": 15,
        "spec.trainer.env[0].name": 15, "spec.trainer.env[0].value": 16, "spec.trainer.env[1]": 18,
        "spec.trainer.env[1].name": 18, "spec.x": 19, "spec.x.a": 19, "spec.x.z": 20,
    }  # fmt: skip
    assert find_lines('{"a": {\n"b": 1}}') == {"a": 1, "a.b": 2}
    assert find_lines("a: [") == {}


def test_a_missing_field_has_the_line_of_the_field_around_it():
    source = SourceDocument(
        "f.yaml", 11, "kind: List\nitems:\n- a: 1\n- spec:\n    env: [{name: A},\n      {name: B}]\n", "items[1]"
    )
    assert source.locate("spec.env[1].value") == "f.yaml:16"
    assert source.locate("spec.missing.field") == "f.yaml:14"
    assert source.locate("missing", "spec.env") == "f.yaml:15"
    assert source.locate("missing") == "f.yaml:14"
    assert (
        SourceDocument("f.yaml", 11, "a: 1").locate("missing")
        == SourceDocument("f.yaml", 11, "a: [").locate("a")
        == "f.yaml:11"
    )


TEXTS = st.text() | st.sampled_from([each.removeprefix("k: ") for each in recorded_answers()])
TEXTS |= st.text("0123456789+-._eExXobytTrue~ ", max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, st.booleans())
def test_what_is_written_is_read_with_the_same_values(value, allow_unicode):
    assert parse_yaml(dump_yaml([value], allow_unicode=allow_unicode)) == value


@pytest.mark.parametrize("text", ["1e-4", "y", "0o644", "08", "+1", "1_0", "1e3", ".5e3", "0b-1"])
def test_texts_that_only_kubectl_reads_as_other_values_are_quoted(text):
    """PyYAML writes these texts without quotes; kubectl would send a number or a boolean."""
    assert dump_yaml([{text: [text]}]) == f"'{text}':\n- '{text}'\n"
