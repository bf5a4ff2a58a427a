"""Signals of a command that has started processes of its own.

Does: make SIGTERM and a closed terminal end the command as Ctrl-C does, after its processes. Never:
handle a signal that is ignored, as under ``nohup``. State: the handlers.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """Raise SystemExit at the first of these signals within the context; ignore further ones."""
    ours = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> None:
    for other in ENDING:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)
