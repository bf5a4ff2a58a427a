"""Conversion of public traces (a row for each job) to a workload.

Does: turn rows into jobs with as much GPU time as in the trace, within a step, report every
assumption, and count the rows that it leaves out by reason and by GPU time. It skips no row
silently.

Most traces say neither what a job trained nor how it scales. Then its type is one of a job set,
drawn by its name, and it could as well have run on any power of two of GPUs up to the largest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import itemgetter
from pathlib import Path

from reshape_controller.core.model import Spans
from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.records.limits import GLOBAL_BATCH_MAX, GPUS_MAX, PRIORITY_MAX, STEPS_MAX
from reshape_controller.replay.conversion import (
    Choices,
    Columns,
    Conversion,
    LeftOut,
    TraceJob,
    by_reason,
)
from reshape_controller.replay.elastic import Elastic, sizes_under
from reshape_controller.replay.ground_truth import uniform_by_name
from reshape_controller.replay.inputs import SECONDS_MAX, ReplayError
from reshape_controller.replay.rare_collections import rare_collections
from reshape_controller.replay.slurm_cells import gpu_type_of, is_resources
from reshape_controller.replay.slurm_files import (
    Accounting,
    accounting_of,
    columns_of,
    order_of,
    rows_of,
)
from reshape_controller.replay.slurm_jobs import Joined, Joiner
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
from reshape_controller.replay.trace_gpus import Amount, Rule, amount_of
from reshape_controller.replay.trace_rows import (
    BadRows,
    BadRowsError,
    Cells,
    rows,
    rows_text,
)
from reshape_profiles.loader import Bundle

_BY_SUBMISSION = itemgetter(1, 0)
_Step = tuple[str, str, int, int]
"""Job type, GPU type, GPUs and hosts, on which the duration of a step depends."""
_Sizes = tuple[int, int, str, tuple[int, ...]]
"""GPUs, workers, the cell of sizes, and the GPU counts that a job had, of which its sizes are."""
BACKWARDS = "times run backwards"


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
    accounts = [accounting_of(path, choices.layout) for path in paths]
    slurm = [each for each in accounts if each is not None]
    if slurm and len(slurm) < len(paths):
        other = paths[accounts.index(None)].name
        raise ReplayError(f"{other}: is no file of Slurm, and others are; convert it apart")
    bad, assumed = BadRows(), list[str]()
    if slurm:
        columns = columns_of(slurm, columns, choices.span)
        converter = _Converter(columns, bundle, choices)
        assumed = _read_slurm(converter, paths, slurm, bad)
    else:
        converter = _Converter(columns, bundle, choices)
        _read_rows(converter, paths, bad)
    if bad.count and (not choices.skip_bad or not converter.jobs):
        raise BadRowsError(bad)
    if not converter.jobs:
        counts = by_reason(converter.left_out)
        why = "; ".join(f"{count} {reason}" for reason, count, _ in counts) or "no rows"
        raise ReplayError(f"{paths[0].name}: no row can be replayed ({why})")
    converter.jobs.sort(key=_BY_SUBMISSION)
    assumptions = (*_assumptions(columns, choices), *assumed, *converter.defaults())
    return Conversion(tuple(converter.jobs), assumptions, tuple(converter.left_out), bad)


def _read_rows(converter: _Converter, paths: Sequence[Path], bad: BadRows) -> None:
    """Read files in which each row is a job."""
    order = [getattr(converter.columns, each.name) for each in fields(Columns)]
    before = 0
    for path in paths:
        line = 0
        converter.files.append((path.name, before))
        for line, cells in rows(path, order, converter.choices.layout, bad):
            try:
                converter.read(before + line, cells)
            except BadCell as error:
                bad.add(path.name, line, str(error))
        before += line


def _read_slurm(
    converter: _Converter, paths: Sequence[Path], accounts: Sequence[Accounting], bad: BadRows
) -> list[str]:
    """Read files of Slurm's accounting, whose jobs may have several rows, also in several files;
    return what was assumed."""
    order, at = order_of(accounts, converter.columns)
    width, choices = len(fields(Columns)), converter.choices
    so_far = converter.columns.end is None or choices.default_duration_s is not None
    joiner = Joiner(at, choices.unit_s, choices.zone, so_far=so_far)

    def numbered() -> Iterator[tuple[int, Cells]]:
        before = 0
        for path, account in zip(paths, accounts, strict=True):
            line = 0
            converter.files.append((path.name, before))
            for line, cells in rows_of(account, path, order, bad):
                yield before + line, cells
            before += line

    for entry in joiner.entries(numbered()):
        if entry.reason:
            left_out = LeftOut(entry.submit_s, entry.reason, entry.gpu_s, entry.rows)
            converter.left_out.append(left_out)
            continue
        count = len(converter.jobs)
        try:
            converter.read(entry.line, entry.cells[:width], entry.joined)
        except BadCell as error:
            for line in entry.joined.lines if entry.joined else (entry.line,):
                bad.add(*converter.place(line), str(error))
        if len(converter.jobs) > count:
            joiner.notes.add(entry)
    return joiner.notes.texts()


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
        self.sizes: dict[_Sizes, tuple[int, ...]] = {}
        self.amounts: dict[tuple[str, str, str], Amount] = {}
        self.rule = Rule(choices.largest, choices.parts, choices.cap, choices.span)

    def read(self, line: int, cells: Cells, joined: Joined | None = None) -> None:
        """Read a row, or the rows of a job of Slurm; ``line`` counts on over all files. Raises
        BadCell."""
        # fmt: off
        (submit, gpus, milli, percent, hosts, duration, start, end, iterations,
         batch, model, gpu_type, sizes, user, priority, name) = cells
        # fmt: on
        part, row_count = milli or percent, 1 if joined is None else len(joined.lines)
        amount = self.amounts.get((gpus, part, hosts)) or self._amount(gpus, part, hosts)
        submit_s = self._time(submit, "submit")
        if "." in name and is_resources(gpus):
            self.left_out.append(LeftOut(submit_s, "of steps inside Slurm's jobs", 0.0))
            return
        if amount.gpus <= 0.0:
            self.left_out.append(LeftOut(submit_s, "without a GPU", 0.0, row_count))
            return
        key = name or f"job-{line:06d}"
        kind = self._draw(key) if self.columns.model is None else self._kind(model, key)
        on = self._gpu_type(gpu_type, kind) if gpu_type else self.choices.gpu_type
        if joined is not None:
            seconds = joined.seconds
        elif self.columns.iterations is None:
            seconds = self._duration_s(duration, start, end, submit_s)
        else:
            length = self._iterations(iterations) * self._batches(kind, batch)
            seconds = length * self._seconds_per_step((kind, on, amount.number, amount.hosts))
        if seconds <= 0.0:
            self.left_out.append(LeftOut(submit_s, "without a length", 0.0, row_count))
            return
        if amount.unfit or submit_s is None:
            unfit = amount.unfit or "without a submission"
            self.left_out.append(LeftOut(submit_s, unfit, amount.gpus * seconds, row_count))
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
        had = () if joined is None else joined.gpu_counts
        key_of_sizes = whole, workers, sizes, had
        own = self.sizes.get(key_of_sizes) or self._sizes(*key_of_sizes)
        rank = self._priority(priority) if priority else 0
        known = had or (own if self.columns.sizes is not None else (whole,))
        gpu_s = steps * whole * step_s
        self.jobs.append(
            TraceJob(
                *(key, submit_s, kind, own, steps, rank, user, workers, span, gpu_s, row_count),
                known_gpus=known if len(known) < len(own) else (),
            )
        )

    def defaults(self) -> list[str]:
        """Return the defaults that rows took, in words."""
        return [
            f"{text} ({rows_text(count)} of the trace)"
            for text, count in self.default_counts.items()
        ]

    def place(self, line: int) -> tuple[str, int]:
        """Return the file of a line that counts on over all files, and the line in it."""
        before, name = max((before, name) for name, before in self.files if before < line)
        return name, line - before

    def _place(self, line: int) -> str:
        name, own = self.place(line)
        return f"line {own} of {name}" if len(self.files) > 1 else f"line {line}"

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
            seconds, is_date = time_of(text, self.unit_s, self.choices.zone)
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

    def _sizes(self, number: int, workers: int, text: str, had: tuple[int, ...]) -> tuple[int, ...]:
        """Return the numbers of GPUs on which a job can run, its own among them. Its workers share
        each of them equally."""
        largest = max(self.choices.largest, number)
        if had:
            found = set(had)
        elif self.columns.sizes is not None:
            found = sizes_of(text, self.columns.sizes) if not is_missing(text) else set()
        elif self.choices.sizes is not None:
            found = set(self.choices.sizes)
        else:
            found = set(sizes_under(self.choices.elastic, number, workers, largest))
        fit = {size for size in found if size <= largest and size % workers == 0}
        own = self.sizes[number, workers, text, had] = tuple(sorted(fit | {number}))
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
        sizes = {
            Elastic.NONE: "the job's own",
            Elastic.HALVE: "the job's own, its half, and the half of that, while it is whole",
            Elastic.FREE: f"powers of two up to {choices.largest}{more}, and the job's own",
        }[choices.elastic]
    drawn = f"drawn from job set {choices.job_set} by the job's name"
    return [
        f"job types: {drawn if columns.model is None else f'by {columns.model}'}",
        length,
        f"optional numbers of GPUs: {sizes}",
        f"times: from the first submission on; dates without a zone: {choices.zone}",
    ]
