"""What a checkpoint of a TensorFlow loop holds of the script: the variables of what it gave.

Does: finds the variables of models, optimizers and further objects in a fixed order, and makes
those of an optimizer that has none yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from reshape_sidecar.hook import variables
from reshape_sidecar.hook.variables import BY_NAME, Entry
from reshape_sidecar.loop_epochs import LoopError

KINDS = "Keras models, layers, metrics and optimizers, tf.Module, tf.Variable and generators"


class Parts:
    """The objects of a script whose variables training changes."""

    def __init__(self, model: Any, optimizer: Any, state: Any) -> None:
        """Each one object or a list. Raises LoopError."""
        self.models, self.optimizers = _listed(model), _listed(optimizer)
        self._others = _listed(state)
        for one in self.models:
            if isinstance(one, keras.Layer) and not one.built:
                raise LoopError(
                    f"the {type(one).__name__} has no variables before its first call: call it on"
                    " a batch, or `build` it, before job.batches"
                )
        self._build_optimizers()
        self.entries()

    def entries(self) -> list[Entry]:
        """Return group, name and variable of all that a checkpoint holds, each once."""
        found = self.weights()
        groups = (("optimizer", self.optimizers), ("state", self._others))
        for group, objects in groups:
            for one in objects:
                found += [(group, _name(variable), variable) for variable in _variables(one)]
        found += [("seed", "global seed", one) for one in variables.global_seed()]
        return variables.each_once(found)

    def objects(self) -> list[Any]:
        """Return what the script gave."""
        return [*self.models, *self.optimizers, *self._others]

    def kinds(self) -> list[list[str]]:
        """Return the class names of the objects, by argument."""
        return [
            [type(one).__name__ for one in objects]
            for objects in (self.models, self.optimizers, self._others)
        ]

    def weights(self) -> list[Entry]:
        """Return group, name and variable of the models alone."""
        return [
            _numbered(number, entry)
            for number, one in enumerate(self.models)
            for entry in _of_model(one)
        ]

    def _build_optimizers(self) -> None:
        """Make the slots now: a checkpoint is restored before the first step."""
        new = [one for one in self.optimizers if isinstance(one, keras.Optimizer) and not one.built]
        if not new:
            return
        if len(self.optimizers) > 1:
            raise LoopError(
                "several optimizers, and it is unknown which variables each of them trains: call"
                " `optimizer.build(variables)` of each before job.batches"
            )
        trained = {id(one): one for model in self.models for one in _trainable(model)}
        strategy = getattr(new[0], "_distribution_strategy", None) or tf.distribute.get_strategy()
        with strategy.scope():
            new[0].build(list(trained.values()))


def _of_model(model: Any) -> list[Entry]:
    if isinstance(model, keras.Model):
        return variables.collect(model)
    found = [("model", _name(variable), variable) for variable in _variables(model)]
    if isinstance(model, keras.Layer):
        others = variables.attribute_variables(model)
        found += [(BY_NAME, name, variable) for name, variable in others]
    return found


def _numbered(number: int, entry: Entry) -> Entry:
    group, name, variable = entry
    return group, f"{number}.{name}" if number else name, variable


def _trainable(model: Any) -> list[Any]:
    if isinstance(model, tf.Variable):
        return [model] if model.trainable else []
    return list(model.trainable_variables)


def _variables(value: Any) -> Iterator[Any]:
    """Yield the variables of an object that the script gave. Raises LoopError."""
    if isinstance(value, (keras.Variable, tf.Variable)):
        yield value
    elif isinstance(value, (tf.random.Generator, keras.random.SeedGenerator)):
        yield value.state
    elif isinstance(value, (keras.Layer, keras.Metric, keras.Optimizer, tf.Module)):
        yield from value.variables
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _variables(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _variables(item)
    else:
        raise LoopError(
            f"job.batches got a {type(value).__name__}, and a checkpoint of a TensorFlow loop holds"
            f" the variables of {KINDS}; keep a number of your own in a tf.Variable"
        )


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", variable.name))


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
