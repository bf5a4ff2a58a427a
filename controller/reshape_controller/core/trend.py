"""On which report the predictions of a job that trains rest.

Does: tells a report that changes them from one that was to be expected; most are. Never: predicts.
State: none; a job has its trend.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core.profile_book import Measured, at_size
from reshape_sidecar.wire import Progress

NEWS = 0.01
"""A report tells something new if its speed, or the steps since the trend, are other than expected
by more than this part."""


def as_before(old: tuple[Measured, ...], new: tuple[Measured, ...]) -> bool:
    """Whether measurements of the same sizes tell nothing new."""
    if len(old) != len(new):
        return False
    for number, one in enumerate(old):
        other = new[number]
        if other.gpus != one.gpus or other.gpu_type != one.gpu_type:
            return False
        if abs(other.seconds_per_step - one.seconds_per_step) > NEWS * one.seconds_per_step:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Trend:
    """Where a job was, and how fast. Later reports are expected to lie on this line."""

    progress: Progress
    at_s: float
    """When ``progress.step`` was seen to move."""
    measured: tuple[Measured, ...]
    """Seconds per step at the sizes that it has trained on."""

    def expects(
        self,
        progress: Progress,
        at_s: float,
        measured: tuple[Measured, ...],
        gpu_type: str,
        gpus: int,
    ) -> bool:
        """Whether a report says what was to be expected: the job trains on ``gpus`` GPUs of a type,
        and its step was seen to move at ``at_s``."""
        before = self.progress
        length = progress.total_steps, progress.steps_per_epoch
        if length != (before.total_steps, before.steps_per_epoch):
            return False
        if not as_before(self.measured, measured):
            return False
        own = at_size(self.measured, gpu_type, gpus)
        if own is None:
            return False
        steps = (at_s - self.at_s) / own.seconds_per_step
        return abs(progress.step - before.step - steps) <= 1.0 + NEWS * steps
