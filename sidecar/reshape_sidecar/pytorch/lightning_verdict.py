"""Whether a reshape changes the numbers of a Lightning fit, with the reasons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reshape_sidecar.hook.exactness import STEPS_ONLY, UNKNOWN
from reshape_sidecar.pytorch.loop import layer_reasons
from reshape_sidecar.wire import Trajectory

Reason = tuple[str, Trajectory]
SEARCHES = ("LearningRateFinder", "BatchSizeFinder")


def reasons(trainer: Any) -> Iterator[Reason]:
    """Yield what is known against ``exact`` once the fit trains."""
    model = trainer.lightning_module
    for reason in layer_reasons([model]):
        yield reason, STEPS_ONLY
    if not model.automatic_optimization:
        yield "manual optimization: gradients between two batches are not saved", UNKNOWN
    for callback in trainer.callbacks:
        if type(callback).__name__ in SEARCHES:
            yield f"{type(callback).__name__} trains outside of the fit", UNKNOWN
    if trainer.strategy._ddp_comm_state is not None or trainer.strategy._model_averaging_period:
        yield "a communication hook of DDP has state that no checkpoint holds", UNKNOWN
    names = {name for name in map(_monitored, trainer.callbacks) if name is not None}
    names |= {config.monitor for config in trainer.lr_scheduler_configs if config.reduce_on_plateau}
    means = set(trainer.callback_metrics) & names & _epoch_means(trainer)
    for name in sorted(means):
        yield f"the mean of {name} over the epoch of a stop covers the rest of it only", STEPS_ONLY


def _monitored(callback: Any) -> str | None:
    name = getattr(callback, "monitor", None)
    return name if isinstance(name, str) else None


def _epoch_means(trainer: Any) -> set[str]:
    """Return the names of what the training step logs as a mean over the epoch."""
    found = set()
    for result in trainer.fit_loop.epoch_loop._results.values():
        meta = result.meta
        if meta.on_epoch:
            found.add(f"{meta.name}_epoch" if meta.on_step else meta.name)
            found.add(meta.name)
    return found
