"""The commands workload generate, convert and describe: files of jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.output import note
from reshape_controller.cli.replays import inputs
from reshape_controller.cli.replays.options import (
    ClusterOption,
    FileOption,
    FormOption,
    JobsOption,
    LastOption,
    ProfilesOption,
    SizesOption,
    WorkloadFormat,
    format_of,
    workload_of,
)
from reshape_controller.cli.replays.workload_convert import convert_traces
from reshape_controller.cli.replays.workload_describe import describe
from reshape_controller.replay import traces
from reshape_controller.replay.generate import RECIPES
from reshape_controller.replay.inputs import Workload

workload_app = typer.Typer(help="Workloads: files of jobs for replays.", no_args_is_help=True)


@workload_app.command("generate")
def generate(
    workloads: Annotated[
        list[str] | None,
        typer.Option("--workload", "-w", help=f"Workload: {', '.join(RECIPES)}; default: one."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    cluster: ClusterOption = None,
    profiles: ProfilesOption = None,
    sizes: SizesOption = None,
    jobs: JobsOption = None,
    last_s: LastOption = None,
    form: FormOption = None,
    out: FileOption = None,
) -> None:
    """Generate one of the paper's workloads, or one with bursts, from a random seed."""
    written = format_of(form, out)
    workload = workload_of(workloads, "a command for each")
    if workload not in RECIPES:
        what = f"{workload!r} is not a workload that can be generated"
        raise failed(Exit.USAGE, what, "--workload", f"use one of {', '.join(RECIPES)}")
    request = inputs.ReplayRequest(
        workload, cluster, profiles=profiles, sizes=sizes, jobs=jobs, last_s=last_s
    )
    setup = inputs.setup_of(request)
    write(setup.scene(seed).workload, written, out)


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


workload_app.command("convert")(convert_traces)
workload_app.command("describe")(describe)
