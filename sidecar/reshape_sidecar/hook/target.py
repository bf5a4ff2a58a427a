"""The target accuracy of a job: the metric that is judged, and whether training has reached it.

Does: chooses the metric if the record names none, counts the evaluations in a row that reach the
target, and keeps the state that a checkpoint has to hold. The hook and the session API pass each
evaluation to a ``TargetJudge``. Standard library only.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reshape_sidecar.hook.log import complain
from reshape_sidecar.wire import TargetProgress

EVALUATIONS_MAX = 16
"""Evaluations in a report: the newest, so that a lost report loses no point of the curve."""
VALIDATION = "val_"
TRAINS_ON = (
    "a `fit` has reached the target accuracy, and the script calls `fit` again; each call is "
    "judged by itself. A loop that shall end at the target "
    "leaves by `if model.stop_training: break`"
)
_ACCURACIES = ("accuracy", "acc")


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a record: training ends once ``metric`` is at least ``accuracy``."""

    accuracy: float
    metric: str | None = None
    """None: the validation accuracy, or the training accuracy of a ``fit`` without validation."""
    epochs_in_a_row: int = 1
    """Evaluations, one after the other, that have to reach the accuracy."""


TARGET_FILE = "reshape-target.json"
"""Judgement of the target accuracy, beside the files of a loop in a checkpoint."""


def read(folder: Path) -> dict[str, Any] | None:
    """Return the judgement in a checkpoint of a loop; None in one written without a target."""
    try:
        saved: dict[str, Any] = json.loads((folder / TARGET_FILE).read_bytes())
    except FileNotFoundError:
        return None
    return saved


class TargetJudge:
    """Judges each evaluation of a job; without a target it does nothing."""

    def __init__(self, target: Target | None, report: Callable[[TargetProgress], None]) -> None:
        self._target = target
        self._report = report
        self._metric = target.metric if target is not None else None
        self._last_step: int | None = None
        self._in_a_row_before = 0
        """Evaluations in a row before the newest, which may be repeated at the same step."""
        self._noted = False
        self._stand_in = ""
        """Note on the training metric that is judged without validation data."""
        self._trains_on = False
        self._others: dict[str, int] = {}
        """First step of each metric that is evaluated, but not judged."""
        self.state = TargetProgress()
        if target is not None:
            self._report(self.state)

    @property
    def active(self) -> bool:
        """Whether the record has a target accuracy."""
        return self._target is not None

    def fit_begins(self) -> None:
        """Begin a ``fit`` call, which is judged by itself; log if an earlier one was enough."""
        if self.state.reached and not self._trains_on:
            self._trains_on = True
            complain(TRAINS_ON)
        self._begin()

    def _begin(self) -> None:
        """Forget the row and the choice of the metric."""
        self._metric = self._target.metric if self._target is not None else None
        self._last_step, self._in_a_row_before = None, 0
        self._noted, self._stand_in = False, ""
        if self.active:
            self.state = dataclasses.replace(self.state, in_a_row=0, reached=False, note="")

    def epoch_ended(
        self,
        values: Mapping[str, float],
        order: Callable[[], Iterable[str]],
        *,
        validates: bool,
        step: int,
        epoch: int,
    ) -> bool:
        """Judge an epoch of a ``fit`` call; return whether the call has to end.

        ``values``: metrics of the epoch. ``order``: names of metrics in the order of ``compile``.
        ``validates``: whether the call has validation data; an epoch without a validation of its
        own is then not judged.
        """
        if self._target is None:
            return False
        validated = any(name.startswith(VALIDATION) for name in values)
        if self._metric is None and (validated or not validates):
            self._metric = choose(values, order(), validated=validated)
            if self._metric is not None and not validated:
                self._stand_in = (
                    f"`fit` has no validation data, so the target accuracy "
                    f"{self._target.accuracy:g} is judged on the training metric {self._metric}"
                )
                self._note(self._stand_in)
        if self._metric is not None and self._metric in values:
            return self.evaluated(self._metric, values[self._metric], step=step, epoch=epoch)
        if validated or not validates:
            self._note_missing(values, validates=validates)
        return False

    def evaluated(self, metric: str, value: float, *, step: int, epoch: int) -> bool:
        """Judge one evaluation after ``step`` steps; return whether training has to end.

        A second evaluation at the same step (of a process that started again there) replaces the
        first. A value that is no share from 0 to 1 is not judged.
        """
        if self._target is None:
            return False
        if not self.judges(metric):
            self._note_other(metric, step)
            return False
        if not 0.0 <= value <= 1.0:
            self.state = dataclasses.replace(self.state, in_a_row=0, reached=False)
            self._note(
                f"{metric} is {value:g}, and a target accuracy is judged on a share from 0 to 1; "
                "it is not judged"
            )
            return False
        if step != self._last_step:
            self._last_step, self._in_a_row_before = step, self.state.in_a_row
        meets = value >= self._target.accuracy
        in_a_row = self._in_a_row_before + 1 if meets else 0
        earlier = [point for point in self.state.evaluations if point[0] < step]
        self.state = dataclasses.replace(
            self.state,
            metric=metric,
            in_a_row=in_a_row,
            reached=in_a_row >= self._target.epochs_in_a_row,
            epoch=epoch,
            evaluations=(*earlier, (step, float(value)))[-EVALUATIONS_MAX:],
            note=self._stand_in,
        )
        self._report(self.state)
        return self.state.reached

    def saved(self) -> dict[str, Any] | None:
        """Return the state for a checkpoint, as JSON values; None without a target."""
        if self._target is None:
            return None
        return {
            **dataclasses.asdict(self.state),
            "target": list(dataclasses.astuple(self._target)),
            "judged": self._metric,
            "stand_in": self._stand_in,
            "last_step": self._last_step,
            "in_a_row_before": self._in_a_row_before,
            "noted": self._noted,
        }

    def write(self, folder: Path) -> None:
        """Write the state into a loop's checkpoint; none without a target. Raises OSError."""
        if (state := self.saved()) is not None:
            (folder / TARGET_FILE).write_text(json.dumps(state), encoding="utf-8")

    def restore(self, saved: Mapping[str, Any] | None) -> None:
        """Go on from the state of a checkpoint.

        None (of an older version), or the state of another target, begins from nothing.
        """
        if self._target is None or not saved:
            return
        if saved["target"] != list(dataclasses.astuple(self._target)):
            return
        own = {field.name: saved[field.name] for field in dataclasses.fields(TargetProgress)}
        own["evaluations"] = tuple((int(step), float(value)) for step, value in own["evaluations"])
        self.state = TargetProgress(**own)
        self._metric, self._stand_in = saved["judged"], saved["stand_in"]
        self._last_step = saved["last_step"]
        self._in_a_row_before = saved["in_a_row_before"]
        self._noted = saved["noted"]
        self._report(self.state)

    def judges(self, metric: str) -> bool:
        """Return whether a loop's evaluations of ``metric`` are judged.

        Without a metric in the record, a validation accuracy replaces another accuracy.
        """
        target, chosen = self._target, self._metric
        if target is not None and target.metric is None and is_accuracy(metric):
            validates = metric.startswith(VALIDATION)
            if chosen is None or (validates and not chosen.startswith(VALIDATION)):
                self._begin()
                self._metric = metric
        return target is not None and metric == self._metric

    def _note_other(self, metric: str, step: int) -> None:
        """Note that only other metrics are evaluated, once that holds at a second step."""
        first = min(self._others.values(), default=step)
        self._others.setdefault(metric, step)
        if not self.state.metric and step > first:
            self._note_missing(self._others, validates=True)

    def _note_missing(self, values: Iterable[str], *, validates: bool) -> None:
        assert self._target is not None
        there = ", ".join(sorted(values)) or "none"
        wanted = self._target.metric
        missing = f"there is no metric {wanted}" if wanted else "there is no accuracy"
        remedy = "evaluate it, or name one of these in the record as `metric`"
        if wanted is not None and wanted.startswith(VALIDATION) and not validates:
            remedy = "give `fit` validation data, or name one of these in the record as `metric`"
        self._note(
            f"the target accuracy {self._target.accuracy:g} is not judged: {missing} among the "
            f"evaluated ones ({there}); {remedy}"
        )

    def _note(self, text: str) -> None:
        """Write a note to the log and the report, the first of a ``fit`` call only."""
        if self._noted:
            return
        self._noted = True
        complain(text)
        self.state = dataclasses.replace(self.state, note=text)
        self._report(self.state)


def choose(values: Iterable[str], order: Iterable[str], *, validated: bool) -> str | None:
    """Return the first accuracy of an epoch, in the order of ``compile``; None without one.

    ``validated``: choose among the metrics of the validation, and never among those of training.
    """
    there = [name for name in values if name.startswith(VALIDATION) == validated]
    prefix = VALIDATION if validated else ""
    compiled = [prefix + name for name in order]
    for name in [*(name for name in compiled if name in there), *there]:
        if is_accuracy(name):
            return name
    return None


def is_accuracy(name: str) -> bool:
    """Return whether a metric of this name is an accuracy, of training or of a validation."""
    plain = name.removeprefix(VALIDATION)
    return plain in _ACCURACIES or plain.endswith(("_accuracy", "_acc"))
