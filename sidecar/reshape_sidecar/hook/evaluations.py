"""The evaluations of this process: its newest figures of each metric, for its reports.

Does: takes each evaluation of a ``fit`` call or a session, whether its job has a target accuracy or
not. ``hook.target`` judges them; nothing is judged here. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from reshape_sidecar.wire import Evaluation

REPORTED_MAX = 16
"""Evaluations in a report: the newest."""
METRICS_MAX = 4
"""Metrics of an epoch's validation that are reported: the first by name."""
METRIC_NAME_MAX = 100
"""Most characters of a metric's name."""
VALIDATION = "val_"


def number_of(metric: object, value: Any) -> float:
    """Return the value of an evaluation, which may be a tensor. Raises TypeError."""
    if not isinstance(metric, str):
        raise TypeError(
            f"evaluated(metric, value): {metric!r} is no name of a metric, as 'accuracy' is"
        )
    try:
        return float(value)
    except (TypeError, ValueError):
        text = f"evaluated: the value of {metric} is {value!r}; give a number"
        raise TypeError(text) from None


class EvaluationLog:
    """The newest evaluations of this process."""

    def __init__(self, report: Callable[[tuple[Evaluation, ...]], None]) -> None:
        """``report`` sets them in the next report."""
        self._report = report
        self._newest: tuple[Evaluation, ...] = ()

    def epoch_ended(self, values: Mapping[str, float], *, step: int) -> None:
        """Take the metrics of an epoch's validation from among its ``values``."""
        names = sorted(name for name in values if name.startswith(VALIDATION))
        for name in names[:METRICS_MAX]:
            self.add(name, values[name], step=step)

    def add(self, metric: str, value: float, *, step: int) -> None:
        """Take one evaluation; a second of a metric at the same step replaces the first."""
        is_name = len(metric) <= METRIC_NAME_MAX and metric.isprintable()
        if not is_name or not math.isfinite(value):
            return
        earlier = [each for each in self._newest if each.metric != metric or each.step < step]
        self._newest = (*earlier, Evaluation(metric, step, float(value)))[-REPORTED_MAX:]
        self._report(self._newest)
