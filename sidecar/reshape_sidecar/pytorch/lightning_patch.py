"""Wraps what Lightning's Trainer calls, so that an unmodified script is saved and reshaped.

Does: wraps methods of Lightning's classes when the script imports it. Every wrapper calls the
method it wraps, and does nothing else for a Trainer that is not elastic.
"""

from __future__ import annotations

import functools
import importlib
import time
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol

from reshape_sidecar.hook.log import complain
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.pytorch import lightning_devices
from reshape_sidecar.pytorch.lightning_devices import FitError
from reshape_sidecar.pytorch.lightning_fit import Fits, FitSession

TRAINER = ".trainer.trainer"
NOT_RESUMABLE = "You're resuming from a checkpoint that ended before the epoch ended"
REASON = "_reshape_reason"
"""Attribute of an accelerator connector: why its Trainer is not elastic."""


class Hook(Protocol):
    """What the patch needs of the process's hook (``reshape_sidecar.pytorch_start``)."""

    @property
    def session(self) -> FitSession: ...

    @property
    def settings(self) -> HookSettings: ...

    def at_end(self, call: Callable[[], None]) -> None: ...


def patch(module: ModuleType, hook: Hook) -> None:
    """Patch the Lightning whose module ``trainer.trainer`` was imported."""
    root = module.__name__.removesuffix(TRAINER)
    library = importlib.import_module(root)
    fits = Fits(lambda: hook.session, library)
    hook.at_end(fits.script_ended)

    def part(name: str) -> Any:
        return importlib.import_module(f"{root}.{name}")

    _patch_devices(part("trainer.connectors.accelerator_connector"), hook)
    _patch_fit(module.Trainer, fits, hook)
    _patch_restore(part("trainer.connectors.checkpoint_connector")._CheckpointConnector, fits)
    _patch_hooks(part("trainer.call"), fits)
    _patch_signals(part("trainer.connectors.signal_connector")._SignalConnector, fits)
    _patch_data(part("loops.fit_loop"), part("loops.fetchers")._DataFetcher, fits)
    evaluation = part("loops.evaluation_loop")._EvaluationLoop
    _patch_steps(part("loops.fit_loop"), part("loops.training_epoch_loop"), evaluation, fits)
    _patch_optimizers(part("strategies.strategy").Strategy, fits)
    connector = part("trainer.connectors.logger_connector.logger_connector")._LoggerConnector
    _patch_loss(part("loops.optimization.automatic")._AutomaticOptimization, connector, fits)


def _wrap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(make(original)))


def _patch_devices(module: Any, hook: Hook) -> None:
    def make(original: Any) -> Any:
        def init(connector: Any, **arguments: Any) -> None:
            settings = hook.settings
            chosen = lightning_devices.choice(
                arguments, settings.ranks, simulated=settings.simulated, module=module
            )
            setattr(connector, REASON, chosen.reason)
            original(connector, **chosen.arguments)

        return init

    _wrap(module._AcceleratorConnector, "__init__", make)


def _patch_fit(trainer_class: Any, fits: Fits, hook: Hook) -> None:
    def make_fit(original: Any) -> Any:
        def fit(trainer: Any, *arguments: Any, **named: Any) -> None:
            reason = getattr(trainer._accelerator_connector, REASON, None)
            if fits.fit is not None or reason is not None:
                if reason is not None and fits.count == 0:
                    _refuse_alone(trainer, reason, hook.settings.ranks)
                original(trainer, *arguments, **named)
                return
            fit = fits.begin(trainer)
            if fit.state is not None:
                arguments, named = _without_path(arguments, named)
            try:
                original(trainer, *arguments, **named)
                fits.ended()
            finally:
                fits.fit = None

        return fit

    def make_stage(original: Any) -> Any:
        def run_stage(trainer: Any) -> Any:
            fit = fits.fit
            if fit is None or fit.trainer is not trainer or not trainer.training:
                return original(trainer)
            if fit.is_over:
                return None
            if fit.resumes:
                fit.trainer.fit_loop.epoch_loop.val_loop._restarting = True  # no sanity check
            fit.trains = fit.has_trained = True
            try:
                return original(trainer)
            finally:
                fit.trains = False

        return run_stage

    _wrap(trainer_class, "fit", make_fit)
    _wrap(trainer_class, "_run_stage", make_stage)


def _refuse_alone(trainer: Any, reason: str, ranks: int) -> None:
    if ranks > 1 and trainer.world_size < ranks:
        raise FitError(f"{reason}; each of the job's {ranks} GPUs would train alone")
    complain(f"{reason}; this fit is not saved, and begins again after a reshape")


def _without_path(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return the arguments of ``fit`` without the script's own checkpoint."""
    kept = {name: value for name, value in named.items() if name != "ckpt_path"}
    return arguments[:4], kept


def _patch_restore(connector_class: Any, fits: Fits) -> None:
    def make(original: Any) -> Any:
        def resume_start(connector: Any, *arguments: Any, **named: Any) -> None:
            if not fits.restore_begins(connector):
                original(connector, *arguments, **named)

        return resume_start

    _wrap(connector_class, "resume_start", make)


def _patch_hooks(module: Any, fits: Fits) -> None:
    def make(original: Any) -> Any:
        def on_save_checkpoint(trainer: Any, checkpoint: dict[str, Any]) -> None:
            fits.dumps.before_hooks(checkpoint)
            original(trainer, checkpoint)

        return on_save_checkpoint

    _wrap(module, "_call_callbacks_on_save_checkpoint", make)


def _patch_signals(connector_class: Any, fits: Fits) -> None:
    def make(original: Any) -> Any:
        def register(connector: Any) -> None:
            original(connector)
            if getattr(connector.trainer._accelerator_connector, REASON, None) is None:
                fits.take_signal()

        return register

    _wrap(connector_class, "register_signal_handlers", make)


def _patch_data(loop_module: Any, fetcher_class: Any, fits: Fits) -> None:
    def make_process(original: Any) -> Any:
        def process(trainer: Any, *arguments: Any, **named: Any) -> Any:
            loader = original(trainer, *arguments, **named)
            fit = fits.fit
            return fit.loaders.adapt(loader) if fit and fit.trainer is trainer else loader

        return process

    def make_request(original: Any) -> Any:
        def request(source: Any) -> Any:
            if fits.fit is not None:
                fits.fit.loaders.request_begins()
            return original(source)

        return request

    def make_iter(original: Any) -> Any:
        def begin(fetcher: Any) -> Any:
            result = original(fetcher)
            fit = fits.fit
            if fit is not None and fit.trainer.fit_loop._data_fetcher is fetcher:
                for _ in range(fit.loaders.discards()):
                    next(fetcher.iterator)
            return result

        return begin

    def make_next(original: Any) -> Any:
        def read(fetcher: Any) -> Any:
            batch = original(fetcher)
            fits.batch_read(fetcher)
            return batch

        return read

    _wrap(loop_module, "_process_dataloader", make_process)
    _wrap(loop_module, "_request_dataloader", make_request)
    _wrap(fetcher_class, "__iter__", make_iter)
    _wrap(fetcher_class, "__next__", make_next)


def _patch_steps(loop_module: Any, epoch_module: Any, evaluation_class: Any, fits: Fits) -> None:
    trains = functools.partial(_trains, fits)

    def make_run(original: Any) -> Any:
        def run(loop: Any) -> None:
            if not trains(loop):
                original(loop)
                return
            fits.loop_begins(loop_module._set_sampler_epoch)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=NOT_RESUMABLE)
                original(loop)

        return run

    def make_advance(original: Any) -> Any:
        def advance(loop: Any, fetcher: Any) -> None:
            if not trains(loop):
                original(loop, fetcher)
                return
            fits.batch_begins()
            with fits.first_steps.leaving_if_it_fails():
                original(loop, fetcher)
            fits.batch_made()

        return advance

    def make_batch_end(original: Any) -> Any:
        def on_advance_end(loop: Any, fetcher: Any) -> None:
            original(loop, fetcher)
            if trains(loop) and not loop._should_accumulate() and not loop.done:
                fits.boundary(batches=loop.batch_progress.current.ready)

        return on_advance_end

    def make_evaluation(original: Any) -> Any:
        def run(loop: Any) -> Any:
            fit = fits.fit if trains(loop) and not loop.trainer.sanity_checking else None
            if fit is not None:
                fit.clock.rest(time.monotonic(), evaluates=True)
            result = original(loop)
            if fit is not None:
                fit.has_evaluated = True
            return result

        return run

    def make_epoch_start(original: Any) -> Any:
        def on_advance_start(loop: Any) -> None:
            if trains(loop):
                fits.epoch_begins()
            original(loop)

        return on_advance_start

    def make_epoch_end(original: Any) -> Any:
        def on_advance_end(loop: Any) -> None:
            original(loop)
            if trains(loop):
                fits.boundary(is_last=_is_over(loop))

        return on_advance_end

    _wrap(loop_module._FitLoop, "run", make_run)
    _wrap(epoch_module._TrainingEpochLoop, "advance", make_advance)
    _wrap(epoch_module._TrainingEpochLoop, "on_advance_end", make_batch_end)
    _wrap(loop_module._FitLoop, "on_advance_start", make_epoch_start)
    _wrap(loop_module._FitLoop, "on_advance_end", make_epoch_end)
    _wrap(evaluation_class, "run", make_evaluation)


def _trains(fits: Fits, loop: Any) -> bool:
    fit = fits.fit
    return fit is not None and fit.trains and fit.trainer is loop.trainer


def _is_over(loop: Any) -> bool:
    """Return what ``loop.done`` says, which prints."""
    reached = [
        limit not in (None, -1) and count >= limit
        for count, limit in (
            (loop.epoch_loop.global_step, loop.max_steps),
            (loop.epoch_progress.current.processed, loop.max_epochs),
        )
    ]
    return any(reached) or bool(loop.trainer.should_stop and loop._can_stop_early)


def _patch_optimizers(strategy_class: Any, fits: Fits) -> None:
    def make(original: Any) -> Any:
        def setup_optimizers(strategy: Any, trainer: Any) -> None:
            fits.optimizers_are_made(lambda: original(strategy, trainer))

        return setup_optimizers

    def make_step(original: Any) -> Any:
        def training_step(strategy: Any, *arguments: Any, **named: Any) -> Any:
            if fits.fit is not None:
                fits.first_steps.batch(next(iter((*arguments, *named.values())), None))
            return original(strategy, *arguments, **named)

        return training_step

    _wrap(strategy_class, "setup_optimizers", make)
    _wrap(strategy_class, "training_step", make_step)


def _patch_loss(optimization_class: Any, connector_class: Any, fits: Fits) -> None:
    def make(original: Any) -> Any:
        def run(loop: Any, *step: Any) -> Any:
            fit = fits.fit
            if fit is not None and fit.micro is not None and fit.trainer is loop.trainer:
                output = fit.micro.run(original, loop, *step)
            else:
                output = original(loop, *step)
            if fit is not None and isinstance(output, dict):
                fit.loss = output.get("loss")
            return output

        return run

    def make_start(original: Any) -> Any:
        def on_batch_start(connector: Any, batch: Any, *place: Any) -> None:
            original(connector, batch, *place)
            fit = fits.fit
            if fit is not None and fit.micro is not None and fit.trainer is connector.trainer:
                fit.micro.batch_moved(batch)

        return on_batch_start

    _wrap(optimization_class, "run", make)
    _wrap(connector_class, "on_batch_start", make_start)
