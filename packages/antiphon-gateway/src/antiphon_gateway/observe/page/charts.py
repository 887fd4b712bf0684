"""Charts of the last hour as inline SVG: no script, no style of their own, and a text description.

A chart is drawn in a fixed box and scaled by the page; colours are classes of the page's style sheet, for light and dark. Each
has a title, a description and a tooltip per minute. Only numbers and times go into a chart, so nothing needs escaping.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from antiphon_gateway.observe.page.texts import TEXTS, Texts
from antiphon_gateway.observe.recent import Minute, percentile

_WIDTH, _HEIGHT = 440.0, 190.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 8.0, 10.0, 24.0
_INNER = _WIDTH - _LEFT - _RIGHT
_FLOOR = _HEIGHT - _BOTTOM
_DEPTH = _FLOOR - _TOP
_LINES = 4

PERCENTILES: tuple[tuple[str, float], ...] = (("p50", 0.50), ("p95", 0.95))
"""The percentiles that are drawn: label (also the class) and fraction."""


def requests_plot(minutes: Sequence[Minute], say: Texts = TEXTS["en"]) -> str:
    """Requests per minute as stacked bars: answered, refused, failed."""
    total = sum(minute.requests for minute in minutes)
    refused = sum(minute.refused for minute in minutes)
    failed = sum(minute.failed for minute in minutes)
    scale = _Scale(max((minute.requests for minute in minutes), default=0), whole=True)
    bars = []
    for place, minute in enumerate(minutes):
        if not minute.requests:
            continue
        answered = minute.requests - minute.refused - minute.failed
        counts = ((say["requests"], minute.requests), (say["refused"], minute.refused), (say["failed"], minute.failed))
        tooltip = f"{_clock(minute)}: " + ", ".join(f"{count} {word.lower()}" for word, count in counts)
        bars.append(f"<g><title>{tooltip}</title>")
        base = 0
        for name, count in (("answered", answered), ("refused", minute.refused), ("failed", minute.failed)):
            if count:
                bars.append(_bar(name, place, len(minutes), scale.y(base + count), scale.y(base)))
                base += count
        bars.append("</g>")
    words = say["plot_requests"].format(total=total, minutes=len(minutes), refused=refused, failed=failed)
    return _plot("requests-plot", say["per_minute"], words, scale.grid(str), minutes, bars)


def latency_plot(minutes: Sequence[Minute], say: Texts = TEXTS["en"]) -> str:
    """The p50 and p95 latency by minute."""
    series = {label: [percentile(minute.seconds, share) for minute in minutes] for label, share in PERCENTILES}
    known = [value for values in series.values() for value in values if value is not None]
    scale = _Scale(max(known, default=0.0))
    drawn: list[str] = []
    for label, _ in PERCENTILES:
        points = [
            (_x(place, len(minutes)), scale.y(value), f"{_clock(minute)}: {label} {format_duration(value)}")
            for place, (minute, value) in enumerate(zip(minutes, series[label], strict=True))
            if value is not None
        ]
        drawn += _line(label, points, _INNER / max(1, len(minutes)))
    total = Minute(0)
    for minute in minutes:
        total.merge(minute)
    latencies = [
        f"{say[label]} {format_duration(value)}"
        for label, share in PERCENTILES
        if (value := percentile(total.seconds, share)) is not None
    ]
    words = say["plot_latency"].format(minutes=len(minutes), latencies=", ".join(latencies) or say["no_responses"])
    return _plot("latency-plot", say["plot_latency_title"], words, scale.grid(format_duration), minutes, drawn)


def format_duration(seconds: float) -> str:
    """A duration with a unit a person would choose."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.00995 or seconds == 0 else f"{seconds * 1000:.1f} ms"
    if seconds < 9.95:
        return f"{seconds:#.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if minutes < 120:
        return f"{minutes} min"
    return f"{hours} h" if hours < 48 else f"{hours // 24} days"


class _Scale:
    """A vertical axis from zero to a round number, and its marks."""

    def __init__(self, highest: float, *, whole: bool = False) -> None:
        step = _round_up(highest / _LINES) if highest > 0 else 1.0 if whole else 0.25
        self._step = math.ceil(step) if whole else step
        self._marks = max(1, math.ceil(highest / self._step - 1e-9)) if highest > 0 else _LINES

    def y(self, value: float) -> float:
        return _FLOOR - value / (self._step * self._marks) * _DEPTH

    def grid(self, label: Callable[[float], str]) -> list[str]:
        lines = []
        for mark in range(self._marks + 1):
            value = mark * self._step
            y = self.y(value)
            word = label(int(value) if float(value).is_integer() else value) if mark else "0"
            lines.append(f'<line class="grid" x1="{_LEFT:g}" x2="{_WIDTH - _RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
            lines.append(f'<text class="mark" x="{_LEFT - 6:g}" y="{y + 3.5:.1f}" text-anchor="end">{word}</text>')
        return lines


def _plot(
    name: str, title: str, words: str, grid: Iterable[str], minutes: Sequence[Minute], drawn: Iterable[str]
) -> str:
    times = []
    for place, minute in enumerate(minutes):
        if minute.start % 900 == 0:  # each quarter of an hour
            x = _x(place, len(minutes))
            times.append(
                f'<text class="mark" x="{x:.1f}" y="{_HEIGHT - 7:g}" text-anchor="middle">{_clock(minute)}</text>'
            )
    return svg(name, title, words, (_WIDTH, _HEIGHT), [*grid, *times, *drawn])


def svg(
    name: str,
    title: str,
    words: str,
    size: tuple[float, float],
    drawn: Iterable[str],
    *,
    stands_alone: bool = False,
) -> str:
    """A chart with its frame, title and description. One that `stands_alone` is a file and not part of a page."""
    alone = f' xmlns="http://www.w3.org/2000/svg" width="{size[0]:g}" height="{size[1]:g}"' if stands_alone else ""
    return (
        f'<svg{alone} class="plot" viewBox="0 0 {size[0]:g} {size[1]:g}" role="img" '
        f'aria-labelledby="{name}-title {name}-words">'
        f'<title id="{name}-title">{title}</title><desc id="{name}-words">{words}</desc>'
        f"{''.join(drawn)}</svg>"
    )


def _bar(name: str, place: int, places: int, top: float, bottom: float) -> str:
    pitch = _INNER / places
    x = _x(place, places) - pitch / 2
    return (
        f'<rect class="{name}" x="{x + pitch * 0.12:.1f}" y="{top:.1f}" '
        f'width="{pitch * 0.76:.1f}" height="{max(0.5, bottom - top):.1f}"/>'
    )


def _line(name: str, points: Sequence[tuple[float, float, str]], pitch: float) -> list[str]:
    """A line through the points, broken where minutes between them have none, and a mark with a tooltip at each."""
    path = ""
    before = -math.inf
    for x, y, _ in points:
        path += f"{'L' if x - before < pitch * 1.5 else 'M'}{x:.1f} {y:.1f}"
        before = x
    drawn = [f'<path class="{name}" d="{path}"/>'] if path else []
    drawn += [
        f'<circle class="{name}" cx="{x:.1f}" cy="{y:.1f}" r="2"><title>{tooltip}</title></circle>'
        for x, y, tooltip in points
    ]
    return drawn


def _x(place: int, places: int) -> float:
    """The middle of a minute."""
    return _LEFT + (place + 0.5) * _INNER / places


def _clock(minute: Minute) -> str:
    return datetime.fromtimestamp(minute.start, UTC).strftime("%H:%M")


def _round_up(value: float) -> float:
    """The next of 1, 2, 2.5, 5 or 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * (1 - 1e-9))
