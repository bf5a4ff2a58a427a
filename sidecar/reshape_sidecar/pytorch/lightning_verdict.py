"""Whether a reshape changes the numbers of a Lightning fit, with the reasons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reshape_sidecar.hook.exactness import STEPS_ONLY, UNKNOWN, Verdict
from reshape_sidecar.pytorch import exact_notes
from reshape_sidecar.pytorch.weights import is_compiled
from reshape_sidecar.verdict.reach import Reach
from reshape_sidecar.wire import Trajectory

Reason = tuple[str, Trajectory]
REMEDY = (
    "keep it as numbers, texts, tensors or collections of them, in an attribute of the module or of"
    " a callback that is there when training begins"
)
OF_TRAINER = (
    *("accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm"),
    *("limit_train_batches", "check_val_every_n_epoch", "val_check_interval", "val_check_batch"),
    "should_stop",
)
"""Attributes of a Trainer that callbacks change and no checkpoint of Lightning holds."""
READ_ONCE = ("limit_val_batches", "overfit_batches", "reload_dataloaders_every_n_epochs")
"""Attributes that count when the loops make their data: a restart makes these at another time."""
OF_SCHEDULES = ("interval", "frequency", "monitor", "reduce_on_plateau", "strict")
"""How Lightning calls a schedule, which its state does not say."""
LOST = {
    "StochasticWeightAveraging": "the schedule of StochasticWeightAveraging begins at an epoch",
    "ModelPruning": "ModelPruning has no masks after a restart",
}
"""Callbacks of Lightning that a restart does not bring back."""
MEANS = "the logged mean of an epoch in which it stops covers the rest of it only"
OF_BACKWARD = ("on_before_backward", "on_after_backward")
"""Hooks that run for each micro-batch of a process, unlike all others of a batch."""
HALF = {"16-mixed": "float16", "bf16-mixed": "bfloat16"}
SEARCHES = ("LearningRateFinder", "BatchSizeFinder")


def exact(trainer: Any, *, is_micro: bool) -> Verdict:
    """Return ``exact`` with its notes: the module computes the loss."""
    types = {*exact_notes.weight_types([trainer.lightning_module])}
    types |= {HALF.get(str(trainer.precision), "")}
    return exact_notes.verdict(owns_loss=True, types=types, is_micro=is_micro)


def reasons(trainer: Any, *, is_micro: bool) -> Iterator[Reason]:
    """Yield what is known against ``exact`` once the fit trains."""
    model = trainer.lightning_module
    for reason in exact_notes.step_reasons([model], is_micro=is_micro):
        yield reason, STEPS_ONLY
    for reason in exact_notes.lost_reasons([]):
        yield reason, UNKNOWN
    if is_micro and (hooks := {name for name in OF_BACKWARD if _has_own(trainer, name)}):
        yield f"{' and '.join(sorted(hooks))} runs for each micro-batch", STEPS_ONLY
    if not model.automatic_optimization and is_compiled(model):
        yield "manual optimization: gradients between two batches are not saved", UNKNOWN
    for callback in trainer.callbacks:
        if type(callback).__name__ in SEARCHES:
            yield f"{type(callback).__name__} trains outside of the fit", UNKNOWN
        for one in type(callback).__mro__:
            if one.__name__ in LOST and _of_lightning(one):
                yield LOST[one.__name__], UNKNOWN
    if trainer.reload_dataloaders_every_n_epochs:
        yield "reload_dataloaders_every_n_epochs: a restart asks for the data again", UNKNOWN
    if trainer.strategy._ddp_comm_state is not None or trainer.strategy._model_averaging_period:
        yield "a communication hook of DDP has state that no checkpoint holds", UNKNOWN
    names = {name for name in map(_monitored, trainer.callbacks) if name is not None}
    names |= {config.monitor for config in trainer.lr_scheduler_configs if config.reduce_on_plateau}
    means = set(trainer.callback_metrics) & names & epoch_means(trainer)
    for name in sorted(means):
        yield f"the mean of {name} over the epoch of a stop covers the rest of it only", STEPS_ONLY


def enter(trainer: Any, reach: Reach) -> None:
    """Give a look what a script can keep state in, beside the model."""
    module = trainer.lightning_module
    reach.holds(module)
    for optimizer in trainer.optimizers:
        reach.optimizer(optimizer)
    reach.know(trainer, trainer.strategy, *trainer.loggers)
    combined = trainer.fit_loop._combined_loader
    for loader in combined.flattened if combined is not None else ():
        for part in ("dataset", "collate_fn"):
            reach.data(part, loader, part)
    schedules = [config.scheduler for config in trainer.lr_scheduler_configs]
    reach.schedules(schedules)
    reach.know(*schedules)
    name = type(module).__name__
    reach.model(name, module)
    reach.buffers(name, module)
    if getattr(module, "_hparams", None):
        reach.items(f"{name}.hparams", module._hparams)
    reach.same("optimizers", trainer.optimizers)
    reach.same("schedules", schedules)
    reach.kinds("callbacks", trainer.callbacks)
    for callback in trainer.callbacks:
        if _of_lightning(type(callback)):
            reach.functions_of(type(callback).__name__, callback)
        else:
            reach.root(type(callback).__name__, callback)
    if (data := getattr(trainer, "datamodule", None)) is not None:
        reach.root(type(data).__name__, data)
    for key in OF_TRAINER:
        reach.take(key, "trainer", trainer, key, getattr(trainer, key))
    reach.set_by_script("trainer", trainer)
    reach.set_by_script("trainer.fit_loop", trainer.fit_loop)
    for number, config in enumerate(trainer.lr_scheduler_configs):
        for key in OF_SCHEDULES:
            name = f"schedule {number}"
            reach.take(f"{name} ({key})", name, config, key, getattr(config, key))
    for key in READ_ONCE:
        reach.take(key, "", None, key, getattr(trainer, key))
    reach.script()


def _has_own(trainer: Any, name: str) -> bool:
    """Return whether the script has a hook of this name."""
    owners = (trainer.lightning_module, *trainer.callbacks)
    return any(not _of_lightning(getattr(type(owner), name)) for owner in owners)


def _of_lightning(kind: Any) -> bool:
    return str(kind.__module__).partition(".")[0] in ("lightning", "pytorch_lightning")


def _monitored(callback: Any) -> str | None:
    name = getattr(callback, "monitor", None)
    return name if isinstance(name, str) else None


def epoch_means(trainer: Any) -> set[str]:
    """Return the names of what the training step logs as a mean over the epoch."""
    found = set()
    for result in trainer.fit_loop.epoch_loop._results.values():
        meta = result.meta
        if meta.on_epoch:
            found.add(f"{meta.name}_epoch" if meta.on_step else meta.name)
            found.add(meta.name)
    return found
