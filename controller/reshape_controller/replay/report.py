"""The report of a comparison as Markdown, with the paper's results beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reshape_controller.replay.elastic import assumed_text
from reshape_controller.replay.figure_styles import STYLES, labels_in_figures
from reshape_controller.replay.generate import SIZES
from reshape_controller.replay.ground_truth import SPREAD
from reshape_controller.replay.paper import (
    ADDS_ONE,
    DEFAULT,
    OURS,
    PENDING_ONE,
    PRINTED,
    TERMINATION,
)
from reshape_controller.replay.rows import Interval, Row, over, savings
from reshape_controller.replay.setup import Setup

WHY = """\
Why they differ: the paper publishes neither its profiles nor the optional numbers of GPUs of its
jobs, so speeds beyond its Table IV, accuracies, and the sizes are assumed (from what:
profiles/reshape_profiles/data/README.md); arrivals and job types are drawn anew for each seed; the
costs named above hold for every job type (`paper`: those of its case study); and its default
scheduler ran under Kubernetes, ours is a model of it. No input was chosen for its result."""
METRICS = (
    ("makespan_s", "makespan (s)", 0, 1.0),
    ("mean_jct_s", "mean completion time (s)", 0, 1.0),
    ("median_jct_s", "median completion time (s)", 0, 1.0),
    ("p95_jct_s", "95th percentile (s)", 0, 1.0),
    ("mean_wait_s", "mean wait (s)", 0, 1.0),
    ("gpu_use_ratio", "GPU use (%)", 1, 100.0),
    ("overhead_ratio", "overhead (%)", 2, 100.0),
    ("overhead_with_starts_ratio", "overhead with starts (%)", 2, 100.0),
    ("reshape_ups", "adding events", 1, 1.0),
    ("reshape_downs", "removing events", 1, 1.0),
    ("pending_at_last_submission", "pending at the last submission", 1, 1.0),
    ("mean_slowdown", "mean slowdown", 2, 1.0),
    ("worst_slowdown", "worst slowdown", 1, 1.0),
    ("worst_fairness", "worst fairness ratio", 1, 1.0),
    ("longest_wait_s", "longest wait (s)", 0, 1.0),
    ("reshapes_per_job", "reshapes per job", 2, 1.0),
    ("lower_bound_makespan_s", "lower bound of the makespan (s)", 0, 1.0),
)
"""Metric, its name, decimals and factor."""

Summary = Mapping[str, Mapping[str, Interval]]


def percent(value: float, digits: int = 0) -> str:
    """Return a ratio as a percentage."""
    return f"{100 * value:.{digits}f} %"


def within(middle: str, low: str, high: str) -> str:
    """Return a value with its interval, or without an interval that has no width."""
    return middle if low == high else f"{middle} ({low} to {high})"


def spread(found: Interval | None, digits: int = 0) -> str:
    """Return a ratio with its interval."""
    if found is None:
        return "-"
    ends = (round(100 * value, digits) + 0.0 for value in (found.low, found.high))  # avoids "-0"
    low, high = (f"{end:.{digits}f}" for end in ends)
    return within(percent(found.median, digits), low, high)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first are aligned to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def medians(summary: Summary) -> str:
    """Return a table of all metrics and policies: medians, and the intervals below them."""
    rows = []
    for metric, label, digits, factor in METRICS:
        cells = [label]
        for found in summary.values():
            one = found.get(metric)
            if one is None:
                cells.append("-")
                continue
            low, mid, high = (f"{v * factor:,.{digits}f}" for v in (one.low, one.median, one.high))
            cells.append(within(mid, low, high))
        rows.append(cells)
    return table(["", *summary], rows)


def every_policy(summaries: Mapping[str, Summary]) -> str:
    """Return a table of all policies and workloads: medians of makespan, mean completion time and
    worst slowdown."""
    rows = []
    for policy in next(iter(summaries.values())):
        cells = [policy]
        for summary in summaries.values():
            found = summary[policy]
            makespan, mean, worst = (
                found[metric].median for metric in ("makespan_s", "mean_jct_s", "worst_slowdown")
            )
            cells.append(f"{makespan / 1000:.1f} / {mean / 1000:.2f} / {worst:.1f}")
        rows.append(cells)
    return table(["", *summaries], rows)


def against_paper(rows: Mapping[str, Sequence[Row]]) -> str:
    """Return a table of our savings beside the paper's; empty without a pair that it compares."""
    lines = []
    for workload, own in rows.items():
        printed = PRINTED.get(workload)
        if printed is None:
            continue
        for metric, label, below in (
            ("makespan_s", "makespan", "makespan_below"),
            ("mean_jct_s", "mean completion time", "mean_jct_below"),
        ):
            for other in (DEFAULT, TERMINATION):
                found = [
                    spread(savings(own, ours, other, (metric,)).get(metric))
                    for ours in (OURS, "paper")
                ]
                said = percent(getattr(printed, f"{below}_{other}"))
                if set(found) != {"-"}:
                    lines.append([f"{workload}: {label} below {other}", said, *found])
    return table(["", "the paper", OURS, "paper (preset)"], lines) if lines else ""


def table_8(summaries: Mapping[str, Summary]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of Table VIII, with the paper's values in rows of their own.

    Policies that the paper does not have come last; rows without a value are omitted.
    """
    head = ["workload", *summaries]
    compared = labels_in_figures(list(next(iter(summaries.values()))))
    others = [label for label in compared if label not in (OURS, "paper", TERMINATION, DEFAULT)]
    rows = []
    for label, policy, metric, printed in (
        ("termination, the paper", TERMINATION, "", "overhead_termination"),
        ("termination, ours", TERMINATION, "overhead_ratio", ""),
        ("termination, ours, with starts", TERMINATION, "overhead_with_starts_ratio", ""),
        ("the framework, the paper", OURS, "", "overhead"),
        ("adaptive, ours", OURS, "overhead_ratio", ""),
        ("adaptive, ours, with starts", OURS, "overhead_with_starts_ratio", ""),
        ("paper (preset), ours", "paper", "overhead_ratio", ""),
        ("paper (preset), ours, with starts", "paper", "overhead_with_starts_ratio", ""),
        *((label, label, "overhead_ratio", "") for label in others),
        *((f"{label}, with starts", label, "overhead_with_starts_ratio", "") for label in others),
    ):
        cells = [label]
        for name, summary in summaries.items():
            known, found = PRINTED.get(name), summary.get(policy, {}).get(metric)
            if printed:
                cells.append(percent(getattr(known, printed), 1) if known is not None else "-")
            else:
                cells.append(percent(found.median, 1) if found is not None else "-")
        if any(cell != "-" for cell in cells[1:]):
            rows.append(cells)
    return head, rows


def workload_one(summary: Summary) -> str:
    """Return pending jobs and adding events of workload one, beside the paper's."""
    rows = []
    for policy in (OURS, "paper", TERMINATION, DEFAULT):
        found = summary.get(policy)
        if found is None:
            continue
        pending, adds = found["pending_at_last_submission"], found["reshape_ups"]
        rows.append(
            [
                policy,
                str(PENDING_ONE.get(policy, "-")),
                _count(pending),
                str(ADDS_ONE.get(policy, "-")),
                _count(adds),
            ]
        )
    head = ["", "pending, paper", "pending, ours", "adding events, paper", "adding events, ours"]
    return table(head, rows)


def _count(found: Interval) -> str:
    return within(f"{found.median:g}", f"{found.low:g}", f"{found.high:g}")


def replayed(setup: Setup) -> str:
    """Return the inputs of a replay in words, and their differences from the paper."""
    recipe, changed = setup.recipe, []
    if recipe is not None:
        own = (recipe.cluster, recipe.jobs, None, SIZES, SPREAD, None, 1.0)
        jobs = recipe.jobs if setup.jobs is None else setup.jobs
        now = (
            *(setup.cluster.text, jobs, setup.last_s, setup.sizes, setup.spread),
            *(setup.device, setup.load),
        )
        names = (
            *("the cluster", "the number of jobs", "the last submission", "the numbers of GPUs"),
            *("how far real speeds lie from the profiles", "the device truth", "the load"),
        )
        changed = [name for name, a, b in zip(names, own, now, strict=True) if a != b]
    text = f"On {setup.cluster.text}, costs `{setup.costs.name}`."
    text += f" Other than by default: {', '.join(changed)}." if changed else ""
    assumed = assumed_text(setup.workload.jobs) if setup.workload is not None else ""
    return f"{text} {assumed.capitalize()}." if assumed else text


def report(
    setups: Sequence[Setup],
    rows: Mapping[str, Sequence[Row]],
    summaries: Mapping[str, Summary],
) -> str:
    """Return the whole report. ``rows`` and ``summaries`` are by workload."""
    seeds = {row["seed"] for own in rows.values() for row in own}
    parts = [f"# Replay of workload {', '.join(rows)}", f"{over(len(seeds)).capitalize()}."]
    if len(summaries) > 1:
        what = "Makespan / mean completion time (1,000 s) / worst slowdown, medians."
        parts += ["## All workloads", what, every_policy(summaries)]
    for setup in setups:
        parts += [f"## Workload {setup.name}", replayed(setup), medians(summaries[setup.name])]
    policies = next(iter(summaries.values())).keys()
    if not PRINTED.keys() & rows.keys() or not STYLES.keys() & policies:
        return "\n\n".join(parts) + "\n"
    beside = [against_paper(rows)]
    if "one" in summaries:
        beside.append(workload_one(summaries["one"]))
    if any(beside):
        parts += ["## Beside the paper", *filter(None, beside)]
    head, lines = table_8(summaries)
    parts += ["## Table VIII: overhead", table(head, lines), WHY]
    return "\n\n".join(parts) + "\n"
