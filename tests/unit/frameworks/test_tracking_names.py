"""Names of metrics, parameters and tags on an MLflow server, which refuses many."""

from __future__ import annotations

import posixpath
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.mlflow_names import to_mlflow_name


@pytest.mark.parametrize(
    ("given_name", "name"),
    [
        ("rewards/accuracies", "rewards/accuracies"),
        ("a b-c.d:e", "a b-c.d:e"),
        ("a//b", "a/b"),
        ("/a", "a"),
        ("../a", "a"),
        ("a/./b/..", "a/b"),
        ("..a", "_.a"),
        ("loss(x)", "loss_x_"),
        ("größe", "größe"),
        ("a\nb", "a_b"),
        ("", "_"),
        ("//", "_"),
        ("x" * 300, "x" * 250),
        ("x" * 249 + "/y", "x" * 249),
    ],
)
def test_a_name_is_made_valid(given_name, name):
    assert to_mlflow_name(given_name) == name


@given(st.text(st.sampled_from("ab./ :-(é\n"), max_size=300))
def test_every_name_is_valid(text):
    """These are the rules of mlflow 3.17 (mlflow/utils/validation.py)."""
    name = to_mlflow_name(text)
    assert re.fullmatch(r"[/\w.\- :]+", name)
    assert len(name) <= 250
    normal = posixpath.normpath(name)
    assert normal == name != "."
    assert not normal.startswith(("..", "/"))
    assert to_mlflow_name(name) == name
