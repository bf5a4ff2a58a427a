"""Whether another number of GPUs, or a restart, changes the numbers of a TensorFlow loop."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import keras

from reshape_sidecar.hook import batches, data_variables, exactness, pipeline_reasons, variables
from reshape_sidecar.hook.exactness import EXACT, UNKNOWN, Verdict
from reshape_sidecar.tensorflow.data import Pipeline, unseeded_shuffle
from reshape_sidecar.tensorflow.parts import Parts

DRAWS_BY_DEVICE = ("RngReadAndSkip", "RngSkip", "StatefulUniform", "StatefulStandardNormal")
"""Beginnings of the types of operations that draw from a generator in a variable."""


def before_training(source: Pipeline, parts: Parts, gpus: int) -> Verdict:
    """Return the verdict as far as it is known before the first step."""
    layers = (layer for model in parts.models for layer in _layers(model))
    types = {getattr(layer, "compute_dtype", None) for layer in layers}
    of_means = None if source.strategy is None else exactness.OF_MEANS
    notes = (of_means, _devices_note(source, gpus), exactness.rounding_note(types))
    verdict = Verdict(EXACT, "; ".join(filter(None, notes)) or None)
    for reason in _early_reasons(source, parts):
        verdict = verdict.worse(reason)
    return verdict


def after_first_step(source: Pipeline, parts: Parts, verdict: Verdict) -> Verdict:
    """Return ``verdict`` with what the traced functions of the step show."""
    known = variables.handles_of(parts.entries())
    graphs = list(_step_graphs(known))
    for reason in pipeline_reasons.of_step(graphs):
        verdict = verdict.worse(reason)
    if source.strategy is not None and any(map(_draws_from_a_generator, graphs)):
        verdict = verdict.worse(exactness.OF_LAYERS[1])
    for reason in source.data.reasons_of_step(graphs):
        verdict = verdict.worse(reason)
    strange = sorted(set(_lost_variables(graphs, known)))
    if strange:
        verdict = verdict.worse(
            f"the step changes variables that job.batches did not get ({', '.join(strange)}):"
            " give them as state=",
            UNKNOWN,
        )
    return verdict


def _early_reasons(source: Pipeline, parts: Parts) -> Iterator[str]:
    yield from source.data.reasons(goes_on=False)
    yield from pipeline_reasons.of(source.plain, source.data.datasets, once=True)
    if unseeded_shuffle(source.plain):
        yield "a shuffle has no seed, and the script does not run under the hook, which gives one"
    if source.strategy is not None:
        if batches.rebatch_is_undone(source.plain):
            yield "on one device TensorFlow takes the batches as they were before rebatch"
        if source.replicas > 1:
            yield from batches.of_sizes(batches.sizes(source.plain), source.replicas)
    for model in parts.models:
        if isinstance(model, keras.Model):
            yield from exactness.layer_reasons(model)


def _layers(model: Any) -> Iterator[Any]:
    yield from model._flatten_layers() if isinstance(model, keras.Layer) else ()


def _devices_note(source: Pipeline, gpus: int) -> str | None:
    if gpus <= 1 or source.replicas == gpus:
        return None
    if source.strategy is None:
        return f"the script distributes no data over a strategy: it uses 1 of {gpus} devices"
    return f"the script chooses its devices itself: it uses {source.replicas} of {gpus}"


def _step_graphs(known: set[int]) -> Iterator[Any]:
    """Yield the graphs of all ``tf.function`` that use one of the variables ``known``."""
    for thing in gc.get_objects():
        if type(thing).__name__ != "Function" or not hasattr(thing, "python_function"):
            continue
        # Not by TensorFlow's list of them, which traces functions that were never called.
        cache = getattr(thing, "_function_cache", None)
        for concrete in cache.values() if cache is not None else ():
            if any(id(handle) in known for handle, _ in concrete.graph.captures):
                yield concrete.graph


def _draws_from_a_generator(graph: Any) -> bool:
    kinds = (operation.type for operation in data_variables.operations(graph))
    return any(kind.startswith(DRAWS_BY_DEVICE) for kind in kinds)


def _lost_variables(graphs: list[Any], known: set[int]) -> Iterator[str]:
    for graph in graphs:
        changed = {id(handle) for handle in data_variables.changed(graph)} - known
        for variable in graph.variables:
            if id(variable.handle) in changed:
                yield variable.name
