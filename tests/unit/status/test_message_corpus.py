"""Tests of the categories and the advice of messages that real clusters wrote.

`tests/corpus/kubernetes_messages.jsonl` has them, from public reports and from the sources of the named software; names
and addresses are replaced. `version` is empty where it is not known. To add a message, add its line with the wanted
category.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainjob.status.failure_rules import RULES, find_category

CORPUS = Path(__file__).parents[2] / "corpus" / "kubernetes_messages.jsonl"
MESSAGES = [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("row", MESSAGES, ids=lambda row: f"{row['component']}: {row['message'][-60:]}")
def test_each_message_has_its_category_and_advice(row):
    category = find_category(row["reason"], row["message"])
    assert (category and category.value) == row["category"]
    rule = RULES.get(category)
    assert (rule is not None and rule.grace is not None) is row["permanent"]
    assert row["advice"] in (rule.advice if rule else "")


def test_the_corpus_has_many_components():
    assert len({row["message"] for row in MESSAGES}) >= 120
    assert len({row["component"] for row in MESSAGES}) >= 15
