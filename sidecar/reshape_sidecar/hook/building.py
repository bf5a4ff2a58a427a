"""Builds a model far enough that its state can be put back before its first step.

Does: makes the variables of layers, metrics and optimizer from the shapes of the data. Never:
draws a batch. State: none.
"""

from __future__ import annotations

from typing import Any


def build(model: Any, iterator: Any) -> None:
    """Make every variable that training of ``model`` on ``iterator`` would make."""
    strategy = model.distribute_strategy
    spec = getattr(iterator._distributed_dataset, "element_spec", None)
    with strategy.scope():
        model._symbolic_build(data_batch=_global_spec(spec))
        optimizer = model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(model.trainable_variables)


def build_for(model: Any, arguments: dict[str, Any]) -> None:
    """Like ``build``, from the arguments of a ``fit`` that will not run."""
    from keras.src.backend.tensorflow.trainer import TFEpochIterator

    names = ("x", "y", "sample_weight", "batch_size", "steps_per_epoch", "class_weight")
    iterator = TFEpochIterator(
        shuffle=False,
        distribute_strategy=model.distribute_strategy,
        steps_per_execution=model.steps_per_execution,
        **{name: arguments[name] for name in names},
    )
    build(model, iterator)


def _global_spec(spec: Any) -> Any:
    import tensorflow

    def one(part: Any) -> Any:
        values = getattr(part, "_value_specs", None)
        return values[0] if values else part

    return tensorflow.nest.map_structure(one, spec)
