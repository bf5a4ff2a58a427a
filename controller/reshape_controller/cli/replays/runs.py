"""Sweeps with a progress bar, and their bundles."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.output import console, note
from reshape_controller.cli.replays import inputs
from reshape_controller.cli.replays.folder import unwritable
from reshape_controller.http.json_text import to_json
from reshape_controller.replay import bundle
from reshape_controller.replay.figures import NoMatplotlib
from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.rows import Interval, over
from reshape_controller.replay.setup import Contender, Setup
from reshape_controller.replay.sweep import Run, sweep


def swept(
    setup: Setup,
    contenders: Sequence[Contender],
    seeds: Sequence[int],
    out: Path | None,
    workers: int,
) -> list[Run]:
    """Run a sweep, with a progress bar on a terminal. Raises CliError."""
    bar, total = progress(), len(contenders) * len(seeds)
    task = bar.add_task(f"workload {setup.name}", total=total)
    count = 0

    def done(run: Run) -> None:
        nonlocal count
        count += 1
        bar.advance(task)

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
) -> None:
    """Write the bundle; without matplotlib all but the figures, with a note."""
    try:
        bundle.write(out, setup, contenders, runs, summary, to_json(document, indent=2) + "\n")
    except NoMatplotlib as error:
        note(str(error))
    except OSError as error:
        raise unwritable(error, out) from None


def about(setup: Setup, seeds: Sequence[int] = ()) -> str:
    """Return the inputs of a replay in a line."""
    text = f"workload {setup.name} on {setup.cluster.text}, costs {setup.costs.name}"
    if seeds:
        text += f", {over(len(seeds))}"
    return text
