"""Builds a model far enough that its state can be restored before its first step.

Does: creates the variables that training creates, without a batch and without a step: under a
strategy from the shapes of the data, as Keras does, and otherwise by tracing the step.
"""

from __future__ import annotations

from typing import Any, NamedTuple


def build(model: Any, iterator: Any) -> None:
    """Create every variable that training of ``model`` on ``iterator`` would create."""
    spec = getattr(iterator._distributed_dataset, "element_spec", None)
    step = None if model._distribute_strategy is not None else traceable(model)
    if step is not None:
        import tensorflow

        # Training reuses the traced step.
        step.function.get_concrete_function(
            spec if step.takes_batch else tensorflow.data.IteratorSpec(spec)
        )
        return
    with model.distribute_strategy.scope():
        model._symbolic_build(data_batch=global_spec(spec))
        optimizer = model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(model.trainable_variables)


class Step(NamedTuple):
    """The TensorFlow function of a training step. Since Keras 3.16 it takes a batch, and not the
    iterator, if an execution has one step."""

    function: Any
    takes_batch: bool


def traceable(model: Any) -> Step | None:
    """Return the TensorFlow function of the model's training step; None if it runs eagerly."""
    model.make_train_function()
    function = model.train_function
    named: dict[str, Any] = {}
    if getattr(function, "__closure__", None):
        cells = zip(function.__code__.co_freevars, function.__closure__, strict=True)
        named = {name: cell.cell_contents for name, cell in cells}
    reads_itself = named and "get_next_as_optional" in function.__code__.co_names
    if reads_itself and model.steps_per_execution == 1:
        of_batch = getattr(named.get("one_step_on_data"), "__wrapped__", None)
        return Step(of_batch, True) if hasattr(of_batch, "get_concrete_function") else None
    candidates = [function, *(one for name, one in named.items() if name.endswith("on_iterator"))]
    found = (one for one in candidates if hasattr(one, "get_concrete_function"))
    return next((Step(one, False) for one in found), None)


class NoIterator:
    """Stands for the iterator of a ``fit`` that will not run, where nothing needs it."""

    data_adapter: Any = None


def build_for(model: Any, arguments: dict[str, Any]) -> Any:
    """Build ``model`` from the arguments of a ``fit`` that will not run; return its iterator.

    Arrays have no state, so a model that was built before needs no pipeline over them.
    """
    if _is_built(model) and _are_arrays(arguments["x"]):
        return NoIterator()
    from keras.src.backend.tensorflow.trainer import TFEpochIterator

    names = ("x", "y", "sample_weight", "batch_size", "steps_per_epoch", "class_weight")
    iterator = TFEpochIterator(
        shuffle=False,
        distribute_strategy=model.distribute_strategy,
        steps_per_execution=model.steps_per_execution,
        **{name: arguments[name] for name in names},
    )
    build(model, iterator)
    return iterator


def _is_built(model: Any) -> bool:
    optimizer = model.optimizer
    # Without a strategy a trace of the step creates the variables; a new compilation removes it.
    traced = model._distribute_strategy is not None or model.train_function is not None
    return bool(traced and model.built and (optimizer is None or optimizer.built))


def _are_arrays(x: Any) -> bool:
    import numpy as np

    parts = x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else [x]
    return all(isinstance(part, np.ndarray) for part in parts)


def global_spec(spec: Any) -> Any:
    """Return the spec of what the first of several replicas gets, of a distributed spec."""
    import tensorflow

    def one(part: Any) -> Any:
        values = getattr(part, "_value_specs", None)
        return values[0] if values else part

    return tensorflow.nest.map_structure(one, spec)


def metric_names(model: Any) -> list[str]:
    """Return the names of the compiled metrics in the order of ``compile``; empty if unknown."""
    compiled = getattr(model, "_compile_metrics", None)
    try:
        return [] if compiled is None else list(compiled.result())
    except Exception:  # it is Keras's own, and of no fixed form; any order will do without it
        return []
