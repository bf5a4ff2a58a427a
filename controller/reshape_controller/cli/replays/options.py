"""Options that ``replay``, ``compare`` and ``workload`` share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.replay.time_scaling import STEP_S
from reshape_controller.replay.trace_rows import JSON_SUFFIXES

SPREAD_MAX = 0.9
"""Largest spread: a job takes at least a tenth of its profile's time."""

WorkloadOption = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        "-w",
        metavar="one|two|three|four|case-study|FILE",
        help="Workload to replay; default: one.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="8xV100+8xP100", help="Hosts and GPUs of the cluster; default: the workload's own."
    ),
]
CostsOption = Annotated[
    str,
    typer.Option(
        metavar="SET|FILE", help="Times of starts, saves and stops: name of a set, or a file."
    ),
]
ProfilesOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="File of profiles that replace bundled ones of the same job type."
    ),
]
SizesOption = Annotated[
    str | None, typer.Option(metavar="1,2,4,8", help="GPU counts that generated jobs may use.")
]
JobsOption = Annotated[int | None, typer.Option(min=1, help="Number of generated jobs.")]
LastOption = Annotated[
    float | None,
    typer.Option(
        "--last",
        metavar="SECONDS",
        help="Seconds from the start to the arrival of the last generated job.",
    ),
]
SpreadOption = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=SPREAD_MAX,
        help="How far real speeds differ from profiles: 0.2 means up to 20 %.",
    ),
]
TruthOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="File with real step times, in place of drawn ones."),
]
ParquetOption = Annotated[
    bool,
    typer.Option("--parquet", help="With --out: write jobs and events as Parquet too (pyarrow)."),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FOLDER", help="Folder for all results; the same command resumes there."
    ),
]
HindsightOption = Annotated[
    bool, typer.Option("--hindsight", help="Show which reshapes cost or saved most time.")
]
LiveOption = Annotated[
    Path | None,
    typer.Option(
        "--live",
        metavar="FOLDER",
        help="Also run the workload on a daemon of this machine, and compare.",
    ),
]
SpeedUpOption = Annotated[float, typer.Option(help="With --live: speed-up of the live runs.")]
RepeatsOption = Annotated[int, typer.Option(min=1, help="With --live: number of live runs.")]
RecordOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="With --live: job record (YAML) of every job; default: no TensorFlow.",
    ),
]
StepOption = Annotated[
    float,
    typer.Option(
        "--step", min=0.01, max=3600.0, help="With --live: seconds per step of the fastest job."
    ),
]
FromLiveOption = Annotated[
    bool,
    typer.Option(
        "--from-live", help="Replay the current queue of a running daemon, with changes (what if)."
    ),
]
AddHostOption = Annotated[
    str | None, typer.Option(metavar="8xV100", help="With --from-live: hosts to add.")
]
AddGpusOption = Annotated[
    int, typer.Option(min=0, help="With --from-live: GPUs to add to each host.")
]
DrainOption = Annotated[
    str | None, typer.Option(metavar="HOST", help="With --from-live: host to remove.")
]


class WorkloadFormat(StrEnum):
    """Format of a file of jobs."""

    CSV = "csv"
    JSONL = "jsonl"


FormOption = Annotated[
    WorkloadFormat | None,
    typer.Option("--format", help="Format to write; default: by the name of --out, else csv."),
]
FileOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="File to write; default: stdout.")
]


def format_of(form: WorkloadFormat | None, out: Path | None) -> WorkloadFormat:
    """Return the format in which to write jobs: the one that replays read in a file of that name.

    Raises CliError if ``form`` is another.
    """
    suffix = out.suffix if out is not None else ""
    by_name = WorkloadFormat.JSONL if suffix in JSON_SUFFIXES else WorkloadFormat.CSV
    if form is not None and suffix and form is not by_name:
        what = f"replays read {out} as {by_name}, and --format asks for {form}"
        raise failed(Exit.USAGE, what, "--format", f"leave it out, or name the file .{form}")
    return form or by_name


@dataclass(frozen=True, slots=True)
class SceneOptions:
    """The options of ``replay`` and ``compare`` that determine cluster, jobs and costs."""

    cluster: ClusterOption = None
    costs: CostsOption = "paper"
    profiles: ProfilesOption = None
    sizes: SizesOption = None
    jobs: JobsOption = None
    last_s: LastOption = None
    spread: SpreadOption = None
    device_truth: TruthOption = None


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """The options of ``replay --live``. ``live``: the folder; None: no live run."""

    live: LiveOption = None
    speed_up: SpeedUpOption = 40.0
    repeats: RepeatsOption = 3
    record: RecordOption = None
    step_s: StepOption = STEP_S


@dataclass(frozen=True, slots=True)
class WhatIfOptions:
    """The options of ``replay --from-live``."""

    from_live: FromLiveOption = False
    add_host: AddHostOption = None
    add_gpus: AddGpusOption = 0
    drain: DrainOption = None


def given(context: typer.Context) -> dict[str, str]:
    """Return the options on the command line, by the name of their parameter."""
    found = {}
    for one in context.command.params:
        source = context.get_parameter_source(one.name or "")
        written = source is not None and source.name == "COMMANDLINE"
        if written and one.param_type_name == "option":
            found[one.name or ""] = max(one.opts, key=len)
    return found


def shown(context: typer.Context, name: str, flag: str) -> str:
    """Return an option as on the command line."""
    value = context.params[name]
    values = value if isinstance(value, (list, tuple)) else [value]
    return flag if value is True else " ".join(f"{flag} {each}" for each in values)


def workload_of(values: list[str] | None, remedy: str) -> str:
    """Return the workload of the option, or the first workload without the option.

    Raises CliError, also for an empty name, as from an unset variable.
    """
    named = asked_once(values, "--workload", remedy)
    return "one" if named is None else named


def asked_once(values: list[str] | None, flag: str, remedy: str) -> str | None:
    """Return the value of an option. Raises CliError if it was given twice."""
    if values is not None and len(values) > 1:
        where = " ".join(f"{flag} {value}" for value in values)
        raise failed(Exit.USAGE, f"{flag} appears {len(values)} times", where, remedy)
    return values[0] if values else None
