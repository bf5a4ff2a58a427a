"""The command experiment: the experiments of other papers, printed figures beside ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.options import form, options_from
from reshape_controller.cli.output import emit, grid, note
from reshape_controller.cli.replays import dragon_runs, ffdl_runs, inputs
from reshape_controller.cli.replays.dragon_runs import Approach
from reshape_controller.cli.replays.folder import locked_folder, unwritable
from reshape_controller.cli.replays.options import CostsOption, OutOption
from reshape_controller.cli.replays.runs import progress
from reshape_controller.http.json_text import to_json
from reshape_controller.replay import dragon
from reshape_controller.replay.dragon_figures import scenarios_figure
from reshape_controller.replay.figures import NoMatplotlib
from reshape_controller.replay.inputs import Costs, ReplayError, cluster_of
from reshape_controller.replay.rows import Interval, interval, over
from reshape_controller.replay.shell import Result
from reshape_gpu.config import Config

NAMES = ("dragon", "ffdl")
DRAWS = {"dragon": "30", "ffdl": "20"}
"""Default of ``--seeds``."""
DAYS, DAYS_MAX = 4.0, 60.0


@dataclass(frozen=True, slots=True)
class ScenarioRow:
    """A scenario; times are makespans in seconds, ratios are gains over fixed sizes."""

    scenario: int
    slots: str
    fixed_s: float
    dragon_s: float
    weighted_s: float
    weighted_reshapes: int
    gain_ratio: float
    printed_gain_ratio: float


@dataclass(frozen=True, slots=True)
class WeightingRow:
    """Scenario 4: gains of makespan by weights, over draws of the lengths, and as printed."""

    scenario: int
    slots: str
    seeds: int
    unweighted_s: Interval
    weighted_s: Interval
    gain_ratio: Interval
    printed_gain_ratio: float
    printed_runs_gain_ratio: float
    """The mean gain of the printed runs, computed from their times."""


@dataclass(frozen=True, slots=True)
class DragonExperiment:
    """The output of ``experiment dragon``. ``accuracy``: scenario 5, printed means in per cent."""

    experiment: str
    costs: str
    scenarios: list[ScenarioRow]
    weighting: WeightingRow
    accuracy: dict[str, float]
    contradictions: list[str]


@options_from("output")
def experiment(
    config: Config,
    *,
    name: Annotated[str, typer.Argument(metavar="dragon|ffdl", help="Name of the experiment.")],
    costs: CostsOption = "local",
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="3*8xvCPU",
            help="Nodes of dragon; default: one with all the vCPUs that workers can fill.",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="30|5-9|1,4",
            help="Draws of dragon's lengths (default 30), or of the order of ffdl's pods (20).",
        ),
    ] = None,
    days: Annotated[
        float, typer.Option(metavar="4", help="Days of arrivals of ffdl, 0.1 to 60.")
    ] = DAYS,
    out: OutOption = None,
) -> None:
    """Replay the experiment of another paper, and show its printed figures beside ours."""
    if name not in NAMES:
        what = f"unknown experiment {name!r}"
        raise failed(Exit.USAGE, what, "experiment", f"use one of {', '.join(NAMES)}")
    draws = inputs.seeds_of(seeds or DRAWS[name])
    if name == "ffdl":
        _run_ffdl(config, draws, days, cluster, out)
        return
    chosen = inputs.costs_of(inputs.profiles_of(None), costs)
    try:
        if cluster is not None:
            cluster_of(cluster)
    except ReplayError as error:
        raise failed(Exit.USAGE, str(error), f"--cluster {cluster}") from None
    with locked_folder(out, costs):
        try:
            found = _dragon(chosen, cluster, draws)
        except ReplayError as error:
            raise inputs.replay_failed(error) from None
        if out is not None:
            _keep(out, found)
    emit(found, form(config), lambda: _table(found))


def _run_ffdl(
    config: Config, seeds: tuple[int, ...], days: float, cluster: str | None, out: Path | None
) -> None:
    if cluster is not None:
        what, remedy = "experiment ffdl has hosts of its own", "leave --cluster out"
        raise failed(Exit.USAGE, what, f"--cluster {cluster}", remedy)
    if not 0.1 <= days <= DAYS_MAX:
        what, remedy = "not a number of days from 0.1 to 60", "give for example --days 4"
        raise failed(Exit.USAGE, what, f"--days {days:g}", remedy)
    with locked_folder(out):
        try:
            found = ffdl_runs.run(seeds, days)
        except ReplayError as error:
            raise inputs.replay_failed(error) from None
        if out is not None:
            try:
                text = to_json(found, indent=2) + "\n"
                (out / "experiment.json").write_text(text, encoding="utf-8")
            except OSError as error:
                raise unwritable(error, out) from None
    emit(found, form(config), lambda: ffdl_runs.table(found))


def _dragon(costs: Costs, cluster: str | None, seeds: tuple[int, ...]) -> DragonExperiment:
    def run(scenario: dragon.Scenario, approach: Approach, seed: int | None = None) -> Result:
        return dragon_runs.run(scenario, approach, costs, cluster=cluster, seed=seed)

    lines = [_scenario(each, cluster, run) for each in dragon.SCENARIOS]
    without, weighted = [], []
    with progress() as bar:
        for seed in bar.track(seeds, description="scenario 4"):
            without.append(run(dragon.WEIGHTING, Approach.UNWEIGHTED, seed).metrics.makespan_s)
            weighted.append(run(dragon.WEIGHTING, Approach.WEIGHTED, seed).metrics.makespan_s)
    weighting = WeightingRow(
        dragon.WEIGHTING.number,
        cluster or f"{dragon.WEIGHTING.slots}x{dragon.CPU}",
        len(seeds),
        interval(without),
        interval(weighted),
        interval([1.0 - new / old for new, old in zip(weighted, without, strict=True)]),
        dragon.PRINTED_MEAN_RATIO,
        fmean(each.ratio for each in dragon.PRINTED_RUNS),
    )
    accuracy = {label: fmean(each) for label, each in dragon.PRINTED_ACCURACY.items()}
    contradictions = list(dragon.CONTRADICTIONS)
    return DragonExperiment("dragon", costs.name, lines, weighting, accuracy, contradictions)


def _scenario(
    scenario: dragon.Scenario,
    cluster: str | None,
    run: Callable[[dragon.Scenario, Approach], Result],
) -> ScenarioRow:
    found = {
        approach: run(scenario, approach)
        for approach in (Approach.FIXED, Approach.DRAGON, Approach.WEIGHTED)
    }
    fixed_s, dragon_s, weighted_s = (each.metrics.makespan_s for each in found.values())
    return ScenarioRow(
        scenario.number,
        cluster or f"{scenario.slots}x{dragon.CPU}",
        fixed_s,
        dragon_s,
        weighted_s,
        len(found[Approach.WEIGHTED].reshapes),
        1.0 - weighted_s / fixed_s,
        dragon.PRINTED_GAIN[scenario.number],
    )


def _keep(out: Path, found: DragonExperiment) -> None:
    """Write the document and the figure; without matplotlib the document alone, with a note."""
    times: dict[str, dict[str, float]] = {
        f"scenario {row.scenario}": {
            Approach.FIXED: row.fixed_s,
            Approach.DRAGON: row.dragon_s,
            Approach.WEIGHTED: row.weighted_s,
        }
        for row in found.scenarios
    }
    try:
        (out / "experiment.json").write_text(to_json(found, indent=2) + "\n", encoding="utf-8")
        scenarios_figure(out / "figures" / "scenarios", times)
    except NoMatplotlib as error:
        note(str(error))
    except OSError as error:
        raise unwritable(error, out) from None


def _table(found: DragonExperiment) -> RenderableType:
    times = ("FIXED", "DRAGON", "WEIGHTED")
    gains = ("GAIN", "PRINTED")
    table = grid("SCENARIO", "SLOTS", *times, *gains, right=(*times, *gains))
    for row in found.scenarios:
        seconds = [f"{each:,.0f} s" for each in (row.fixed_s, row.dragon_s, row.weighted_s)]
        gain = f"{100 * row.gain_ratio:.1f} %", f"{100 * row.printed_gain_ratio:.2f} %"
        table.add_row(str(row.scenario), row.slots, *seconds, *gain)
    four = found.weighting
    saved = four.gain_ratio
    ratios = [f"{100 * each:.1f}" for each in (saved.median, saved.low, saved.high)]
    texts = [
        f"Scenario 4, {four.slots}, {over(four.seeds)}: {four.unweighted_s.median:,.0f} s without "
        f"weights, {four.weighted_s.median:,.0f} s with them; gain {ratios[0]} % ({ratios[1]} to "
        f"{ratios[2]}), printed {100 * four.printed_gain_ratio:.2f} %.",
        "Scenario 5, printed accuracy: "
        + ", ".join(f"{label} {each:.1f} %" for label, each in found.accuracy.items())
        + ". Not replayed: here a job takes the same steps on any number of GPUs.",
        "The paper's own figures:",
        *(f"- {text}" for text in found.contradictions),
    ]
    head = f"makespans, all jobs at 0 s, costs {found.costs}; gain: weighted over fixed"
    return Group(Text(head, style="bold"), table, *(Text(text) for text in texts))
