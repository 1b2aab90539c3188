"""Tests of the page with the loss curve."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.status import Progress
from trainjob_kfp.loss_curve import MAX_POINTS, Curves, compute_ticks, downsample, render_loss_curve

LOSSES = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))
POINTS = st.lists(st.builds(Progress, step=st.integers(1, 10**9), loss=LOSSES), max_size=60)
CURVES = st.dictionaries(st.integers(1, 10**6), st.floats(-1e6, 1e6), min_size=1, max_size=60).map(
    lambda losses: sorted(losses.items())
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def parse_points(page, style="curve"):
    """Return the points of a curve in a page."""
    found = re.search(rf'<polyline class="{style}" points="([^"]*)"', page)
    return [tuple(map(float, point.split(","))) for point in found[1].split()] if found else []


@given(points=POINTS, title=st.text(), note=st.text())
def test_any_progress_results_in_a_valid_page_without_scripts(points, title, note):
    page = render_loss_curve(Curves(points), title, note)
    assert "<script" not in page
    assert "http" not in page.replace(title, "").replace(note, "")
    if "<svg" in page:
        picture = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])  # noqa: S314 - our own SVG
        numbers = [float(value) for line in picture.iter("line") for name, value in line.items() if name[0] in "xy"]
        assert all(0 <= number <= 720 for number in numbers)
        assert all(0 <= x <= 720 and 0 <= y <= 360 for x, y in parse_points(page))
    else:
        assert "No loss was reported." in page


@given(curve=CURVES, max_points=st.integers(4, 40))
def test_downsampling_keeps_the_ends_and_the_extremes(curve, max_points):
    kept = downsample(curve, max_points)
    assert len(kept) <= max(max_points, 4)
    assert set(kept) <= set(curve)
    assert kept == sorted(kept)
    assert {curve[0], curve[-1]} <= set(kept)
    assert {min(loss for _, loss in curve), max(loss for _, loss in curve)} <= {loss for _, loss in kept}


@given(lowest=FINITE, highest=FINITE)
def test_ticks_are_few_and_within_the_range(lowest, highest):
    lowest, highest = sorted((lowest, highest))
    found = compute_ticks(lowest, highest)
    assert len(found) <= 12
    assert found == sorted(found)
    slack = (highest / 2 - lowest / 2) * 1e-6
    assert all(lowest - slack <= value <= highest + slack for value in found)


@pytest.mark.parametrize(
    ("lowest", "highest", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (1, 100, [20, 40, 60, 80, 100]), (0.5, 0.5, [0.5])],
)
def test_ticks_are_round_numbers(lowest, highest, expected):
    assert compute_ticks(lowest, highest) == pytest.approx(expected)


def test_the_curve_of_a_falling_loss_falls():
    page = render_loss_curve(Curves([Progress(step=step, loss=4 / step) for step in (1, 2, 4)]))
    (x1, y1), (x2, y2), (x3, y3) = parse_points(page)
    assert x1 < x2 < x3
    assert y1 < y2 < y3  # an SVG's y grows downwards
    assert "Loss 4 at step 1, 1 at step 4; lowest loss 1 at step 4." in page


def test_the_curve_of_a_long_training_is_downsampled():
    page = render_loss_curve(Curves([Progress(step=step, loss=1 / step) for step in range(1, 20_000)]))
    assert len(parse_points(page)) <= MAX_POINTS
    assert len(page) < 30_000


def test_rewards_are_drawn_in_place_of_the_loss():
    rewarded = [Progress(step=step, loss=0.0, metrics={"reward": step / 2, "eval_loss": 9.0}) for step in (1, 2, 4)]
    page = render_loss_curve(Curves(rewarded))
    (_, y1), (_, y2), (_, y3) = parse_points(page)
    assert y1 > y2 > y3
    assert "Reward 0.5 at step 1, 2 at step 4; highest reward 2 at step 4." in page
    assert 'aria-label="reward by step"' in page
    assert "valuation" not in page[page.index("<body>") :]


def test_evaluations_are_a_second_line_on_the_same_axes():
    trained = [Progress(step=step, loss=4 / step) for step in (1, 2, 4)]
    evaluated = [Progress(step=step, loss=4 / step, metrics={"eval_loss": 8 / step}) for step in (2, 4)]
    later = Progress(step=5, loss=0.5, metrics={"eval_loss": 2.0}, carried=frozenset({"eval_loss"}))
    page = render_loss_curve(Curves([*trained, *evaluated, later]))
    [(x1, y1), (x2, y2)] = parse_points(page, "evaluation")
    curve = parse_points(page)
    assert (x1, x2) == (curve[1][0], curve[2][0])
    assert (y1, y2) == (curve[0][1], curve[1][1])
    assert "Evaluation loss (dashed) 4 at step 2, 2 at step 4; lowest loss 2 at step 4." in page


def test_texts_are_escaped():
    page = render_loss_curve(Curves(), "<b>a & b</b>", note="<script>alert(1)</script>")
    assert "&lt;b&gt;a &amp; b&lt;/b&gt;" in page
    assert "<script>" not in page


def test_a_single_point_is_drawn_as_a_dot():
    page = render_loss_curve(Curves([Progress(step=7, loss=1.5)]))
    assert parse_points(page) == []
    assert 'class="curve-end"' in page


def test_a_page_without_losses_has_a_note():
    assert "No loss was reported." in render_loss_curve(Curves([Progress(step=1), Progress(step=2, loss=float("nan"))]))
