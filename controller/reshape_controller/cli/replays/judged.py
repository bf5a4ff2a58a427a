"""The output of ``replay --hindsight``: the cost of each reshape of a replay."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from reshape_controller.cli.output import Output, emit, grid
from reshape_controller.cli.replays.inputs import replay_failed
from reshape_controller.cli.replays.runs import about, progress
from reshape_controller.core.explanation import describe, explain_text
from reshape_controller.core.plan import Option
from reshape_controller.replay.hindsight import JudgedReshape, judge
from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.setup import Contender, Setup

SHOWN_MAX = 3
"""Number of decisions at each end that are shown in full."""


@dataclass(frozen=True, slots=True)
class ReshapeRow:
    """A reshape; its costs are seconds against a replay without it, negative for a gain."""

    at_s: float
    what: str
    reason_code: str
    text: str
    makespan_costs_s: float
    mean_jct_costs_s: float


@dataclass(frozen=True, slots=True)
class Hindsight:
    """The output of ``replay --hindsight``."""

    workload: str
    policy: str
    seed: int
    makespan_s: float
    mean_jct_s: float
    reshapes: list[ReshapeRow]


def show(setup: Setup, chosen: Contender, seed: int, shown: Output) -> None:
    """Judge every reshape of a replay and print them. Raises CliError."""
    scene = setup.scene(seed)
    try:
        with progress() as bar:
            task = bar.add_task("reshapes", total=None)
            whole, judged = judge(
                scene,
                chosen.policy,
                chosen.mechanism,
                seed,
                done=lambda count: bar.update(task, total=count, advance=1),
            )
    except ReplayError as error:
        raise replay_failed(error) from None
    found = Hindsight(
        setup.name,
        chosen.label,
        seed,
        whole.metrics.makespan_s,
        whole.metrics.mean_jct_s,
        [_line(one) for one in judged],
    )
    emit(found, shown, lambda: _table(found, judged, about(setup)))


def _line(one: JudgedReshape) -> ReshapeRow:
    plan = one.decided.plan
    return ReshapeRow(
        one.decided.at_s,
        describe(Option(plan.targets), str),
        plan.reason_code,
        plan.text,
        one.makespan_s,
        one.mean_jct_s,
    )


def _table(found: Hindsight, judged: list[JudgedReshape], text: str) -> RenderableType:
    right = ("AT", "MAKESPAN", "MEAN JCT")
    table = grid("AT", "RESHAPE", *right[1:], right=right, rest="RESHAPE")
    for line in found.reshapes:
        costs = (f"{line.makespan_costs_s:+,.0f}", f"{line.mean_jct_costs_s:+,.0f}")
        table.add_row(f"{line.at_s:,.0f}", line.what, *costs)
    if not found.reshapes:
        return Text(f"{text}, {found.policy}, seed {found.seed}: no job was reshaped")
    head = f"{text}, {found.policy}, seed {found.seed}: seconds gained or lost by each reshape"
    texts = []
    for one in judged[:SHOWN_MAX]:
        if one.makespan_s > 0.0:
            at = f"{one.decided.at_s:,.0f} s"
            texts += ["", explain_text(one.decided.plan, at=at, policy=found.policy, names={})]
    return Group(Text(head, style="bold"), table, *(Text(part) for part in texts))
