"""HTML page with the loss or the reward of a training by step.

The page has one SVG and no script, loads nothing, and is readable in light and dark mode.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from trainjob.status import Progress

MAX_POINTS = 500
"""Maximum number of points: more than the width of the curve, in a page of a few tens of kilobytes."""
_WIDTH, _HEIGHT = 720.0, 360.0
_MIN_DISTANCE = 1e-300  # minimum distance of two values; a smaller one cannot be divided
_LEFT, _RIGHT, _TOP, _BOTTOM = 70.0, 16.0, 16.0, 44.0
_NAMES = ("loss", "reward", "eval_loss", "eval_reward")
_Point = tuple[int, float]  # step and value
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
.curve {{ fill: none; stroke: #3b82f6; stroke-width: 2; }}
.curve-end {{ fill: #3b82f6; }}
.evaluation-end {{ fill: #f59e0b; }}
.evaluation {{ fill: none; stroke: #f59e0b; stroke-width: 2; stroke-dasharray: 6 4; }}
</style></head>
<body>
<h1>{title}</h1>
{content}
</body>
</html>
"""


class Curves:
    """Loss and reward of a training by step, and those of its evaluations.

    Attributes:
        count: number of the progress reports that were added.
    """

    def __init__(self, points: Iterable[Progress] = ()) -> None:
        """Create curves from progress of a training in any order."""
        self.count = 0
        self._values: dict[str, dict[int, float]] = {name: {} for name in _NAMES}
        for point in points:
            self.append(point)

    def append(self, point: Progress) -> None:
        """Add the values of one progress that are finite and known to be those of its step."""
        self.count += 1
        for name, values in self._values.items():
            value = point.value_at_step(name)
            if value is not None and math.isfinite(value):
                values[point.step] = value

    @property
    def name(self) -> str:
        """Name of the main curve: `reward` if the training reports it, `loss` otherwise.

        The loss of a training with rewards is not meaningful.
        """
        return "reward" if self._values["reward"] else "loss"

    def values(self, name: str) -> Mapping[int, float]:
        """Return the values of a curve by step, in the order of the log.

        Args:
            name: `loss`, `reward`, `eval_loss` or `eval_reward`.
        """
        return self._values[name]


def render_loss_curve(curves: Curves, title: str = "Training loss", note: str = "", tracking_url: str = "") -> str:
    """Return the page with the curve of the loss or the reward.

    A second curve has the values of the evaluations if there are any.

    Args:
        curves: values of the training.
        title: heading above the curve.
        note: text below the curve, such as the reason for an empty curve.
        tracking_url: address of the tracked run; empty without one.
    """
    curve = downsample(sorted(curves.values(curves.name).items()))
    evaluation = downsample(sorted(curves.values(f"eval_{curves.name}").items()))
    parts = ["<p>No loss was reported.</p>"]
    if curve:
        summary = _format_summary(curves.name.capitalize(), curves.name, curve)
        parts = [_render_svg(curves.name, curve, evaluation), summary]
    if curve and evaluation:
        parts.append(_format_summary(f"Evaluation {curves.name} (dashed)", curves.name, evaluation))
    parts += [f"<p>{html.escape(note)}</p>"] if note else []
    if tracking_url:
        address = html.escape(tracking_url)
        parts.append(f'<p>Tracked run: <a href="{address}" target="_blank" rel="noopener">{address}</a></p>')
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
        kept |= {min(section, key=_value), max(section, key=_value)}
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


def _render_svg(name: str, curve: Sequence[_Point], evaluation: Sequence[_Point]) -> str:
    values = [value for _, value in (*curve, *evaluation)]
    all_steps = [step for step, _ in (*curve, *evaluation)]
    steps, heights = _Axis(min(all_steps), max(all_steps)), _Axis(min(values), max(values))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def place(points: Sequence[_Point]) -> list[tuple[float, float]]:
        return [
            (
                _LEFT + steps.relative_position(step) * (right - _LEFT),
                bottom - heights.relative_position(value) * (bottom - _TOP),
            )
            for step, value in points
        ]

    size = f'viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" width="{_WIDTH:.0f}"'
    return "\n".join(
        [
            f'<svg {size} role="img" aria-label="{name} by step">',
            *_render_value_axis(heights, right, bottom),
            *_render_step_axis(steps, right, bottom),
            *_render_line("evaluation", place(evaluation)),
            *_render_line("curve", place(curve)),
            "</svg>",
        ]
    )


def _render_line(style: str, places: Sequence[tuple[float, float]]) -> Iterator[str]:
    if len(places) > 1:
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline class="{style}" points="{line}"/>'
    for x, y in places[-1:]:
        yield f'<circle class="{style}-end" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'


def _render_value_axis(axis: _Axis, right: float, bottom: float) -> Iterator[str]:
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


def _format_summary(label: str, name: str, curve: Sequence[_Point]) -> str:
    (first, first_value), (last, last_value) = curve[0], curve[-1]
    word, choose = ("highest", max) if name == "reward" else ("lowest", min)
    step, value = choose(curve, key=_value)
    ends = f"{label} {first_value:.4g} at step {first}, {last_value:.4g} at step {last}"
    return f"<p>{ends}; {word} {name} {value:.4g} at step {step}.</p>"


def _value(point: _Point) -> float:
    return point[1]
