"""Jobs as tables for a terminal of 100 columns. Pure."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from reshape_controller.cli.jobs import verdicts
from reshape_controller.cli.output import WIDE_COLUMNS, grid
from reshape_controller.cli.words import (
    bar,
    clock,
    duration,
    figure,
    moment,
    one_day,
    one_line,
    size,
    state_word,
)
from reshape_controller.core.phrases import gpus, how_text, lost_count, lost_text
from reshape_gpu.values import ENDED, EventView, JobView

if TYPE_CHECKING:  # here, because a list does not need it
    from reshape_profiles.schema import Verification

STATE_STYLES = {
    "submitted": "yellow",
    "initialized": "yellow",
    "running": "green",
    "adjusting": "cyan",
    "completed": "dim",
    "failed": "bold red",
    "cancelled": "dim",
    "rejected": "red",
    "halted": "magenta",
}
SIDECAR = "SideCar"
"""The phase of a start that a program without reports has alone: it says nothing by itself."""
UNSAVED = "unsaved_wait"
"""The deadline of a program that cannot save and is to stop."""
AWAITED = {
    "early_init": "its SideCar to start",
    "save_answer": "the answer to the request to save",
    "stop": "its training processes to end",
    "first_step": "its first training step",
    "initialized_hold": "GPUs, in its container",
    "end": "its container to end; then it is removed",
    "remove": "its container to be removed",
    "retry": "its next try",
    UNSAVED: "its stop, which loses steps that it cannot save",
    "imports": "its framework to be imported",
    "prepare": "its next process to be prepared",
}
"""What a job waits for, by the kind of the deadline."""
BAR_CELLS = 8
REASON_LINES_MAX, REASON_CELLS_MIN = 4, 30
"""Lines of a reason in a list, and the width that a longer reason gets before other columns."""
ID_COLUMNS_MAX, NARROW_ID_COLUMNS_MAX = 32, 24
"""Widths of ids; a longer id continues in the next line, so that it can still be copied."""


def jobs_table(jobs: tuple[JobView, ...], now_s: float, *, wide: bool = False) -> RenderableType:
    """Return the table of jobs; ``wide``: with user, priority, place in the queue and end."""
    if not jobs:
        return Text("no jobs yet; submit one: reshape submit FILE")
    return JobsTable(jobs, now_s, wide)


@dataclass(frozen=True, slots=True)
class ReasonCell:
    """A reason in as many lines as it needs, up to ``REASON_LINES_MAX``. Of a longer one the last
    line shows the end, which names the error."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        lines = list(Text(self.text, "dim").wrap(console, width, no_wrap=False))
        if len(lines) > REASON_LINES_MAX:
            end = Text("…" + self.text[-max(1, width - 1) :], "dim")
            lines = [*lines[: REASON_LINES_MAX - 1], end]
        yield from lines

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, cell_len(self.text))


@dataclass(frozen=True, slots=True)
class JobsTable:
    """A table with a row for each job. Where reasons lack room, other columns give theirs; in a
    narrow terminal a reason is below the job's id."""

    jobs: tuple[JobView, ...]
    now_s: float
    asked_wide: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width < WIDE_COLUMNS:
            yield self._narrow()
            return
        unbound = options.update(max_width=sys.maxsize)
        longest = max([cell_len(one_line(why(job))) for job in self.jobs])
        for ages, cells in ((True, BAR_CELLS), (False, BAR_CELLS), (False, 0)):
            table = self._table(ages=ages, cells=cells)
            others = Measurement.get(console, unbound, table).maximum - longest
            if others + min(longest, REASON_CELLS_MIN) <= options.max_width:
                break
        yield table

    def _table(self, *, ages: bool, cells: int) -> Table:
        more: tuple[str, ...] = ("SHAPED", "AGE") if ages else ()
        more += ("USER", "PRIORITY", "POSITION", "ETA", "LOST") if self.asked_wide else ()
        table = grid("JOB", "STATE", "GPUS", "PROGRESS", *more, "WHY", rest="WHY", wrap=False)
        table.columns[0].no_wrap, table.columns[0].overflow = False, "fold"
        table.columns[0].max_width = ID_COLUMNS_MAX if cells else NARROW_ID_COLUMNS_MAX
        for job in self.jobs:
            shaped = f"▲{job.reshape_ups} ▼{job.reshape_downs}"
            table.add_row(
                job.id,
                *_state_cells(job, cells),
                *((shaped, duration(age_s(job, self.now_s))) if ages else ()),
                *(self._wide_cells(job) if self.asked_wide else ()),
                ReasonCell(one_line(why(job))),
            )
        return table

    def _narrow(self) -> Table:
        table = grid("JOB", "STATE", "GPUS", "PROGRESS", rest="JOB", wrap=False)
        table.columns[0].no_wrap, table.columns[0].overflow = False, "fold"
        for job in self.jobs:
            reason = one_line(why(job))
            cell = Group(job.id, Padding(ReasonCell(reason), (0, 0, 0, 2))) if reason else job.id
            table.add_row(cell, *_state_cells(job, 0))
        return table

    def _wide_cells(self, job: JobView) -> tuple[str, ...]:
        place = "-" if job.position is None else str(job.position)
        lost = lost_count(job.steps_lost, known=job.steps_lost_known)
        return job.user, str(job.priority or 0), place, eta_text(job, self.now_s), lost


def _state_cells(job: JobView, cells: int) -> tuple[RenderableType, ...]:
    state = Text(state_word(job.state), STATE_STYLES.get(job.state, ""))
    return state, gpus_text(job), progress_text(job, cells)


def eta_text(job: JobView, now_s: float) -> str:
    """Return when the job is predicted to end, or if only that is known, to start."""
    if job.predicted_end_at_s is not None:
        return f"ends {duration(job.predicted_end_at_s - now_s)}"
    if job.predicted_start_at_s is not None:
        return f"starts {duration(job.predicted_start_at_s - now_s)}"
    return "-"


def gpus_text(job: JobView) -> str:
    """Return the job's GPUs and its possible numbers: ``2 of 2,4``."""
    sizes = ",".join(str(number) for number in job.optional_gpus)
    if job.state in ENDED:
        return f"- of {sizes}" if sizes else "-"
    return f"{job.size} of {sizes}"


def progress_text(job: JobView, cells: int = BAR_CELLS) -> str:
    """Return the job's progress, with a bar of ``cells`` characters if its length is known."""
    if job.state == "completed":
        return "done"
    if job.progress_ratio is not None:
        return f"{bar(job.progress_ratio, cells)} {job.progress_ratio:4.0%}".strip()
    return f"step {job.step}" if job.step else "-"


def age_s(job: JobView, now_s: float) -> float:
    """Return the time since submission; for an ended job, until its end."""
    return (job.finished_at_s or now_s) - job.submitted_at_s


def why(job: JobView) -> str:
    """Return the job's reason if it says more than the state."""
    if job.state == "running" and job.reachable and not job.next_gpus and job.phase == "running":
        if job.deadline == UNSAVED:
            return job.reason
        if job.fixed_because:
            return f"not reshaped: {job.fixed_because}"
        return f"not larger: {job.not_larger}" if job.not_larger else ""
    if job.state == "completed":
        return ""
    return job.reason


def describe(
    job: JobView,
    events: tuple[EventView, ...],
    now_s: float,
    measured: Verification | None = None,
) -> RenderableType:
    """Return everything about a job. ``measured``: the verification of its job type."""
    title = Text.assemble(
        (job.id, "bold"),
        "  ",
        (state_word(job.state), STATE_STYLES.get(job.state, "")),
        "  ",
        one_line(job.reason),
    )
    parts: list[RenderableType] = [title, Text()]
    if job.errors:
        parts += [_errors(job)]
        return Group(*parts)
    parts.append(_facts(job, now_s, measured))
    if job.error and job.state != "completed":
        parts += [Text(), Text("last error", "bold"), Text(_indented(job.error))]
    if any(value is not None for name, value in _phases(job).items() if name != SIDECAR):
        parts += [Text(), Text("last start or reshape", "bold"), _phase_line(job)]
    if job.gpu_use:
        parts += [Text(), Text("GPU memory (NVML)", "bold")]
        parts += [
            Text(
                f"  {use.uuid}  {size(use.memory_used_bytes)} of {size(use.memory_total_bytes)}"
                + (f"  {use.utilization_ratio:.0%} busy" if use.utilization_ratio else "")
            )
            for use in job.gpu_use
        ]
    if events:
        head = Text(f"history (UTC{one_day(event.at_s for event in events)})", "bold")
        parts += [Text(), head, history_table(events)]
    return Group(*parts)


def history_table(events: tuple[EventView, ...]) -> Table:
    """Return a table of a job's history, oldest entry first."""
    table = grid("AT", "KIND", "GPUS", "WHAT", right=("GPUS",), rest="WHAT")
    table.show_header = False
    at = clock if one_day(event.at_s for event in events) else moment
    for event in events:
        table.add_row(
            f"  {at(event.at_s)}",
            event.kind,
            str(event.size or "-"),
            Text(one_line(event.text), "dim"),
        )
    return table


def _facts(job: JobView, now_s: float, measured: Verification | None) -> Table:
    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True, style="dim")
    facts.add_column(overflow="fold")
    for name, text in _rows(job, now_s, measured):
        if text:
            facts.add_row(name, text)
    return facts


def _rows(job: JobView, now_s: float, measured: Verification | None) -> list[tuple[str, str]]:
    struck = f"; failed to start on: {', '.join(map(str, job.struck))}" if job.struck else ""
    here = f" on {' and '.join(job.hosts) or job.host}" if job.host else ""
    process = f"{job.phase}, pid {job.pid}" if job.pid else (job.phase or "")
    return [
        ("name", job.name),
        ("user", job.user),
        ("command", " ".join(job.command)),
        ("processes", _processes(job)),
        ("code", job.code or ""),
        ("checkpoints", job.checkpoints or ""),
        ("length", job.length or _told_length(job)),
        ("GPUs", f"{gpus_text(job)}{here}{struck}"),
        ("which", ", ".join(job.gpus)),
        ("next", _next(job)),
        ("process", process if job.reachable else f"{process} (SideCar unreachable)"),
        ("started as", how_text(job.times.how, job.times.fallback)),
        ("standby", _standby(job)),
        ("successor", _successor(job)),
        ("container", f"attempt {job.attempt}, generation {job.generation}" if job.attempt else ""),
        ("progress", _progress(job)),
        ("accuracy", _learned(job)),
        ("target", _target(job)),
        ("", job.target_note or ""),
        ("evaluated", "" if job.metric else _evaluated(job)),
        ("checkpoint", f"step {job.checkpoint_step}" if job.checkpoint_step is not None else ""),
        ("trajectory", verdicts.trajectory(job, measured)),
        ("proof", verdicts.proof(job)),
        ("not reshaped", job.fixed_because or ""),
        ("not larger", "" if job.fixed_because else job.not_larger or ""),
        ("program", _program(job)),
        ("last failure", _failure(job)),
        ("reshaped", f"{job.reshape_ups} up, {job.reshape_downs} down"),
        ("preempted", _preempted(job)),
        ("GPU time", _served(job)),
        *((f"note {note.name}", note.text) for note in job.notes),
        (
            "lost",
            f"{lost_text(job.steps_lost, known=job.steps_lost_known)}; "
            f"{job.process_restarts} process restarts, "
            f"{job.container_restarts} container restarts, {job.failures} failures",
        ),
        (
            "submitted",
            f"{moment(job.submitted_at_s)} UTC, {duration(now_s - job.submitted_at_s)} ago",
        ),
        ("started", _after(job.started_at_s, job.submitted_at_s)),
        ("ended", _after(job.finished_at_s, job.submitted_at_s)),
        ("waits for", _deadline(job, now_s)),
        ("notifies", ", ".join(job.notify)),
        ("logs", job.log_folder or ""),
    ]


def _told_length(job: JobView) -> str:
    """Return the length of a job whose record gives none."""
    return f"{job.total_steps} steps, as the program says" if job.total_steps else "unknown"


def _processes(job: JobView) -> str:
    """Return how many training processes a PyTorch job has, and why."""
    if job.framework != "pytorch":
        return ""
    because = f": {one_line(job.processes_reason)}" if job.processes_reason else ""
    parts = f", with {job.micro_batches} micro-batches a step" if job.micro_batches else ""
    return f"{job.processes or 'one'}{parts}{because}"


def _standby(job: JobView) -> str:
    """Return the state of the process that forks its training processes."""
    if job.standby is None:
        return ""
    because = f": {job.standby.reason}" if job.standby.reason else ""
    return f"{job.standby.state.value}{because}"


def _successor(job: JobView) -> str:
    """Return for which GPUs its next process is prepared, and how far that is."""
    found = job.prepared
    if found is None:
        return ""
    parts = [f"for {gpus(len(found.devices))}: {found.stage.value}", found.reason]
    if found.ready_after_s is not None:
        parts.append(f"after {found.ready_after_s:.1f} s")
    return ", ".join(filter(None, parts))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _next(job: JobView) -> str:
    if not job.next_gpus:
        return ""
    donors = f", from {', '.join(job.donors)}" if job.donors else ""
    return f"{gpus(len(job.next_gpus))} ({', '.join(job.next_gpus)}){donors}"


def _progress(job: JobView) -> str:
    parts = [f"step {job.step}" + (f" of {job.total_steps}" if job.total_steps else "")]
    if job.epochs:
        parts.append(f"epoch {min(job.epoch + 1, job.epochs)} of {job.epochs}")
    if job.progress_ratio is not None:
        parts.append(f"{bar(job.progress_ratio, 20)} {job.progress_ratio:.0%}")
    if job.seconds_per_step is not None:
        parts.append(f"{figure(job.seconds_per_step, unit=' s')} per step")
    if job.epoch_end_s is not None:
        parts.append(f"{figure(job.epoch_end_s, unit=' s')} at the end of an epoch")
    if job.evaluation_s is not None:
        parts.append(f"{figure(job.evaluation_s, unit=' s')} per evaluation")
    return ", ".join(parts)


def _learned(job: JobView) -> str:
    if job.accuracy is None and job.loss is None:
        return ""
    return f"{figure(job.accuracy, 4)}, loss {figure(job.loss, 4)}"


def _target(job: JobView) -> str:
    """The newest evaluation of the metric that a target accuracy is judged on."""
    if job.metric is None:
        return ""
    parts = [f"{job.metric}, no evaluation yet"]
    if job.metric_value is not None:
        parts = [f"{job.metric} {figure(job.metric_value, 4)} at step {job.metric_step}"]
    if job.target_steps is not None:
        parts.append(f"its curve reaches the target at step {job.target_steps}")
    return "; ".join(parts)


def _evaluated(job: JobView) -> str:
    """The newest evaluation of each metric of a job without a target accuracy."""
    newest = {each.metric: each for each in job.evaluations}
    return "; ".join(
        f"{metric} {figure(each.value, 4)} at step {each.step}"
        for metric, each in sorted(newest.items())
    )


def _program(job: JobView) -> str:
    if job.program is None:
        return ""
    loses = f"; a stop loses {job.unsaved_steps} steps" if job.unsaved_steps else ""
    return f"{job.program}{loses}"


def _served(job: JobView) -> str:
    """GPU time by type, and how much of it was training."""
    by_type: dict[str, tuple[float, float]] = {}
    for each in job.served:
        whole_s, train_s = by_type.get(each.gpu_type, (0.0, 0.0))
        train_s += each.gpu_s if each.phase == "training" else 0.0
        by_type[each.gpu_type] = whole_s + each.gpu_s, train_s
    return "; ".join(
        f"{kind} {duration(whole_s)}, of which {duration(train_s)} training"
        for kind, (whole_s, train_s) in by_type.items()
    )


def _preempted(job: JobView) -> str:
    if job.preempted_at_s is None:
        return ""
    times = "once" if job.preemptions == 1 else f"{job.preemptions} times"
    return f"{times}, last by {job.preempted_by} at {moment(job.preempted_at_s)} UTC"


def _failure(job: JobView) -> str:
    if job.exception is not None:
        return f"{job.exception}: {job.exception_message}".rstrip(": ")
    if job.exit_code is None:
        return ""
    return f"exit code {job.exit_code}" + (f" ({job.signal})" if job.signal else "")


def _after(at_s: float | None, submitted_at_s: float) -> str:
    if at_s is None:
        return ""
    return f"{moment(at_s)} UTC, {duration(at_s - submitted_at_s)} after its submission"


def _deadline(job: JobView, now_s: float) -> str:
    if job.deadline is None or job.deadline_at_s is None:
        return ""
    what = AWAITED.get(job.deadline, job.deadline.replace("_", " "))
    return f"{what}; {duration(job.deadline_at_s - now_s)} left"


def _phases(job: JobView) -> dict[str, float | None]:
    times = job.times
    return {
        "save": times.save_s,
        "stop": times.stop_s,
        SIDECAR: times.sidecar_s,
        "import": times.import_s,
        "build": times.build_s,
        "restore": times.restore_s,
        "position": times.position_s,
        "first step": times.first_step_s,
    }


def _phase_line(job: JobView) -> Text:
    known = {name: value for name, value in _phases(job).items() if value is not None}
    total = sum(known.values())
    parts = [f"{name} {value:.2f}" for name, value in known.items()]
    before = "" if job.times.prepare_s is None else f", prepared in {job.times.prepare_s:.2f} s"
    return Text(f"  {' + '.join(parts)} = {total:.2f} s{before}")


def _errors(job: JobView) -> Table:
    table = grid("WHERE", "WHAT", "REMEDY", rest="WHAT")
    for error in job.errors:
        table.add_row(error.path, error.message, error.hint)
    return table
