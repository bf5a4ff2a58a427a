"""Where the live shell gets its time from; the only module that reads a clock for the engine.

Does: gives Unix time in seconds that runs like a stopwatch and follows the machine's clock little
by little. A jump of that clock would make deadlines hours early or late. Across a restart within
one boot of the machine, a note says what time it is; where none does, a clock that is far from the
log's end is doubted for a day, in which nothing is deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from reshape_sidecar import foreign
from reshape_sidecar.init import files

FAR_S = 60.0
"""A machine's clock that differs by more from this daemon's time is wrong, or was."""
GAP_FAR_S = 3600.0
"""A longer gap since the log's end, without a note of the time, leaves the clock in doubt."""
DOUBT_S = 86_400.0
"""Time for which a clock has to agree before it is trusted again."""
NOTE_EVERY_S = 10.0
_NOTE_BYTES_MAX = 256
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
TIME_MAX_S = 253_402_300_799.0
"""The last second of the year 9999: a note of a later one is damaged."""
FOLLOW_RATIO = 0.1
"""Largest relative correction of the rate at which time passes, to follow the machine's clock."""


class Clock(Protocol):
    def now_s(self) -> float:
        """Unix time in seconds."""

    def not_before(self, at_s: float) -> None:
        """Go on from ``at_s`` if that is later."""


class WallClock:
    """The machine's clock without its jumps. ``wall_s`` and ``steady_s`` are its two clocks."""

    def __init__(
        self,
        wall_s: Callable[[], float] = time.time,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall_s = wall_s
        self._steady_s = steady_s
        self._latest_s = wall_s()
        self._read_at_s = steady_s()
        self._doubted_until_s = self._read_at_s
        """Steady time."""
        self._noted = False
        """Whether a note has said what time it is."""

    def now_s(self) -> float:
        """Unix time in seconds; never decreases."""
        steady_s = self._steady_s()
        passed_s = steady_s - self._read_at_s
        self._read_at_s = steady_s
        self._latest_s += passed_s
        behind_s = self.off_s()
        if abs(behind_s) > FAR_S:
            self._doubted_until_s = steady_s + DOUBT_S
        most_s = passed_s * FOLLOW_RATIO
        self._latest_s += max(-most_s, min(most_s, behind_s))
        return self._latest_s

    def not_before(self, at_s: float) -> None:
        """Go on from ``at_s`` if that is later: the log holds times only of the past."""
        gap_s = self.now_s() - at_s
        if at_s > 0.0 and gap_s > GAP_FAR_S and not self._noted:
            self._doubted_until_s = self._steady_s() + DOUBT_S
        self._latest_s = max(self._latest_s, at_s)

    def go_on_from(self, noted_s: float) -> None:
        """Go on from the time that a note gives, whatever the machine's clock says."""
        self._read_at_s, self._latest_s, self._noted = self._steady_s(), noted_s, True

    def off_s(self) -> float:
        """Seconds by which the machine's clock is ahead of this one."""
        return self._wall_s() - self._latest_s

    def trusted(self) -> bool:
        """Whether the clock has agreed for a day, or has never been in doubt."""
        self.now_s()
        return self._steady_s() >= self._doubted_until_s

    def problem(self) -> str:
        """Why the time is in doubt, for an operator; empty if it is not."""
        if self.trusted():
            return ""
        kept = "no log is deleted until they have agreed for a day"
        off_s = self.off_s()
        if abs(off_s) <= FAR_S:
            return f"this machine's clock was far from the end of the log at the start; {kept}"
        way = "ahead of" if off_s > 0 else "behind"
        return (
            f"this machine's clock is {timedelta(seconds=round(abs(off_s)))} (h:mm:ss) {way} the "
            f"daemon's time, which "
            f"follows it by at most {FOLLOW_RATIO:.0%}; {kept}"
        )


class ClockNote:
    """What time it is, in a file of the home: the boot of the machine, the time since that boot,
    and the daemon's time then. Within that boot it tells the time without the machine's clock."""

    def __init__(
        self,
        path: Path,
        since_boot_s: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._path = path
        self._since_boot_s = since_boot_s

    def now_s(self) -> float | None:
        """Return the time by the note; None without a note of this boot."""
        try:
            text = foreign.read_text(self._path, _NOTE_BYTES_MAX, follow=False)
            boot, since_s, at_s = text.split()
            passed_s = self._since_boot_s() - float(since_s)
            now_s = float(at_s) + passed_s
        except (OSError, ValueError):
            return None
        same = boot == files.boot_id() != files.UNKNOWN_BOOT and passed_s >= 0.0
        return now_s if same and 0.0 <= now_s <= TIME_MAX_S else None

    def write(self, at_s: float) -> None:
        """Note the time; one that cannot be noted changes nothing."""
        text = f"{files.boot_id()} {self._since_boot_s():.3f} {at_s:.3f}\n"
        new = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFELY, 0o600)
            try:
                os.write(fd, text.encode())
            finally:
                os.close(fd)
            os.replace(new, self._path)  # not synced: after a power cut the boot is another one

    async def keep(self, now_s: Callable[[], float]) -> None:
        """Note the time again and again, until cancelled."""
        while True:
            self.write(now_s())
            await asyncio.sleep(NOTE_EVERY_S)
