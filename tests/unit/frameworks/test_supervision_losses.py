"""Losses of a training, and when they say that it diverges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.frameworks.supervision.losses import Losses, has_no_finite_loss


def observe(*values, factor=100.0):
    losses = Losses(factor)
    for step, value in enumerate(values, 1):
        losses.observe(step, value)
    return losses.divergence


def test_five_high_losses_in_a_row_are_a_divergence():
    assert observe(2.5, 2.0, *4 * [250.0]) == ""
    assert observe(2.5, 2.0, *4 * [250.0], 2.1, *4 * [250.0]) == ""
    assert observe(2.5, 2.0, *5 * [250.0]) == "the loss is 250 at step 7, 125 times the best one (2 at step 2)"


def test_five_losses_that_are_not_finite_are_a_divergence():
    assert observe(*5 * [None], factor=None) == "the loss is not a finite number at step 5; no line had a finite one"
    assert observe(2.0, None, None, 1e9, None, None, None, factor=None) == ""  # scaling in fp16 leaves out single steps


@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=50))
def test_a_training_whose_loss_is_never_above_the_first_one_does_not_diverge(values):
    """A training that memorises its rows has losses near 0, of which any other is a multiple."""
    assert observe(3.0, *values, factor=1.5) == ""


@given(st.lists(st.floats(-1e6, 1e6), max_size=50))
def test_losses_around_zero_have_no_multiple(values):
    assert observe(-0.1, *values) == ""


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=50))
def test_without_a_factor_no_finite_loss_is_a_divergence(values):
    assert observe(*values, factor=None) == ""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{'loss': nan, 'grad_norm': 1.0}", True),
        ("{'loss': 'nan', 'grad_norm': 'nan'}", True),
        ("{'loss': '-inf'}", True),
        ("1|3|Loss: nan:  20%|##  | 3/15", True),
        ("Step 6 | loss:inf lr:0.003", True),
        ("{'loss': 1.5, 'grad_norm': nan}", False),
        ("{'eval_loss': nan}", False),
        ("the loss: information about it", False),
        ("loss", False),
    ],
)
def test_the_loss_of_a_line(line, expected):
    assert has_no_finite_loss(line) == expected
