"""The book of a document's fields: each leaf in exactly one line."""

from __future__ import annotations

import pytest

from trainjob.spec.redaction import redact
from trainjob_migrate import FieldResult
from trainjob_migrate.field_records import FieldRecorder, format_path, iterate_leaves

SOURCE = {"a": {"b": [1, {"c": "x"}], "d": {}}, "e.f/g": None, "h": ["", []]}


def paths_and_results(ledger):
    return [(line.path, line.fate) for line in ledger.lines()]


def test_leaves_and_how_they_are_written():
    assert [format_path(path) for path in iterate_leaves(SOURCE)] == [
        "a.b[0]",
        "a.b[1].c",
        "a.d",
        '["e.f/g"]',
        "h[0]",
        "h[1]",
    ]


def test_what_nobody_claims_is_refused_unless_it_says_nothing():
    dropped, refused = FieldResult.DROPPED, FieldResult.REFUSED
    fates = [refused, refused, dropped, dropped, dropped, dropped]
    assert [fate for _, fate in paths_and_results(FieldRecorder(SOURCE))] == fates


def test_a_subtree_is_one_line_and_the_first_claim_counts():
    ledger = FieldRecorder(SOURCE)
    ledger.mark_converted(("a", "b", 0), "somewhere")
    ledger.mark_dropped(("a", "b"), "not needed")
    ledger.mark_refused(("a", "b"), "too late")
    ledger.mark_moved(("h",), "elsewhere")
    assert paths_and_results(ledger) == [
        ("a.b[0]", FieldResult.CONVERTED),
        ("a.b[1].c", FieldResult.DROPPED),
        ("a.d", FieldResult.DROPPED),
        ('["e.f/g"]', FieldResult.DROPPED),
        ("h", FieldResult.MOVED),
    ]


def test_what_is_missing_can_be_refused():
    ledger = FieldRecorder({"a": 1})
    ledger.mark_dropped(("a",), "not needed")
    ledger.mark_refused(("spec", "replicas"), "they are wanted")
    ledger.mark_dropped(("nowhere",), "nothing is said of what is not there")
    assert [(line.path, line.given) for line in ledger.to_records()] == [("a", "1"), ("spec.replicas", "nothing")]


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
    assert "s3cret" not in str([line.given for line in FieldRecorder({"x": SECRETS[name]}).to_records()])


@pytest.mark.parametrize("value", HARMLESS)
def test_what_is_no_secret_is_shown(value):
    assert redact(value) == value


@pytest.mark.parametrize(
    "text", ["token" * 40_000, "a=" * 100_000, "token=" * 30_000, "--key " * 30_000, "x" * 200_000, " " * 200_000]
)
def test_a_long_text_is_read_in_one_go(text):
    assert redact([text])
