"""Variables that a model's attributes hold and Keras does not count as the model's.

Does: finds them in the model and its layers: a second optimizer, a TensorFlow variable or module, a
generator of random numbers, the states of a stateful RNN. Never: looks into objects of other kinds,
sees a variable that is no attribute, or one that holds no numbers. State: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PLAIN = frozenset({str, int, float, bool, type(None)})
"""Most attributes are of these types."""
BOOKKEEPING = "_self_"
"""Attributes in which TensorFlow lists the others begin so."""


def held(model: Any) -> Iterator[tuple[str, Any]]:
    """Every variable in an attribute of ``model`` or of one of its layers, with a name that is the
    same in every process; many of them are the model's own."""
    for number, layer in enumerate(model._flatten_layers()):
        for attribute, value in list(vars(layer).items()):
            if not attribute.startswith(BOOKKEEPING):
                for place, variable in enumerate(_variables(value)):
                    yield f"{number}.{attribute}.{place}", variable


def _variables(value: Any) -> Iterator[Any]:
    import keras
    import tensorflow

    if type(value) in PLAIN or isinstance(value, keras.Layer):
        return
    if isinstance(value, (keras.Variable, tensorflow.Variable)):
        kind = tensorflow.as_dtype(value.dtype)
        if kind.is_floating or kind.is_integer or kind.is_complex or kind.is_bool:
            yield value
    elif isinstance(value, (keras.Optimizer, tensorflow.Module)):
        yield from _variables(tuple(value.variables))
    elif isinstance(value, tensorflow.random.Generator):
        yield value.state
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _variables(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _variables(item)
