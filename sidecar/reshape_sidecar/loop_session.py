"""What training asks of its session, in the words of no framework (``reshape_sidecar.session``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from reshape_sidecar.hook.exactness import Verdict
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.hook.step_clock import StepClock
from reshape_sidecar.proof.first_steps import FirstSteps

Write = Callable[[Path], None]


class StepSession(Protocol):
    """What all training needs of its session."""

    step: int
    total_steps: int | None
    clock: StepClock
    first_steps: FirstSteps

    @property
    def target_reached(self) -> bool: ...

    def set_verdict(self, verdict: Verdict) -> None: ...

    def record_weights(self, portraits: Callable[[], dict[str, Any]]) -> None: ...

    def step_done(
        self,
        write: Write | None = None,
        *,
        steps: int = 1,
        epoch: int | None = None,
        loss: float | None = None,
        accuracy: float | None = None,
    ) -> None: ...


class LoopSession(StepSession, Protocol):
    """What a loop by ``job.batches`` needs of its session."""

    @property
    def checkpoint(self) -> Path | None: ...

    @property
    def complete(self) -> bool: ...

    @property
    def devices(self) -> int: ...

    @property
    def settings(self) -> HookSettings: ...

    def check_joined(self) -> None: ...

    def take_metrics(self) -> dict[str, float]: ...

    def finished(self, write: Write) -> None: ...
