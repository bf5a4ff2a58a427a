"""The command workload convert: a workload of public traces."""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.options import options_from
from reshape_controller.cli.output import note
from reshape_controller.cli.replays import inputs
from reshape_controller.cli.replays.options import (
    FileOption,
    FormOption,
    ProfilesOption,
    WorkloadFormat,
)
from reshape_controller.cli.words import seconds_of
from reshape_controller.records.limits import GPUS_MAX
from reshape_controller.replay import arrivals, convert, trace_cells, traces
from reshape_controller.replay.inputs import SECONDS_MAX, ReplayError, cluster_of
from reshape_controller.replay.trace_rows import BAD_ROWS_SHOWN_MAX, BadRowsError, Layout
from reshape_gpu.config import Config

FACTOR_MIN, FACTOR_MAX = 1e-3, 1e3
"""Range of ``--scale-load``."""


def column(text: str, *names: str) -> typer.models.OptionInfo:
    """Return an option that names a column of a trace."""
    found: typer.models.OptionInfo = typer.Option(*names, metavar="COLUMN", help=text)
    return found


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """The options that name columns of a trace."""

    submit: Annotated[str, column("Submission: seconds, or a date.")] = "submit_time"
    gpus: Annotated[str, column("GPU count of a job.")] = "gpu_num"
    milli: Annotated[str | None, column("Thousandths of each GPU that the job uses.")] = None
    duration: Annotated[str | None, column("Duration in seconds; default: duration.")] = None
    start: Annotated[str | None, column("Start of the training; with --end.")] = None
    end: Annotated[str | None, column("End of the training, instead of a duration.")] = None
    iterations: Annotated[str | None, column("Number of iterations, instead of a duration.")] = None
    batch: Annotated[
        str | None, column("With --iterations: samples of an iteration on all GPUs together.")
    ] = None
    model: Annotated[str | None, column("Name of the model; see --map.")] = None
    gpu_type_column: Annotated[str | None, column("GPU type of a job; see --map.")] = None
    sizes_column: Annotated[
        str | None, column("GPU counts that the job may use: 1 2 4, or 1-8; empty: only its own.")
    ] = None
    user: Annotated[str | None, column("User of a job.")] = None
    priority: Annotated[str | None, column("Priority of a job, a whole number.")] = None
    name: Annotated[str | None, column("Unique job name; default: numbered names.")] = None

    @property
    def columns(self) -> convert.Columns:
        """Return the columns."""
        lengths = (self.duration, self.end, self.iterations)
        return convert.Columns(
            submit=self.submit,
            gpus=self.gpus,
            milli=self.milli,
            duration="duration" if lengths == (None, None, None) else self.duration,
            start=self.start,
            end=self.end,
            iterations=self.iterations,
            batch=self.batch,
            model=self.model,
            gpu_type=self.gpu_type_column,
            sizes=self.sizes_column,
            user=self.user,
            priority=self.priority,
            name=self.name,
        )


@dataclass(frozen=True, slots=True)
class ChoiceOptions:
    """The options for what a trace does not say, or says in a way that a job cannot."""

    job_set: Annotated[
        str,
        typer.Option(
            help="Set of job types, one to four; a job's name picks its type, unless --model does."
        ),
    ] = "one"
    gpu_type: Annotated[
        str, typer.Option(help="GPU type on which jobs ran, unless --gpu-type-column says it.")
    ] = "V100"
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="NAME=TYPE|FILE",
            help="Job type of a model, or GPU type of a GPU's name; or a CSV file of such pairs.",
        ),
    ] = None
    default_unknown: Annotated[
        bool,
        typer.Option(
            "--default-unknown",
            help="Models without a profile, and rows without a model, get a type of --job-set; GPU"
            " types get --gpu-type.",
        ),
    ] = False
    largest: Annotated[
        int, typer.Option(min=1, max=GPUS_MAX, help="Largest GPU count of a job.")
    ] = 8
    cap: Annotated[
        bool,
        typer.Option(
            "--cap", help="Larger jobs get --largest GPUs for the same GPU time; else left out."
        ),
    ] = False
    parts: Annotated[
        convert.Parts,
        typer.Option(
            help="Jobs with parts of GPUs: left out, on whole GPUs for as long (round), or on whole"
            " GPUs for a shorter time (keep: the same GPU time)."
        ),
    ] = convert.Parts.LEAVE_OUT
    rigid: Annotated[
        bool, typer.Option("--rigid", help="Each job has only the GPU count of the trace.")
    ] = False
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="1,2,4",
            help="GPU counts that jobs may use beside their own; default: powers of two.",
        ),
    ] = None
    default_duration: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=1.0,
            max=SECONDS_MAX,
            help="Duration of jobs without one, and of jobs whose times run backwards.",
        ),
    ] = None
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out rows that cannot be read.")
    ] = False
    head: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME", help="Names of the columns, of a file without a head."),
    ] = None
    separator: Annotated[
        str | None,
        typer.Option(
            metavar="CHARACTER|tab", help="Between cells; default: a tab in .tsv, else a comma."
        ),
    ] = None

    def choices(self) -> convert.Choices:
        """Return the choices. Raises CliError."""
        if self.rigid and self.sizes is not None:
            what = "--rigid leaves a job its own number of GPUs, and --sizes gives it more"
            raise failed(Exit.USAGE, what, "--rigid --sizes", "leave out one of the two")
        sizes = inputs.sizes_of(self.sizes) if self.sizes is not None else None
        separator = "\t" if self.separator in ("tab", "\\t") else self.separator
        if separator is not None and (len(separator) != 1 or separator in '\r\n"'):
            what = f"{self.separator!r} is not a character that can separate cells"
            raise failed(Exit.USAGE, what, "--separator", "for example tab, or ;")
        head = tuple(self.head.split(",")) if self.head is not None else None
        return convert.Choices(
            self.job_set,
            self.gpu_type,
            self.largest,
            () if self.rigid else sizes,
            self.parts,
            self.cap,
            self.skip_bad,
            self.default_unknown,
            self.default_duration,
            names_of(self.names or []),
            Layout(head, separator),
        )


@dataclass(frozen=True, slots=True)
class ArrivalOptions:
    """The options that choose and scale submissions."""

    window: Annotated[
        str | None,
        typer.Option(
            metavar="START..END",
            help="Only jobs submitted in this time: 0d..7d from the first submission, or times as"
            " in the trace; START or END may be missing.",
        ),
    ] = None
    scale_load: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR",
            min=FACTOR_MIN,
            max=FACTOR_MAX,
            help="Let jobs arrive this many times as densely.",
        ),
    ] = None
    load: Annotated[
        float | None,
        typer.Option(
            metavar="RATIO",
            min=FACTOR_MIN,
            max=FACTOR_MAX,
            help="Let jobs arrive so densely that they ask for this share of --cluster's GPU time.",
        ),
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option(metavar="4*8xV100", help="Cluster of which the load is printed or chosen."),
    ] = None


@options_from()
def convert_traces(
    _config: Config,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Traces: .csv, .tsv or .jsonl, also with .gz; a row for a job."
        ),
    ],
    *,
    columns: ColumnOptions,
    choices: ChoiceOptions,
    arrive: ArrivalOptions,
    profiles: ProfilesOption = None,
    form: FormOption = WorkloadFormat.CSV,
    out: FileOption = None,
) -> None:
    """Convert public traces (GPU count and length of each job) to a workload."""
    chosen = choices.choices()
    named = ", ".join(str(file) for file in files)
    try:
        found = convert.convert(files, columns.columns, inputs.profiles_of(profiles), chosen)
        found, outside = arrivals.window(found, *_bounds(arrive.window))
        density, load = _density(found, arrive)
    except BadRowsError as error:
        _tell_bad(error.rows, error.count)
        what = f"{error.count} rows cannot be read"
        raise failed(Exit.USAGE, what, named, "correct them, or add --skip-bad") from None
    except OSError as error:
        raise inputs.unreadable(str(error.filename or named), error, "convert") from None
    except ReplayError as error:
        raise failed(Exit.USAGE, str(error), named, "docs/replay.md has an example") from None
    _tell(found, outside, load)
    _write(found.jobs, density, form, out)


def names_of(texts: list[str]) -> dict[str, str]:
    """Return pairs of ``NAME=TYPE`` and of files with a pair in each line. Raises CliError."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, kind = text.rpartition("=")
        if equals:
            found[name] = kind.strip()
            continue
        try:
            with open(text, encoding="utf-8-sig", newline="") as file:
                pairs = [row for row in csv.reader(file) if row]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            what = f"{text} is not NAME=TYPE, and no file that can be read: {error}"
            raise failed(Exit.USAGE, what, "--map", "for example --map bert=resnet50") from None
        odd = [number for number, row in enumerate(pairs, start=1) if len(row) != 2]
        if odd:
            what = f"{text}: row {odd[0]} has not two cells, a name and a type"
            raise failed(Exit.USAGE, what, "--map")
        found |= {name: kind.strip() for name, kind in pairs}
    return found


def _bounds(text: str | None) -> tuple[arrivals.Bound | None, arrivals.Bound | None]:
    """Return the begin and the end of a window. Raises CliError."""
    if text is None:
        return None, None
    start, dots, end = text.partition("..")
    if not dots:
        what = f"{text!r} is not a window"
        raise failed(Exit.USAGE, what, "--window", "for example 0d..7d, or 2017-10-03..2017-10-10")
    return _bound(start), _bound(end)


def _bound(text: str) -> arrivals.Bound | None:
    if not text:
        return None
    span_s = seconds_of(text)
    if span_s is not None:
        return arrivals.Bound(span_s, from_first=True)
    try:
        return arrivals.Bound(trace_cells.time_of(text)[0], from_first=False)
    except ValueError as error:
        what = f"{text!r} {error}"
        raise failed(Exit.USAGE, what, "--window", "or a time such as 12h or 7d") from None


def _density(found: convert.Conversion, arrive: ArrivalOptions) -> tuple[float, str]:
    """Return how many times as densely the jobs arrive, and their load in words.

    Raises CliError and ReplayError.
    """
    if arrive.load is not None and arrive.scale_load is not None:
        what = "--load chooses the factor that --scale-load gives"
        raise failed(Exit.USAGE, what, "--load --scale-load", "leave out one of the two")
    density = arrive.scale_load or 1.0
    if arrive.cluster is None:
        if arrive.load is not None:
            what = "--load is a share of a cluster's GPU time"
            raise failed(Exit.USAGE, what, "--load", "add --cluster, as in --cluster 4*8xV100")
        return density, ""
    gpus = cluster_of(arrive.cluster).gpus
    in_trace = arrivals.load(found.jobs, gpus)
    if arrive.load is not None:
        density = arrive.load / in_trace
    days = (found.jobs[-1].submit_s - found.jobs[0].submit_s) / density / 86400.0
    load = f"{in_trace * density:.2f} of {gpus} GPUs over {days:.3g} days"
    return density, f"{load} ({density:.3g} times as dense as the trace)"


def _tell(found: convert.Conversion, outside: int, load: str) -> None:
    """Write to stderr what was assumed and left out."""
    for line in found.assumptions:
        note(f"assumed: {line}")
    if found.bad.count:
        _tell_bad(tuple(found.bad.shown), found.bad.count)
        note(f"left out: {found.bad.count} rows that cannot be read")
    if outside:
        note(f"outside the window: {outside} rows")
    reasons = convert.by_reason(found.left_out)
    rows = len(found.jobs) + len(found.left_out)
    gpu_s = sum(job.gpu_s for job in found.jobs) + sum(entry[2] for entry in reasons)
    for reason, count, lost_s in reasons:
        shares = f"{count / rows:.2%} of rows, {lost_s / gpu_s:.2%} of GPU time"
        note(f"left out: {count} rows {reason} ({shares})")
    if load:
        note(f"load: {load}")


def _tell_bad(rows: tuple[str, ...], count: int) -> None:
    for row in rows:
        note(f"bad row: {row}")
    if count > len(rows):
        what = f"at most {BAD_ROWS_SHOWN_MAX} are named, each reason once"
        note(f"bad rows: {count - len(rows)} more ({what})")


def _write(
    jobs: tuple[convert.TraceJob, ...], density: float, form: WorkloadFormat, out: Path | None
) -> None:
    """Write jobs to a file or stdout. Raises CliError."""
    jsonl = form is WorkloadFormat.JSONL
    try:
        if out is None:
            traces.write_converted(jobs, sys.stdout, jsonl=jsonl, density=density)
            return
        with out.open("w", encoding="utf-8", newline="") as file:
            traces.write_converted(jobs, file, jsonl=jsonl, density=density)
    except OSError as error:
        raise failed(Exit.USAGE, f"{out} cannot be written: {error.strerror}", "--out") from None
    except ReplayError as error:
        raise failed(Exit.USAGE, str(error), "--scale-load") from None
    note(f"wrote {len(jobs)} jobs to {out}")
