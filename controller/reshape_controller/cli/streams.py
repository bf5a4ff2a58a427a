"""Stdin, stdout and stderr as the shell gave them: closed, full, not UTF-8, without a reader.

Does: opens what is closed, so that no file of ours gets its number and no program that we start
goes without. Never: lets an error go unsaid because its own words cannot be written. State: none.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO


class LossyStream:
    """A stream for a log: a line that cannot be written (a full disk, a reader that left) is lost,
    and nothing else with it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return self._stream.write(text)
        return 0

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


def make_whole() -> None:
    """Open on nothing what is closed, and let no glyph end a command where there is no UTF-8."""
    for number, mode in enumerate("rww"):
        name = ("stdin", "stdout", "stderr")[number]
        if getattr(sys, name) is None:
            _open_on_nothing(number)
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
    if "utf" not in (sys.stdout.encoding or "").lower():
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]


def say(text: str) -> None:
    """A line on stderr, if it takes one; the exit code says the rest."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def let_go() -> None:
    """Before the end: what nobody takes goes nowhere. Else the interpreter tries again and
    changes the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_on_nothing(number: int) -> None:
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)
