"""The jobs on each GPU over time, as one SVG: a panel for each way of changing GPUs, one time axis.

Does: draws timelines with the standard library alone. Pure: no file, no clock. Never: draws what is
not in a timeline. Readable without colour: what trains has its job's name in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from reshape_controller.http.timeline import Span, Timeline

WIDTH, LEFT, RIGHT, TOP = 860, 56, 20, 40
ROW, GAP, PANEL_GAP, TITLE, FOOT = 20, 3, 30, 24, 62
COLOURS = ("#2f6db3", "#d9822b", "#4f9d69", "#8e5ea2")
"""Of what trains, by job in order of submission."""
BUSY, IDLE = "#c9ced6", "#f1f3f5"
TICK_S = 120.0
LABEL_LEAST = 64
"""Width of a bar that has room for its job's name."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A timeline and what is said of it; times in seconds since ``timeline.from_s``."""

    title: str
    timeline: Timeline

    @property
    def end_s(self) -> float:
        """When the last job was done."""
        return max(job.ended_at_s or 0.0 for job in self.timeline.jobs)


def draw(title: str, panels: Sequence[Panel]) -> str:
    """The picture as the text of an SVG file."""
    scale = (WIDTH - LEFT - RIGHT) / max(panel.end_s for panel in panels)
    parts = [_text(LEFT, 20, title, size=15, weight="bold")]
    y = TOP
    for panel in panels:
        parts += _panel(panel, y, scale)
        y += TITLE + len(panel.timeline.gpus) * (ROW + GAP) + PANEL_GAP
    parts += _foot(panels, y - PANEL_GAP + 4, scale)
    height = y - PANEL_GAP + FOOT
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" role="img">'
    )
    ground = f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    words = f"<title>{escape(title)}</title>"
    return "\n".join([head, words, ground, *parts, "</svg>", ""])


def _panel(panel: Panel, y: int, scale: float) -> list[str]:
    end_x = LEFT + panel.end_s * scale
    done = f"both jobs are done after {panel.end_s:,.0f} s"
    parts = [_text(LEFT, y + 14, f"{panel.title}: {done}", size=13)]
    names = {job.id: job.name for job in panel.timeline.jobs}
    shades = {job: COLOURS[number % len(COLOURS)] for number, job in enumerate(names)}
    for row, gpu in enumerate(panel.timeline.gpus):
        top = y + TITLE + row * (ROW + GAP)
        parts.append(_text(LEFT - 8, top + 14, f"GPU {gpu.index}", anchor="end"))
        parts.append(_bar(LEFT, top, end_x - LEFT, IDLE))
        for span in gpu.spans:
            parts += _span(span, top, panel.end_s, scale, names, shades)
    bottom = y + TITLE + len(panel.timeline.gpus) * (ROW + GAP)
    line = f'x1="{end_x:.1f}" x2="{end_x:.1f}" y1="{y + TITLE - 4}" y2="{bottom}"'
    return [*parts, f'<line {line} stroke="black" stroke-width="1.5"/>']


def _span(
    span: Span, top: int, end_s: float, scale: float, names: dict[str, str], shades: dict[str, str]
) -> list[str]:
    to_s = end_s if span.to_s is None else min(span.to_s, end_s)
    x, width = LEFT + span.from_s * scale, (to_s - span.from_s) * scale
    if width <= 0 or span.job is None:
        return []
    if span.phase != "training":
        return [_bar(x, top, width, BUSY)]
    bar = _bar(x, top, width, shades[span.job])
    if width < LABEL_LEAST:
        return [bar]
    return [bar, _text(x + width / 2, top + 14, names[span.job], anchor="middle", fill="white")]


def _foot(panels: Sequence[Panel], y: int, scale: float) -> list[str]:
    """The axis, and below it what the colours mean."""
    last_s = max(panel.end_s for panel in panels)
    ticks = [number * TICK_S for number in range(int(last_s // TICK_S) + 1)]
    parts = [
        _text(LEFT + at_s * scale, y + 12, f"{at_s / 60:.0f} min", size=11, anchor="middle")
        for at_s in ticks
    ]
    x = float(LEFT)
    names = [job.name for job in panels[0].timeline.jobs]
    entries = [(f"{name} trains", COLOURS[number]) for number, name in enumerate(names)]
    entries += [("held, and not training: saves, stops, starts", BUSY), ("idle", IDLE)]
    for text, colour in entries:
        parts.append(_bar(x, y + 28, 16, colour, height=14))
        parts.append(_text(x + 22, y + 40, text))
        x += 44 + 6.6 * len(text)
    return parts


def _bar(x: float, y: float, width: float, colour: str, height: int = ROW) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}"'
    return f'<rect {place} fill="{colour}" shape-rendering="crispEdges"/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    anchor: str = "start",
    weight: str = "normal",
    fill: str = "black",
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}"'
    look = f'text-anchor="{anchor}" font-weight="{weight}" fill="{fill}"'
    return f"<text {place} {look}>{escape(text)}</text>"
