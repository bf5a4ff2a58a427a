"""The command workload convert: a workload of public traces."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.options import options_from
from reshape_controller.cli.output import note
from reshape_controller.cli.replays import inputs
from reshape_controller.cli.replays.convert_options import (
    ArrivalOptions,
    ChoiceOptions,
    ColumnOptions,
)
from reshape_controller.cli.replays.options import (
    FileOption,
    FormOption,
    ProfilesOption,
    WorkloadFormat,
    format_of,
)
from reshape_controller.cli.words import seconds_of
from reshape_controller.replay import arrivals, convert, trace_cells, traces
from reshape_controller.replay.conversion import Choices, Conversion, TraceJob, by_reason
from reshape_controller.replay.elastic import effects
from reshape_controller.replay.inputs import ReplayError, cluster_of
from reshape_controller.replay.slurm_jobs import jobs_text
from reshape_controller.replay.trace_rows import (
    BAD_REASONS_SHOWN_MAX,
    BAD_ROWS_SHOWN_MAX,
    BadRows,
    BadRowsError,
    rows_text,
)
from reshape_gpu.config import Config
from reshape_profiles.loader import Bundle


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
    form: FormOption = None,
    out: FileOption = None,
) -> None:
    """Convert public traces (GPU count and length of each job) to a workload."""
    chosen, written = choices.choices(), format_of(form, out)
    named = ", ".join(str(file) for file in files)
    if out is not None and any(_is_same(out, file) for file in files):
        what = f"{out} is the trace itself, and would be overwritten"
        raise failed(Exit.USAGE, what, "--out", "name another file")
    gpus = _gpus_of(arrive.cluster)
    bounds = _bounds(arrive.window, chosen.unit_s, chosen.zone)
    found = conversion_of(files, columns, chosen, inputs.profiles_of(profiles))
    try:
        found, outside = arrivals.window(found, *bounds)
        density, load = _density(found, arrive, gpus)
    except ReplayError as error:
        raise failed(Exit.USAGE, str(error), named, "docs/replay.md has an example") from None
    tell(found, outside, load)
    _tell_elastic(found, chosen)
    _write(found.jobs, density, written, out)


def conversion_of(
    files: Sequence[Path], columns: ColumnOptions, chosen: Choices, bundle: Bundle
) -> Conversion:
    """Return the jobs of traces. Raises CliError."""
    named = ", ".join(str(file) for file in files)
    try:
        return convert.convert(files, columns.columns, bundle, chosen)
    except BadRowsError as error:
        _tell_bad(error.bad)
        what = f"{rows_text(error.bad.count)} cannot be read"
        remedy = "correct them, or leave out --strict"
        if chosen.skip_bad:
            what, remedy = f"{what}, and no row becomes a job", "name other columns or units"
        raise failed(Exit.USAGE, what, named, remedy) from None
    except OSError as error:
        raise inputs.unreadable(str(error.filename or named), error, "FILE") from None
    except ReplayError as error:
        raise failed(Exit.USAGE, str(error), named, "docs/replay.md has an example") from None


def _is_same(out: Path, file: Path) -> bool:
    """Return True if both names are of one file."""
    try:
        return out.samefile(file)
    except OSError:
        return False


def _gpus_of(cluster: str | None) -> int | None:
    """Return the number of GPUs of ``--cluster``. Raises CliError."""
    try:
        return None if cluster is None else cluster_of(cluster).gpus
    except ReplayError as error:
        raise failed(Exit.USAGE, str(error), "--cluster") from None


def _bounds(
    text: str | None, unit_s: float, zone: tzinfo
) -> tuple[arrivals.Bound | None, arrivals.Bound | None]:
    """Return the begin and the end of a window. ``unit_s``: of a number. Raises CliError."""
    if text is None:
        return None, None
    start, dots, end = text.partition("..")
    if not dots:
        what = f"{text!r} is not a window"
        raise failed(Exit.USAGE, what, "--window", "for example 0d..7d, or 2017-10-03..2017-10-10")
    return _bound(start, unit_s, zone), _bound(end, unit_s, zone)


def _bound(text: str, unit_s: float, zone: tzinfo) -> arrivals.Bound | None:
    if not text:
        return None
    span_s = seconds_of(text)
    if span_s is not None:
        return arrivals.Bound(span_s, from_first=True)
    try:
        return arrivals.Bound(trace_cells.time_of(text, unit_s, zone)[0], from_first=False)
    except ValueError as error:
        raise failed(
            Exit.USAGE, f"the bound {error}", "--window", "or a time such as 12h or 7d"
        ) from None


def _density(found: Conversion, arrive: ArrivalOptions, gpus: int | None) -> tuple[float, str]:
    """Return how many times as densely the jobs arrive, and their load in words.

    Raises CliError and ReplayError.
    """
    if arrive.load is not None and arrive.scale_load is not None:
        what = "--load chooses the factor that --scale-load gives"
        raise failed(Exit.USAGE, what, "--load --scale-load", "leave out one of the two")
    density = arrive.scale_load or 1.0
    if gpus is None:
        if arrive.load is not None:
            what = "--load is a share of a cluster's GPU time"
            raise failed(Exit.USAGE, what, "--load", "add --cluster, as in --cluster 4*8xV100")
        return density, ""
    in_trace = arrivals.load(found.jobs, gpus)
    if arrive.load is not None:
        density = arrive.load / in_trace
    days = (found.jobs[-1].submit_s - found.jobs[0].submit_s) / density / 86400.0
    load = f"{in_trace * density:.2f} of {gpus} GPUs over {days:.3g} days"
    return density, f"{load} ({density:.3g} times as dense as the trace)"


def _tell_elastic(found: Conversion, chosen: Choices) -> None:
    """Write to stderr what each choice of ``--elastic`` does to the jobs, side by side."""
    sizes = "--sizes" if chosen.sizes else "none" if chosen.sizes is not None else chosen.elastic
    shown = [
        f"{choice} {jobs_text(effect.elastic_jobs)} with several sizes on {effect.fewest_gpus:,} to"
        f" {effect.most_gpus:,} GPUs in all"
        for choice, effect in effects(found.jobs, chosen.largest).items()
    ]
    note(f"--elastic (here {sizes}): {'; '.join(shown)}")


def tell(found: Conversion, outside: int = 0, load: str = "") -> None:
    """Write to stderr what was assumed and left out."""
    for line in found.assumptions:
        note(f"assumed: {line}")
    if found.bad.count:
        _tell_bad(found.bad)
        note(f"left out: {rows_text(found.bad.count)} that cannot be read")
    if outside:
        note(f"outside the window: {rows_text(outside)}")
    reasons = by_reason(found.left_out)
    left_out = sum(entry[1] for entry in reasons)
    rows = found.used_rows + left_out
    others = ((left_out, "left out"), (found.bad.count, "not readable"), (outside, "outside"))
    used = f"{found.used_rows} in {jobs_text(len(found.jobs))}"
    more = "".join(f", {count} {what}" for count, what in others if count)
    note(f"read: {rows_text(rows + found.bad.count + outside)}: {used}{more}")
    gpu_s = sum(job.gpu_s for job in found.jobs) + sum(entry[2] for entry in reasons)
    for reason, count, lost_s in reasons:
        shares = f"{count / rows:.2%} of rows, {lost_s / gpu_s:.2%} of GPU time"
        note(f"left out: {rows_text(count)} {reason} ({shares})")
    if load:
        note(f"load: {load}")


def _tell_bad(bad: BadRows) -> None:
    for text in bad.shown:
        note(f"cannot be read: {text}")
    if bad.more:
        what = f"{BAD_REASONS_SHOWN_MAX} reasons, {BAD_ROWS_SHOWN_MAX} rows of each, are named"
        note(f"cannot be read: {rows_text(bad.more, 'more ')} ({what})")


def _write(
    jobs: tuple[TraceJob, ...], density: float, form: WorkloadFormat, out: Path | None
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
    note(f"wrote {len(jobs)} job{'s' if len(jobs) != 1 else ''} to {out}")
