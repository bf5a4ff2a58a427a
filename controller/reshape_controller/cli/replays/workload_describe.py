"""The command workload describe: what the jobs of a trace or a workload ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.options import form, options_from
from reshape_controller.cli.output import emit, grid, note, takes_unicode
from reshape_controller.cli.replays import inputs
from reshape_controller.cli.replays.convert_options import ChoiceOptions, ColumnOptions
from reshape_controller.cli.replays.options import ProfilesOption
from reshape_controller.cli.replays.workload_convert import conversion_of, tell
from reshape_controller.core.model import LengthUnit
from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.replay import figures
from reshape_controller.replay.demand import HOUR_S, Asked, Demand, demand_of
from reshape_controller.replay.elastic import Sized, assumed_text, effects
from reshape_controller.replay.inputs import WorkJob
from reshape_controller.replay.trace_rows import LINES
from reshape_gpu.config import Config
from reshape_profiles.loader import Bundle
from reshape_sidecar import foreign

PARTS = 24
"""Bars of the picture on a terminal."""
PICTURE_PARTS = 240
BAR_COLUMNS = 40
DATES_FROM_S = 1e8
"""Times from here on are of a calendar: 1973."""


@dataclass(frozen=True, slots=True)
class Description:
    """The output of ``workload describe``."""

    file: str
    demand: Demand
    time_zone: str
    assumed: str
    elastic: dict[str, dict[str, int]]
    """By choice of ``--elastic``: elastic jobs, and the fewest and the most GPUs of all jobs."""


@options_from("output")
def describe(
    config: Config,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="A workload, or traces as of convert.")
    ],
    *,
    columns: ColumnOptions,
    choices: ChoiceOptions,
    profiles: ProfilesOption = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="Draw the GPUs over time, as SVG and PNG."),
    ] = None,
) -> None:
    """Show what jobs ask for: sizes, hours, GPUs over time, and what is assumed."""
    shown, bundle = form(config), inputs.profiles_of(profiles)
    sized: Sequence[Sized]
    if len(files) == 1 and _is_workload(files[0]):
        jobs = inputs.trace_of(str(files[0]), bundle).jobs
        sized, asked = jobs, _asked(jobs, bundle, choices.gpu_type)
        zone = "none: times count from the first submission"
    else:
        chosen = choices.choices()
        found = conversion_of(files, columns, chosen, bundle)
        tell(found)
        sized = found.jobs
        asked = [Asked(job.submit_s, _own(job), job.gpu_s / _own(job)) for job in found.jobs]
        zone = _zone_text(found.jobs[0].submit_s, chosen.zone)
    by_choice = effects(sized, choices.largest)
    document = Description(
        ", ".join(str(file) for file in files),
        demand_of(asked, PARTS),
        zone,
        assumed_text(sized),
        {choice.value: effect._asdict() for choice, effect in by_choice.items()},
    )
    if picture is not None:
        _draw(picture, asked)
    emit(document, shown, lambda: _table(document))


def _is_workload(path: Path) -> bool:
    """Return True if a file has the columns of a workload. A file that cannot be read has not."""
    try:
        first = foreign.begin_of(path, 1 << 16).decode("utf-8", "replace").lstrip("\ufeff")
    except OSError:
        return False
    line = first.lstrip().partition("\n")[0]
    if path.suffix in LINES:
        return '"submit_s"' in line and '"job_type"' in line
    return {"submit_s", "job_type"} <= {name.strip() for name in line.split(",")}


def _own(job: Sized) -> int:
    """Return the GPU count that a job had, or its largest."""
    return max(job.known_gpus or job.optional_gpus)


def _asked(jobs: Sequence[WorkJob], bundle: Bundle, gpu_type: str) -> list[Asked]:
    """Return jobs of a workload by the profiles' speeds."""
    book = ProfileBook({profile.job_type: profile for profile in bundle.profiles})
    found = []
    for job in jobs:
        length, seconds = job.spec.length, None
        if length is not None and length.unit is LengthUnit.STEPS:
            step_s = book.seconds_per_step(job.spec.job_type or "", gpu_type, _own(job), 1)
            seconds = length.value * step_s
        found.append(Asked(job.submit_s, _own(job), seconds))
    return found


def _zone_text(first_s: float, zone: tzinfo) -> str:
    if first_s < DATES_FROM_S:
        return "none: times are numbers"
    return f"{zone}, of dates without one; first submission {datetime.fromtimestamp(first_s, zone)}"


def _draw(path: Path, asked: Sequence[Asked]) -> None:
    """Write the picture. Raises CliError."""
    parts = demand_of(asked, PICTURE_PARTS).parts
    if not parts:
        raise failed(Exit.USAGE, "all jobs are submitted at once, without a length", "--picture")
    try:
        figures.demand(path, [(part.begin_s - parts[0].begin_s, part.gpus) for part in parts])
    except figures.NoMatplotlib as error:
        raise failed(Exit.FAILED, str(error), "--picture") from None
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror}"
        raise failed(Exit.USAGE, what, "--picture") from None
    note(f"wrote {path.with_suffix('.svg')} and {path.with_suffix('.png')}")


def _table(found: Description) -> RenderableType:
    asked = found.demand
    facts = grid("WORKLOAD", found.file)
    facts.add_row("jobs", f"{asked.jobs:,}")
    facts.add_row("GPU hours", f"{asked.gpu_hours:,.1f}")
    hours = f"{asked.median_hours:.2f}, longest {asked.longest_hours:,.1f}"
    facts.add_row("hours of a job, median", hours)
    if asked.without_length:
        facts.add_row("length is no number of steps", f"{asked.without_length} jobs, no hours")
    span_s = asked.last_submit_s - asked.first_submit_s
    facts.add_row("submissions over", f"{span_s / HOUR_S:,.1f} hours")
    facts.add_row("time zone", found.time_zone)
    facts.add_row("assumed", found.assumed or "no sizes")
    sizes = grid("GPUS", "JOBS", right=("GPUS", "JOBS"))
    for gpus, count in asked.jobs_by_gpus.items():
        sizes.add_row(str(gpus), f"{count:,}")
    parts: list[RenderableType] = [facts, Text(""), sizes, Text("")]
    parts += [choices_table(found.elastic), Text(""), _bars(asked)]
    return Group(*parts)


def choices_table(by_choice: dict[str, dict[str, int]]) -> RenderableType:
    """Return what each choice of ``--elastic`` does, side by side."""
    names = list(by_choice)
    table = grid("--elastic", *names, right=tuple(names))
    rows = {
        "elastic_jobs": "jobs with several sizes",
        "fewest_gpus": "GPUs of all jobs, at least",
        "most_gpus": "GPUs of all jobs, at most",
    }
    for key, text in rows.items():
        table.add_row(text, *(f"{by_choice[name][key]:,}" for name in names))
    return table


def _bars(asked: Demand) -> RenderableType:
    """Return a bar for each part of the time, if jobs began when they were submitted."""
    most = max((part.gpus for part in asked.parts), default=0.0)
    if most <= 0.0:
        return Text("no picture: no job has a length")
    block = "█" if takes_unicode() else "#"
    table = grid("FROM", "GPUS ASKED FOR", "", right=("GPUS ASKED FOR",))
    for part in asked.parts:
        hours = (part.begin_s - asked.first_submit_s) / HOUR_S
        at = f"{hours:.1f} h"
        if asked.first_submit_s >= DATES_FROM_S:
            at = f"{datetime.fromtimestamp(part.begin_s, UTC):%Y-%m-%d %H:%M} UTC"
        table.add_row(at, f"{part.gpus:,.1f}", block * round(BAR_COLUMNS * part.gpus / most))
    return table
