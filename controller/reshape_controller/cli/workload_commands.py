"""The commands workload generate and workload convert: files of jobs. State: none."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli import replay_inputs as inputs
from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.output import note
from reshape_controller.cli.replay_options import (
    ClusterOption,
    JobsOption,
    LastOption,
    ProfilesOption,
    SizesOption,
)
from reshape_controller.replay import traces
from reshape_controller.replay.generate import RECIPES
from reshape_controller.replay.inputs import Workload

workload_app = typer.Typer(help="Files of jobs for replays.", no_args_is_help=True)


class Form(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"


FormOption = Annotated[Form, typer.Option("--format", help="CSV or JSON lines.")]
FileOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write there instead of to stdout.")
]


@workload_app.command("generate")
def generate(
    workload: Annotated[str, typer.Option("--workload", "-w", help="one, two, three or four.")] = (
        "one"
    ),
    seed: Annotated[int, typer.Option(min=0)] = 0,
    cluster: ClusterOption = None,
    profiles: ProfilesOption = None,
    sizes: SizesOption = None,
    jobs: JobsOption = None,
    last_s: LastOption = None,
    form: FormOption = Form.CSV,
    out: FileOption = None,
) -> None:
    """Draw one of the paper's workloads from a seed."""
    if workload not in RECIPES:
        what = f"{workload!r} is no workload of the paper"
        raise failed(Exit.USAGE, what, "--workload", f"one of {', '.join(RECIPES)}")
    asked = inputs.Asked(
        workload, cluster, profiles=profiles, sizes=sizes, jobs=jobs, last_s=last_s
    )
    setup = inputs.setup_of(asked)
    write(setup.scene(seed).workload, form, out)


def write(workload: Workload, form: Form, out: Path | None) -> None:
    """The workload as a file or on stdout. Raises CliError."""
    text = traces.csv_text(workload) if form is Form.CSV else traces.jsonl_text(workload)
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise failed(Exit.USAGE, f"{out} cannot be written: {error.strerror}", "--out") from None
    note(f"{len(workload.jobs)} jobs written to {out}")
