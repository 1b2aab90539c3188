"""The loss over a training's steps as an HTML page: one SVG, no script, nothing fetched, readable on light and dark."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence

from trainjob.status import Progress

MOST_POINTS = 500
"""A page of a few tens of kilobytes, and more points than the curve is wide."""
_WIDTH, _HEIGHT = 720.0, 360.0
_LEAST = 1e-300  # between two values; less can't be divided
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


def loss_curve(points: Sequence[Progress], title: str = "Training loss", note: str = "") -> str:
    """The page.

    Args:
        points: what the training told of its progress, in any order; those without a loss are left out.
        title: above the curve.
        note: below it, such as why there is nothing to see.
    """
    losses = {point.step: point.loss for point in points if point.loss is not None and math.isfinite(point.loss)}
    curve = thinned(sorted(losses.items()))
    parts = [_svg(curve), _summary(curve)] if curve else ["<p>No loss was reported.</p>"]
    parts += [f"<p>{html.escape(note)}</p>"] if note else []
    return _PAGE.format(title=html.escape(title), content="\n".join(parts))


def thinned(curve: Sequence[tuple[int, float]], most: int = MOST_POINTS) -> list[tuple[int, float]]:
    """At most so many points; of each stretch the lowest and the highest stay, and the first and the last point.

    Args:
        curve: points by rising step.
        most: at least 4.
    """
    if len(curve) <= most:
        return list(curve)
    inner, stretches = curve[1:-1], (most - 2) // 2
    kept = {curve[0], curve[-1]}
    for number in range(stretches):
        stretch = inner[len(inner) * number // stretches : len(inner) * (number + 1) // stretches]
        kept |= {min(stretch, key=_loss), max(stretch, key=_loss)}
    return sorted(kept)


def ticks(lowest: float, highest: float, about: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) within a range; its one value when it is empty."""
    rough = highest / about - lowest / about  # the difference itself may be more than a float can hold
    if not rough > _LEAST:
        return [lowest]
    power = 10.0 ** math.floor(math.log10(rough))
    apart = next((step * power for step in (1, 2, 5) if step * power >= rough), 10 * power)
    first, last = math.ceil(lowest / apart), math.floor(highest / apart)
    return [number * apart for number in range(first, last + 1)]


def _svg(curve: Sequence[tuple[int, float]]) -> str:
    losses = [loss for _, loss in curve]
    steps, heights = _Axis(curve[0][0], curve[-1][0]), _Axis(min(losses), max(losses))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    places = [
        (_LEFT + steps.share(step) * (right - _LEFT), bottom - heights.share(loss) * (bottom - _TOP))
        for step, loss in curve
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    drawn = [f'<polyline class="loss" points="{line}"/>'] if len(places) > 1 else []
    drawn += [f'<circle class="point" cx="{places[-1][0]:.1f}" cy="{places[-1][1]:.1f}" r="3"/>']
    return "\n".join(
        [
            f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" width="{_WIDTH:.0f}" role="img" aria-label="loss by step">',
            *_loss_axis(heights, right, bottom),
            *_step_axis(steps, right, bottom),
            *drawn,
            "</svg>",
        ]
    )


def _loss_axis(axis: _Axis, right: float, bottom: float) -> Iterator[str]:
    for value in ticks(axis.lowest, axis.highest):
        y = bottom - axis.share(value) * (bottom - _TOP)
        yield f'<line class="grid" x1="{_LEFT:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>'
    yield f'<line class="axis" x1="{_LEFT:.1f}" y1="{_TOP:.1f}" x2="{_LEFT:.1f}" y2="{bottom:.1f}"/>'


def _step_axis(axis: _Axis, right: float, bottom: float) -> Iterator[str]:
    for value in ticks(axis.lowest, axis.highest):
        if value != round(value):
            continue  # there is no half step
        x = _LEFT + axis.share(value) * (right - _LEFT)
        yield f'<text x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{value:.0f}</text>'
    yield f'<line class="axis" x1="{_LEFT:.1f}" y1="{bottom:.1f}" x2="{right:.1f}" y2="{bottom:.1f}"/>'
    yield f'<text x="{(_LEFT + right) / 2:.1f}" y="{_HEIGHT - 8:.1f}" text-anchor="middle">step</text>'


class _Axis:
    """A range of values, and where in it one of them is."""

    def __init__(self, lowest: float, highest: float) -> None:
        self.lowest, self.highest = lowest, highest

    def share(self, value: float) -> float:
        """0-1; the middle when there is only one value. Halves, as the whole range may be more than a float holds."""
        half = self.highest / 2 - self.lowest / 2
        return (value / 2 - self.lowest / 2) / half if half > 0 else 0.5


def _summary(curve: Sequence[tuple[int, float]]) -> str:
    (first, began), (last, ended) = curve[0], curve[-1]
    lowest, least = min(curve, key=_loss)
    ends = f"Loss {began:.4g} at step {first}, {ended:.4g} at step {last}"
    return f"<p>{ends}; the lowest, {least:.4g}, at step {lowest}.</p>"


def _loss(point: tuple[int, float]) -> float:
    return point[1]
