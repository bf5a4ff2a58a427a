"""The command profile costs: measures what starts, saves and stops take, into a file. Asks no
daemon but its own. State: none."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.jobs.submit import read_record
from reshape_controller.cli.options import OutputOption, form, settings
from reshape_controller.cli.output import emit, grid, note
from reshape_controller.cli.profiles import measured_costs, paced_program
from reshape_controller.cli.profiles.files import new_file
from reshape_controller.cli.profiles.measured_costs import Measured

PACED = "paced program, a real process without TensorFlow"
OWN_FIELDS = (
    *("name", "optional_gpus", "epochs", "steps", "target_accuracy", "job_type", "global_batch"),
)
"""Of a record; the measurement sets them itself."""


def costs(
    record: Annotated[
        str | None,
        typer.Option(
            "--record",
            metavar="FILE",
            help="Job record to measure; default: a program with fixed step times.",
        ),
    ] = None,
    name: Annotated[
        str, typer.Option("--set", metavar="NAME", help="Name of the set of costs.")
    ] = "local",
    rounds: Annotated[int, typer.Option(min=1, help="How often the job shrinks and grows.")] = 5,
    into: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="File to write, for --costs of a replay.")
    ] = Path("costs.json"),
    output: OutputOption = None,
) -> None:
    """Measure how long starts, saves and stops of a job take (local launcher)."""
    shown = form(settings(None, output))
    new_file(into, "--out")
    before = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="reshape-costs-") as folder:
        found = measured_costs.measure(record_of(record, Path(folder)), rounds, Path(folder), note)
    program = program_name(record)
    document = _document(name, found, program, rounds, before)
    try:
        into.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        what = f"{into} cannot be written: {error.strerror}"
        raise failed(
            Exit.USAGE, what, "--out", "name a file in a folder that you can write"
        ) from None
    emit(document, shown, lambda: _table(found))
    note(f"wrote {into}; use it: reshape replay --costs {into}")


def program_name(file: str | None) -> str:
    """What is run, in words."""
    return PACED if file is None else f"record {Path(file).name}"


def record_of(file: str | None, folder: Path) -> dict[str, Any]:
    """The fields of a record that say what is run: those of a file, or the paced program, which is
    copied into ``folder``. Raises CliError."""
    if file is not None:
        return {k: v for k, v in read_record(file).items() if k not in OWN_FIELDS and v is not None}
    code = folder.absolute() / "code"
    code.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(paced_program.__file__, code / "train.py")
    return {"command": ["python", "train.py"], "framework": "other", "code": str(code)}


def _document(
    name: str, found: Measured, program: str, rounds: int, load: tuple[float, float, float]
) -> dict[str, Any]:
    """The file: the medians, and how they were measured."""
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    cores = len(os.sched_getaffinity(0))
    source = f"measured {now}: {program}, local launcher, {cores} cores; medians of {rounds} rounds"
    overhead = found.overhead(source)
    return {
        "costs": {name: asdict(overhead)},
        "provenance": {
            "command": " ".join(["reshape", *sys.argv[1:]]),
            "measured_at": now,
            "program": program,
            "machine": f"{platform.system()} {platform.machine()}, {cores} cores",
            "load_before": list(load),
            "load_after": list(os.getloadavg()),
            "python": platform.python_version(),
            "reshape": metadata.version("reshape-gpu"),
            "samples_s": found.samples,
        },
    }


def _table(found: Measured) -> Table:
    columns = ("MEDIAN", "LEAST", "MOST", "SAMPLES")
    drawn = grid("COST", *columns, right=columns)
    medians = asdict(found.overhead(""))
    for name, values in found.samples.items():
        cells = (medians[name], min(values), max(values))
        drawn.add_row(name, *(f"{cell:.3f} s" for cell in cells), str(len(values)))
    return drawn
