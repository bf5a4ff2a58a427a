"""A timeline as a picture (SVG, PNG): a lane for each GPU and each job, a mark for each reshape.

Does: draws with matplotlib, which is imported late and only here. Never: relies on colour: jobs
are told apart by their letter and shade, phases by their hatching. State: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.timeline.reshapes import Reshape, reshapes_of
from reshape_controller.http.timeline import GpuLane, JobLane, Span, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")
LANE_HEIGHT = 0.78
LANE_INCHES = 0.28
LANES_LEAST = 3
MARGIN_INCHES = 1.4
WIDTH_INCHES = 10.0
PNG_DPI = 150
SHADES = ("0.25", "0.80", "0.45", "0.92", "0.60")
"""Greys of training, by job in order of submission; neighbours differ most."""
STYLE = {"hatch.linewidth": 0.6, "svg.hashsalt": "reshape", "svg.fonttype": "none"}
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
GLYPH_RATIO = 0.011
"""Part of the picture's width that a glyph takes: a bar without room for its label has none."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a phase is drawn. ``hatch`` on white; training is filled with its job's shade."""

    text: str
    hatch: str = ""
    edge: str = "black"


LOOKS = {
    "starting": Look("starts", "////"),
    "saving": Look("saves, stops, is verified", "xxxx"),
    "stopping": Look("saves, stops, is verified", "xxxx"),
    "releasing": Look("saves, stops, is verified", "xxxx"),
    "reserved": Look("reserved", "...."),
    "initializing": Look("container starts", "oo"),
    "initialized": Look("initialised, waits for GPUs", "--"),
    "queued": Look("queued", "", "0.6"),
    "halted": Look("paused", "++"),
    "ending": Look("container ends", "||"),
    "quarantined": Look("quarantined or lost", "**"),
    "lost": Look("quarantined or lost", "**"),
}


@dataclass(frozen=True, slots=True)
class Lane:
    label: str
    spans: tuple[Span, ...]
    of_gpu: bool


def save(timeline: Timeline, path: Path, title: str) -> None:
    """Write the picture; SVG or PNG by the suffix. Raises CliError."""
    lanes = len(timeline.gpus) + len(timeline.jobs)
    figure = new_figure(1, MARGIN_INCHES + max(lanes, LANES_LEAST) * LANE_INCHES)
    (axes,) = figure.axes
    draw(axes, timeline)
    axes.set_xlabel("seconds since the first submission")
    axes.set_title(title, loc="left", fontsize=10, pad=22)
    figure.legend(handles=legend([timeline]), loc="outside lower left", ncols=4, fontsize=8)
    write(figure, path)


def new_figure(rows: int, height_inches: float, ratios: list[float] | None = None) -> Figure:
    """An empty figure of ``rows`` axes with one time axis. Raises CliError without matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise failed(
            Exit.FAILED,
            "charts need matplotlib, which is not installed",
            "reshape timeline --chart",
            "install it: pip install matplotlib",
        ) from None
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")
        figure.subplots(rows, 1, sharex=True, height_ratios=ratios, squeeze=False)
    return figure


def write(figure: Figure, path: Path) -> None:
    """Save as the suffix says. The same picture gives the same SVG. Raises CliError."""
    from matplotlib import rc_context

    if path.suffix not in SUFFIXES:
        what = f"the chart file {path.name!r} is neither .svg nor .png"
        raise failed(
            Exit.USAGE, what, str(path), f"give a name that ends with {' or '.join(SUFFIXES)}"
        )
    metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {}
    try:
        with rc_context(STYLE):
            figure.savefig(path, dpi=PNG_DPI, metadata=metadata)
    except OSError as error:
        what = f"the chart cannot be written: {error.strerror}"
        raise failed(Exit.FAILED, what, str(path), "name a file in an existing folder") from None


def begin_of(timeline: Timeline) -> float:
    """The first submission: where the picture's time begins. Unix seconds."""
    return min((job.submitted_at_s for job in timeline.jobs), default=timeline.from_s)


def letters(timeline: Timeline) -> dict[str, str]:
    """A letter for each job, in order of submission."""
    return {job.id: LETTERS[number % len(LETTERS)] for number, job in enumerate(timeline.jobs)}


def draw(axes: Axes, timeline: Timeline) -> None:
    """Lanes of GPUs, then of jobs, and a mark for each reshape above them."""
    names = letters(timeline)
    lanes = [Lane(f"GPU {gpu.index}", gpu.spans, of_gpu=True) for gpu in timeline.gpus]
    lanes += [Lane(f"{names[job.id]} {job.name}", job.spans, of_gpu=False) for job in timeline.jobs]
    begin_s = begin_of(timeline)
    length_s = max(_ends(timeline), default=timeline.to_s) - begin_s
    shades = {job.id: SHADES[number % len(SHADES)] for number, job in enumerate(timeline.jobs)}
    for row, lane in enumerate(lanes):
        for span in lane.spans:
            _bar(axes, row, lane, span, timeline, (begin_s, length_s), names, shades)
    axes.set_yticks(range(len(lanes)), [lane.label for lane in lanes], fontsize=8)
    axes.set_ylim(max(len(lanes), 1) - 0.5, -0.5)
    axes.set_xlim(0, max(length_s, 1.0))
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for reshape in reshapes_of(timeline):
        mark(axes, reshape, names[reshape.job], begin_s, text=True)


def mark(axes: Axes, reshape: Reshape, letter: str, begin_s: float, *, text: bool) -> None:
    """A dashed line where a reshape begins; with ``text`` also what it is, above the axes."""
    at_s = reshape.from_s - begin_s
    axes.axvline(at_s, color="black", linestyle=(0, (4, 2)), linewidth=0.9, gid="reshape")
    if text:
        sign = "▼" if reshape.down else "▲"
        axes.annotate(
            f"{sign} {letter}: {reshape.from_gpus} → {reshape.to_gpus} GPUs",
            (at_s, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=8,
            ha="left",
        )


def legend(timelines: list[Timeline]) -> list[Any]:
    """A patch for each look that occurs."""
    from matplotlib.patches import Patch

    seen = {span.phase for timeline in timelines for span in _spans(timeline)}
    texts = {LOOKS[phase].text: LOOKS[phase] for phase in LOOKS if phase in seen}
    handles = [Patch(facecolor=SHADES[0], edgecolor="black", label="trains (shade: which job)")]
    handles += [
        Patch(facecolor="white", edgecolor=look.edge, hatch=look.hatch, label=text)
        for text, look in texts.items()
    ]
    return handles


def _spans(timeline: Timeline) -> list[Span]:
    lanes: tuple[GpuLane | JobLane, ...] = (*timeline.gpus, *timeline.jobs)
    return [span for lane in lanes for span in lane.spans]


def _ends(timeline: Timeline) -> list[float]:
    return [timeline.to_s if span.to_s is None else span.to_s for span in _spans(timeline)]


def _bar(
    axes: Axes,
    row: int,
    lane: Lane,
    span: Span,
    timeline: Timeline,
    scale: tuple[float, float],
    names: dict[str, str],
    shades: dict[str, str],
) -> None:
    begin_s, length_s = scale
    left_s = span.from_s - begin_s
    width_s = (timeline.to_s if span.to_s is None else span.to_s) - span.from_s
    trains = span.phase == "training"
    shade = shades.get(span.job or "", "0.5")
    look = LOOKS.get(span.phase, Look(span.phase))
    axes.barh(
        row,
        width_s,
        left=left_s,
        height=LANE_HEIGHT,
        facecolor=shade if trains else "white",
        edgecolor="black" if trains else look.edge,
        hatch="" if trains else look.hatch,
        linewidth=0.6,
        gid=span.phase,
    )
    label = names.get(span.job or "", "?") if lane.of_gpu else f"{span.size} GPUs"
    if trains and width_s >= GLYPH_RATIO * len(label) * length_s:
        axes.text(
            left_s + width_s / 2,
            row,
            label,
            ha="center",
            va="center",
            fontsize=8,
            color="white" if float(shade) < 0.5 else "black",
        )
