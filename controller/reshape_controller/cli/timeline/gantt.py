"""The timeline as text: a row for each GPU, a row for each job, readable without colour.

Does: draw ``http.timeline.Timeline`` into a given number of columns. Pure: no clock, no terminal.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from reshape_controller.cli.output import WIDE_COLUMNS, grid
from reshape_controller.cli.timeline.lanes import Lane, Scale, fill, runs, tick_step_s
from reshape_controller.cli.words import duration, moment, state_word
from reshape_controller.core.phrases import gpus, lost_count, lost_text
from reshape_controller.http.timeline import JobLane, Span, Timeline

COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")
LABEL_MAX = 22
CHART_LEAST = 20
TICK_COLUMNS_LEAST = 9
_SUMS = (
    ("queued", "halted"),
    ("initializing",),
    ("initialized",),
    ("starting",),
    ("training",),
    ("saving", "stopping"),
)
"""Phases in the sums, by column."""
JOBS_MAX = 40
"""Largest number of rows of jobs; the newest jobs have one."""


@dataclass(frozen=True, slots=True)
class GanttMark:
    """The glyphs of a phase with and without Unicode, and its name."""

    glyph: str
    plain: str
    text: str


MARKS = {
    "training": GanttMark("█", "#", "trains"),
    "starting": GanttMark("░", ":", "starts (import, build, restore, first step)"),
    "saving": GanttMark("▒", "%", "saves and stops"),
    "stopping": GanttMark("▒", "%", "saves and stops"),
    "releasing": GanttMark("?", "?", "released, being verified"),
    "reserved": GanttMark("-", "-", "reserved for its next job"),
    "initializing": GanttMark("○", "o", "initialises without GPUs"),
    "initialized": GanttMark("●", "@", "initialised, waits for its GPUs"),
    "queued": GanttMark("·", ".", "queued"),
    "ending": GanttMark("╴", "_", "its container ends"),
    "halted": GanttMark("=", "=", "paused"),
    "quarantined": GanttMark("!", "!", "quarantined or lost"),
    "lost": GanttMark("!", "!", "quarantined or lost"),
}


@dataclass(frozen=True, slots=True)
class Key:
    """A job's letter and colour."""

    letter: str
    colour: str


def draw(timeline: Timeline, columns: int, *, unicode: bool = True) -> RenderableType:
    """Return the chart, its legend and the sums."""
    if not timeline.jobs:
        return Text("no job in this time; submit one: reshape submit FILE")
    jobs = timeline.jobs[-JOBS_MAX:]
    keys = {job.id: _key(number) for number, job in enumerate(jobs)}
    labels = [gpu.name for gpu in timeline.gpus] + [_job_label(keys, job) for job in jobs]
    label_width = min(LABEL_MAX, max(len(label) for label in labels))
    from_s = max(timeline.from_s, min(_end_s(timeline), *(job.submitted_at_s for job in jobs)))
    to_s = max(_end_s(timeline), from_s + 1.0)
    scale = Scale(from_s, to_s, max(CHART_LEAST, columns - label_width - 2))
    parts: list[RenderableType] = [_heading(scale), Text(), _axis(scale, label_width)]
    seen: dict[str, None] = {}
    for gpu in timeline.gpus:
        lane = fill(gpu.spans, scale)
        parts.append(_row(gpu.name, lane, label_width, keys, unicode, by_job=True))
        seen.update((entry.phase, None) for entry in lane if entry is not None)
    parts.append(Text())
    for job in jobs:
        lane = fill(job.spans, scale)
        parts.append(_row(_job_label(keys, job), lane, label_width, keys, unicode, by_job=False))
        seen.update((entry.phase, None) for entry in lane if entry is not None)
    parts += [
        Text(),
        _legend(seen, unicode, columns),
        Text(),
        _sums(jobs, keys, to_s, columns, unicode),
    ]
    parts += [Text(), _use(timeline, from_s, to_s)]
    return Group(*parts)


def _end_s(timeline: Timeline) -> float:
    """Return the present while a span lasts, or the end of the last span."""
    spans = [span for gpu in timeline.gpus for span in gpu.spans]
    spans += [span for job in timeline.jobs for span in job.spans]
    ends = [span.to_s for span in spans if span.to_s is not None]
    return max(ends) if len(ends) == len(spans) and ends else timeline.to_s


def _key(number: int) -> Key:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return Key(letters[number % len(letters)], COLOURS[number % len(COLOURS)])


def _job_label(keys: dict[str, Key], job: JobLane) -> str:
    return f"{keys[job.id].letter} {job.name}"


def _heading(scale: Scale) -> Text:
    span_s = scale.to_s - scale.from_s
    return Text.assemble(
        (f"{moment(scale.from_s)} UTC", "bold"),
        f"  {duration(span_s)} in all, one column is {scale.column_s:.2g} s",
    )


def _axis(scale: Scale, label_width: int) -> Text:
    step_s = tick_step_s(scale, TICK_COLUMNS_LEAST)
    line = [" "] * (scale.columns + 12)
    tick = 0
    while (column := round(tick * step_s / scale.column_s)) < scale.columns:
        text = f"|{_tick(tick * step_s)}"
        line[column : column + len(text)] = list(text)
        tick += 1
    return Text(" " * (label_width + 2) + "".join(line)[: scale.columns].rstrip(), "dim")


def _tick(seconds: float) -> str:
    whole = round(seconds)
    if abs(seconds - whole) > 1e-6:
        return f"{seconds:.1f}s"
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m" + (f"{whole % 60:02d}s" if whole % 60 else "")
    return f"{whole // 3600}h" + (f"{whole % 3600 // 60:02d}m" if whole % 3600 else "")


def _row(
    label: str, lane: Lane, width: int, keys: dict[str, Key], unicode: bool, *, by_job: bool
) -> Text:
    row = Text(label[:width].ljust(width) + "  ", no_wrap=True)
    for span, length in _joined(lane):
        if span is None:
            row.append((" " if not by_job else "·" if unicode else ".") * length, "dim")
            continue
        key = keys.get(span.job or "")
        mark = MARKS[span.phase]
        glyph = mark.glyph if unicode else mark.plain
        name = ("?" if key is None else key.letter) if by_job else str(span.size)
        colour = key.colour if key is not None else "white"
        text = _named(glyph, name, length) if span.phase == "training" else glyph * length
        row.append(text, colour if span.phase not in ("queued", "ending") else "dim")
    row.rstrip()
    return row


def _joined(lane: Lane) -> list[tuple[Span | None, int]]:
    """Return the runs, with neighbours of the same style merged."""
    found = []
    for _, group in groupby(runs(lane), key=lambda run: _look(run[0])):
        together = list(group)
        found.append((together[0][0], sum(length for _, length in together)))
    return found


def _look(span: Span | None) -> tuple[str, str | None, int] | None:
    if span is None:
        return None
    return MARKS[span.phase].glyph, span.job, span.size if span.phase == "training" else 0


def _named(glyph: str, name: str, length: int) -> str:
    """Return a bar with its name in it if there is room."""
    if length < len(name) + 2:
        return glyph * length
    before = 1 if length < len(name) + 6 else 2
    inner = f" {name} " if length >= len(name) + 4 else name
    return (glyph * before + inner).ljust(length, glyph)


def _legend(seen: dict[str, None], unicode: bool, columns: int) -> Text:
    entries: dict[str, None] = {}
    for phase, mark in MARKS.items():
        if phase in seen:
            entries[f"{mark.glyph if unicode else mark.plain} {mark.text}"] = None
    entries[f"{'·' if unicode else '.'} idle GPU, queued job"] = None
    entries.pop(f"{MARKS['queued'].glyph if unicode else MARKS['queued'].plain} queued", None)
    lines, line = [], ""
    for entry in entries:
        if line and len(line) + 3 + len(entry) > columns:
            lines.append(line)
            line = ""
        line += ("   " if line else "") + entry
    return Text("\n".join([*lines, line]), "dim")


def _sums(
    jobs: tuple[JobLane, ...], keys: dict[str, Key], to_s: float, columns: int, unicode: bool
) -> Table:
    """Return the seconds of each job by phase; a narrow terminal shows only its letter."""
    wide = columns >= WIDE_COLUMNS
    figures = ("QUEUED", "INIT", "WAIT", "START", "TRAIN", "SAVE", "TOTAL")
    table = grid("  JOB", "STATE", *figures, "LOST") if wide else grid("JOB", *figures)
    for column in table.columns:
        column.overflow = "ellipsis" if unicode else "crop"
        column.justify = "right" if column.header in (*figures, "LOST") else "left"
    for job in jobs:
        key = keys[job.id]
        end_s = job.ended_at_s if job.ended_at_s is not None else to_s
        spent = _spent(job.spans, to_s)
        seconds = [sum(spent.get(phase, 0.0) for phase in phases) for phases in _SUMS]
        cells = [duration(length_s) for length_s in (*seconds, end_s - job.submitted_at_s)]
        letter = Text(key.letter, key.colour)
        if wide:
            name = Text.assemble(letter, f" {job.id}")
            lost = lost_count(job.steps_lost, known=job.steps_lost_known)
            lost = lost if unicode else lost.replace("≥", ">=")
            table.add_row(name, state_word(job.state), *cells, lost)
        else:
            table.add_row(letter, *cells)
    return table


def _use(timeline: Timeline, from_s: float, to_s: float) -> Text:
    """Return the training part of the GPUs' time until the end of the last job."""
    ends = [job.ended_at_s for job in timeline.jobs]
    end_s = max(end for end in ends if end is not None) if all(ends) else to_s
    whole_s = (end_s - from_s) * len(timeline.gpus)
    trained_s = sum(
        max(0.0, min(end_s, to_s if span.to_s is None else span.to_s) - max(from_s, span.from_s))
        for gpu in timeline.gpus
        for span in gpu.spans
        if span.phase == "training"
    )
    ratio = trained_s / whole_s if whole_s > 0 else 0.0
    known = all(job.steps_lost_known for job in timeline.jobs)
    lost = lost_text(sum(job.steps_lost for job in timeline.jobs), known=known)
    return Text(
        f"{gpus(len(timeline.gpus))} trained {ratio:.0%} of {duration(end_s - from_s)}; {lost} lost"
    )


def _spent(spans: tuple[Span, ...], to_s: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for span in spans:
        end_s = to_s if span.to_s is None else span.to_s
        found[span.phase] = found.get(span.phase, 0.0) + end_s - span.from_s
    return found
