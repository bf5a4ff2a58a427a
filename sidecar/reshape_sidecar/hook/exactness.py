"""Decides whether a reshape leaves the training trajectory unchanged, and names the reasons if not.

Does: inspects the strategy, the data pipeline, the layers and the traced step of a fit.

``exact``, ``steps-only`` and ``unknown`` are those of ``wire.Trajectory``; the reason is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reshape_sidecar.hook import (
    batches,
    caches,
    custom_step,
    data_order,
    random_draws,
    randomness,
    variables,
)
from reshape_sidecar.hook.data_variables import functions, operations
from reshape_sidecar.hook.pipelines import pipeline
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.wire import Trajectory

EXACT, STEPS_ONLY, UNKNOWN = Trajectory
PYTHON_OPERATIONS = ("PyFunc", "EagerPyFunc", "PyFuncStateless")
STATELESS_RANDOM = ("Stateless",)


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

    def after(self, before: Verdict) -> Verdict:
        """Return this verdict with the reasons of ``before``, that of the process before."""
        verdict = self
        if before.kind is not EXACT and before.reason:
            for reason in before.reason.split("; "):
                verdict = verdict.worse(reason, before.kind)
        return verdict


def before_training(model: Any, position: Any, settings: HookSettings) -> Verdict:
    """Return the verdict as far as it is known before the first step."""
    verdict = Verdict(EXACT, _devices_note(model, settings))
    for reason in (
        *_data_reasons(model, position),
        *_layer_reasons(model),
        *custom_step.reasons(model),
        *batches.reasons(model, position),
    ):
        verdict = verdict.worse(reason)
    return verdict


def after_first_step(model: Any, position: Any, verdict: Verdict) -> Verdict:
    """Return ``verdict`` with the reasons that the traced step shows."""
    graphs = list(_step_graphs(model))
    if not graphs:
        verdict = verdict.worse("the training step runs eagerly: what it draws cannot be seen")
    names = sorted(set(_stateful_random(graphs)))
    if names:
        listing = ", ".join(names)
        verdict = verdict.worse(f"the training step draws stateful random numbers ({listing})")
    for reason in position.data.reasons_of_step(graphs):
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
            yield "a PyDataset is shuffled by Python's random numbers; pass shuffle=False"
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
        names = sorted(set(_pipeline_operations(position)))
        python = [name for name in names if name in PYTHON_OPERATIONS]
        other = [name for name in names if name not in PYTHON_OPERATIONS]
        if python:
            yield "the data pipeline calls Python, whose state cannot be kept"
        if other:
            yield f"the data pipeline draws stateful random numbers ({', '.join(other)})"
        if any(map(_unordered, position.data.datasets)):
            yield "the data pipeline keeps no order (deterministic=False)"
        if any(map(_unseeded, position.data.datasets)):
            yield "the data pipeline samples without a seed"
        if any(map(_shuffles_inside, position.data.datasets)):
            yield "a function of the data pipeline shuffles without a seed"
        outer = {id(one) for one in position.datasets()}
        inner = [one for one in position.data.datasets if id(one) not in outer]
        if any(map(data_order.reshuffles, inner)):
            yield "a function of the data pipeline reads shuffled data"
        if any(map(_caches_an_order, position.datasets())):
            yield "the data pipeline caches what it has shuffled"
        if any(type(one).__name__ == "_ShuffleAndRepeatDataset" for one in position.datasets()):
            yield "the data pipeline uses shuffle_and_repeat"
        once = position.iterator.steps_per_epoch is None
        if once and any(map(_repeats_orders, position.datasets())):
            yield "the data pipeline repeats what it has shuffled"


def _unordered(dataset: Any) -> bool:
    """Return whether a dataset may yield its elements in another order each time."""
    setting = getattr(dataset, "_deterministic", None)
    return setting == "false" or (setting != "true" and dataset.options().deterministic is False)


def _unseeded(dataset: Any) -> bool:
    """Return whether a dataset yields other random numbers in each process."""
    seeds = (getattr(dataset, "_seed", None), getattr(dataset, "_seed2", None))
    random = type(dataset).__name__.endswith("RandomDataset")
    return random and not any(seed is not None and int(seed) for seed in seeds)


def _shuffles_inside(dataset: Any) -> bool:
    """Return whether a function of a dataset makes a shuffled one without a seed of the job."""
    for function in functions(dataset):
        for operation in operations(function.graph):
            if operation.type.startswith("Shuffle") and "Dataset" in operation.type:
                import tensorflow

                if not any(map(tensorflow.get_static_value, operation.inputs[2:4])):
                    return True
    return False


def _caches_an_order(dataset: Any) -> bool:
    """Return whether a dataset caches in memory what each process shuffles in its own order."""
    if type(dataset).__name__ != "CacheDataset" or caches.file_of(dataset):
        return False
    return any(map(data_order.reshuffles, pipeline(dataset)))


def _repeats_orders(dataset: Any) -> bool:
    """Return whether a dataset draws several orders for one epoch."""
    if type(dataset).__name__ != "_RepeatDataset" or int(dataset._count) in (
        0,
        1,
        batches.INFINITE,
    ):
        return False
    return any(map(data_order.reshuffles, pipeline(dataset)))


def _layer_reasons(model: Any) -> Iterator[str]:
    if model._distribute_strategy is None:
        return  # one device, on any number of GPUs
    normalizes = draws = False
    for layer in model._flatten_layers():
        if type(layer).__name__ == "BatchNormalization" and not layer.synchronized:
            normalizes = True
        if getattr(layer, "_seed_generators", None) and getattr(layer, "rate", 1) != 0:
            draws = True
    if normalizes:
        yield (
            "BatchNormalization takes its statistics per device; use synchronized=True or "
            "GroupNormalization"
        )
    if draws:
        yield "random layers (dropout, augmentation) draw by device"


def _py_dataset_class() -> Any:
    from keras.utils import PyDataset

    return PyDataset


def _pipeline_operations(position: Any) -> Iterator[str]:
    """Yield the stateful random and Python operations in the functions of a pipeline."""
    for dataset in position.data.datasets:
        for function in functions(dataset):
            yield from _stateful_random([function.graph])
            for operation in operations(function.graph):
                if operation.type in PYTHON_OPERATIONS:
                    yield operation.type


def _step_graphs(model: Any) -> Iterator[Any]:
    function = model.train_function
    candidates = [function]
    for cell in getattr(function, "__closure__", None) or ():
        candidates.append(cell.cell_contents)
    for candidate in candidates:
        listing = getattr(candidate, "_list_all_concrete_functions", None)
        for concrete in listing() if listing is not None else ():
            yield concrete.graph


def _strange_variables(model: Any) -> Iterator[str]:
    """Yield the names of variables in the traced step that no checkpoint holds."""
    known = variables.handles(model)
    for graph in _step_graphs(model):
        for variable in graph.variables:
            if id(variable.handle) not in known:
                yield variable.name


def _stateful_random(graphs: Any) -> Iterator[str]:
    for graph in graphs:
        for operation in operations(graph):
            name = operation.type
            if (
                "Random" in name
                and not name.startswith(STATELESS_RANDOM)
                and operation._is_stateful
            ):
                yield name
