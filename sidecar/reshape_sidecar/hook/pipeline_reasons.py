"""Why a ``tf.data`` pipeline may give another process other batches; judged without drawing one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from reshape_sidecar.hook import batches, caches, data_order
from reshape_sidecar.hook.data_variables import functions, operations
from reshape_sidecar.hook.pipelines import pipeline

PYTHON_OPERATIONS = ("PyFunc", "EagerPyFunc", "PyFuncStateless")
STATELESS_RANDOM = ("Stateless",)


def of(end: Any, datasets: list[Any], *, once: bool) -> Iterator[str]:
    """Yield reasons against an exact trajectory.

    end: the pipeline's last dataset.
    datasets: those of the pipeline and those that its functions read.
    once: whether an epoch is one pass over the pipeline.
    """
    outside = list(pipeline(end))
    names = sorted(set(_operations(datasets)))
    python = [name for name in names if name in PYTHON_OPERATIONS]
    other = [name for name in names if name not in PYTHON_OPERATIONS]
    if python:
        yield "the data pipeline calls Python, whose state cannot be kept"
    if other:
        yield f"the data pipeline draws stateful random numbers ({', '.join(other)})"
    if any(map(_unordered, datasets)):
        yield "the data pipeline keeps no order (deterministic=False)"
    if any(map(_unseeded, datasets)):
        yield "the data pipeline samples without a seed"
    if any(map(_shuffles_inside, datasets)):
        yield "a function of the data pipeline shuffles without a seed"
    known = {id(one) for one in outside}
    if any(data_order.reshuffles(one) for one in datasets if id(one) not in known):
        yield "a function of the data pipeline reads shuffled data"
    if any(map(_caches_an_order, outside)):
        yield "the data pipeline caches what it has shuffled"
    if any(type(one).__name__ == "_ShuffleAndRepeatDataset" for one in outside):
        yield "the data pipeline uses shuffle_and_repeat"
    if once and any(map(_repeats_orders, outside)):
        yield "the data pipeline repeats what it has shuffled"


def of_step(graphs: list[Any]) -> Iterator[str]:
    """Yield the reasons that the traced ``graphs`` of a training step show."""
    if not graphs:
        yield "the training step runs eagerly: what it draws cannot be seen"
    drawn = sorted(set(_stateful_random(graphs)))
    if drawn:
        yield f"the training step draws stateful random numbers ({', '.join(drawn)})"


def is_seeded(dataset: Any) -> bool:
    """Return whether a dataset that draws has a seed: of the script, or one that the hook gives."""
    seeds = (getattr(dataset, "_seed", None), getattr(dataset, "_seed2", None))
    return any(seed is not None and int(seed) for seed in seeds)


def _stateful_random(graphs: Iterable[Any]) -> Iterator[str]:
    """Yield the types of operations that draw from a state inside of TensorFlow."""
    for graph in graphs:
        for operation in operations(graph):
            name = operation.type
            if (
                "Random" in name
                and not name.startswith(STATELESS_RANDOM)
                and operation._is_stateful
            ):
                yield name


def _operations(datasets: list[Any]) -> Iterator[str]:
    """Yield the stateful random and Python operations in the functions of a pipeline."""
    for dataset in datasets:
        for function in functions(dataset):
            yield from _stateful_random([function.graph])
            for operation in operations(function.graph):
                if operation.type in PYTHON_OPERATIONS:
                    yield operation.type


def _unordered(dataset: Any) -> bool:
    """Return whether a dataset may yield its elements in another order each time."""
    setting = getattr(dataset, "_deterministic", None)
    return setting == "false" or (setting != "true" and dataset.options().deterministic is False)


def _unseeded(dataset: Any) -> bool:
    """Return whether a dataset yields other random numbers in each process."""
    return type(dataset).__name__.endswith("RandomDataset") and not is_seeded(dataset)


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
