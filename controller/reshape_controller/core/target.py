"""The target accuracy of a job in words; points of its curve, and evaluations, of reports. Pure."""

from __future__ import annotations

from reshape_controller.core.model import AccuracySeen, Job, Length, LengthUnit
from reshape_sidecar.wire import Evaluation, Progress

EVALUATIONS_MAX = 64
"""Most evaluations of a job: the newest."""

NOT_EVALUATED = (
    "not judged so far: its program reports no evaluation; a Keras `fit` and `evaluated` of a "
    "session report them"
)


def is_target(length: Length | None) -> bool:
    """Return whether a job's length is a target accuracy."""
    return length is not None and length.unit is LengthUnit.TARGET_ACCURACY


def end_reason(job: Job, reason: str) -> str:
    """Return the reason of a job's end: ``reason``, and whether it reached its target accuracy."""
    length, target = job.spec.length, job.progress.target
    if length is None or not is_target(length) or target is None:
        return reason
    wanted = f"target accuracy {length.value:g}"
    if not target.evaluations:
        return f"{reason}; the {wanted} was not judged{f': {target.note}' if target.note else ''}"
    step, value = target.evaluations[-1]
    where = f"at step {step}" + (f", after epoch {target.epoch}" if target.epoch else "")
    if target.reached:
        times = f", {target.in_a_row} times in a row" if job.spec.epochs_in_a_row > 1 else ""
        return f"reached its {wanted}: {target.metric} is {value:.4g} {where}{times}"
    return f"{reason} before its {wanted}: {target.metric} is {value:.4g} {where}"


def points(
    known: tuple[AccuracySeen, ...], before: Progress, after: Progress
) -> tuple[AccuracySeen, ...]:
    """Return the ``known`` points of a job's curve with the new evaluations of its progress.

    ``before`` and ``after``: its progress without and with that of the report. Points of another
    metric are dropped.
    """
    target, old = after.target, before.target
    assert target is not None
    if not target.evaluations:
        return known
    if old is None or old.metric not in ("", target.metric):
        known = ()
    last = known[-1].step if known else -1
    new = tuple(AccuracySeen(step, value) for step, value in target.evaluations if step > last)
    return (*known, *new) if new else known


def evaluations(
    known: tuple[Evaluation, ...], reported: tuple[Evaluation, ...]
) -> tuple[Evaluation, ...]:
    """Return a job's evaluations with those of a report, by step and metric.

    From the first reported step of a metric on, the report replaces what is known of the metric: a
    process that began again from a checkpoint evaluates again.
    """
    first: dict[str, int] = {}
    for each in reported:
        first[each.metric] = min(each.step, first.get(each.metric, each.step))
    before = [each for each in known if each.metric not in first or each.step < first[each.metric]]
    found = sorted([*before, *reported], key=lambda each: (each.step, each.metric))
    newest = tuple(found[-EVALUATIONS_MAX:])
    return known if newest == known else newest
