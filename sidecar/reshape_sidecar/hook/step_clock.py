"""How long a step of training takes, and what evaluations and ends of epochs take apart from steps.

Does: takes the time from the end of one step to that of the next, so with its data, callbacks and
the hook's own work. The seconds per step are a median, so that a stall is no speed: of parts of a
second each, because a step may be much shorter than what a machine does between two of them.
Standard library only; the caller says what time it is.
"""

from __future__ import annotations

from collections import deque
from statistics import fmean, median

WINDOW_S = 60.0
STEPS_LEAST = 20
"""The median is over the last ``WINDOW_S`` or ``STEPS_LEAST`` steps, whichever is longer."""
PART_S = 1.0
"""Steps that are shorter are taken together until they have lasted this long."""
PAUSE_LEAST_S = 0.1
"""A shorter rest after a step is part of it: a line of a log, say."""
PAUSES_KEPT = 8


class StepClock:
    """The times of one process. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        """When the present step began; None before the first end of a step."""
        self._rests_since_s: float | None = None
        """When the present step was made, if its end is counted later."""
        self._evaluates = False
        self._parts: deque[tuple[float, int, float]] = deque()
        """End, steps and seconds of each part in the window."""
        self._part_steps, self._part_s = 0, 0.0
        self._steps, self._steps_in_parts = 0, 0
        self._paused_s = 0.0
        """Time since the last step that is none of the next."""
        self._all_paused_s, self._apart_s_per_step = 0.0, 0.0
        self._evaluations: deque[tuple[int, float]] = deque(maxlen=PAUSES_KEPT)
        """Steps before each of the newest evaluations, and its seconds."""
        self._epoch_ends: deque[tuple[int, float]] = deque(maxlen=PAUSES_KEPT)

    def begin(self, now_s: float) -> None:
        """Begin a step now: what was since the last one is not counted, such as a save."""
        self._began_s = now_s

    def rest(self, now_s: float, *, evaluates: bool = False) -> None:
        """Note that a step is made, before it is counted: what follows is no part of it."""
        if self._rests_since_s is None:
            self._rests_since_s = now_s
        self._evaluates = self._evaluates or evaluates

    def steps_done(self, now_s: float, steps: int) -> None:
        """Count steps that end now, or ended when the rest began."""
        rests_since_s, self._rests_since_s = self._rests_since_s, None
        evaluates, self._evaluates = self._evaluates, False
        is_rest = rests_since_s is not None and (evaluates or now_s - rests_since_s > PAUSE_LEAST_S)
        ended_s = rests_since_s if rests_since_s is not None and is_rest else now_s
        self._steps += steps
        self._paused_s = 0.0
        if self._began_s is not None:
            self._part_steps += steps
            self._part_s += max(0.0, ended_s - self._began_s)
            if self._part_s >= PART_S:
                self._end_part(ended_s)
        self._began_s = now_s
        self._pause(now_s - ended_s)
        if evaluates:
            self.evaluation_took(now_s - ended_s)

    def evaluated(self, now_s: float) -> None:
        """Note an evaluation that has ended since the last step."""
        if self._rests_since_s is not None:
            self._evaluates = True
        elif self._began_s is not None:
            self._pause(now_s - self._began_s)
            self.evaluation_took(now_s - self._began_s)
            self._began_s = now_s

    def evaluation_took(self, seconds: float) -> None:
        """Note the time of an evaluation since the last step."""
        _add(self._evaluations, self._steps, seconds)
        self._apart_s_per_step = self._all_paused_s / max(1, self._steps)

    def epoch_over(self, now_s: float) -> None:
        """Note the end of an epoch, with all that has come since its last step."""
        if self._began_s is None or not self._steps:
            return
        self._pause(now_s - self._began_s)
        _add(self._epoch_ends, self._steps, self._paused_s)
        self._paused_s, self._began_s = 0.0, now_s
        self._apart_s_per_step = self._all_paused_s / self._steps

    @property
    def seconds_per_step(self) -> float | None:
        """The median; None before the second step."""
        if self._parts:
            return median(seconds / steps for _, steps, seconds in self._parts)
        return self._part_s / self._part_steps if self._part_steps else None

    @property
    def evaluation_s(self) -> float | None:
        """Mean of the newest evaluations; None before the first."""
        return _mean(self._evaluations)

    @property
    def epoch_end_s(self) -> float | None:
        """Mean time from an epoch's last step to the next epoch; None before the first."""
        return _mean(self._epoch_ends)

    @property
    def apart_s_per_step(self) -> float:
        """What evaluations and ends of epochs take for each step, as of the newest of them."""
        return self._apart_s_per_step

    def _end_part(self, now_s: float) -> None:
        parts = self._parts
        parts.append((now_s, self._part_steps, self._part_s))
        self._steps_in_parts += self._part_steps
        self._part_steps, self._part_s = 0, 0.0
        while parts[0][0] < now_s - WINDOW_S and self._steps_in_parts - parts[0][1] >= STEPS_LEAST:
            self._steps_in_parts -= parts.popleft()[1]

    def _pause(self, seconds: float) -> None:
        self._paused_s += seconds
        self._all_paused_s += seconds


def _add(pauses: deque[tuple[int, float]], step: int, seconds: float) -> None:
    """Note a pause after ``step``, together with what was noted of it before."""
    if pauses and pauses[-1][0] == step:
        seconds += pauses.pop()[1]
    pauses.append((step, seconds))


def _mean(pauses: deque[tuple[int, float]]) -> float | None:
    return fmean(seconds for _, seconds in pauses) if pauses else None
