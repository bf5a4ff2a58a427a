"""Why a job has the GPUs that it has: the decisions about it, with what was weighed. Pure."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from reshape_controller.cli.output import grid
from reshape_controller.cli.words import clock, duration
from reshape_controller.core.plan import Option, Plan
from reshape_controller.http.views import JobView
from reshape_controller.store.protocol import Decision

OPTIONS_MAX = 12


def explain(job: JobView, decisions: tuple[Decision, ...], *, every: bool) -> RenderableType:
    """The newest decision in full (all of them with ``every``), the earlier ones in a line each."""
    parts: list[RenderableType] = [
        Text.assemble((job.id, "bold"), f"  {job.state}: {job.reason or 'nothing is pending'}")
    ]
    if not decisions:
        parts += [Text(), Text("no decision about it was made yet")]
        return Group(*parts)
    full = decisions if every else decisions[-1:]
    earlier = decisions[: len(decisions) - len(full)]
    if earlier:
        parts += [Text(), Text("earlier decisions (UTC)", "bold"), _lines(earlier)]
    for decision in full:
        parts += [Text(), *_full(decision)]
    return Group(*parts)


def _lines(decisions: tuple[Decision, ...]) -> Table:
    table = grid("AT", "CODE", "WHAT", rest="WHAT")
    table.show_header = False
    for decision in decisions:
        plan = decision.plan
        table.add_row(f"  {clock(decision.at_s)}", plan.reason_code, Text(plan.text, "dim"))
    return table


def _full(decision: Decision) -> list[RenderableType]:
    plan = decision.plan
    head = Text.assemble(
        (f"{clock(decision.at_s)} UTC", "bold"),
        f"  {plan.text or 'nothing was changed'}",
        (f"  ({plan.reason_code}; policy {decision.policy}, record {decision.seq})", "dim"),
    )
    parts: list[RenderableType] = [head]
    if plan.options:
        parts.append(_options(plan))
    weighed = max(plan.weighed, len(plan.options))
    if weighed > min(len(plan.options), OPTIONS_MAX):
        parts.append(Text(f"  {weighed} options were weighed; the best are shown", "dim"))
    return parts


def _options(plan: Plan) -> Table:
    table = grid(
        "", "OPTION", "MAKESPAN", "SUM", "WHY NOT", right=("MAKESPAN", "SUM"), rest="WHY NOT"
    )
    for number in _order(plan):
        option = plan.options[number]
        chosen = number == plan.chosen
        table.add_row(
            "=>" if chosen else "",
            _targets(option),
            duration(option.makespan_s),
            duration(option.completion_sum_s),
            Text("taken" if chosen else option.refused or option.note or "", "dim"),
            style="bold" if chosen else "",
        )
    return table


def _order(plan: Plan) -> list[int]:
    """The best first; the chosen one is always shown."""
    numbers = sorted(
        range(len(plan.options)),
        key=lambda n: (_or_last(plan.options[n].makespan_s), n != plan.chosen, n),
    )
    shown = numbers[:OPTIONS_MAX]
    if plan.chosen is not None and plan.chosen not in shown:
        shown[-1:] = [plan.chosen]
    return shown


def _or_last(value: float | None) -> float:
    return float("inf") if value is None else value


def _targets(option: Option) -> str:
    if not option.targets:
        return "change nothing"
    return ", ".join(f"{target.job}: {target.size}" for target in option.targets)
