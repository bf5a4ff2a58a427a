"""The demo: two real TensorFlow jobs share four simulated GPUs, once under each preset.

    python examples/demo/demo.py [--out out/demo] [--presets all] [--preset NAME]... [--costs paper]
                                 [--repeats N] [--overlap off] [--standby off]
                                 [--store mongodb://HOST:PORT]

Does what a user would do: starts a daemon on a fresh home, submits Job 1, then Job 2, and looks at
both until they have ended; then the next preset. Prints what happens, then who had which GPU when
and the figures of every preset; writes summary.json. Exits with 1 when something that Reshape
promises did not hold, or when the machine was too slow for the paced steps.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from figures import ALL_PRESETS, draw_all
from observed import Run
from rich.console import Console
from run import Server, clear, run, server_of
from scenario import (
    COMPARED,
    COST_SET,
    GPUS,
    PIPE_COLUMNS,
    PRESETS,
    SETS,
    Costs,
    Preset,
    assumed,
    measured,
)
from summary import summarize
from tables import comparison, is_kept, kept, order
from watch import RunFailed

from reshape_controller.cli.exits import code_of
from reshape_controller.cli.timeline import gantt
from reshape_gpu.errors import ClientError

INTERRUPTED = 130
"""The exit code that shells give a program that Ctrl-C ended."""
LATE_REMEDY = (
    "more than 5 % of the steps came late: this machine was too busy for the pace of the simulated "
    "GPUs, and the figures are not valid. Close what else is running, or raise the seconds in "
    "examples/demo/device_truth.json and profile.toml, and run it again."
)


def main() -> int:
    """Run the demo; the exit code."""
    options = _options()
    # Ctrl-C and a kill alike end the jobs and the daemon of the run first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else PIPE_COLUMNS
    console = Console(width=width, highlight=False)
    try:
        server = server_of(options.store)
    except ClientError as error:
        print(error.text(), file=sys.stderr)
        return int(code_of(error))
    clear(options.out)
    names = options.preset or SETS[options.presets]
    starts = ("--standby", options.standby, "--overlap", options.overlap)
    presets = [replace(p, flags=(*p.flags, *starts)) for p in PRESETS if p.name in names]
    console.print(
        f"[bold]Reshape demo[/bold]: two real TensorFlow jobs on {GPUS} simulated GPUs of this "
        f"host, under {len(presets)} preset{'s' if len(presets) > 1 else ''}.\n"
        "Job 1 may run on 1, 2 or 4 GPUs. Job 2 comes later and wants 2. Their steps are paced by "
        "examples/demo/device_truth.json; all else takes what it takes.\n"
    )
    sets = [measured()] if options.costs is None else [measured(), assumed()]
    runs: dict[str, dict[str, list[Run]]] = {}
    try:
        for costs in sets:
            runs[costs.label] = _all_runs(presets, costs, options, server, console)
    except ClientError as error:
        print(error.text(), file=sys.stderr)
        return int(code_of(error))
    except RunFailed as error:
        console.print(f"[bold]failed[/bold]: {error}; logs are in {options.out}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print(f"[bold]stopped[/bold]; its jobs are cancelled, logs are in {options.out}")
        return INTERRUPTED
    summary = summarize(runs, {costs.label: costs.said for costs in sets})
    (options.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    first = {label: {name: r[0] for name, r in found.items()} for label, found in runs.items()}
    pictures = draw_all(first, summary, options.out)
    _show(console, runs, summary)
    console.print(f"\npicture: {_png(pictures)}", soft_wrap=True)
    console.print(f"all {len(pictures)} pictures, as .svg and .png: {options.out / 'figures'}")
    console.print(f"every figure: {options.out / 'summary.json'}; logs and checkpoints beside it")
    if any(options.out.glob("**/store.sqlite")):  # a store on a server stays there
        console.print(f"[bold]open the page of this result[/bold]: {_show_command(options.out)}")
    if not summary["valid"]:
        console.print(f"[bold]invalid[/bold]: {LATE_REMEDY}", soft_wrap=True)
    return 0 if summary["valid"] and is_kept(summary) else 1


def _show_command(out: Path) -> str:
    """The command that opens the page of the runs in ``out``."""
    command = Path(sys.executable).with_name("reshape")
    with contextlib.suppress(ValueError):
        command = command.relative_to(Path.cwd())
    return f"{command} show {out}"


def _png(pictures: list[Path]) -> Path:
    """The picture with all presets where there is one; else the first."""
    found = [path for path in pictures if path.stem == ALL_PRESETS] or pictures
    return found[0].with_suffix(".png")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Two real TensorFlow jobs on four simulated GPUs, under each preset."
    )
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="emptied first")
    parser.add_argument(
        "--presets",
        choices=list(SETS),
        default="compared",
        help=f"compared (the default): {' and '.join(COMPARED)}; all: every preset",
    )
    parser.add_argument(
        "--preset",
        action="append",
        choices=[preset.name for preset in PRESETS],
        help="only this preset; may be repeated",
    )
    parser.add_argument(
        "--costs",
        choices=[COST_SET],
        help="then run all again with these declared costs of containers",
    )
    parser.add_argument(
        "--store",
        metavar="mongodb://HOST:PORT",
        help="keep all on this server; each run makes a database of its own there, which stays",
    )
    parser.add_argument("--repeats", type=_count, default=1, help="runs of each preset")
    parser.add_argument(
        "--overlap",
        choices=("auto", "off"),
        default="auto",
        help="off: the next process is not prepared while the one before trains",
    )
    parser.add_argument(
        "--standby",
        choices=("auto", "off"),
        default="auto",
        help="off: no process starts from one that has imported TensorFlow",
    )
    return parser.parse_args()


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _all_runs(
    presets: list[Preset],
    costs: Costs,
    options: argparse.Namespace,
    server: Server,
    console: Console,
) -> dict[str, list[Run]]:
    """Each preset in turn, then all of them again: a slow moment does not meet one alone."""
    found: dict[str, list[Run]] = {preset.name: [] for preset in presets}
    order = [(repeat, preset) for repeat in range(1, options.repeats + 1) for preset in presets]
    total = len(order)
    for number, (repeat, preset) in enumerate(order, 1):
        console.rule(f"{number} of {total}: {preset.name} ({costs.label} costs)", align="left")
        console.print(preset.text)
        folder = options.out / costs.label / preset.name
        folder = folder / str(repeat) if options.repeats > 1 else folder
        coming = "the same with assumed costs" if options.costs else "the table and the pictures"
        if number < total:
            coming = f"the run of {order[number][1].name}"
        begin_s = time.monotonic()
        found[preset.name].append(run(preset, costs, folder, server, console, coming))
        console.print(f"took {time.monotonic() - begin_s:.0f} s\n")
    return found


def _show(console: Console, runs: dict[str, dict[str, list[Run]]], summary: Any) -> None:
    unicode = "utf" in (sys.stdout.encoding or "").lower()
    for label, presets in runs.items():
        for name, repeats in presets.items():
            console.rule(f"{name} ({label} costs)", align="left")
            console.print(gantt.draw(repeats[0].timeline, console.width, unicode=unicode))
            console.print()
    for label, costs in summary["costs"].items():
        console.rule()
        console.print(comparison(label, costs))
        console.print()
        console.print(order(costs), soft_wrap=True)
        console.print()
    console.print(kept(summary))


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.exit(main())
