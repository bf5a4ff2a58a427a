"""The device truth: how fast simulated devices are, and the pacer that makes steps last so long.

Does: reads the file, returns seconds per step, and makes a training loop wait. Standard library
only. Policies and predictors do not read it: they measure the steps.

The file is JSON: ``{"seconds_per_step": {TYPE: {"1": 0.2, "2": 0.11}}, "factors": {JOB: 1.1}}``.
The type of a job is its key, or else its name; a missing factor is 1.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reshape_sidecar import foreign

LATE_RATIO = 0.10
LATE_S = 0.020
"""A step is late if it ends more than max(LATE_RATIO of a step, LATE_S) after its time."""
LATE_STEPS_RATIO_MAX = 0.05
"""A run with a larger share of late steps is invalid: the machine was too slow for the file."""
REREAD_EVERY_S = 1.0


class DeviceTruthError(ValueError):
    """The device truth file cannot be used; the message says what, where and the remedy."""


@dataclass(frozen=True, slots=True)
class DeviceTruth:
    """Seconds per step by job type (or job name) and number of devices, and factors by job."""

    seconds_per_step: Mapping[str, Mapping[int, float]]
    factors: Mapping[str, float]

    def step_s(self, job_type: str | None, job: str, devices: int) -> float | None:
        """Return seconds per step of ``job`` on ``devices``; None if they are not in the file."""
        for key in (job_type, job):
            times = self.seconds_per_step.get(key) if key else None
            if times is not None and devices in times:
                return times[devices] * self.factors.get(job, 1.0)
        return None


def load(path: Path) -> DeviceTruth:
    """Read the device truth file; raises DeviceTruthError."""
    try:
        document = json.loads(foreign.read(path, foreign.SETTINGS_BYTES_MAX))
    except (OSError, ValueError, RecursionError) as error:
        raise DeviceTruthError(f"device truth {path} cannot be read: {error}") from None
    if not isinstance(document, dict) or set(document) - {"seconds_per_step", "factors"}:
        raise DeviceTruthError(
            f"device truth {path}: expected an object with seconds_per_step and factors."
        )
    table = _object(path, document, "seconds_per_step")
    factors = _object(path, document, "factors")
    return DeviceTruth(
        {
            key: {_devices(path, count): _seconds(path, key, value) for count, value in row.items()}
            for key, row in ((key, _object(path, table, key)) for key in table)
        },
        {job: _seconds(path, job, value) for job, value in factors.items()},
    )


class Pacer:
    """Makes the steps of one process last as long as the device truth says.

    The first step is not paced (it traces). The k-th step after it ends no earlier than k·t after
    the end of the first. A step that ends late is counted and moves the schedule by its delay. Time
    without a step (a save, a validation) moves the schedule and is not counted.
    """

    def __init__(
        self,
        step_s: Callable[[], float | None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._step_s = step_s
        self._clock = clock
        self._sleep = sleep
        self._due_s: float | None = None
        self.late_steps = 0

    def step_ended(self, steps: int = 1) -> None:
        """Wait until the time of ``steps`` steps, which have just ended, is over."""
        now_s = self._clock()
        t = self._step_s()
        if self._due_s is None or t is None:
            self._due_s = now_s
            return
        due_s = self._due_s + steps * t
        delay_s = now_s - due_s
        if delay_s < 0:
            self._sleep(-delay_s)
            self._due_s = due_s
        elif delay_s > max(LATE_RATIO * t, LATE_S):
            self.late_steps += 1
            self._due_s = now_s
        else:
            self._due_s = due_s

    def pause(self, seconds: float) -> None:
        """Move the schedule by time in which no step ran."""
        if self._due_s is not None:
            self._due_s += seconds


class Follower:
    """Seconds per step from the file, which is read again when it changes."""

    def __init__(
        self,
        path: Path,
        job_type: str | None,
        job: str,
        devices: int,
        complain: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._key = (job_type, job, devices)
        self._complain = complain
        self._clock = clock
        self._read_at_s = -math.inf
        self._stamp: tuple[int, int] | None = None
        self._value: float | None = None

    def step_s(self) -> float | None:
        """Return seconds per step, or None for no pacing, whose reason is logged once."""
        now_s = self._clock()
        if now_s - self._read_at_s >= REREAD_EVERY_S:
            self._read_at_s = now_s
            self._reread()
        return self._value

    def _reread(self) -> None:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
        except OSError:
            stamp = (-1, -1)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            value = load(self._path).step_s(*self._key)
        except DeviceTruthError as error:
            self._complain(f"{error} Steps keep their last pace.")
            return
        if value is None:
            job_type, job, devices = self._key
            self._complain(
                f"device truth {self._path} has no seconds per step of {job_type or job} on "
                f"{devices} devices: steps are not paced. Add it there."
            )
        self._value = value


def pacer_of(
    path: Path | None,
    job_type: str | None,
    job: str,
    devices: int,
    complain: Callable[[str], None],
) -> Pacer | None:
    """Return the pacer of a process on ``devices`` devices; None without a file."""
    if path is None:
        return None
    return Pacer(Follower(path, job_type, job, max(1, devices), complain).step_s)


def _object(path: Path, document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise DeviceTruthError(f"device truth {path}: {key} is not an object.")
    return value


def _devices(path: Path, text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise DeviceTruthError(f"device truth {path}: {text!r} is not a number of devices.")
    return int(text)


def _seconds(path: Path, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise DeviceTruthError(f"device truth {path}: {key}: {value!r} is not a positive number.")
    return float(value)
