"""Sweeps with a progress bar, and their bundles."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.output import console, note
from reshape_controller.cli.replays import inputs
from reshape_controller.cli.replays.folder import unwritable
from reshape_controller.cli.words import duration
from reshape_controller.http.json_text import to_json
from reshape_controller.replay import bundle
from reshape_controller.replay.figures import NoMatplotlib
from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.row_files import NoPyarrow, pyarrow
from reshape_controller.replay.rows import Interval, over
from reshape_controller.replay.setup import Contender, Setup
from reshape_controller.replay.sweep import Run, sweep

NOTE_EVERY_S = 30.0
"""Interval of notes about progress where there is no terminal."""


def run_sweep(
    setup: Setup,
    contenders: Sequence[Contender],
    seeds: Sequence[int],
    out: Path | None,
    workers: int,
) -> list[Run]:
    """Run a sweep, with a progress bar on a terminal, else with notes. Raises CliError."""
    bar, total = progress(), len(contenders) * len(seeds)
    task = bar.add_task(f"workload {setup.name}", total=total)
    count = 0
    begin_s = note_s = time.monotonic()

    def done(run: Run) -> None:
        nonlocal count, note_s
        count += 1
        bar.advance(task)
        now_s = time.monotonic()
        if bar.disable and count < total and now_s - note_s >= NOTE_EVERY_S:
            note_s = now_s
            left = duration((now_s - begin_s) / count * (total - count))
            note(f"workload {setup.name}: {count} of {total} replays; about {left} left")

    try:
        with bar:
            return sweep(
                setup,
                contenders,
                seeds,
                folder=out,
                workers=workers,
                done=done,
            )
    except KeyboardInterrupt:
        if out is not None and count:
            kept = f"{count} of {total} replays are kept in {out}"
            note(f"interrupted: {kept}; the same command resumes from there")
        raise
    except ReplayError as error:
        raise inputs.replay_failed(error) from None
    except BrokenProcessPool:
        what = "a worker process was killed, perhaps for lack of memory"
        remedy = "run it again with fewer --workers; replays in --out are not repeated"
        raise failed(Exit.FAILED, what, f"workload {setup.name}", remedy) from None
    except OSError as error:
        raise unwritable(error, out) from None


def progress() -> Progress:
    """Return a progress bar on stderr, visible only on a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )


def keep(
    out: Path,
    setup: Setup,
    contenders: Sequence[Contender],
    runs: Sequence[Run],
    summary: Mapping[str, Mapping[str, Interval]],
    document: object,
    *,
    parquet: bool = False,
) -> None:
    """Write the bundle; without matplotlib all but the figures, with a note."""
    text = to_json(document, indent=2) + "\n"
    try:
        bundle.write(out, setup, contenders, runs, summary, text, parquet=parquet)
    except NoMatplotlib as error:
        note(str(error))
    except OSError as error:
        raise unwritable(error, out) from None


def check_parquet(parquet: bool, out: Path | None) -> None:
    """Check that Parquet can be written, before any replay. Raises CliError."""
    if not parquet:
        return
    if out is None:
        what = "--parquet writes jobs and events into the folder of --out"
        raise failed(Exit.USAGE, what, "--parquet", "add --out FOLDER")
    try:
        pyarrow()
    except NoPyarrow as error:
        raise failed(Exit.USAGE, str(error), "--parquet") from None


def about(setup: Setup, seeds: Sequence[int] = ()) -> str:
    """Return the inputs of a replay in a line."""
    text = f"workload {setup.name} on {setup.cluster.text}, costs {setup.costs.name}"
    if seeds:
        text += f", {over(len(seeds))}"
    return text
