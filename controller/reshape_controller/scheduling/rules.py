"""The rules by which ``adaptive`` decides, as values, so that each can be left out."""

from __future__ import annotations

from dataclasses import dataclass, field

GAIN = 0.05
"""A reshape has to save this part of the remaining time of the job that is reshaped."""
COOL_DOWN = 5.0
"""After a reshape a job is not shrunk for so many times the cost of the reshape."""
MAX_WAIT_S = 3600.0
"""A queued job without a ``max_wait_s`` of its own is started at any price after so long."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a policy. The default values are those of ``adaptive-v1``."""

    gain: float = GAIN
    """Part of its remaining time that the reshape of a job has to save."""
    cool_down: float = COOL_DOWN
    """A job is not shrunk for so many times the cost of its last reshape."""
    max_wait_s: float = MAX_WAIT_S
    """Shortest wait of an overdue job that has no ``max_wait_s`` of its own."""
    moves_to_any_size: bool = False
    """A job may move to fewer GPUs if they are of another type."""

    gain_ppm: int = field(init=False, default=0)
    """``gain`` in millionths."""

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not 0.0 <= self.gain < 1.0:
            raise ValueError(f"gain is {self.gain:g}, and must lie between 0 and 1")
        for name in ("cool_down", "max_wait_s"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name):g}, and must be 0 or more")
        object.__setattr__(self, "gain_ppm", round(self.gain * 1e6))

    def min_saving_ms(self, left_ms: int) -> int:
        """Return what the reshape of a job has to save if the job will have left in ``left_ms``;
        at least 1."""
        return -(-self.gain_ppm * left_ms // 1_000_000) or 1


V1 = Rules()
"""The rules of ``adaptive-v1``."""
