"""Prepares the first step of a ``fit`` before its state is known: the step runs once on zeros.

Does: builds the variables, traces the step, and runs it on zeros with the spec of the real data;
then puts back every variable that the step can change. Never: draws from the script's data. A step
whose effects cannot be put back is traced and not run, and the reason is returned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from reshape_sidecar.hook import building, data_variables, randomness, variables
from reshape_sidecar.hook.pipelines import undistributed
from reshape_sidecar.hook.standby import Standby

Attributes = dict[tuple[int, str], object]
"""Plain attributes by number of the layer and name."""
CHANGING = frozenset({"stop_training", "_initial_epoch"})
"""Attributes that Keras or the hook changes in each call, and no trace reads."""
UNKNOWN_SIZE = 2
"""Length of the zeros along a dimension that the data leave open."""
COUNTED = (
    "Assign",
    "Collective",
    "If",
    "Iterator",
    "MultiDeviceIterator",
    "Nccl",
    "Optional",
    "Read",
    "Resource",
    "RngReadAndSkip",
    "StatefulPartitionedCall",
    "TensorArray",
    "VarHandle",
    "VarIsInitialized",
)
"""Beginnings of the stateful operations that change variables alone, which are put back."""
HARMLESS = frozenset({"Assert", "Placeholder", "Arg", "_Arg", "_Retval", "DestroyResourceOp"})
LOOPS = ("While", "StatelessWhile")


def prepare(model: Any, iterator: Any, standby: Standby) -> str:
    """Prepare the step of ``model`` on ``iterator``; return why it was not run, or nothing."""
    if model.run_eagerly:
        building.build(model, iterator)
        return "the training step runs eagerly"
    try:
        zeros = _zeros(model, iterator._distributed_dataset)
    except (TypeError, ValueError, NotImplementedError) as error:
        building.build(model, iterator)
        return f"no zeros can stand for the data ({error})"
    random = randomness.capture()
    graph = _traced(model, iterator, zeros)
    if graph is None or randomness.capture() != random:
        # A trace that draws has to draw what it would in a cold start.
        randomness.restore(random)
        model.make_train_function(force=True)
        return "the trace of the training step draws random numbers"
    reasons = sorted(set(_reasons(data_variables.operations(graph))))
    if reasons:
        return f"the training step uses {', '.join(reasons)}"
    with _put_back(graph), standby.step_on_zeros():
        try:
            model.train_function(zeros)
        except Exception as error:  # it may not be made for zeros; a real batch is another matter
            return f"the training step fails on zeros ({type(error).__name__})"
    return ""


def attributes(model: Any) -> Attributes:
    """Return the plain attributes that a trace of the step may have read."""
    found: Attributes = {}
    for number, layer in enumerate(model._flatten_layers()):
        for name, value in list(vars(layer).items()):
            if type(value) in variables.PLAIN and name not in CHANGING:
                found[number, name] = value
    optimizer = {} if model.optimizer is None else vars(model.optimizer)
    for name, value in optimizer.items():
        found[-1, name] = value if type(value) in variables.PLAIN else id(value)
    return found


def _traced(model: Any, iterator: Any, zeros: Any) -> Any:
    """Build as a cold start does, trace the step, and return its graph; None if it has none."""
    if model._distribute_strategy is not None:
        building.build(model, iterator)
    step = building.traceable(model)
    if step is None:
        return None
    return step.function.get_concrete_function(next(zeros) if step.takes_batch else zeros).graph


def _zeros(model: Any, distributed: Any) -> Any:
    """Return an iterator over zeros whose type is that of an iterator over the data."""
    spec = building.global_spec(distributed.element_spec)
    if undistributed(distributed) is distributed:
        return iter(_dataset(spec))
    strategy = model.distribute_strategy
    zeros = iter(strategy.distribute_datasets_from_function(lambda context: _dataset(spec)))
    for name in ("_options", "_cardinality", "_enable_get_next_as_optional"):
        setattr(zeros, name, getattr(distributed, name))
    if zeros._element_spec != distributed.element_spec:
        raise ValueError("their spec is not known before")
    return zeros


def _dataset(spec: Any) -> Any:
    import tensorflow

    def zero(part: Any) -> Any:
        if type(part).__name__ != "TensorSpec" or part.shape.rank is None:
            raise TypeError(f"they have parts of type {type(part).__name__}")
        shape = [UNKNOWN_SIZE if size is None else size for size in part.shape]
        value = tensorflow.zeros(shape, part.dtype)
        return tensorflow.compat.v1.placeholder_with_default(value, part.shape)

    one = tensorflow.data.Dataset.range(1).repeat()
    return one.map(lambda _: tensorflow.nest.map_structure(zero, spec))


def _reasons(operations: Iterable[Any]) -> Iterator[str]:
    """Yield the operations whose effects cannot be put back, or that may not end on zeros."""
    for operation in operations:
        name = operation.type
        if name in LOOPS:
            yield "a loop"
        elif operation._is_stateful and name not in HARMLESS and not name.startswith(COUNTED):
            yield name


@contextlib.contextmanager
def _put_back(graph: Any) -> Iterator[None]:
    """Put back random state and each variable that ``graph`` captures, the model's or not."""
    from tensorflow import device, raw_ops

    handles = {id(one): one for one, _ in graph.captures if one.dtype.name == "resource"}
    found = [one for one in handles.values() if data_variables.is_variable(one)]
    values = []
    for handle in found:
        with device(handle.device):
            kind = data_variables.dtype_of(handle)
            values.append(raw_ops.ReadVariableOp(resource=handle, dtype=kind))
    random = randomness.capture()
    try:
        yield
    finally:
        for handle, value in zip(found, values, strict=True):
            with device(handle.device):
                raw_ops.AssignVariableOp(resource=handle, value=value)
        randomness.restore(random)
