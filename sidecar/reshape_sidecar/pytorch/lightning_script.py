"""What a script keeps beside the module of a Lightning fit: looked at, saved and restored.

Does: restores which weights are trained before the module is wrapped for several processes, and the
rest before the callbacks of an epoch's begin and before the first batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reshape_sidecar.hook.exactness import UNKNOWN, Verdict
from reshape_sidecar.pytorch import lightning_verdict
from reshape_sidecar.pytorch.lightning_state import of_all_ranks
from reshape_sidecar.pytorch.weights import FrozenWeights, TrainedWeights, set_trained, trained
from reshape_sidecar.verdict.watch import Watch

LIMITS = ("max_epochs", "min_epochs", "max_steps", "min_steps")
"""Attributes of Lightning's loops by which training ends; callbacks change them."""


class FitScript:
    """The state of the script in one fit, on one of its processes."""

    def __init__(self, trainer: Any, rank: int, ranks: int) -> None:
        self._trainer, self._rank, self._ranks = trainer, rank, ranks
        self.watch = Watch(lambda reach: lightning_verdict.enter(trainer, reach))
        self._weights: TrainedWeights | None = None
        self._frozen: FrozenWeights | None = None
        self._saved: dict[str, Any] = {}
        """What the process before has saved; empty: nothing."""
        self._limits: dict[str, Any] = {}
        """Limits of the loops as the script's begin makes them."""

    def arrives(self) -> None:
        """Note what is there before the callbacks of the fit's begin."""
        self.watch.arrive()

    def resumes(self, saved: dict[str, Any]) -> None:
        """Take what ``saved`` returned, when the module is there and not wrapped yet."""
        self._saved = saved
        self._weights = TrainedWeights(self._trainer.lightning_module)
        self._restore_trained(is_wrapped=False)
        self._restore_limits()  # Lightning refuses an epoch behind the last one

    def loop_begins(self) -> None:
        """Give the loops the limits that training had changed, after the callbacks of the begin."""
        self._limits = _limits(self._trainer)
        self._restore_limits()

    def makes_optimizers(self, make: Callable[[], None]) -> None:
        """Let the script make its optimizers for the weights that it trains at the begin."""
        if self._weights is None:
            make()
            return
        set_trained(self._trainer.lightning_module, self._weights.first)
        make()
        self._restore_trained(is_wrapped=False)

    @property
    def frozen(self) -> FrozenWeights:
        """What no optimizer trains, and whether the fit has changed it."""
        return self._frozen or FrozenWeights(self._trainer.lightning_module)

    def begins(self) -> bool:
        """Note what everything is at the first epoch's begin; return whether this is that."""
        if self.watch.has_begun:
            return False
        self._weights = TrainedWeights(self._trainer.lightning_module)
        altered = self._saved.get("altered", {}).get("state_dict", {})
        self._frozen = FrozenWeights(self._trainer.lightning_module, altered)
        combined = self._trainer.fit_loop._combined_loader
        loaders = combined.flattened if combined is not None else ()
        self.watch.batch = next((getattr(one, "batch_size", None) for one in loaders), None)
        self.watch.begin()
        return True

    def restore(self) -> None:
        """Set everything as the process before left it, if there was one."""
        self._restore_trained()
        own = self._saved.get("script_of_ranks", [])
        same_gpus = len(own) == self._ranks
        self.watch.restore(self._saved.get("script", []), same_gpus=same_gpus)
        if same_gpus:
            self.watch.restore(own[self._rank])

    def look(self, verdict: Verdict, *, deep: bool = False, new_epoch: bool = False) -> Verdict:
        """Return ``verdict`` with what is new; every process looks after the same step."""
        self.watch.look(deep=deep, new_epoch=new_epoch)
        if self._ranks > 1:
            self.watch.compare(of_all_ranks(self.watch.digests(), self._ranks))
        verdict = self.watch.judge(verdict, lightning_verdict.REMEDY)
        why = None if self._weights is None else self._weights.reason(self._ranks)
        return verdict if why is None else verdict.worse(why, UNKNOWN)

    def saved(self) -> dict[str, Any]:
        """Return what a checkpoint holds; every process calls this after the same step."""
        return {
            "trained": trained(self._trainer.lightning_module),
            "script": self.watch.capture() if self._rank == 0 else [],
            "script_of_ranks": of_all_ranks(self.watch.capture_own(), self._ranks),
            "limits": self._changed_limits(),
        }

    def _restore_trained(self, *, is_wrapped: bool = True) -> None:
        if (flags := self._saved.get("trained")) is None:
            return
        options = getattr(self._trainer.strategy, "_ddp_kwargs", {})
        if not is_wrapped and self._weights is not None and options.get("find_unused_parameters"):
            # what another start has trained before is averaged over the processes here too
            flags = {name: flags.get(name, one) | one for name, one in self._weights.first.items()}
        set_trained(self._trainer.lightning_module, flags)

    def _changed_limits(self) -> dict[str, Any]:
        """Return the limits that training has changed, in this process or in one before."""
        before = self._saved.get("limits", {})
        now = _limits(self._trainer)
        return {
            name: one
            for name, one in now.items()
            if name in before or one != self._limits.get(name)
        }

    def _restore_limits(self) -> None:
        for name, value in self._saved.get("limits", {}).items():
            setattr(_loop_of(self._trainer, name), name, value)


def _limits(trainer: Any) -> dict[str, Any]:
    """Return the limits of the loops; the steps at which the job ends are none of the script's."""
    found = {name: getattr(_loop_of(trainer, name), name) for name in LIMITS}
    if found["max_steps"] == trainer.global_step:
        del found["max_steps"]
    return found


def _loop_of(trainer: Any, limit: str) -> Any:
    loop = trainer.fit_loop
    return loop.epoch_loop if limit.endswith("steps") else loop
