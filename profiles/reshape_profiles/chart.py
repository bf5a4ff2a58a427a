"""Line charts as SVG, and curves as text for a terminal; standard library only.

Does: draw series of points with axes, ticks and a legend in a fixed, printable style. Lines differ
in their dashes too, so that no colour is needed. It returns text and writes no files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 40, 50
_COLOURS = ("#0b5fa5", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#0e7490", "#be123c", "#475569")
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
_BAR = 40


def line_chart(
    series: Mapping[str, Points], *, title: str, x_label: str, y_label: str, note: str = ""
) -> str:
    """Return SVG text of a chart from zero upwards. ``note`` is below the title."""
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    x_ticks, y_ticks = _ticks(max(xs, default=1.0)), _ticks(max(ys, default=1.0))
    x_scale = (WIDTH - _LEFT - _RIGHT) / x_ticks[-1]
    y_scale = (HEIGHT - _TOP - _BOTTOM) / y_ticks[-1]

    def at(x: float, y: float) -> tuple[float, float]:
        return round(_LEFT + x * x_scale, 1), round(HEIGHT - _BOTTOM - y * y_scale, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
        f'<text x="{_LEFT}" y="33" fill="#555">{escape(note)}</text>',
    ]
    for tick in x_ticks:
        x, y = at(tick, 0)
        parts.append(f'<text x="{x}" y="{y + 18}" text-anchor="middle">{tick:g}</text>')
    for tick in y_ticks:
        x, y = at(0, tick)
        end = WIDTH - _RIGHT
        parts.append(f'<line x1="{x}" y1="{y}" x2="{end}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{x - 6}" y="{y + 4}" text-anchor="end">{tick:g}</text>')
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_label)}</text>'
    )
    parts.append(
        f'<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>"
    )
    for number, (name, points) in enumerate(series.items()):
        parts += _line(number, name, [at(x, y) for x, y in points])
    return "\n".join([*parts, "</svg>"]) + "\n"


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """Return text of horizontal bars: label, length, and the text after each bar."""
    longest = max((value for _, value, _ in rows), default=1.0) or 1.0
    width = max((len(label) for label, _, _ in rows), default=0)
    lines = [
        f"{label:>{width}}  {'█' * max(1, round(_BAR * value / longest)):<{_BAR}}  {text}"
        for label, value, text in rows
    ]
    return "\n".join(lines)


def _line(number: int, name: str, points: Sequence[tuple[float, float]]) -> list[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    dash = _DASHES[number % len(_DASHES)]
    path = " ".join(f"{x},{y}" for x, y in points)
    style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
    x, y = WIDTH - _RIGHT + 12, _TOP + 10 + 18 * number
    marks = [f'<circle cx="{cx}" cy="{cy}" r="3" fill="{colour}"/>' for cx, cy in points]
    return [
        f'<polyline points="{path}" {style}/>',
        *marks,
        f'<line x1="{x}" y1="{y}" x2="{x + 22}" y2="{y}" {style}/>',
        f'<text x="{x + 28}" y="{y + 4}">{escape(name)}</text>',
    ]


def _ticks(highest: float) -> list[float]:
    """Return four to ten round steps from zero to at least ``highest``."""
    highest = highest if highest > 0 else 1.0
    step = 10.0 ** math.floor(math.log10(highest))
    for factor in (0.1, 0.2, 0.5, 1.0):
        if highest / (step * factor) <= 8:
            step *= factor
            break
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]
