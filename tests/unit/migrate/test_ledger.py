"""The book of a document's fields: each leaf in exactly one line."""

from __future__ import annotations

import pytest

from trainjob.spec.redaction import shown
from trainjob_migrate import Fate
from trainjob_migrate.ledger import Ledger, leaves, written

SOURCE = {"a": {"b": [1, {"c": "x"}], "d": {}}, "e.f/g": None, "h": ["", []]}


def told(ledger):
    return [(line.path, line.fate) for line in ledger.lines()]


def test_leaves_and_how_they_are_written():
    assert [written(path) for path in leaves(SOURCE)] == [
        "a.b[0]",
        "a.b[1].c",
        "a.d",
        '["e.f/g"]',
        "h[0]",
        "h[1]",
    ]


def test_what_nobody_claims_is_refused_unless_it_says_nothing():
    dropped, refused = Fate.DROPPED, Fate.REFUSED
    fates = [refused, refused, dropped, dropped, dropped, dropped]
    assert [fate for _, fate in told(Ledger(SOURCE))] == fates


def test_a_subtree_is_one_line_and_the_first_claim_counts():
    ledger = Ledger(SOURCE)
    ledger.converted(("a", "b", 0), "somewhere")
    ledger.dropped(("a", "b"), "not needed")
    ledger.refused(("a", "b"), "too late")
    ledger.moved(("h",), "elsewhere")
    assert told(ledger) == [
        ("a.b[0]", Fate.CONVERTED),
        ("a.b[1].c", Fate.DROPPED),
        ("a.d", Fate.DROPPED),
        ('["e.f/g"]', Fate.DROPPED),
        ("h", Fate.MOVED),
    ]


def test_what_is_missing_can_be_refused():
    ledger = Ledger({"a": 1})
    ledger.dropped(("a",), "not needed")
    ledger.refused(("spec", "replicas"), "they are wanted")
    ledger.dropped(("nowhere",), "nothing is said of what is not there")
    assert [(line.path, line.given) for line in ledger.lines()] == [("a", "1"), ("spec.replicas", "nothing")]


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
    assert "s3cret" not in str(shown(SECRETS[name]))
    assert "s3cret" not in str([line.given for line in Ledger({"x": SECRETS[name]}).lines()])


@pytest.mark.parametrize("value", HARMLESS)
def test_what_is_no_secret_is_shown(value):
    assert shown(value) == value


@pytest.mark.parametrize(
    "text", ["token" * 40_000, "a=" * 100_000, "token=" * 30_000, "--key " * 30_000, "x" * 200_000, " " * 200_000]
)
def test_a_long_text_is_read_in_one_go(text):
    assert shown([text])
