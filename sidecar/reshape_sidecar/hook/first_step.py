"""The figures of one step of a TensorFlow program: of a ``fit``, or of the body of a loop.

Does: notes the batch, the loss, the learning rates, what is trained, and the change of samples of
the weights. It draws no random number, and keeps some numbers of each weight. Of a ``fit`` without
a strategy it takes the batch out of the iterator and gives the step an iterator over that batch, of
the same type, so that TensorFlow runs the same function. Never: sees the gradients, which stay
inside that function; or the samples of a ``fit`` under a strategy, where such an iterator takes
longer than a step: it counts them. One process trains on all GPUs, so nothing is gathered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from reshape_sidecar.hook import exactness, variables
from reshape_sidecar.proof.figures import (
    DIGEST_BITS,
    OptimizerFigures,
    StepFigures,
    sum_of_hashes,
)
from reshape_sidecar.proof.first_steps import Begin, FirstSteps

SAMPLES = 1024
"""Numbers of a weight, or of a sample of the data, that are looked at."""
WHOLE_MAX = 1 << 16
"""A weight of more numbers is thinned out where it lies, and not copied whole."""
WHOLE_COUNT = float(1 << 24)
"""From here on a sum in float32 does not hold each whole number."""
SUM_ROUNDING = 2.0**-22
"""Relative error of the difference of two sums in float32, for each time that it fits into them."""
Sums = tuple[float, float]
"""The sum of the losses of an epoch so far, and the number of its samples."""


class TrainingStep:
    """Measures the step that begins with its first batch; the front end says when it is made."""

    def __init__(
        self,
        done: Callable[[StepFigures | None], None],
        models: Sequence[Any],
        optimizers: Sequence[Any],
        steps: FirstSteps,
    ) -> None:
        self._done, self._steps = done, steps
        self._models, self._optimizers = models, optimizers
        self._batch = self._samples = 0
        self._form = ""
        self._before: list[Any] | None = None
        """Samples of each weight before the step; None: it has not begun."""
        self.is_over = False

    def begin(self) -> None:
        """Note the weights before the step."""
        if not self.is_over:
            self._before = [*map(samples_of, self._weights())]

    def batch(self, batch: Any) -> None:
        """Take a batch of the step, of all GPUs."""
        if self.is_over:
            return
        if self._before is None:
            self.begin()
        digest, samples = digest_of(batch)
        self._form = form_of(batch)
        self._batch, self._samples = self._batch + digest, self._samples + samples

    def step_ended(self) -> None:
        """Stand behind the step: give its figures."""
        if self.is_over:
            return
        before, is_made = self._before, self.is_made()
        self.end()
        self._done(self._figures(before) if before is not None and is_made else None)

    def end(self) -> None:
        """Measure no more."""
        self.is_over, self._before = True, None

    def is_made(self) -> bool:
        """Return whether the step that has begun is made."""
        return True

    def loss(self) -> tuple[float | None, float, int]:
        """Return the loss of the step, the relative error of that number, and the samples that it
        is a mean of, 0 if they are not known."""
        return None, 0.0, 0

    def _weights(self) -> list[Any]:
        return [weight for model in self._models for weight in _trained(model)]

    def _figures(self, before: list[Any]) -> StepFigures:
        loss, rounding, counted = self.loss()
        layers = [one for model in self._models for one in _layers(model)]
        types = {getattr(one, "compute_dtype", None) for one in layers}
        update = _update(before, [*map(samples_of, self._weights())])
        rates = [_rates(one) for one in self._optimizers] or [()]
        first = OptimizerFigures(update, rates=rates[0], reached=len(before))
        return StepFigures(
            gpus=self._steps.gpus,
            samples=self._samples or counted,
            batch=self._batch % (1 << DIGEST_BITS),
            form=self._form,
            loss=loss if loss is not None and math.isfinite(loss) else None,
            loss_rounding=rounding,
            optimizers=(first, *(OptimizerFigures(0.0, rates=one) for one in rates[1:])),
            trained=tuple(sorted(_names(self._models))),
            resting=sum(not one.trainable for one in layers),
            is_half=bool(exactness.HALF_PRECISION.keys() & types) or _rounds_products(),
            draws=self._steps.draws(exactness.is_of_step),
            varies=self._steps.varies(exactness.is_of_step),
        )


class FitStep(TrainingStep):
    """Measures an execution of a Keras model's train function: one step, or as many as the model
    makes in one."""

    def __init__(
        self,
        done: Callable[[StepFigures | None], None],
        model: Any,
        steps: FirstSteps,
    ) -> None:
        optimizer = getattr(model, "optimizer", None)
        super().__init__(done, [model], [] if optimizer is None else [optimizer], steps)
        self._model = model
        self._sums: Sums | None = None
        self._is_made = False

    def begin(self) -> None:
        """Stand before the model's train function, which Keras calls next."""
        if self.is_over:
            return
        super().begin()
        self._sums = _sums(self._model)
        model, original = self._model, self._model.train_function

        def train_function(iterator: Any) -> Any:
            model.train_function = original
            made = original(self._seen(iterator))
            self._is_made = True
            return made

        model.train_function = train_function

    def is_made(self) -> bool:
        return self._is_made

    def loss(self) -> tuple[float | None, float, int]:
        now = _sums(self._model)
        if now is None or self._sums is None:
            return None, 0.0, 0
        total, count = now[0] - self._sums[0], now[1] - self._sums[1]
        if not count > 0:
            return None, 0.0, 0
        rounding = SUM_ROUNDING * abs(now[0] / total) if total else 0.0
        return total / count, rounding, round(count) if now[1] < WHOLE_COUNT else 0

    def _seen(self, iterator: Any) -> Any:
        """Return an iterator over the batches that the execution takes, which are noted."""
        if self.is_over or not is_readable(iterator):
            return iterator
        batches = list(_taken(iterator, self._model.steps_per_execution))
        for batch in batches:
            self.batch(batch)
        return again(batches, iterator.element_spec) if batches else iterator


def of_fit(model: Any, begun: Callable[[FitStep], None]) -> Callable[[FirstSteps], Begin]:
    """Return what measures a step of a ``fit``; each measure is given to ``begun``."""

    def begin_of(steps: FirstSteps) -> Begin:
        def begin(done: Callable[[StepFigures | None], None]) -> FitStep:
            measure = FitStep(done, model, steps)
            begun(measure)
            return measure

        return begin

    return begin_of


# -- batches --------------------------------------------------------------------------------------


def is_readable(iterator: Any) -> bool:
    """Return whether an iterator is TensorFlow's own, on one device, over plain tensors."""
    import tensorflow

    return isinstance(iterator, tensorflow.data.Iterator) and all(
        type(spec).__name__ == "TensorSpec"
        for spec in tensorflow.nest.flatten(iterator.element_spec)
    )


def again(batches: Sequence[Any], spec: Any) -> Any:
    """Return an iterator over ``batches`` of the type of one over elements of ``spec``."""
    import tensorflow

    dataset: Any = None
    for batch in batches:
        one = tensorflow.data.Dataset.from_tensors(batch)
        one._structure = spec  # a batch alone has a size of its own
        dataset = one if dataset is None else dataset.concatenate(one)
    return iter(dataset)


def _taken(iterator: Any, count: int) -> Iterator[Any]:
    import tensorflow

    for _ in range(count):
        try:
            yield iterator.get_next()
        except (StopIteration, tensorflow.errors.OutOfRangeError):
            return


def digest_of(batch: Any) -> tuple[int, int]:
    """Return the sum of the hashes of a batch's samples, and their number."""
    digest = samples = 0
    for part in _parts(batch):
        arrays = [one for one in map(_array, part) if one is not None and one.ndim]
        if not arrays:
            continue
        count = len(arrays[0])
        digest += sum_of_hashes(
            count,
            (
                (b"%d" % number, _contents(array))
                for number, array in enumerate(arrays)
                if len(array) == count > 0
            ),
        )
        samples += count
    return digest, samples


def form_of(batch: Any) -> str:
    """Return type and shape of each part of a sample."""
    first = map(_array, next(_parts(batch)))
    found = [one for one in first if one is not None and one.ndim]
    return ", ".join(f"{one.dtype}{list(one.shape[1:])}" for one in found)


def _parts(batch: Any) -> Iterator[list[Any]]:
    """Yield the tensors of each device's part of a batch."""
    import tensorflow

    leaves = tensorflow.nest.flatten(batch)
    copies = [getattr(leaf, "values", None) for leaf in leaves]
    devices = [len(one) for one in copies if isinstance(one, tuple)]
    for number in range(max(devices, default=1)):
        yield [
            one[number] if isinstance(one, tuple) and len(one) > number else leaf
            for leaf, one in zip(leaves, copies, strict=True)
        ]


def _array(leaf: Any) -> Any:
    """Return a tensor as an array; None of another object."""
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        return None
    array = leaf.numpy() if hasattr(leaf, "numpy") else leaf
    return array if hasattr(array, "ndim") else None


def _contents(array: Any) -> Iterator[bytes]:
    """Yield the bytes of each sample, of a large one those of some numbers."""
    flat = array.reshape(len(array), -1)
    flat = flat[:, :: max(1, flat.shape[1] // SAMPLES)]
    if flat.dtype.hasobject:
        yield from (repr(row.tolist()).encode() for row in flat)
    else:
        yield from (row.tobytes() for row in flat)


# -- weights --------------------------------------------------------------------------------------


def samples_of(variable: Any) -> Any:
    """Return some numbers of a variable, evenly spaced, as an array of their own."""
    value = variables.one_copy(variable)
    stride = max(1, math.prod(variable.shape) // SAMPLES)
    if stride * SAMPLES > WHOLE_MAX:
        import tensorflow

        value, stride = tensorflow.reshape(value, [-1])[::stride], 1
    return value.numpy().reshape(-1)[::stride].astype("float64")


def _update(before: list[Any], after: list[Any]) -> float | None:
    """Return the norm of the change of samples of all weights; None if it is not finite."""
    if len(before) != len(after):
        return None
    changes = (now - then for then, now in zip(before, after, strict=True))
    norm = math.sqrt(math.fsum(float((change * change).sum()) for change in changes))
    return norm if math.isfinite(norm) else None


def _trained(model: Any) -> list[Any]:
    if hasattr(model, "trainable_variables"):
        return list(model.trainable_variables)
    return [model] if getattr(model, "trainable", False) else []


def _names(models: Iterable[Any]) -> Iterator[str]:
    """Yield the names of what is trained. The numbers that Keras adds to names depend on what else
    a process has made; the place among the model's weights does not."""
    for model in models:
        places = {id(one): number for number, one in enumerate(getattr(model, "variables", ()))}
        for weight in _trained(model):
            name = re.sub(r"_\d+(?=/|$)", "", str(getattr(weight, "path", weight.name)))
            yield f"{name} ({places.get(id(weight), 0)})"


def _layers(model: Any) -> list[Any]:
    return list(model._flatten_layers()) if hasattr(model, "_flatten_layers") else []


def _rates(optimizer: Any) -> tuple[float, ...]:
    rate = getattr(optimizer, "learning_rate", None)
    value = variables.one_copy(rate)
    try:
        return (float(value.numpy() if hasattr(value, "numpy") else value),)
    except (TypeError, ValueError):
        return ()  # an optimizer of another kind


def _sums(model: Any) -> Sums | None:
    """Return the sums of Keras's own mean of the loss; None if the model has none."""
    tracker = getattr(model, "_loss_tracker", None)
    if tracker is None:
        return None
    total, count = variables.sum_of(tracker.total), variables.sum_of(tracker.count)
    return (total, count) if math.isfinite(total) else None


def _rounds_products() -> bool:
    """Return whether matrix products on a GPU are in TF32, which rounds as half precision does."""
    import tensorflow

    config = tensorflow.config
    has_gpu = bool(config.list_logical_devices("GPU"))
    return has_gpu and bool(config.experimental.tensor_float_32_execution_enabled())
