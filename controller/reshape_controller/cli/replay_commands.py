"""The commands replay and compare: workloads in virtual time. Ask no daemon. State: none."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from reshape_controller.cli import replay_inputs as inputs
from reshape_controller.cli import replay_tables as tables
from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.options import OutputOption, form, settings
from reshape_controller.cli.output import console, emit
from reshape_controller.core.errors import PlanRejected
from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.rows import Interval, Row, savings, summary
from reshape_controller.replay.setup import Contender, Setup
from reshape_controller.replay.sweep import Run, sweep, workers_for

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
"""Pairs that are shown, where both were replayed."""
SAVED_METRICS = ("makespan_s", "mean_jct_s", "mean_wait_s")

WorkloadOption = Annotated[
    str, typer.Option("--workload", "-w", metavar="one|two|three|four|FILE", help="What to replay.")
]
ClusterOption = Annotated[
    str | None, typer.Option(metavar="8xV100+8xP100", help="Hosts; default: the workload's own.")
]
CostsOption = Annotated[str, typer.Option(metavar="SET", help="Costs of starts, saves and stops.")]
ProfilesOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Profiles over the bundled ones.")
]
SizesOption = Annotated[
    str | None, typer.Option(metavar="1,2,4,8", help="Optional numbers of GPUs of generated jobs.")
]
JobsOption = Annotated[int | None, typer.Option(min=1, help="So many generated jobs.")]
LastOption = Annotated[
    float | None,
    typer.Option("--last", metavar="SECONDS", help="When the last generated job comes."),
]
SpreadOption = Annotated[
    float | None,
    typer.Option(min=0.0, max=0.9, help="Real speeds lie so far around the profiles."),
]
TruthOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Device truth that the world follows.")
]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FOLDER", help="Keep everything there; resumes.")
]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What ``compare`` prints."""

    workload: str
    costs: str
    rows: list[Row]
    summary: dict[str, dict[str, Interval]]
    cluster: str = ""
    savings: list[dict[str, object]] = field(default_factory=list)


def replay(
    workload: WorkloadOption = "one",
    policy: Annotated[str, typer.Option("--policy", "-p", help="Preset, or POLICY+MECHANISM.")] = (
        "adaptive"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Of arrivals, job types and real speeds.")] = 0,
    cluster: ClusterOption = None,
    costs: CostsOption = "paper",
    profiles: ProfilesOption = None,
    sizes: SizesOption = None,
    jobs: JobsOption = None,
    last_s: LastOption = None,
    spread: SpreadOption = None,
    device_truth: TruthOption = None,
    output: OutputOption = None,
) -> None:
    """Replay a workload under a policy in virtual time, on the engine that also runs live."""
    config = settings(None, output)
    chosen = inputs.contender(policy)
    setup = inputs.setup_of(
        workload=workload,
        cluster=cluster,
        costs=costs,
        profiles=profiles,
        sizes=sizes,
        jobs=jobs,
        last_s=last_s,
        spread=spread,
        device_truth=device_truth,
    )
    (run,) = _swept(setup, (chosen,), (seed,), None, 1)
    row: Row = {"workload": setup.name, "cluster": setup.cluster.text, "costs": costs, **run.row}
    emit(row, form(config), lambda: tables.one(run.row, _about(setup)))


def compare(
    workload: WorkloadOption = "one",
    policies: Annotated[str, typer.Option(help="Presets or POLICY+MECHANISM, with commas.")] = (
        POLICIES
    ),
    seeds: Annotated[str, typer.Option(metavar="30|5-9|1,4", help="How many, or which.")] = "30",
    cluster: ClusterOption = None,
    costs: CostsOption = "paper",
    profiles: ProfilesOption = None,
    sizes: SizesOption = None,
    jobs: JobsOption = None,
    last_s: LastOption = None,
    spread: SpreadOption = None,
    device_truth: TruthOption = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; default: all cores.")
    ] = None,
    out: OutOption = None,
    output: OutputOption = None,
) -> None:
    """Compare policies over seeds: medians with 95 % intervals."""
    config = settings(None, output)
    contenders = [inputs.contender(label.strip()) for label in policies.split(",")]
    if len({chosen.label for chosen in contenders}) < len(contenders):
        raise failed(Exit.USAGE, "a policy is named twice", f"--policies {policies}")
    setup = inputs.setup_of(
        workload=workload,
        cluster=cluster,
        costs=costs,
        profiles=profiles,
        sizes=sizes,
        jobs=jobs,
        last_s=last_s,
        spread=spread,
        device_truth=device_truth,
    )
    chosen_seeds = inputs.seeds_of(seeds)
    runs = _swept(setup, contenders, chosen_seeds, out, workers_for(workers))
    rows = [run.row for run in runs]
    found = summary(rows)
    saved = saved_pairs(rows)
    document = Comparison(
        setup.name,
        costs,
        rows,
        found,
        setup.cluster.text,
        [{"policy": ours, "than": other, **metrics} for ours, other, metrics in saved],
    )
    emit(
        document,
        form(config),
        lambda: tables.many(found, saved, _about(setup, chosen_seeds), len(chosen_seeds)),
    )


def saved_pairs(rows: Sequence[Row]) -> list[tuple[str, str, dict[str, Interval]]]:
    """Who saves how much against whom, of the pairs that were replayed."""
    labels = {str(row["policy"]) for row in rows}
    return [
        (ours, other, savings(rows, ours, other, SAVED_METRICS))
        for ours, other in SAVINGS
        if ours in labels and other in labels
    ]


def _swept(
    setup: Setup,
    contenders: Sequence[Contender],
    seeds: Sequence[int],
    out: Path | None,
    workers: int,
) -> list[Run]:
    """Replay, with a progress bar on a terminal."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    try:
        with bar:
            task = bar.add_task(f"workload {setup.name}", total=len(contenders) * len(seeds))
            return sweep(
                setup,
                contenders,
                seeds,
                folder=out,
                workers=workers,
                done=lambda run: bar.advance(task),
            )
    except ReplayError as error:
        raise inputs.as_usage(error) from None
    except PlanRejected as error:
        raise failed(Exit.FAILED, f"a plan was rejected: {error}", "the policy") from None
    except OSError as error:
        raise failed(
            Exit.USAGE, f"{error.filename}: {error.strerror}", "--out", "name a folder to write to"
        ) from None


def _about(setup: Setup, seeds: Sequence[int] = ()) -> str:
    text = f"workload {setup.name} on {setup.cluster.text}, costs {setup.costs.name}"
    if len(seeds) > 1:
        text += f", medians over {len(seeds)} seeds with 95 % intervals"
    return text
