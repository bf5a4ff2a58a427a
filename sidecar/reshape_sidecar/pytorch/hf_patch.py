"""Wraps the methods of ``transformers.Trainer`` through which a ``train`` call goes.

Does: replaces them on the class when the script imports it. It adds no callback to the script's
list. A call that cannot be saved, and a Trainer that is not known, train as without the hook.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol

from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.hook.log import complain
from reshape_sidecar.pytorch import hf_samples, hf_state, hf_verdict
from reshape_sidecar.pytorch.hf_calls import Calls, CallsSession

NOT_SAVED = "Reshape does not save this training: "
UNKNOWN_VERSION = (
    NOT_SAVED + "transformers {} has a Trainer without {}. Use 5.24, or save on SIGTERM"
)
METHODS = {
    "_init_training_state": (
        *("max_steps", "num_update_steps_per_epoch", "num_train_epochs"),
        *("resume_from_checkpoint", "trial"),
    ),
    "_prepare_for_training": ("max_steps", "train_dataloader", "resume_from_checkpoint"),
    "_load_from_checkpoint": ("resume_from_checkpoint", "model"),
    "_load_rng_state": ("checkpoint",),
    "_wrap_model": ("model",),
    "_run_epoch": ("model", "epoch"),
    "_maybe_log_save_evaluate": (),
    "training_step": ("model", "inputs", "num_items_in_batch"),
    "compute_loss": ("model",),
}
"""Methods of Trainer, and the first parameters that the hook knows. A script's own Trainer may give
each of them by its name."""


class Hook(Protocol):
    """What this module needs of ``pytorch_start``."""

    @property
    def session(self) -> CallsSession: ...

    def at_end(self, call: Callable[[], None]) -> None: ...


def patch(module: Any, hook: Hook) -> None:
    """Patch ``transformers.trainer``, which has just been imported."""
    trainer = module.Trainer
    missing = [name for name, known in METHODS.items() if not _takes(trainer, name, known)]
    if missing:
        complain(UNKNOWN_VERSION.format(hf_state.versions()["transformers"], ", ".join(missing)))
        return
    calls = Calls(lambda: hook.session)
    hook.at_end(calls.script_ended)
    hf_samples.patch_fetch()
    _patch_train(trainer, calls)
    _patch_begin(trainer, calls)
    _patch_restore(trainer, calls)
    _patch_steps(trainer, calls)
    _patch_callbacks(module.CallbackHandler, calls)


def _takes(trainer: Any, name: str, known: tuple[str, ...]) -> bool:
    """Return whether a method has these first parameters."""
    method = getattr(trainer, name, None)
    if method is None:
        return False
    return tuple(inspect.signature(method).parameters)[1 : len(known) + 1] == known


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Let ``around(original, own, *args, **kwargs)`` replace a method."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(own: Any, *args: Any, **kwargs: Any) -> Any:
        return around(original, own, *args, **kwargs)

    setattr(owner, name, method)


def _patch_train(trainer: Any, calls: Calls) -> None:
    signature = inspect.signature(trainer.train)

    def train(original: Any, own: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(own, *args, **kwargs)
        given.apply_defaults()
        arguments = {name: value for name, value in given.arguments.items() if name != "self"}
        why = hf_verdict.unsupported(own)
        if arguments.get("trial") is not None:
            why = "a search for hyperparameters"
        if why is not None:
            complain(f"{NOT_SAVED}{why}. After a reshape it starts from the beginning")
            return original(own, *args, **kwargs)
        return calls.run(own, original, arguments)

    _wrap(trainer, "train", train)


def _patch_begin(trainer: Any, calls: Calls) -> None:
    def init_training_state(
        original: Any,
        own: Any,
        max_steps: int,
        num_update_steps_per_epoch: int,
        num_train_epochs: int,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        lengths = (num_update_steps_per_epoch, num_train_epochs)
        position = original(own, max_steps, *lengths, *args, **kwargs)
        call = calls.of(own)
        return position if call is None else call.begin(*lengths, position)

    def prepare_for_training(
        original: Any, own: Any, max_steps: int, train_dataloader: Any, resume_from_checkpoint: Any
    ) -> Any:
        call = calls.of(own)
        if call is not None:
            call.watch_loader(train_dataloader)
        if call is None or not call.is_own(resume_from_checkpoint):
            return original(own, max_steps, train_dataloader, resume_from_checkpoint)
        try:
            return original(own, max_steps, train_dataloader, resume_from_checkpoint)
        except (ValueError, KeyError) as error:
            what = f"checkpoint {resume_from_checkpoint} does not fit the optimizer or its schedule"
            raise CheckpointError(f"{what}: {error}; {hf_state.REMEDY}") from error

    _wrap(trainer, "_init_training_state", init_training_state)
    _wrap(trainer, "_prepare_for_training", prepare_for_training)


def _patch_restore(trainer: Any, calls: Calls) -> None:
    def load_from_checkpoint(
        original: Any, own: Any, resume_from_checkpoint: str, model: Any = None
    ) -> Any:
        call = calls.of(own)
        if call is None or not call.is_own(resume_from_checkpoint):
            return original(own, resume_from_checkpoint, model)
        return call.load_model()

    def load_rng_state(original: Any, own: Any, checkpoint: Any) -> Any:
        call = calls.of(own)
        if call is None or not call.is_own(checkpoint):
            return original(own, checkpoint)
        return call.restore_random()

    def wrap_model(original: Any, own: Any, *args: Any, **kwargs: Any) -> Any:
        if (call := calls.of(own)) is not None:
            call.restore_trained()
        return original(own, *args, **kwargs)

    _wrap(trainer, "_wrap_model", wrap_model)
    _wrap(trainer, "_load_from_checkpoint", load_from_checkpoint)
    _wrap(trainer, "_load_rng_state", load_rng_state)


def _patch_steps(trainer: Any, calls: Calls) -> None:
    def run_epoch(original: Any, own: Any, *args: Any, **kwargs: Any) -> Any:
        call = calls.of(own)
        if call is None:
            return original(own, *args, **kwargs)
        if call.ends_before_a_step():
            return None
        call.epoch_begins(kwargs["epoch"] if "epoch" in kwargs else args[1])
        original(own, *args, **kwargs)
        call.epoch_ended()
        return None

    def log_save_evaluate(original: Any, own: Any, *args: Any, **kwargs: Any) -> Any:
        call = calls.of(own)
        if call is None:
            return original(own, *args, **kwargs)
        call.step_ends()
        original(own, *args, **kwargs)
        call.step_ended()

    def training_step(
        original: Any, own: Any, model: Any, inputs: Any, num_items_in_batch: Any = None
    ) -> Any:
        call = calls.of(own)
        if call is None:
            return original(own, model, inputs, num_items_in_batch)
        labels = inputs.get("labels") if hasattr(inputs, "get") else None
        return call.micro_batch(
            lambda count: original(own, model, inputs, count), inputs, num_items_in_batch, labels
        )

    def compute_loss(original: Any, own: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(own, model, *args, **kwargs)
        call = calls.of_loss(own)
        return result if call is None else call.base_loss(model, result)

    _wrap(trainer, "_run_epoch", run_epoch)
    _wrap(trainer, "_maybe_log_save_evaluate", log_save_evaluate)
    _wrap(trainer, "training_step", training_step)
    _wrap(trainer, "compute_loss", compute_loss)


def _patch_callbacks(handler: Any, calls: Calls) -> None:
    def on_train_begin(original: Any, own: Any, *args: Any, **kwargs: Any) -> Any:
        call = calls.of_callbacks(own)
        if call is not None:
            call.callbacks_begin()
        control = original(own, *args, **kwargs)
        if call is not None:
            call.callbacks_began()
        return control

    def on_evaluate(
        original: Any, own: Any, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any
    ) -> Any:
        control = original(own, args, state, control, metrics, **kwargs)
        if (call := calls.of_callbacks(own)) is not None:
            call.evaluated(metrics)
        return control

    _wrap(handler, "on_train_begin", on_train_begin)
    _wrap(handler, "on_evaluate", on_evaluate)
