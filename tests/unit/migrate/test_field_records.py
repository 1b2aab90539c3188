"""Tests of the field recorder: each leaf of a document is in exactly one record."""

from __future__ import annotations

import pytest

from trainjob.spec.redaction import redact
from trainjob_migrate import FieldResult
from trainjob_migrate.field_records import FieldRecorder, format_path, iterate_leaves

SOURCE = {"a": {"b": [1, {"c": "x"}], "d": {}}, "e.f/g": None, "h": ["", []]}


def paths_and_results(recorder):
    return [(record.path, record.result) for record in recorder.to_records()]


def test_the_format_of_the_paths_of_leaves():
    assert [format_path(path) for path in iterate_leaves(SOURCE)] == [
        "a.b[0]",
        "a.b[1].c",
        "a.d",
        '["e.f/g"]',
        "h[0]",
        "h[1]",
    ]


def test_leaves_without_a_result_are_refused_or_dropped_if_empty():
    dropped, refused = FieldResult.DROPPED, FieldResult.REFUSED
    results = [refused, refused, dropped, dropped, dropped, dropped]
    assert [result for _, result in paths_and_results(FieldRecorder(SOURCE))] == results


def test_a_subtree_is_one_record_and_the_first_result_is_final():
    recorder = FieldRecorder(SOURCE)
    recorder.mark_converted(("a", "b", 0), "somewhere")
    recorder.mark_dropped(("a", "b"), "not needed")
    recorder.mark_refused(("a", "b"), "too late")
    recorder.mark_moved(("h",), "elsewhere")
    assert paths_and_results(recorder) == [
        ("a.b[0]", FieldResult.CONVERTED),
        ("a.b[1].c", FieldResult.DROPPED),
        ("a.d", FieldResult.DROPPED),
        ('["e.f/g"]', FieldResult.DROPPED),
        ("h", FieldResult.MOVED),
    ]


def test_a_missing_field_can_be_refused():
    recorder = FieldRecorder({"a": 1})
    recorder.mark_dropped(("a",), "not needed")
    recorder.mark_refused(("spec", "replicas"), "they are required")
    recorder.mark_dropped(("nowhere",), "missing fields have no record")
    assert [(record.path, record.given) for record in recorder.to_records()] == [
        ("a", "1"),
        ("spec.replicas", "nothing"),
    ]


SECRETS = {
    "an option's word": ["--token", "s3cret"],
    "an assignment": ["run --password=s3cret --lr 1"],
    "a variable in a shell": ["export DB_PASS='s3cret x'; python t.py"],
    "behind another word": ["echo API_KEY: s3cret"],
    "JSON in an argument": ['{"secret": "s3cret"}'],
    "a URL": ["git clone https://me:s3cret@example.com/x"],
    "a token": ["hf_s3creta9Bc8D"],
    "a variable": {"name": "WANDB_API_KEY", "value": "s3cret"},
    "a variable by its value": {"name": "BUCKET", "value": "s3://me:s3cret@example.com"},
    "a field": {"password": "s3cret"},
    "what kubectl applied": {"kubectl.kubernetes.io/last-applied-configuration": '{"x": "s3cret"}'},
}
HARMLESS = [
    ["python", "train.py", "--max-tokens", "5", "--tokenizer=gpt2"],
    {"secretName": "tls", "key": "token", "automountServiceAccountToken": "no"},
    {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "t"}}},
]


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_not_shown(name):
    assert "s3cret" not in str(redact(SECRETS[name]))
    assert "s3cret" not in str([record.given for record in FieldRecorder({"x": SECRETS[name]}).to_records()])


@pytest.mark.parametrize("value", HARMLESS)
def test_a_value_that_is_no_secret_is_shown(value):
    assert redact(value) == value


@pytest.mark.parametrize(
    "text", ["token" * 40_000, "a=" * 100_000, "token=" * 30_000, "--key " * 30_000, "x" * 200_000, " " * 200_000]
)
def test_a_long_text_is_redacted_quickly(text):
    assert redact([text])
