"""The explanation of a decision, as text for people and as JSON for programs.

Does: turns a recorded plan into a text that needs no knowledge of the code, and into JSON with
stable keys (event, options, chosen, reason_code, text, costs); finds in histories what the decision
cost. The caller gives the plan, the time, the histories and the names of the jobs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reshape_controller.core.model import JobId
from reshape_controller.core.phrases import duration, gpus, how_text, seconds_text
from reshape_controller.core.plan import Option, Plan
from reshape_controller.core.record import HistoryEntry, PhaseCost

LAST_PHASE = "process start"
"""The phase that ends a start or reshape."""
START_PHASES = {
    "import": "import_s",
    "build": "build_s",
    "restore": "restore_s",
    "position": "position_s",
    "first step": "first_step_s",
}
"""Phases within the start of a process, with the name of the field of ``PhaseTimes``."""
OTHERWISE = (
    *("hand-over-ended", "refused", "withdrawn", "failure", "start-failed", "size-struck"),
    "host-lost",
)
"""Kinds of history that end a decision's effect before its last phase."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Predicted and measured seconds of one phase of a decision, for one job."""

    job: JobId
    phase: PhaseCost


SHOWN_MAX = 8
"""Options that the text shows; the JSON has every option of the plan."""


def costs_of(
    plan: Plan, at_s: float, histories: Mapping[JobId, Sequence[HistoryEntry]]
) -> tuple[Cost, ...]:
    """Return what the starts and reshapes of a decision have taken by now.

    ``histories``: the entries of each job that the plan names, oldest first.
    """
    costs = []
    jobs = list(dict.fromkeys(target.job for target in plan.targets))
    if len(jobs) == 2 and _keeps_its_gpus(at_s, histories.get(jobs[0], ())):
        jobs.pop()
    for job in jobs:
        for entry in histories.get(job, ()):
            if entry.at_s <= at_s:
                continue
            costs += [Cost(job, phase) for phase in entry.costs]
            done = any(phase.phase == LAST_PHASE for phase in entry.costs)
            if done or entry.kind in OTHERWISE:
                break
    return tuple(costs)


def _keeps_its_gpus(at_s: float, newcomer: Sequence[HistoryEntry]) -> bool:
    """Whether the one donor of a decision was spared, so that its later reshapes are of others."""
    for entry in newcomer:
        if entry.at_s > at_s and entry.kind in ("replanned", *OTHERWISE):
            return entry.kind == "replanned"
    return False


def explain_json(
    plan: Plan,
    *,
    at_s: float,
    policy: str,
    names: Mapping[JobId, str],
    costs: Sequence[Cost] = (),
) -> str:
    """Return the decision as JSON text, with stable keys. Times in seconds."""
    document = {
        "event": {
            "at_s": at_s,
            "policy": policy,
            "job": plan.about,
            "name": names.get(plan.about) if plan.about is not None else None,
        },
        "options": [_option_value(option, names) for option in plan.options],
        "weighed": max(plan.weighed, len(plan.options)),
        "chosen": plan.chosen,
        "targets": _option_value(Option(plan.targets), names)["targets"],
        "reason_code": plan.reason_code,
        "text": plan.text,
        "tie_break": tie_break_of(plan),
        "assumed": list(plan.assumed),
        "notes": [{"job": note.job, "name": note.name, "text": note.text} for note in plan.notes],
        "costs": [
            {
                "job": cost.job,
                "name": names.get(cost.job, cost.job),
                "phase": cost.phase.phase,
                "predicted_s": cost.phase.predicted_s,
                "measured_s": cost.phase.measured_s,
                "how": cost.phase.how.value if cost.phase.how is not None else None,
                "fallback": cost.phase.fallback,
            }
            for cost in costs
        ],
    }
    return json.dumps(document, ensure_ascii=False, sort_keys=True)


def explain_text(
    plan: Plan,
    *,
    at: str,
    policy: str,
    names: Mapping[JobId, str],
    costs: Sequence[Cost] = (),
) -> str:
    """Return the decision as text. ``at``: the formatted time of the decision."""
    name = _namer(names)
    text = plan.text or (describe(Option(plan.targets), name) if plan.targets else "")
    lines = [f"{at}  {text or 'Nothing was changed.'}"]
    lines.append(f"  decided by policy {policy}, reason {plan.reason_code}")
    lines += _options_text(plan, name)
    if tie_break := tie_break_of(plan):
        lines.append(f"  tie: {tie_break}")
    lines += [f"  assumed: {text}" for text in plan.assumed]
    for note in plan.notes:
        lines.append(f"  note on {name(note.job)}: {note.name}: {note.text or 'removed'}")
    return "\n".join([*lines, *_costs_text(costs, name)])


def tie_break_of(plan: Plan) -> str:
    """Return which rule chose among the options with the best makespan, or against it; empty if
    the makespan alone decided."""
    if plan.chosen is None:
        return ""
    chosen = plan.options[plan.chosen]
    others = [option for number, option in enumerate(plan.options) if number != plan.chosen]
    tied = [
        option
        for option in others
        if not option.refused
        and chosen.makespan_s is not None
        and option.makespan_s == chosen.makespan_s
    ]
    if chosen.makespan_s is None or chosen.completion_sum_s is None:
        return ""
    sooner = [
        option
        for option in others
        if option.targets
        and not option.refused
        and option.makespan_s is not None
        and option.makespan_s < chosen.makespan_s
    ]
    if sooner:
        return f"the smallest sum of completion times decided; {len(sooner)} have a lower makespan"
    if not tied:
        return ""
    count = f"{len(tied) + 1} options have this makespan"
    equal = [option for option in tied if option.completion_sum_s == chosen.completion_sum_s]
    if not equal:
        return f"{count}; the smallest sum of completion times decided"
    equally = f"{len(equal) + 1} also this sum of completion times"
    return f"{count}, {equally}; fewer moved GPUs decided, or else the lower ids"


def _costs_text(costs: Sequence[Cost], name: Callable[[JobId], str]) -> list[str]:
    """Return predicted beside measured seconds, in columns."""
    if not costs:
        return []
    jobs = [name(cost.job) for cost in costs]
    rows = [
        (
            "" if number and job == jobs[number - 1] else job,
            f"  {cost.phase.phase}" if cost.phase.phase in START_PHASES else cost.phase.phase,
            "-" if cost.phase.predicted_s is None else seconds_text(cost.phase.predicted_s),
            seconds_text(cost.phase.measured_s),
            how_text(cost.phase.how, cost.phase.fallback),
        )
        for number, (job, cost) in enumerate(zip(jobs, costs, strict=True))
    ]
    rows.insert(0, ("", "", "predicted", "measured", ""))
    wide = [max(len(row[column]) for row in rows) for column in range(4)]
    return ["  time of each phase:"] + [
        (
            f"     {job:<{wide[0]}}  {phase:<{wide[1]}}  {said:>{wide[2]}}  {took:>{wide[3]}}"
            f"  {how}"
        ).rstrip()
        for job, phase, said, took, how in rows
    ]


def _options_text(plan: Plan, name: Callable[[JobId], str]) -> list[str]:
    """Return the best options, one to a line."""
    if not plan.options:
        return []
    lines = []
    order = sorted(range(len(plan.options)), key=lambda number: number != plan.chosen)
    first_options = sorted(
        order[:SHOWN_MAX], key=lambda number: _rank(plan.options[number], number)
    )
    weighed = max(plan.weighed, len(plan.options))
    first = f"; {len(first_options)} are shown" if weighed > len(first_options) else ""
    counted = "One option was" if weighed == 1 else f"{weighed} options were"
    lines.append(f"  {counted} compared{first}:")
    rows = [_row(plan, number, name) for number in first_options]
    widths = [max(len(row[column]) for row in rows) for column in (1, 2)]
    for mark, what, when, why in rows:
        row = f"  {mark:<2} {what:<{widths[0]}}  {when:>{widths[1]}}"
        lines.append(f"{row}  {why}".rstrip())
    if any(option.makespan_s is not None for option in plan.options):
        lines.append("  time: predicted time until all accepted jobs end")
    return lines


def _row(plan: Plan, number: int, name: Callable[[JobId], str]) -> tuple[str, str, str, str]:
    option = plan.options[number]
    mark = "->" if number == plan.chosen else ""
    when = duration(option.makespan_s) if option.makespan_s is not None else "-"
    why = "chosen" if mark else option.refused
    return mark, describe(option, name), when, why


def describe(option: Option, name: Callable[[JobId], str]) -> str:
    """Return what an option does, in a few words."""
    if not option.targets:
        return option.note or "change nothing"
    first, *others = option.targets
    where = " and ".join(first.all_hosts)
    what = f"{name(first.job)} on {gpus(first.size)} of {where}"
    for target in others:
        down = f"down to {target.size}" if target.size else "preempted"
        what += f", {name(target.job)} {down}"
    return what


def _namer(names: Mapping[JobId, str]) -> Callable[[JobId], str]:
    return lambda job: names.get(job, job)


def _rank(option: Option, number: int) -> tuple[float, float, int]:
    far = float("inf")
    makespan_s = far if option.makespan_s is None else option.makespan_s
    total_s = far if option.completion_sum_s is None else option.completion_sum_s
    return makespan_s, total_s, number


def _option_value(option: Option, names: Mapping[JobId, str]) -> dict[str, object]:
    return {
        "targets": [
            {
                "job": target.job,
                "name": names.get(target.job, target.job),
                "gpus": target.size,
                "host": target.host,
                **({"hosts": list(target.all_hosts)} if target.shares else {}),
            }
            for target in option.targets
        ],
        "makespan_s": option.makespan_s,
        "completion_sum_s": option.completion_sum_s,
        "note": option.note,
        "refused": option.refused,
    }
