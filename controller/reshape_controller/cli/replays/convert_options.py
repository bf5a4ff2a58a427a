"""The options of the command workload convert: columns, choices and submissions."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from datetime import UTC, tzinfo
from enum import StrEnum
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.replays import inputs
from reshape_controller.core.model import Spans
from reshape_controller.records.limits import GPUS_MAX
from reshape_controller.replay import conversion
from reshape_controller.replay.elastic import Elastic
from reshape_controller.replay.inputs import SECONDS_MAX
from reshape_controller.replay.trace_gpus import Parts
from reshape_controller.replay.trace_rows import Layout
from reshape_sidecar import foreign

FACTOR_MIN, FACTOR_MAX = 1e-3, 1e3
"""Range of ``--scale-load``."""


class TimeUnit(StrEnum):
    """Units of times."""

    S = "s"
    MS = "ms"
    US = "us"


UNITS_S = {TimeUnit.S: 1.0, TimeUnit.MS: 1e-3, TimeUnit.US: 1e-6}
"""Seconds of each."""


def column(text: str, *names: str) -> typer.models.OptionInfo:
    """Return an option that names a column of a trace."""
    found: typer.models.OptionInfo = typer.Option(*names, metavar="COLUMN", help=text)
    return found


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """The options that name columns of a trace."""

    submit: Annotated[str, column("Submission: seconds, or a date.")] = "submit_time"
    gpus: Annotated[str, column("GPU count of a job, or Slurm's AllocTRES.")] = "gpu_num"
    milli: Annotated[str | None, column("Thousandths of each GPU that the job uses.")] = None
    percent: Annotated[
        str | None, column("Instead: hundredths of a GPU for each of --gpus; 200 are two GPUs.")
    ] = None
    hosts: Annotated[str | None, column("Hosts of a job, or Slurm's AllocTRES; with --span.")] = (
        None
    )
    duration: Annotated[
        str | None, column("Duration: seconds, or D-HH:MM:SS; default: duration.")
    ] = None
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
    def columns(self) -> conversion.Columns:
        """Return the columns."""
        lengths = (self.duration, self.end, self.iterations)
        return conversion.Columns(
            submit=self.submit,
            gpus=self.gpus,
            milli=self.milli,
            percent=self.percent,
            hosts=self.hosts,
            duration=conversion.DURATION if lengths == (None, None, None) else self.duration,
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
        int, typer.Option(min=1, max=GPUS_MAX, help="Largest GPU count of a job on one host.")
    ] = 8
    cap: Annotated[
        bool,
        typer.Option(
            "--cap", help="Larger jobs get --largest GPUs for the same GPU time; else left out."
        ),
    ] = False
    span: Annotated[
        Spans,
        typer.Option(
            help="Larger jobs may be on several hosts (if-needed); also those that --hosts says"
            " were (any)."
        ),
    ] = Spans.NEVER
    parts: Annotated[
        Parts,
        typer.Option(
            help="Jobs with parts of GPUs: left out, on whole GPUs for as long (round), or on whole"
            " GPUs for a shorter time (keep: the same GPU time)."
        ),
    ] = Parts.LEAVE_OUT
    rigid: Annotated[
        bool, typer.Option("--rigid", help="Each job has only the GPU count of the trace.")
    ] = False
    elastic: Annotated[
        Elastic | None,
        typer.Option(
            help="GPU counts that jobs may use besides those of the trace, which says none: none,"
            " their halves (halve), or powers of two (free, the default)."
        ),
    ] = None
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="1,2,4", help="Instead: these GPU counts beside the job's own, for all jobs."
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
    time_unit: Annotated[
        TimeUnit, typer.Option(help="Unit of times and durations that are numbers.")
    ] = TimeUnit.S
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad/--strict",
            help="Leave out and name rows that cannot be read, or refuse the trace for them.",
        ),
    ] = True
    head: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME", help="Names of the columns, of a file without a head."),
    ] = None
    time_zone: Annotated[
        str, typer.Option(metavar="ZONE", help="Of dates without a zone, as in Europe/Berlin.")
    ] = "UTC"
    separator: Annotated[
        str | None,
        typer.Option(
            metavar="CHARACTER|tab", help="Between cells; default: a tab in .tsv, else a comma."
        ),
    ] = None

    def choices(self) -> conversion.Choices:
        """Return the choices. Raises CliError."""
        if self.rigid and self.sizes is not None:
            what = "--rigid leaves a job its own number of GPUs, and --sizes gives it more"
            raise failed(Exit.USAGE, what, "--rigid --sizes", "leave out one of the two")
        if self.elastic is not None and (self.rigid or self.sizes is not None):
            flag = "--rigid" if self.rigid else "--sizes"
            what = f"--elastic and {flag} both say which GPU counts are assumed"
            raise failed(Exit.USAGE, what, f"--elastic {flag}", "leave out one of the two")
        if self.cap and self.span is not Spans.NEVER:
            what = "--cap makes large jobs smaller, and --span keeps their GPUs on several hosts"
            raise failed(Exit.USAGE, what, "--cap --span", "leave out one of the two")
        sizes = inputs.sizes_of(self.sizes) if self.sizes is not None else None
        separator = "\t" if self.separator in ("tab", "\\t") else self.separator
        if separator is not None and (len(separator) != 1 or separator in '\r\n"'):
            what = f"{self.separator!r} is not a character that can separate cells"
            raise failed(Exit.USAGE, what, "--separator", "for example tab, or ;")
        head = tuple(self.head.split(",")) if self.head is not None else None
        if head is not None and not all(each.strip() for each in head):
            what = f"{self.head!r} has a column without a name"
            raise failed(Exit.USAGE, what, "--head", "for example submit_time,gpu_num,duration")
        return conversion.Choices(
            self.job_set,
            self.gpu_type,
            self.largest,
            () if self.rigid else sizes,
            self.parts,
            self.cap,
            self.span,
            self.skip_bad,
            self.default_unknown,
            self.default_duration,
            UNITS_S[self.time_unit],
            names_of(self.names or []),
            Layout(head, separator),
            self.elastic or Elastic.FREE,
            zone_of(self.time_zone),
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


def zone_of(name: str) -> tzinfo:
    """Return a time zone. Raises CliError."""
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # the last two: of a path
        what = f"{name!r} is no time zone that this machine knows"
        raise failed(Exit.USAGE, what, "--time-zone", "for example Europe/Berlin") from None


def names_of(texts: list[str]) -> dict[str, str]:
    """Return pairs of ``NAME=TYPE`` and of files with a pair in each line. Raises CliError."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, kind = text.rpartition("=")
        if equals:
            found[name] = kind.strip()
            continue
        try:
            content = foreign.read_text(text, foreign.SETTINGS_BYTES_MAX, "utf-8-sig")
            pairs = [row for row in csv.reader(io.StringIO(content, newline="")) if row]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            what = f"{text} is not NAME=TYPE, and no file that can be read: {error}"
            raise failed(Exit.USAGE, what, "--map", "for example --map bert=resnet50") from None
        odd = [number for number, row in enumerate(pairs, start=1) if len(row) != 2]
        if odd:
            what = f"{text}: row {odd[0]} has not two cells, a name and a type"
            raise failed(Exit.USAGE, what, "--map")
        found |= {name: kind.strip() for name, kind in pairs}
    return found
