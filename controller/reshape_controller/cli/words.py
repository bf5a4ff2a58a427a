"""Text for times, sizes and ratios. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BLOCKS = " ▏▎▍▌▋▊▉█"


def duration(seconds: float | None) -> str:
    """Return a duration as ``1.2s``, ``48s``, ``3m05s``, ``2h07m``, ``3d04h``; a dash for None."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{max(0.0, seconds):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def seconds_of(text: str) -> float | None:
    """Return the seconds of ``90s``, ``10m``, ``2h`` or ``3d``; None for anything else."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS_S or not number.isascii() or not number.isdigit():
        return None
    return float(number) * UNITS_S[unit]


def moment(at_s: float | None) -> str:
    """Return a Unix time in UTC: ``2026-01-31 14:02:11``; a dash for None."""
    if at_s is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_s))


def clock(at_s: float) -> str:
    """Return the time of day of a Unix time in UTC."""
    return time.strftime("%H:%M:%S", time.gmtime(at_s))


def one_day(times: Iterable[float]) -> str:
    """Return the UTC day of times, for a heading: ``, 2026-01-31``; empty if they are of several
    days, so that each needs its own."""
    days = {moment(at_s)[:10] for at_s in times}
    return f", {days.pop()}" if len(days) == 1 else ""


def figure(value: float | None, digits: int = 3, unit: str = "") -> str:
    """Return a number in few digits; a dash for None."""
    return "-" if value is None else f"{value:.{digits}g}{unit}"


def size(memory_bytes: float) -> str:
    """Return a size as ``3.2 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if memory_bytes < 1024 or unit == "GiB":
            return f"{memory_bytes:.0f} {unit}" if unit == "B" else f"{memory_bytes:.1f} {unit}"
        memory_bytes /= 1024
    return ""


def bar(ratio: float, cells: int) -> str:
    """Return a bar of ``cells`` characters, filled to ``ratio``."""
    eighths = round(max(0.0, min(1.0, ratio)) * cells * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (BLOCKS[part] if part else "")).ljust(cells, "·")


def state_word(state: str) -> str:
    """A job's state as tables and sentences name it; JSON and the store keep ``halted``."""
    return "paused" if state == "halted" else state


def one_line(text: str) -> str:
    """Return the first and the last line of a text: what happened, and the error's name."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return ": ".join(dict.fromkeys((lines[0], lines[-1]))) if lines else ""
