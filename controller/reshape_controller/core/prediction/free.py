"""When the GPUs of a host are free, as far as somebody asks.

Does: knows the first moment of a host at once, and sorts all of them for the few hosts of which
more is asked. Never: predicts when a job ends: that was put down with what is kept of it. State:
figures of one forecast.
"""

from __future__ import annotations

from functools import cached_property

from reshape_controller.core.prediction.pace import Pace


class Free:
    """The usable GPUs of a host. Times are whole milliseconds from now."""

    def __init__(self) -> None:
        self.count = 0
        """Its GPUs."""
        self.first_ms = 0
        """When the first of them is free."""
        self._paces: list[Pace] = []
        self._sizes: list[int] = []
        self._idle = 0

    def used_by(self, pace: Pace, size: int) -> None:
        """A running job has so many of them until its end."""
        if not self.count or pace.end_ms < self.first_ms:
            self.first_ms = pace.end_ms
        self.count += size
        self._paces.append(pace)
        self._sizes.append(size)

    def idle(self, count: int) -> None:
        """So many are free now; asked for last."""
        if count > 0:
            self.first_ms = 0
            self.count += count
            self._idle = count

    @cached_property
    def times_ms(self) -> list[int]:
        """When each is free, ascending."""
        times = [0] * self._idle
        for number, pace in enumerate(self._paces):
            times += [pace.end_ms] * self._sizes[number]
        times.sort()
        return times

    def nth_ms(self, count: int) -> int:
        """When so many of them are free, of those that it has."""
        return self.first_ms if count == 1 else self.times_ms[count - 1]
