"""Plots of the results as standalone SVG files: no script, no fonts, light and dark, narrow enough for a phone, with a text
description.

A `DotPlot` shows everyone on one logarithmic axis, because the slowest may take a thousand times what the fastest takes; dots and
not bars, whose length would mislead. `lines` draws the cost over the size on two logarithmic axes: there a straight line is a
power.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from msgspec import Struct

WIDTH = 440.0
_LEFT, _RIGHT = 12.0, 12.0
_ROW, _HEAD, _FOOT = 34.0, 46.0, 30.0
_STYLE = """
text { font: 13px "Atkinson Hyperlegible Next", system-ui, -apple-system, "Segoe UI", sans-serif; fill: #161a17; }
.paper { fill: #fbfcfa; } .title { font-weight: 650; font-size: 15px; } .quiet { fill: #58625b; font-size: 12px; }
.grid { stroke: #e0e5df; stroke-width: 1; } .rail { stroke: #b9c2bb; stroke-width: 2; }
.ours { fill: #0c6847; stroke: #0c6847; } .theirs { fill: #3a4cc0; stroke: #3a4cc0; } .floor { fill: #838d86; stroke: #838d86; }
.bold { font-weight: 600; stroke: none; } .line { fill: none; stroke-width: 2; } .dashed { stroke-dasharray: 4 4; }
@media (prefers-color-scheme: dark) {
text { fill: #e5eae5; } .paper { fill: #101311; } .quiet { fill: #9aa59d; }
.grid { stroke: #2a312c; } .rail { stroke: #414a43; }
.ours { fill: #6dd3a1; stroke: #6dd3a1; } .theirs { fill: #a8b5ff; stroke: #a8b5ff; } .floor { fill: #6d7870; stroke: #6d7870; }
.bold { stroke: none; } .line { fill: none; }
}
"""


class Dot(Struct, frozen=True):
    """One value. `kind` is `ours`, `theirs`, or `floor` for something that does less."""

    name: str
    value: float
    kind: str


class DotPlot(Struct, frozen=True):
    """One piece of work and everyone's values, least first."""

    title: str
    unit: str
    dots: tuple[Dot, ...]

    @property
    def description(self) -> str:
        """What it shows, as text."""
        return "; ".join(f"{dot.name} {readable(dot.value)} {self.unit}" for dot in self.dots)


def dot_plots(name: str, title: str, panels: Sequence[DotPlot]) -> str:
    """Several plots below each other, in one picture."""
    drawn: list[str] = []
    top = 0.0
    for panel in panels:
        drawn += _dot_plot(panel, top)
        top += _HEAD + len(panel.dots) * _ROW + _FOOT
    words = " ".join(f"{panel.title}: {panel.description}." for panel in panels)
    return _picture(name, title, words, top, drawn)


def _dot_plot(panel: DotPlot, top: float) -> list[str]:
    values = [dot.value for dot in panel.dots]
    low, high = _decades(values)
    floor = top + _HEAD + len(panel.dots) * _ROW
    drawn = [f'<text class="title" x="{_LEFT:g}" y="{top + 24:g}">{escape(panel.title)}</text>']
    for power in range(low, high + 1):
        x = _across(10.0**power, low, high)
        drawn.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top + _HEAD - 8:g}" y2="{floor:g}"/>')
        if (power - low) % (2 if high - low > 4 else 1) == 0:  # five marks fit beside each other
            anchor = "start" if power == low else "end" if power == high else "middle"
            mark = f"{readable(10.0**power)} {panel.unit if power == low else ''}".strip()
            drawn.append(
                f'<text class="quiet" x="{x:.1f}" y="{floor + 16:g}" text-anchor="{anchor}">{escape(mark)}</text>'
            )
    for place, dot in enumerate(panel.dots):
        y = top + _HEAD + place * _ROW
        x = _across(dot.value, low, high)
        weight = "bold" if dot.kind == "ours" else ""
        drawn += [
            f'<text class="{weight}" x="{_LEFT:g}" y="{y + 9:g}">{escape(dot.name)}</text>',
            f'<text class="{weight}" x="{WIDTH - _RIGHT:g}" y="{y + 9:g}" text-anchor="end">'
            f"{readable(dot.value)} {escape(panel.unit)}</text>",
            f'<line class="rail" x1="{_LEFT:g}" x2="{WIDTH - _RIGHT:g}" y1="{y + 18:g}" y2="{y + 18:g}"/>',
            f'<circle class="{dot.kind}" cx="{x:.1f}" cy="{y + 18:g}" r="{6 if dot.kind == "ours" else 5}"/>',
        ]
    return drawn


class Curve(Struct, frozen=True):
    """The cost of one piece of work at several sizes."""

    name: str
    points: tuple[tuple[float, float], ...]
    slope: float
    kind: str


def lines(name: str, title: str, sized: str, unit: str, curves: Sequence[Curve], height: float = 300.0) -> str:
    """Cost over size. A list below has names and slopes, in the order of the ends of the lines."""
    ordered = sorted(curves, key=lambda curve: -curve.points[-1][1])
    has_others = any(curve.kind == "theirs" for curve in curves)
    sizes = [size for curve in curves for size, _ in curve.points]
    costs = [cost for curve in curves for _, cost in curve.points]
    left, right, top, floor = 76.0, WIDTH - _RIGHT, _HEAD, height
    low, high = _decades(costs)
    first, last = math.log10(min(sizes)), math.log10(max(sizes))

    def x_of(size: float) -> float:
        return left + (math.log10(size) - first) / (last - first) * (right - left)

    def y_of(cost: float) -> float:
        return floor - (math.log10(cost) - low) / (high - low) * (floor - top)

    drawn = [f'<text class="title" x="{_LEFT:g}" y="24">{escape(title)}</text>']
    for power in range(low, high + 1):
        y = y_of(10.0**power)
        drawn.append(f'<line class="grid" x1="{left:g}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
        mark = f"{readable(10.0**power)} {unit}"
        drawn.append(f'<text class="quiet" x="{left - 6:g}" y="{y + 4:.1f}" text-anchor="end">{escape(mark)}</text>')
    for size in sorted(set(sizes)):
        if x_of(max(sizes)) - 110 < x_of(size) < x_of(max(sizes)):
            continue  # it would overlap the last label
        mark = f"{size:,.0f} {sized}" if size == max(sizes) else f"{size:,.0f}"
        anchor = "start" if size == min(sizes) else "end" if size == max(sizes) else "middle"
        drawn.append(
            f'<text class="quiet" x="{x_of(size):.1f}" y="{floor + 17:g}" text-anchor="{anchor}">{escape(mark)}</text>'
        )
    for place, curve in enumerate(ordered):
        path = "L".join(f"{x_of(size):.1f} {y_of(cost):.1f}" for size, cost in curve.points)
        dash = " dashed" if curve.kind == "floor" else ""
        drawn.append(f'<path class="{curve.kind} line{dash}" style="fill:none" d="M{path}"/>')
        drawn += [
            f'<circle class="{curve.kind}" cx="{x_of(size):.1f}" cy="{y_of(cost):.1f}" r="3"/>'
            for size, cost in curve.points
        ]
        y = floor + 44 + place * 20
        weight = "bold" if curve.kind == "ours" and has_others else ""
        end = f"{readable(curve.points[-1][1])} {unit} at {curve.points[-1][0]:,.0f}, slope {curve.slope:.2f}"
        drawn += [
            f'<circle class="{curve.kind}" cx="{_LEFT + 5:g}" cy="{y - 4:g}" r="4"/>',
            f'<text class="{weight}" x="{_LEFT + 16:g}" y="{y:g}">{escape(curve.name)}</text>',
            f'<text class="quiet" x="{right:g}" y="{y:g}" text-anchor="end">{escape(end)}</text>',
        ]
    words = "; ".join(f"{curve.name}: slope {curve.slope:.2f}" for curve in ordered)
    return _picture(name, title, words, floor + 44 + len(ordered) * 20, drawn)


def readable(value: float) -> str:
    """A number with three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 else f"{value:.0e}"


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten that enclose the values, at least two."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _across(value: float, low: int, high: int) -> float:
    return _LEFT + 8 + (math.log10(value) - low) / (high - low) * (WIDTH - _LEFT - _RIGHT - 16)


def _picture(name: str, title: str, words: str, height: float, drawn: Iterable[str]) -> str:
    paper = f'<rect class="paper" width="{WIDTH:g}" height="{height:g}" rx="6"/>'
    inner = [f"<style>{_STYLE}</style>", paper, *drawn]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:g}" height="{height:g}" class="plot" '
        f'viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-labelledby="{name}-title {name}-words">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-words">{escape(words)}</desc>'
        f"{''.join(inner)}</svg>"
    )
