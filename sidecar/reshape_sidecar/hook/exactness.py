"""Decides whether a reshape leaves the training trajectory unchanged, and names the reasons if not.

Does: inspects the strategy, the data pipeline, the layers and the traced step of a fit.

``exact``, ``steps-only`` and ``unknown`` are those of ``wire.Trajectory``; the reason is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from reshape_sidecar.hook import (
    batches,
    custom_step,
    pipeline_reasons,
    random_draws,
    randomness,
    variables,
)
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.wire import Trajectory

EXACT, STEPS_ONLY, UNKNOWN = Trajectory
OF_MEANS = "for losses that are means over samples"
"""Note on ``exact`` where the script computes the loss: another one may couple the samples of a
device."""
HALF_PRECISION = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Types of half precision, and the distance of 1 to the next number."""
OF_LAYERS = (
    "BatchNormalization takes its statistics per device",
    "random layers (dropout, augmentation) draw by device",
)
"""Reasons that the step itself, and no data, depends on the number of devices."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict with its reasons, or ``exact`` with a note."""

    kind: Trajectory
    reason: str | None = None

    def worse(self, reason: str, kind: Trajectory = STEPS_ONLY) -> Verdict:
        """Return the verdict with one more ``reason``; it is ``kind`` or worse."""
        known = self.reason if self.kind is not EXACT else None
        kind = kind if self.kind.meets(kind) else self.kind
        if known is None:
            return Verdict(kind, reason)
        if reason in known.split("; "):
            return Verdict(kind, known)
        return Verdict(kind, f"{known}; {reason}")

    def noting(self, note: str | None) -> Verdict:
        """Return the verdict with one more ``note`` if it is ``exact``."""
        if note is None or self.kind is not EXACT or note in (self.reason or "").split("; "):
            return self
        return Verdict(EXACT, "; ".join(filter(None, (self.reason, note))))

    def again(self, known: Verdict) -> Verdict:
        """Return this verdict, found anew, with the reasons or notes of ``known``."""
        verdict = self.after(known)
        for note in (known.reason or "").split("; ") if known.kind is EXACT else ():
            verdict = verdict.noting(note or None)
        return verdict

    def after(self, before: Verdict) -> Verdict:
        """Return this verdict with the reasons of ``before``, that of the process before."""
        verdict = self
        if before.kind is not EXACT and before.reason:
            for reason in before.reason.split("; "):
                verdict = verdict.worse(reason, before.kind)
        return verdict


def rounding_note(types: Iterable[str | None]) -> str | None:
    """Return what ``exact`` means for a model that computes in ``types``; None in full precision.

    types: names as ``bfloat16``.
    """
    found = sorted(HALF_PRECISION.keys() & set(types))
    each = " and ".join(f"{name}, {HALF_PRECISION[name]:.1%} of a number" for name in found)
    return f"to the rounding of {each}" if found else None


def is_of_step(reason: str) -> bool:
    """Return whether a reason of a verdict is one of the step itself, and not of the data."""
    return reason.startswith(OF_LAYERS)


def before_training(model: Any, position: Any, settings: HookSettings) -> Verdict:
    """Return the verdict as far as it is known before the first step."""
    types = {layer.compute_dtype for layer in model._flatten_layers()}
    notes = (_devices_note(model, settings), rounding_note(types))
    verdict = Verdict(EXACT, "; ".join(filter(None, notes)) or None)
    for reason in (
        *_data_reasons(model, position),
        *layer_reasons(model),
        *custom_step.reasons(model),
        *batches.reasons(model, position),
    ):
        verdict = verdict.worse(reason)
    return verdict


def after_first_step(model: Any, position: Any, verdict: Verdict) -> Verdict:
    """Return ``verdict`` with the reasons that the traced step shows."""
    graphs = list(step_graphs(model))
    for reason in (*pipeline_reasons.of_step(graphs), *position.data.reasons_of_step(graphs)):
        verdict = verdict.worse(reason)
    strange = sorted(set(_strange_variables(model)))
    if strange:
        verdict = verdict.worse(
            f"the training step uses variables that no attribute of the model or of its layers "
            f"holds ({', '.join(strange)})"
        )
    return verdict


def _devices_note(model: Any, settings: HookSettings) -> str | None:
    devices = len(settings.devices)
    replicas = int(model.distribute_strategy.num_replicas_in_sync)
    if devices <= 1 or replicas == devices:
        return None
    if model._distribute_strategy is None:
        return f"the script has no distribution strategy: it uses 1 of {devices} devices"
    return f"the script chooses its devices itself: it uses {replicas} of {devices}"


def _data_reasons(model: Any, position: Any) -> Iterator[str]:
    adapter = position.iterator.data_adapter
    kind = type(adapter).__name__
    yield from position.data.reasons(goes_on=position.iterator.steps_per_epoch is not None)
    if kind == "GeneratorDataAdapter":
        yield "the data is a Python generator, whose state cannot be kept"
    elif kind == "PyDatasetAdapter" and adapter.enqueuer is not None:
        if adapter.shuffle:
            yield "a PyDataset is shuffled by Python's random numbers: pass shuffle=False"
        if type(adapter.py_dataset).on_epoch_end is not _py_dataset_class().on_epoch_end:
            yield "the PyDataset changes itself in on_epoch_end"
        if model._distribute_strategy is not None:
            yield "under a strategy Keras reads a PyDataset with workers ahead of its epochs"
        draws = random_draws.found(adapter.py_dataset)
        if draws:
            yield (
                f"several workers read a PyDataset that draws random numbers ({', '.join(draws)}): "
                "use workers=1, or a generator seeded by the index"
            )
    elif kind == "ArrayDataAdapter":
        if adapter._shuffle == "batch" and not randomness.globally_seeded():
            yield "shuffle='batch' without a seed"
    elif kind == "TFDatasetAdapter":
        once = position.iterator.steps_per_epoch is None
        yield from pipeline_reasons.of(position.undistributed(), position.data.datasets, once=once)


def layer_reasons(model: Any) -> Iterator[str]:
    """Yield why layers of ``model`` compute something else on another number of devices."""
    if model._distribute_strategy is None:
        return  # one device, on any number of GPUs
    normalizes = draws = False
    for layer in model._flatten_layers():
        if type(layer).__name__ == "BatchNormalization" and not layer.synchronized:
            normalizes = True
        if getattr(layer, "_seed_generators", None) and getattr(layer, "rate", 1) != 0:
            draws = True
    if normalizes:
        yield f"{OF_LAYERS[0]}: use synchronized=True or GroupNormalization"
    if draws:
        yield OF_LAYERS[1]


def _py_dataset_class() -> Any:
    from keras.utils import PyDataset

    return PyDataset


def step_graphs(model: Any) -> Iterator[Any]:
    """Yield the graphs of the traced training step; none of a step that runs eagerly."""
    functions = [model.train_function, *_enclosed(model.train_function)]
    inner = [one for function in functions for one in _enclosed(function)]
    for candidates in (functions, inner):  # Keras 3.16 encloses the step of a batch once more
        listings = (getattr(one, "_list_all_concrete_functions", list) for one in candidates)
        graphs = [concrete.graph for listing in listings for concrete in listing()]
        if graphs:
            yield from graphs
            return


def _enclosed(function: Any) -> list[Any]:
    cells = getattr(function, "__closure__", None)
    return [cell.cell_contents for cell in cells] if isinstance(cells, tuple) else []


def _strange_variables(model: Any) -> Iterator[str]:
    """Yield the names of variables in the traced step that no checkpoint holds."""
    known = variables.handles(model)
    for graph in step_graphs(model):
        for variable in graph.variables:
            if id(variable.handle) not in known:
                yield variable.name
