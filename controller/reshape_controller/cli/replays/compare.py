"""The command compare: policies over seeds, or two bundles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.options import form, options_from
from reshape_controller.cli.output import Output, emit, note
from reshape_controller.cli.replays import inputs, sensitivity, tables
from reshape_controller.cli.replays.folder import locked_folder, unwritable
from reshape_controller.cli.replays.options import (
    OutOption,
    ParquetOption,
    SceneOptions,
    given,
    workload_of,
)
from reshape_controller.cli.replays.runs import about, check_parquet, keep, run_sweep
from reshape_controller.replay import figures, report
from reshape_controller.replay.bundle import clear, completion_times
from reshape_controller.replay.difference import difference
from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.paper import WORKLOADS
from reshape_controller.replay.rows import Interval, Row, savings, summary
from reshape_controller.replay.setup import Contender, Setup
from reshape_controller.replay.sweep import Run, workers_for
from reshape_gpu.config import Config

POLICIES = "adaptive,paper,termination,default,adaptive+terminate,optimus+sidecar"
SAVINGS = (
    ("adaptive", "default"),
    ("adaptive", "termination"),
    ("adaptive", "paper"),
    ("adaptive", "adaptive+terminate"),
    ("adaptive", "optimus+sidecar"),
    ("paper", "default"),
    ("paper", "termination"),
)
"""Pairs of policies in tables if both were replayed. Others are compared with the first."""
SAVED_METRICS = ("makespan_s", "mean_jct_s", "mean_wait_s")
ALL = "all"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The output of ``compare`` for a workload."""

    workload: str
    costs: str
    rows: list[Row]
    summary: dict[str, dict[str, Interval]]
    cluster: str = ""
    savings: list[dict[str, object]] = field(default_factory=list)
    load: float = 1.0


@dataclass(frozen=True, slots=True)
class Comparisons:
    """The output of ``compare`` for several workloads or loads."""

    workload: str
    costs: str
    workloads: list[Comparison]


@options_from("output")
def compare(
    config: Config,
    context: typer.Context,
    *,
    bundles: Annotated[
        list[Path] | None, typer.Argument(metavar="[A B]", help="Two result folders (--out).")
    ] = None,
    workloads: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            "-w",
            metavar="one|two|three|four|all|FILE",
            help="Workload to replay; default: one.",
        ),
    ] = None,
    policies: Annotated[
        str, typer.Option(metavar="A,B", help="Presets or POLICY+MECHANISM, separated by commas.")
    ] = POLICIES,
    seeds: Annotated[
        str, typer.Option(metavar="30|5-9|1,4", help="Number of seeds, or a list.")
    ] = ("30"),
    load: Annotated[
        str, typer.Option(metavar="0.8,1.3", help="How many times as fast jobs arrive.")
    ] = "1",
    scene: SceneOptions,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes; default: all cores.")
    ] = None,
    assumptions: Annotated[
        bool,
        typer.Option("--sensitivity", help="Repeat with each assumed cost 25 % lower, higher."),
    ] = False,
    out: OutOption = None,
    parquet: ParquetOption = False,
) -> None:
    """Compare policies over seeds, or two result folders. Shows medians with 95 % intervals."""
    shown = form(config)
    if bundles:
        for name, flag in given(context).items():
            if name != "output":
                what = (
                    f"{flag} cannot be used with two result folders: they are compared as they are"
                )
                remedy = f"leave out {flag}, or the folders"
                raise failed(Exit.USAGE, what, flag, remedy)
        _compare_bundles(bundles, shown)
        return
    workload = workload_of(workloads, f"--workload {ALL}, or a command for each")
    labels = inputs.labels_of(policies)
    contenders = [inputs.contender(label, "--policies") for label in labels]
    if len(set(labels)) < len(labels):
        raise failed(Exit.USAGE, "--policies names a policy twice", f"--policies {policies}")
    chosen, loads = inputs.seeds_of(seeds), inputs.loads_of(load)
    request = inputs.ReplayRequest(workload, **asdict(scene), load=loads[0])
    check_parquet(parquet, out)
    if assumptions:
        _check_sensitivity(len(contenders), workload == ALL or len(loads) > 1)
        setup = sensitivity.variable(inputs.setup_of(request))
        with locked_folder(out, *request.files):
            sensitivity.show(setup, contenders, chosen, workers_for(workers), out, shown)
    else:
        with locked_folder(out, *request.files):
            names = WORKLOADS if workload == ALL else (workload,)
            requests = [replace(request, workload=name, load=x) for name in names for x in loads]
            _compare_policies(
                requests, contenders, chosen, workers_for(workers), out, parquet, shown
            )


def _check_sensitivity(policies: int, several: bool) -> None:
    """Check that a single comparison of policies is varied. Raises CliError."""
    if policies < 2 or several:
        what = "--sensitivity compares the first policy with the others on one workload"
        remedy = "give two or more --policies"
        if several:
            remedy = "give one --workload, and one --load"
        raise failed(Exit.USAGE, what, "--sensitivity", remedy)


def _compare_policies(
    requests: Sequence[inputs.ReplayRequest],
    contenders: Sequence[Contender],
    seeds: Sequence[int],
    workers: int,
    out: Path | None,
    parquet: bool,
    shown: Output,
) -> None:
    found: list[tuple[Setup, list[Run], Comparison]] = []
    for request in requests:
        setup = inputs.setup_of(request)
        folder = out / setup.name if out is not None and len(requests) > 1 else out
        runs = run_sweep(setup, contenders, seeds, folder, workers)
        one = _comparison(setup, runs)
        if folder is not None:
            keep(folder, setup, contenders, runs, one.summary, one, parquet=parquet)
        found.append((setup, runs, one))
    if out is not None:
        _keep_report(out, found)
    names = {setup.base: None for setup, _, _ in found}
    named = ALL if len(names) > 1 else next(iter(names))
    many = Comparisons(named, found[0][2].costs, [one for _, _, one in found])
    document: Comparison | Comparisons = many if len(found) > 1 else many.workloads[0]
    drawn = [
        tables.many(one.summary, saved_pairs(one.rows), about(setup, seeds), len(seeds))
        for setup, _, one in found
    ]
    emit(document, shown, lambda: Group(*drawn))


def saved_pairs(rows: Sequence[Row]) -> list[tuple[str, str, dict[str, Interval]]]:
    """Return the savings of each pair that was replayed."""
    first, *others = dict.fromkeys(str(row["policy"]) for row in rows)
    pairs = [pair for pair in SAVINGS if {*pair} <= {first, *others}]
    paired = {name for pair in pairs for name in pair}
    pairs += [(first, other) for other in others if first not in paired or other not in paired]
    return [(ours, other, savings(rows, ours, other, SAVED_METRICS)) for ours, other in pairs]


def _comparison(setup: Setup, runs: Sequence[Run]) -> Comparison:
    rows = [run.row for run in runs]
    saved = saved_pairs(rows)
    return Comparison(
        setup.name,
        setup.costs.name,
        rows,
        summary(rows),
        setup.cluster.text,
        [{"policy": ours, "than": other, **metrics} for ours, other, metrics in saved],
        setup.load,
    )


def _keep_report(out: Path, found: Sequence[tuple[Setup, list[Run], Comparison]]) -> None:
    """Write the report of all workloads, with Figures 6 and 9 and Table VIII over all of them."""
    rows = {setup.name: one.rows for setup, _, one in found}
    summaries = {setup.name: one.summary for setup, _, one in found}
    text = report.report([setup for setup, _, _ in found], rows, summaries)
    head, lines = report.table_8(summaries)
    pictures = out / "figures"
    try:
        if len(found) > 1:
            clear(out)  # of a single workload
        (out / "report.md").write_text(text, encoding="utf-8")
        figures.table_8(pictures / "table-08", lines, head)
        if len(found) > 1:
            figures.figure_6(pictures / "figure-06", summaries)
            times = {setup.name: completion_times(runs) for setup, runs, _ in found[:2]}
            figures.figure_9(pictures / "figure-09", times)
        if len({setup.load for setup, _, _ in found}) > 1:
            by_load: dict[str, dict[float, report.Summary]] = {}
            for setup, _, one in found:
                by_load.setdefault(setup.base, {})[setup.load] = one.summary
            figures.loads(pictures / "loads", by_load)
    except figures.NoMatplotlib as error:
        note(str(error))
    except OSError as error:
        raise unwritable(error, out) from None


def _compare_bundles(bundles: Sequence[Path], shown: Output) -> None:
    if len(bundles) != 2:
        what = "1 folder is given" if len(bundles) == 1 else f"{len(bundles)} folders are given"
        raise failed(Exit.USAGE, what, "compare", "give two result folders, or none")
    try:
        found = difference(bundles[0], bundles[1])
    except ReplayError as error:
        raise failed(Exit.NOT_FOUND, str(error)) from None
    emit(found, shown, lambda: tables.differences(found))
