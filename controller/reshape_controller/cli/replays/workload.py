"""The commands workload generate and workload convert: files of jobs."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.output import note
from reshape_controller.cli.replays import inputs
from reshape_controller.cli.replays.options import (
    ClusterOption,
    JobsOption,
    LastOption,
    ProfilesOption,
    SizesOption,
    workload_of,
)
from reshape_controller.records.limits import GPUS_MAX
from reshape_controller.replay import convert as conversion
from reshape_controller.replay import traces
from reshape_controller.replay.generate import RECIPES
from reshape_controller.replay.inputs import ReplayError, Workload

workload_app = typer.Typer(help="Workloads: files of jobs for replays.", no_args_is_help=True)


class WorkloadFormat(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"


FormOption = Annotated[
    WorkloadFormat, typer.Option("--format", help="Format of the file to write.")
]
FileOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="File to write; default: stdout.")
]


@workload_app.command("generate")
def generate(
    workloads: Annotated[
        list[str] | None,
        typer.Option(
            "--workload", "-w", help="Workload of the paper: one, two, three or four; default: one."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    cluster: ClusterOption = None,
    profiles: ProfilesOption = None,
    sizes: SizesOption = None,
    jobs: JobsOption = None,
    last_s: LastOption = None,
    form: FormOption = WorkloadFormat.CSV,
    out: FileOption = None,
) -> None:
    """Generate one of the paper's workloads from a random seed."""
    workload = workload_of(workloads, "a command for each")
    if workload not in RECIPES:
        what = f"{workload!r} is not a workload of the paper"
        raise failed(Exit.USAGE, what, "--workload", f"use one of {', '.join(RECIPES)}")
    request = inputs.ReplayRequest(
        workload, cluster, profiles=profiles, sizes=sizes, jobs=jobs, last_s=last_s
    )
    setup = inputs.setup_of(request)
    write(setup.scene(seed).workload, form, out)


def write(workload: Workload, form: WorkloadFormat, out: Path | None) -> None:
    """Write the workload to a file or stdout. Raises CliError."""
    text = traces.csv_text(workload) if form is WorkloadFormat.CSV else traces.jsonl_text(workload)
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise failed(Exit.USAGE, f"{out} cannot be written: {error.strerror}", "--out") from None
    note(f"wrote {len(workload.jobs)} jobs to {out}")


@workload_app.command("convert")
def convert(
    trace: Annotated[Path, typer.Argument(metavar="CSV", help="Trace with a row for each job.")],
    submit: Annotated[str, typer.Option(help="Column with the submission time.")] = "submit_time",
    gpus: Annotated[
        str, typer.Option(help="Name of the column with the GPU count of a job.")
    ] = "gpu_num",
    duration: Annotated[
        str, typer.Option(help="Column with the duration in seconds.")
    ] = "duration",
    name: Annotated[
        str | None, typer.Option(help="Column with a unique job name; default: numbered names.")
    ] = None,
    job_set: Annotated[
        str,
        typer.Option(help="Set of job types: one to four. The name of a job picks its type."),
    ] = "one",
    gpu_type: Annotated[
        str, typer.Option(help="GPU type on which the durations were measured.")
    ] = "V100",
    largest: Annotated[
        int,
        typer.Option(
            min=1, max=GPUS_MAX, help="Largest GPU count of a job; larger jobs are left out."
        ),
    ] = 8,
    profiles: ProfilesOption = None,
    form: FormOption = WorkloadFormat.CSV,
    out: FileOption = None,
) -> None:
    """Convert a public trace (GPU count and duration of each job) to a workload."""
    try:
        text = trace.read_text(encoding="utf-8-sig")
        found = conversion.convert(
            text,
            trace.name,
            conversion.Columns(submit, gpus, duration, name),
            inputs.profiles_of(profiles),
            conversion.Assumptions(job_set, gpu_type, largest),
        )
    except OSError as error:
        raise inputs.unreadable(str(trace), error, "convert") from None
    except UnicodeDecodeError:
        raise failed(Exit.USAGE, f"{trace} is not UTF-8 text", "convert") from None
    except ReplayError as error:
        raise failed(Exit.USAGE, str(error), str(trace), "docs/replay.md has an example") from None
    for line in found.assumptions:
        note(f"assumed: {line}")
    for reason, count in found.left_out:
        note(f"left out: {count} rows {reason}")
    write(found.workload, form, out)
