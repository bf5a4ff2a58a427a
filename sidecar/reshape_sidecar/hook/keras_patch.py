"""The patches of Keras 3 on TensorFlow: the methods that the hook wraps.

Does: wraps ``fit``, the epoch iterator and the callback list, and calls ``Training`` from there;
wraps ``train_on_batch`` to count the steps of other loops than ``fit``, which are not saved. The
script's list of callbacks stays as it is.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
from typing import Any

from reshape_sidecar.contract import HookPhase
from reshape_sidecar.hook import building, callback_state, data_state, optimizer_saves
from reshape_sidecar.hook.fit import Fit
from reshape_sidecar.hook.position import Position, seed_source
from reshape_sidecar.hook.shuffles import JobShuffles
from reshape_sidecar.hook.training import Training

PY_DATASET_ADAPTER = "keras.src.trainers.data_adapters.py_dataset_adapter"
DONE_AGAIN = (
    "reshape: a stop was requested, but no `fit` is running: steps of `train_on_batch` since the "
    "last one ({}) are not saved; the next process repeats them\n"
)


class OtherLoops:
    """Training steps outside of ``fit`` calls, by ``train_on_batch``."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._steps = 0
        training.saver.stop.before_leaving = self._leaving

    def patch(self, trainer: Any) -> None:
        """Wrap ``train_on_batch`` of Keras's trainer."""
        original = trainer.train_on_batch

        @functools.wraps(original)
        def train_on_batch(model: Any, *args: Any, **kwargs: Any) -> Any:
            if self._training.fit is None:
                if not self._steps:
                    self._training.save_last_end()
                self._steps += 1
            return original(model, *args, **kwargs)

        trainer.train_on_batch = train_on_batch

    def fit_begins(self) -> None:
        """Reset the count: a save of the fit holds the steps before it."""
        self._steps = 0

    def _leaving(self) -> None:
        """Report the lost steps to the log and the agent, from the signal handler."""
        if not self._steps:
            return
        with contextlib.suppress(OSError):
            os.write(2, DONE_AGAIN.format(self._steps).encode())
        reporter = self._training.reporter
        reporter.update(step=self._training.step + self._steps)
        reporter.phase(HookPhase.SAVED)
        reporter.flush()


def patch(module: Any, training: Training, shuffles: JobShuffles) -> None:
    """Wrap the classes of ``keras.src.backend.tensorflow.trainer``."""
    trainer = getattr(module, "TensorFlowTrainer", None) or module.Trainer  # since Keras 3.16
    other_loops = OtherLoops(training)
    other_loops.patch(trainer)
    _patch_fit(trainer, training, other_loops)
    _patch_iterator(module, training, shuffles)
    _patch_callbacks(module.callbacks_module.CallbackList, training)
    optimizer_saves.watch(training.optimizer_saved)


def _patch_fit(trainer: Any, training: Training, other_loops: OtherLoops) -> None:
    original = trainer.fit
    signature = inspect.signature(original)

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        if training.fit is not None:
            return original(self, *args, **kwargs)
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError:
            return original(self, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        del arguments["self"]
        other_loops.fit_begins()
        return training.run(self, original, arguments)

    trainer.fit = fit
    build_original = trainer._maybe_symbolic_build

    @functools.wraps(build_original)
    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        fit = training.fit
        position = fit.position if fit is not None and fit.model is self else None
        if position is None or position.iterator is not iterator or not position.data.draws_again:
            build_original(self, iterator, data_batch)
        elif self._distribute_strategy is not None:
            # Not by a batch: its iterator reads ahead, and so moves the seeds by chance.
            building.build(self, iterator)

    trainer._maybe_symbolic_build = _maybe_symbolic_build
    logs_original = trainer._get_metrics_result_or_logs

    @functools.wraps(logs_original)
    def _get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        fit = training.fit
        if fit is not None and fit.model is self:
            fit.steps_over()
            if fit.in_epoch and not logs:
                # A fit that was resumed behind the last step of an epoch has no logs of its own.
                logs = fit.last_logs
        return logs_original(self, logs)

    trainer._get_metrics_result_or_logs = _get_metrics_result_or_logs
    evaluate_original = trainer.evaluate

    @functools.wraps(evaluate_original)
    def evaluate(self: Any, *args: Any, **kwargs: Any) -> Any:
        fit = training.fit
        if fit is None or fit.model is not self:
            return evaluate_original(self, *args, **kwargs)
        fit.evaluation_begins()
        try:
            return evaluate_original(self, *args, **kwargs)
        finally:
            fit.evaluation_ended()

    trainer.evaluate = evaluate


def _patch_iterator(module: Any, training: Training, shuffles: JobShuffles) -> None:
    iterator_class = module.TFEpochIterator
    init = iterator_class.__init__
    get = iterator_class._get_iterator
    enumerate_ = iterator_class._enumerate_iterator
    step = iterator_class.__next__

    def position_of(iterator: Any) -> tuple[Fit, Position] | None:
        fit = training.fit
        if fit is not None and fit.position is not None and fit.position.iterator is iterator:
            return fit, fit.position
        return None

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        fit = training.fit
        if fit is None:
            init(self, *args, **kwargs)
            return
        if fit.position is not None:
            with fit.position.data.validation_begins():
                init(self, *args, **kwargs)
            return
        sources: list[Any] = []
        with _job_seeded_arrays(module, shuffles, sources):
            init(self, *args, **kwargs)
        source = sources[0] if sources else seed_source(self)
        data = data_state.of(self, fit.validation_data, fit.model)
        fit.position = Position(self, enumerate_, get, source, data)

    @functools.wraps(get)
    def _get_iterator(self: Any) -> Any:
        found = position_of(self)
        if found:
            return found[1].get_iterator()
        training.other_iterator(self)
        return get(self)

    @functools.wraps(enumerate_)
    def _enumerate_iterator(self: Any) -> Any:
        found = position_of(self)
        return found[1].enumerate() if found else enumerate_(self)

    @functools.wraps(step)
    def __next__(self: Any) -> Any:
        found = position_of(self)
        if found is None:
            training.other_boundary()
            item = step(self)
            training.count_validation_draw(self, item[2])
            return item
        found[0].boundary()
        return found[1].count_draw(step(self))

    adapter_class: Any = importlib.import_module(PY_DATASET_ADAPTER).PyDatasetAdapter
    batches_of = adapter_class._get_iterator

    @functools.wraps(batches_of)
    def adapter_iterator(self: Any) -> Any:
        position = training.fit.position if training.fit is not None else None
        if position is None or position.iterator.data_adapter is not self:
            return batches_of(self)
        return position.data.reading(batches_of(self))

    adapter_class._get_iterator = adapter_iterator
    iterator_class.__init__ = __init__
    iterator_class._get_iterator = _get_iterator
    iterator_class._enumerate_iterator = _enumerate_iterator
    iterator_class.__next__ = __next__


class _job_seeded_arrays:
    """Makes unseeded arrays shuffle by the job's seed while Keras makes a training iterator."""

    def __init__(self, module: Any, shuffles: JobShuffles, sources: list[Any]) -> None:
        from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

        self._class: Any = ArrayDataAdapter
        self._original = ArrayDataAdapter.get_tf_dataset
        self._tensorflow = module.tf
        self._shuffles = shuffles
        self._sources = sources

    def __enter__(self) -> None:
        original, outer = self._original, self

        def get_tf_dataset(adapter: Any) -> Any:
            with outer._shuffles.of_arrays(adapter, outer._tensorflow) as sources:
                dataset = original(adapter)
            outer._sources.extend(sources)
            return dataset

        self._class.get_tf_dataset = get_tf_dataset

    def __exit__(self, *error: object) -> None:
        self._class.get_tf_dataset = self._original


def _patch_callbacks(callback_list: Any, training: Training) -> None:
    train_begin = callback_list.on_train_begin
    epoch_begin = callback_list.on_epoch_begin
    epoch_end = callback_list.on_epoch_end
    batch_begin = callback_list.on_train_batch_begin
    batch_end = callback_list.on_train_batch_end

    @functools.wraps(train_begin)
    def on_train_begin(self: Any, logs: Any = None) -> None:
        fit = training.fit
        mine = fit is not None and fit.callbacks is None and fit.position is not None
        if mine and fit is not None and fit.prepares:
            fit.prepare()
        if mine and fit is not None and fit.resumes:
            callback_state.append_instead_of_truncating(self.callbacks)
        train_begin(self, logs)
        if mine and fit is not None:
            fit.train_begins(self)

    @functools.wraps(epoch_begin)
    def on_epoch_begin(self: Any, epoch: int, logs: Any = None) -> None:
        epoch_begin(self, epoch, logs)
        fit = training.fit
        if fit is not None and fit.callbacks is self:
            fit.epoch_begins(epoch)

    @functools.wraps(epoch_end)
    def on_epoch_end(self: Any, epoch: int, logs: Any = None) -> None:
        fit = training.fit
        if fit is None or fit.callbacks is not self:
            epoch_end(self, epoch, logs)
            return
        fit.epoch_ends()
        recorded = {name: len(values) for name, values in _recorded(self).items()}
        epoch_end(self, epoch, logs)
        fit.epoch_ended()
        values = {**_floats(logs or {}), **_news(self, recorded)}
        training.evaluations.epoch_ended(values, step=training.step)
        if training.target.active:
            fit.judge(values)

    @functools.wraps(batch_begin)
    def on_train_batch_begin(self: Any, batch: int, logs: Any = None) -> None:
        batch_begin(self, batch, logs)
        fit = training.fit
        if fit is not None and fit.callbacks is self:
            fit.step_begins()

    @functools.wraps(batch_end)
    def on_train_batch_end(self: Any, batch: int, logs: Any = None) -> None:
        fit = training.fit
        mine = fit is not None and fit.callbacks is self
        if mine and fit is not None:
            fit.step_made()
        batch_end(self, batch, logs)
        if mine and fit is not None:
            fit.step_ended(batch, logs)

    callback_list.on_train_begin = on_train_begin
    callback_list.on_epoch_begin = on_epoch_begin
    callback_list.on_epoch_end = on_epoch_end
    callback_list.on_train_batch_begin = on_train_batch_begin
    callback_list.on_train_batch_end = on_train_batch_end


def _recorded(callback_list: Any) -> dict[str, list[Any]]:
    """The values by metric in the History of a callback list; a callback may add metrics to it."""
    recorded = getattr(getattr(callback_list, "_history", None), "history", None)
    return recorded if isinstance(recorded, dict) else {}


def _news(callback_list: Any, before: dict[str, int]) -> dict[str, float]:
    """The metrics that an epoch added to the History, which had ``before`` many values of each."""
    return _floats(
        {
            name: values[-1]
            for name, values in _recorded(callback_list).items()
            if len(values) > before.get(name, 0)
        }
    )


def _floats(logs: dict[str, Any]) -> dict[str, float]:
    """The entries of ``logs`` that are numbers; one that is not finite is a number too."""
    found = {}
    for name, value in logs.items():
        with contextlib.suppress(TypeError, ValueError):
            found[name] = float(value)
    return found
