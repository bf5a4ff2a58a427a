"""When the GPUs of a host are free, as far as somebody asks.

Does: knows the first moment of a host at once, and sorts all of them for the few hosts of which
more is asked. Never: predicts when a job ends: that was put down with what is kept of it. State:
figures of one forecast.
"""

from __future__ import annotations

from functools import cached_property

from reshape_controller.core.plan import JobView
from reshape_controller.core.prediction.pace import end_ms


class Free:
    """The usable GPUs of a host. Times are whole milliseconds from now."""

    def __init__(self) -> None:
        self.count = 0
        """Its GPUs."""
        self.first_ms = 0
        """When the first of them is free."""
        self._jobs: list[JobView] = []
        self._idle = 0

    def used_by(self, job: JobView, until_ms: int) -> None:
        """A running job has some of them until then."""
        if not self.count or until_ms < self.first_ms:
            self.first_ms = until_ms
        self.count += job.size
        self._jobs.append(job)

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
        for job in self._jobs:
            times += [end_ms(job)] * job.size
        times.sort()
        return times

    def nth_ms(self, count: int) -> int:
        """When so many of them are free, of those that it has."""
        return self.first_ms if count == 1 else self.times_ms[count - 1]
