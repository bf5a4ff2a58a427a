"""Conversion of public traces (a row for each job) to a workload.

Does: turn rows into jobs with as much GPU time as in the trace, within a step, report every
assumption, and count the rows that it leaves out by reason and by GPU time. It skips no row
silently.

Most traces say neither what a job trained nor how it scales. Then its type is one of a job set,
drawn by its name, and it could as well have run on any power of two of GPUs up to the largest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from reshape_controller.core.model import Spans
from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.records.limits import GLOBAL_BATCH_MAX, GPUS_MAX, PRIORITY_MAX, STEPS_MAX
from reshape_controller.replay.ground_truth import uniform_by_name
from reshape_controller.replay.inputs import SECONDS_MAX, ReplayError
from reshape_controller.replay.rare_collections import rare_collections
from reshape_controller.replay.slurm_cells import gpu_type_of, is_resources
from reshape_controller.replay.trace_cells import (
    BadCell,
    duration_of,
    gpus_of,
    hosts_of,
    is_missing,
    is_no_time,
    number_of,
    sizes_of,
    time_of,
)
from reshape_controller.replay.trace_gpus import Amount, Parts, Rule, amount_of
from reshape_controller.replay.trace_rows import (
    BadRows,
    BadRowsError,
    Cells,
    Layout,
    rows,
    rows_text,
)
from reshape_profiles.loader import Bundle

_BY_SUBMISSION = itemgetter(1, 0)
_Step = tuple[str, str, int, int]
"""Job type, GPU type, GPUs and hosts, on which the duration of a step depends."""
BACKWARDS = "times run backwards"


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of a trace's columns; None: the trace does not have it."""

    submit: str = "submit_time"
    gpus: str = "gpu_num"
    milli: str | None = None
    """Thousandths of each GPU."""
    percent: str | None = None
    """Hundredths of a GPU for each of ``gpus``; 200 are two GPUs."""
    hosts: str | None = None
    """Number of hosts of the job."""
    duration: str | None = None
    start: str | None = None
    end: str | None = None
    iterations: str | None = None
    batch: str | None = None
    """Samples of an iteration, of all GPUs together."""
    model: str | None = None
    gpu_type: str | None = None
    sizes: str | None = None
    user: str | None = None
    priority: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices for what the trace does not say, or says in a way that a job cannot."""

    job_set: str = "one"
    gpu_type: str = "V100"
    largest: int = 8
    sizes: tuple[int, ...] | None = None
    """Numbers of GPUs that each job may use beside its own; None: powers of two."""
    parts: Parts = Parts.LEAVE_OUT
    cap: bool = False
    """True: a job with more GPUs than ``largest`` gets that number for the same GPU time."""
    span: Spans = Spans.NEVER
    """Whether jobs may be on several hosts with ``largest`` GPUs each."""
    skip_bad: bool = False
    """True: rows that cannot be read are left out."""
    default_unknown: bool = False
    """True: unknown models get a type of the job set, unknown GPU types ``gpu_type``."""
    default_duration_s: float | None = None
    unit_s: float = 1.0
    """Seconds of the unit of times and durations that are numbers."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Job types by the trace's names of models, and GPU types by its names of GPUs."""
    layout: Layout = Layout()


class TraceJob(NamedTuple):
    """A converted job. ``gpu_s`` is its GPU time on the number of GPUs that it had."""

    name: str
    submit_s: float
    job_type: str
    optional_gpus: tuple[int, ...]
    steps: int
    priority: int
    user: str
    workers: int
    span: Spans
    gpu_s: float


class LeftOut(NamedTuple):
    """A row that becomes no job. ``submit_s`` is None without a submission."""

    submit_s: float | None
    reason: str
    gpu_s: float


@dataclass(frozen=True, slots=True)
class Conversion:
    """The jobs by submission, the assumptions in words, the rows left out, and the bad rows."""

    jobs: tuple[TraceJob, ...]
    assumptions: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    bad: BadRows


def convert(
    paths: Sequence[Path], columns: Columns, bundle: Bundle, choices: Choices
) -> Conversion:
    """Return the jobs of trace files. Raises ReplayError, BadRowsError and OSError."""
    lengths = [columns.duration, columns.end, columns.iterations]
    if sum(each is not None for each in lengths) != 1:
        raise ReplayError("name one column: of durations, of ends, or of iterations")
    if columns.batch is not None and columns.iterations is None:
        raise ReplayError("a column of batches is of use with one of iterations only")
    if columns.milli is not None and columns.percent is not None:
        raise ReplayError("name one column of parts of GPUs: --milli or --percent")
    if columns.hosts is not None and choices.span is Spans.NEVER:
        raise ReplayError("a column of hosts is of use with --span only")
    with rare_collections():
        return _converted(paths, columns, bundle, choices)


def _converted(
    paths: Sequence[Path], columns: Columns, bundle: Bundle, choices: Choices
) -> Conversion:
    converter = _Converter(columns, bundle, choices)
    order = [getattr(columns, each.name) for each in fields(Columns)]
    bad, before = BadRows(), 0
    for path in paths:
        name = path.name
        line = 0
        converter.files.append((name, before))
        for line, cells in rows(path, order, choices.layout, bad):
            try:
                converter.read(before + line, cells)
            except BadCell as error:
                bad.add(name, line, str(error))
        before += line
    if bad.count and not choices.skip_bad:
        raise BadRowsError(bad)
    if not converter.jobs:
        counts = by_reason(converter.left_out)
        why = "; ".join(f"{count} {reason}" for reason, count, _ in counts) or "no rows"
        raise ReplayError(f"{paths[0].name}: no row can be replayed ({why})")
    converter.jobs.sort(key=_BY_SUBMISSION)
    assumptions = (*_assumptions(columns, choices), *converter.defaults())
    return Conversion(tuple(converter.jobs), assumptions, tuple(converter.left_out), bad)


def by_reason(left_out: Sequence[LeftOut]) -> list[tuple[str, int, float]]:
    """Return the reasons for which rows are left out, with their rows and their GPU-seconds."""
    counts: dict[str, tuple[int, float]] = {}
    for row in left_out:
        count, gpu_s = counts.get(row.reason, (0, 0.0))
        counts[row.reason] = (count + 1, gpu_s + row.gpu_s)
    return sorted((reason, count, gpu_s) for reason, (count, gpu_s) in counts.items())


class _Converter:
    """Jobs and rows left out, so far."""

    def __init__(self, columns: Columns, bundle: Bundle, choices: Choices) -> None:
        types = dict(bundle.sets).get(choices.job_set)
        if types is None:
            names = ", ".join(known for known, _ in bundle.sets)
            raise ReplayError(f"unknown job set {choices.job_set!r}; use one of: {names}")
        self.columns, self.choices, self.types = columns, choices, types
        self.book = ProfileBook({profile.job_type: profile for profile in bundle.profiles})
        if not any(self.book.knows_speed(kind, choices.gpu_type) for kind in types):
            what = f"job set {choices.job_set} has no speeds on {choices.gpu_type}"
            raise ReplayError(what)
        self.jobs: list[TraceJob] = []
        self.left_out: list[LeftOut] = []
        self.draw = uniform_by_name(0, "type")
        self.dates: bool | None = None
        self.unit_s = choices.unit_s
        self.lines: dict[str, int] = {}
        self.files: list[tuple[str, int]] = []
        """Files, and the number of lines of those before."""
        self.default_counts: dict[str, int] = {}
        self.kinds: dict[str, str] = {}
        self.gpu_types: dict[tuple[str, str], str] = {}
        self.step_s: dict[_Step, float] = {}
        self.sizes: dict[tuple[int, int, str], tuple[int, ...]] = {}
        self.amounts: dict[tuple[str, str, str], Amount] = {}
        self.rule = Rule(choices.largest, choices.parts, choices.cap, choices.span)

    def read(self, line: int, cells: Cells) -> None:
        """Read a row; ``line`` counts on over all files. Raises BadCell."""
        # fmt: off
        (submit, gpus, milli, percent, hosts, duration, start, end, iterations,
         batch, model, gpu_type, sizes, user, priority, name) = cells
        # fmt: on
        part = milli or percent
        amount = self.amounts.get((gpus, part, hosts)) or self._amount(gpus, part, hosts)
        submit_s = self._time(submit, "submit")
        if "." in name and is_resources(gpus):
            self.left_out.append(LeftOut(submit_s, "of steps inside Slurm's jobs", 0.0))
            return
        if amount.gpus <= 0.0:
            self.left_out.append(LeftOut(submit_s, "without a GPU", 0.0))
            return
        key = name or f"job-{line:06d}"
        kind = self._draw(key) if self.columns.model is None else self._kind(model, key)
        on = self._gpu_type(gpu_type, kind) if gpu_type else self.choices.gpu_type
        if self.columns.iterations is None:
            seconds = self._duration_s(duration, start, end, submit_s)
        else:
            length = self._iterations(iterations) * self._batches(kind, batch)
            seconds = length * self._seconds_per_step((kind, on, amount.number, amount.hosts))
        if seconds <= 0.0:
            self.left_out.append(LeftOut(submit_s, "without a length", 0.0))
            return
        if amount.unfit or submit_s is None:
            unfit = amount.unfit or "without a submission"
            self.left_out.append(LeftOut(submit_s, unfit, amount.gpus * seconds))
            return
        for note in amount.notes:
            self._count(note)
        whole = amount.whole
        step = (kind, on, whole, amount.hosts)
        step_s = self.step_s.get(step) or self._seconds_per_step(step)
        length = amount.work_gpus * seconds / whole / step_s
        steps = (round(length) or 1) if length <= STEPS_MAX else self._steps(length)
        if self.lines.setdefault(key, line) != line:
            what = f"{self.columns.name} is {key!r}, as in {self._place(self.lines[key])}"
            raise BadCell(f"{what}; name a column without repeats, or none")
        workers, span = amount.workers, amount.span
        own = self.sizes.get((whole, workers, sizes)) or self._sizes(whole, workers, sizes)
        rank = self._priority(priority) if priority else 0
        gpu_s = steps * whole * step_s
        self.jobs.append(
            TraceJob(key, submit_s, kind, own, steps, rank, user, workers, span, gpu_s)
        )

    def defaults(self) -> list[str]:
        """Return the defaults that rows took, in words."""
        return [
            f"{text} ({rows_text(count)} of the trace)"
            for text, count in self.default_counts.items()
        ]

    def _place(self, line: int) -> str:
        before, name = max((before, name) for name, before in self.files if before < line)
        return f"line {line - before} of {name}" if len(self.files) > 1 else f"line {line}"

    def _amount(self, gpus: str, part: str, hosts: str) -> Amount:
        """Return what the cells of GPUs amount to. Raises BadCell."""
        gpu_count, share = gpus_of(gpus, self.columns.gpus), self._share(part)
        on_hosts = hosts_of(hosts, self.columns.hosts or "")
        found = amount_of(gpu_count, share, on_hosts, self.rule)
        self.amounts[gpus, part, hosts] = found
        return found

    def _steps(self, steps: float) -> int:
        """Return whole steps. Raises BadCell."""
        if steps >= STEPS_MAX + 0.5:
            raise BadCell(f"is a job of {steps:g} steps; at most {STEPS_MAX:g} can be replayed")
        return round(steps)

    def _seconds_per_step(self, step: _Step) -> float:
        found = self.step_s.get(step)
        if found is None:
            found = self.step_s[step] = self.book.seconds_per_step(*step)
        return found

    def _count(self, text: str) -> None:
        self.default_counts[text] = self.default_counts.get(text, 0) + 1

    def _number(self, text: str, column: str) -> float:
        return number_of(text, getattr(self.columns, column))

    def _share(self, part: str) -> float:
        """Return the share of each GPU that a job uses; a missing cell is a whole GPU."""
        if is_missing(part):
            return 1.0
        if self.columns.milli is not None:
            column, what, whole, most = "milli", "thousandths of each GPU", 1000.0, 1000.0
        else:
            column, what, whole, most = "percent", "hundredths of a GPU", 100.0, 100.0 * GPUS_MAX
        value = self._number(part, column)
        if not 0.0 <= value <= most:
            name = getattr(self.columns, column)
            raise BadCell(f"{name} is {part!r}, and must be {what}, from 0 to {most:g}")
        return value / whole

    def _time(self, text: str, column: str) -> float | None:
        """Return the time in a cell; None if it is missing."""
        if self.dates is False:  # most traces: a number, as in the row before
            try:
                seconds = float(text) * self.unit_s
            except ValueError:
                pass
            else:
                if -SECONDS_MAX <= seconds <= SECONDS_MAX:
                    return seconds
        try:
            seconds, is_date = time_of(text, self.unit_s)
        except ValueError as error:
            if is_no_time(text):
                return None
            raise BadCell(f"{getattr(self.columns, column)} {error}") from None
        if self.dates is None:
            self.dates = is_date
        elif self.dates != is_date:
            what = f"{getattr(self.columns, column)} is {text!r}, and others are of another form"
            raise BadCell(f"{what}; write seconds in all rows, or dates in all")
        return seconds

    def _duration_s(self, duration: str, start: str, end: str, submit_s: float | None) -> float:
        """Return a job's seconds of training; 0 without. Raises BadCell."""
        backwards = ""
        if self.columns.end is None:
            try:
                seconds = float(duration) * self.unit_s
            except ValueError:
                pass
            else:
                if 0.0 < seconds <= SECONDS_MAX:
                    return seconds
            seconds = duration_of(duration, self.columns.duration or "", self.unit_s)
            if seconds < 0.0:
                backwards = f"{self.columns.duration} is {duration}"
        else:
            end_s = self._time(end, "end")
            start_s = self._time(start, "start") if self.columns.start is not None else submit_s
            seconds = 0.0 if end_s is None or start_s is None else end_s - start_s
            if seconds < 0.0:
                from_column = self.columns.start or self.columns.submit
                backwards = f"{self.columns.end} is before {from_column}"
            elif submit_s is not None and start_s is not None and start_s < submit_s:
                backwards = f"{self.columns.start} is before {self.columns.submit}"
        if 0.0 < seconds <= SECONDS_MAX and not backwards:
            return seconds
        if seconds > SECONDS_MAX:
            what = f"{self.columns.duration or self.columns.end} is {seconds:g}"
            raise BadCell(f"{what}, and must be at most {SECONDS_MAX:g} seconds")
        default_s = self.choices.default_duration_s
        if default_s is not None and (backwards or seconds == 0.0):
            self._count(f"rows without a length, or whose {BACKWARDS}: {default_s:g} s")
            return default_s
        if backwards:
            raise BadCell(f"{backwards}: {BACKWARDS}; correct it, or give --default-duration")
        return seconds

    def _iterations(self, text: str) -> float:
        value = self._number(text, "iterations")
        if not 0.0 <= value <= STEPS_MAX:
            what = f"{self.columns.iterations} is {text!r}, and must be a number"
            raise BadCell(f"{what} from 0 to {STEPS_MAX:g}")
        return value

    def _batches(self, kind: str, batch: str) -> float:
        if self.columns.batch is None:
            return 1.0
        samples = self._number(batch, "batch")
        if not 1.0 <= samples <= GLOBAL_BATCH_MAX or samples != int(samples):
            what = f"{self.columns.batch} is {batch!r}, and must be a whole number of samples"
            raise BadCell(f"{what} from 1 to {GLOBAL_BATCH_MAX}")
        return self.book.batches(kind, int(samples))

    def _kind(self, model: str, key: str) -> str:
        """Return the job type of a model. ``key``: the job's name. Raises BadCell."""
        found = self.kinds.get(model)
        if found is None:
            found = self.kinds[model] = self.choices.names.get(model, model)
        if self.book.of(found) is not None:
            return found
        missing = is_missing(model)
        if not self.choices.default_unknown:
            what = f"{self.columns.model} is {model!r}"
            if missing:
                raise BadCell(f"{what}, no model; write one, or give --default-unknown")
            what = f"{what}, and no profile is called {found!r}"
            raise BadCell(f"{what}; name one by --map {model}=JOB_TYPE")
        rows = "rows without a model" if missing else "models without a profile"
        self._count(f"{rows}: a type of job set {self.choices.job_set}")
        return self._draw(key if missing else model)

    def _draw(self, key: str) -> str:
        return self.types[int(self.draw(key) * len(self.types))]

    def _gpu_type(self, text: str, kind: str) -> str:
        """Return the GPU type on which a job ran."""
        default = self.choices.gpu_type
        text = gpu_type_of(text) if "=" in text and is_resources(text) else text
        if is_missing(text):
            return default
        found = self.gpu_types.get((text, kind))
        if found is None:
            found = self.choices.names.get(text, text)
            found = found if self.book.knows_speed(kind, found) else ""
            self.gpu_types[text, kind] = found
        if found:
            return found
        if not self.choices.default_unknown:
            what = f"{self.columns.gpu_type} is {text!r}, and {kind} has no speeds on it"
            raise BadCell(f"{what}; name a GPU type by --map {text}=V100")
        self._count(f"GPU types without speeds: {default}")
        return default

    def _sizes(self, number: int, workers: int, text: str) -> tuple[int, ...]:
        """Return the numbers of GPUs on which a job can run, its own among them. Its workers share
        each of them equally."""
        largest = max(self.choices.largest, number)
        if self.columns.sizes is not None:
            found = sizes_of(text, self.columns.sizes) if not is_missing(text) else set()
        elif self.choices.sizes is not None:
            found = set(self.choices.sizes)
        else:
            found = {2**n for n in range(int(math.log2(largest)) + 1)}
        fit = {size for size in found if size <= largest and size % workers == 0}
        own = self.sizes[number, workers, text] = tuple(sorted(fit | {number}))
        return own

    def _priority(self, text: str) -> int:
        value = self._number(text, "priority")
        if value != int(value) or abs(value) > PRIORITY_MAX:
            what = f"{self.columns.priority} is {text!r}, and must be a whole number"
            raise BadCell(f"{what} from {-PRIORITY_MAX} to {PRIORITY_MAX}")
        return int(value)


def _assumptions(columns: Columns, choices: Choices) -> list[str]:
    on = f"on {choices.gpu_type} at the profile's speed"
    if columns.gpu_type is not None:
        on = f"on the row's GPU type ({choices.gpu_type} without one) at the profile's speed"
    if columns.iterations is not None:
        length = "iterations: steps of the profile"
        length += ", by samples" if columns.batch is not None else " with its batch"
    elif columns.duration is not None:
        length = f"durations: training alone, {on}"
    else:
        length = f"{columns.start or columns.submit} to {columns.end}: training alone, {on}"
        length += "" if columns.start is not None else "; waiting counts as training"
    if columns.sizes is not None:
        sizes = f"those of {columns.sizes}, and the job's own"
    elif choices.sizes is not None:
        more = " ".join(str(size) for size in choices.sizes)
        sizes = f"{more}, and the job's own" if more else "the job's own"
    else:
        more = "" if choices.span is Spans.NEVER else ", of larger jobs up to their own"
        sizes = f"powers of two up to {choices.largest}{more}, and the job's own"
    drawn = f"drawn from job set {choices.job_set} by the job's name"
    return [
        f"job types: {drawn if columns.model is None else f'by {columns.model}'}",
        length,
        f"optional numbers of GPUs: {sizes}",
        "times: from the first submission on",
    ]
