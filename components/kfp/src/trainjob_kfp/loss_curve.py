"""HTML page with the loss of a training by step.

The page has one SVG and no script, loads nothing, and is readable in light and dark mode.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence

from trainjob.status import Progress

MAX_POINTS = 500
"""Maximum number of points: more than the width of the curve, in a page of a few tens of kilobytes."""
_WIDTH, _HEIGHT = 720.0, 360.0
_MIN_DISTANCE = 1e-300  # minimum distance of two values; a smaller one cannot be divided
_LEFT, _RIGHT, _TOP, _BOTTOM = 70.0, 16.0, 16.0, 44.0
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 14px sans-serif; margin: 16px; }}
svg {{ max-width: 100%; height: auto; }}
text {{ fill: currentColor; font-size: 12px; }}
.axis {{ stroke: currentColor; }}
.grid {{ stroke: currentColor; stroke-opacity: 0.2; }}
.loss {{ fill: none; stroke: #3b82f6; stroke-width: 2; }}
.point {{ fill: #3b82f6; }}
</style></head>
<body>
<h1>{title}</h1>
{content}
</body>
</html>
"""


def render_loss_curve(points: Sequence[Progress], title: str = "Training loss", note: str = "") -> str:
    """Return the page with the loss curve.

    Args:
        points: progress of the training in any order; points without a finite loss are left out.
        title: heading above the curve.
        note: text below the curve, such as the reason for an empty curve.
    """
    losses = {point.step: point.loss for point in points if point.loss is not None and math.isfinite(point.loss)}
    curve = downsample(sorted(losses.items()))
    parts = [_render_svg(curve), _format_summary(curve)] if curve else ["<p>No loss was reported.</p>"]
    parts += [f"<p>{html.escape(note)}</p>"] if note else []
    return _PAGE.format(title=html.escape(title), content="\n".join(parts))


def downsample(curve: Sequence[tuple[int, float]], max_points: int = MAX_POINTS) -> list[tuple[int, float]]:
    """Return at most `max_points` points of a curve.

    Of each section of the curve, the lowest and the highest point are retained; the first and the last point as well.

    Args:
        curve: points by increasing step.
        max_points: maximum number of points, at least 4.
    """
    if len(curve) <= max_points:
        return list(curve)
    inner, sections = curve[1:-1], (max_points - 2) // 2
    kept = {curve[0], curve[-1]}
    for number in range(sections):
        section = inner[len(inner) * number // sections : len(inner) * (number + 1) // sections]
        kept |= {min(section, key=_loss), max(section, key=_loss)}
    return sorted(kept)


def compute_ticks(lowest: float, highest: float, target_count: int = 5) -> list[float]:
    """Return round numbers within a range, for the labels of an axis.

    Their distance is 1, 2 or 5 times a power of ten. An empty range has its only value as label.
    """
    rough = highest / target_count - lowest / target_count  # the difference itself may exceed the largest float
    if not rough > _MIN_DISTANCE:
        return [lowest]
    power = 10.0 ** math.floor(math.log10(rough))
    distance = next((step * power for step in (1, 2, 5) if step * power >= rough), 10 * power)
    first, last = math.ceil(lowest / distance), math.floor(highest / distance)
    return [number * distance for number in range(first, last + 1)]


def _render_svg(curve: Sequence[tuple[int, float]]) -> str:
    losses = [loss for _, loss in curve]
    steps, heights = _Axis(curve[0][0], curve[-1][0]), _Axis(min(losses), max(losses))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    places = [
        (
            _LEFT + steps.relative_position(step) * (right - _LEFT),
            bottom - heights.relative_position(loss) * (bottom - _TOP),
        )
        for step, loss in curve
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    drawn = [f'<polyline class="loss" points="{line}"/>'] if len(places) > 1 else []
    drawn += [f'<circle class="point" cx="{places[-1][0]:.1f}" cy="{places[-1][1]:.1f}" r="3"/>']
    return "\n".join(
        [
            f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" width="{_WIDTH:.0f}" role="img" aria-label="loss by step">',
            *_render_loss_axis(heights, right, bottom),
            *_render_step_axis(steps, right, bottom),
            *drawn,
            "</svg>",
        ]
    )


def _render_loss_axis(axis: _Axis, right: float, bottom: float) -> Iterator[str]:
    for value in compute_ticks(axis.lowest, axis.highest):
        y = bottom - axis.relative_position(value) * (bottom - _TOP)
        yield f'<line class="grid" x1="{_LEFT:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>'
    yield f'<line class="axis" x1="{_LEFT:.1f}" y1="{_TOP:.1f}" x2="{_LEFT:.1f}" y2="{bottom:.1f}"/>'


def _render_step_axis(axis: _Axis, right: float, bottom: float) -> Iterator[str]:
    for value in compute_ticks(axis.lowest, axis.highest):
        if value != round(value):
            continue  # a step is a whole number
        x = _LEFT + axis.relative_position(value) * (right - _LEFT)
        yield f'<text x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{value:.0f}</text>'
    yield f'<line class="axis" x1="{_LEFT:.1f}" y1="{bottom:.1f}" x2="{right:.1f}" y2="{bottom:.1f}"/>'
    yield f'<text x="{(_LEFT + right) / 2:.1f}" y="{_HEIGHT - 8:.1f}" text-anchor="middle">step</text>'


class _Axis:
    """A range of values, which computes the position of a value in it."""

    def __init__(self, lowest: float, highest: float) -> None:
        self.lowest, self.highest = lowest, highest

    def relative_position(self, value: float) -> float:
        """Return the position of a value from 0 to 1; 0.5 if the range has only one value.

        The computation uses halves, because the whole range may exceed the largest float.
        """
        half = self.highest / 2 - self.lowest / 2
        return (value / 2 - self.lowest / 2) / half if half > 0 else 0.5


def _format_summary(curve: Sequence[tuple[int, float]]) -> str:
    (first, first_loss), (last, last_loss) = curve[0], curve[-1]
    lowest_step, lowest_loss = min(curve, key=_loss)
    ends = f"Loss {first_loss:.4g} at step {first}, {last_loss:.4g} at step {last}"
    return f"<p>{ends}; lowest loss {lowest_loss:.4g} at step {lowest_step}.</p>"


def _loss(point: tuple[int, float]) -> float:
    return point[1]
