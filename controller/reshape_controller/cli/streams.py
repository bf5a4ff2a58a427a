"""Stdin, stdout and stderr that may be closed, full, not UTF-8, or without a reader.

Does: open what is closed, so that no other file gets its number and programs that we start have it;
and write errors even if their own characters cannot be written.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

from reshape_controller.cli.safe_text import safe


class LossyStream:
    """A stream for a log: only the line that cannot be written (a full disk, no reader) is lost."""

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
    """Open closed streams on /dev/null, and replace characters that the encoding lacks."""
    for number, mode in enumerate("rww"):
        name = ("stdin", "stdout", "stderr")[number]
        if getattr(sys, name) is None:
            _open_on_nothing(number)
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
    if "utf" not in (sys.stdout.encoding or "").lower():
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]


def say(text: str) -> None:
    """Write a text to stderr if possible, and only what is safe there."""
    with contextlib.suppress(OSError):
        print(safe(text), file=sys.stderr, flush=True)


def let_go() -> None:
    """Discard output without a reader, before the end.

    The interpreter would try to write it again and change the exit code.
    """
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
