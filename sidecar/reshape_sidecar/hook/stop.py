"""The request to save and leave: a SIGTERM sets a flag, a step boundary answers it.

Does: installs the handler, says whether a stop is requested, and ends the process.

SIGTERM stops a program as if the hook were not there until a training loop runs that reads the
flag. The same holds for each process that training forks: it inherits the handler, but no loop.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

from reshape_sidecar.hook import iterators
from reshape_sidecar.wire import EXIT_SAVED

FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
NOTHING_SAVED = (
    b"reshape: a stop was requested, but no `fit` and no session of Reshape is running: this "
    b"process ends unsaved, and the next one starts from the beginning\n"
)


class Stop:
    """The stop flag of this process, and whether a training loop reads it."""

    def __init__(self, keep_running: Path | None) -> None:
        self._keep_running = keep_running
        self._pid = os.getpid()
        self._requested = False
        self.asked_s: float | None = None
        """When the newest request came, by the monotonic clock; None: there was none."""
        self._answered_by_loop = False
        self.nothing_to_save = False
        """True if everything is on disk between two loops: the handler may leave at once."""
        self.before_leaving: Callable[[], None] | None = None
        """Called by the handler before it leaves; it must not print."""
        self.before_loss: Callable[[], None] | None = None
        """Called by the handler before the process ends unsaved; it must not print."""

    @property
    def answered_by_loop(self) -> bool:
        """Whether a loop runs or state is unsaved: then the handler only sets the flag."""
        return self._answered_by_loop

    @answered_by_loop.setter
    def answered_by_loop(self, there: bool) -> None:
        self._answered_by_loop = there
        self._pid = os.getpid()  # a script may train in a process that it forks

    def install(self) -> None:
        """Install the handler of SIGTERM; a handler that the script installs later replaces it."""
        signal.signal(signal.SIGTERM, self._on_signal)

    def is_replaced(self) -> bool:
        """Return whether the script handles SIGTERM itself; a session of Reshape does not count."""
        handler = signal.getsignal(signal.SIGTERM)
        return callable(handler) and handler != self._on_signal and not self.is_a_sessions()

    def is_a_sessions(self) -> bool:
        """Return whether a session has taken SIGTERM over; it has a module ``stop`` of its own."""
        owner = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
        kind = type(owner)
        named = kind.__qualname__ == Stop.__qualname__ and kind.__module__.endswith(".hook.stop")
        return named and owner is not self

    def requested(self) -> bool:
        """Return whether to save and leave now; a withdrawn request is cleared."""
        if self._requested and self._withdrawn():
            self._requested = False
        return self._requested

    def is_asked(self, *, by_parent: bool) -> None:
        """Note since when the parent of the ranks, which gets the SIGTERM, asks for a stop."""
        if not by_parent:
            self.asked_s = None
        elif self.asked_s is None:
            self.asked_s = time.monotonic()

    def request(self) -> None:
        """Request to save and leave at the next boundary, as a SIGTERM does."""
        self._requested = True

    def leave(self, code: int = EXIT_SAVED, *, is_flushed: bool = False) -> NoReturn:
        """End the process with ``code``, without running any more of the script.

        is_flushed: what the script's files have to keep is written; what came since is dropped.
        """
        if not is_flushed:
            flush_files()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)

    def _withdrawn(self) -> bool:
        return self._keep_running is not None and self._keep_running.exists()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            _end_by(number)
        elif self._withdrawn():
            return
        elif self.answered_by_loop:
            self._requested, self.asked_s = True, time.monotonic()
        elif self.nothing_to_save:
            if self.before_leaving is not None:
                self.before_leaving()
            self.leave()
        else:
            with contextlib.suppress(OSError):
                os.write(2, NOTHING_SAVED)  # a handler must not print
            if self.before_loss is not None:
                self.before_loss()
            _end_by(number)


def flush_files() -> None:
    """Flush the script's open files and TensorFlow's event files.

    They hold lines of steps that are saved, which no later process runs again. The process ends
    after this.
    """
    iterators.keep_pending()
    summaries = sys.modules.get("tensorflow.python.ops.summary_ops_v2")
    classes = (*FILES, summaries.SummaryWriter) if summaries is not None else FILES
    kinds = set(_with_subclasses(classes))
    for file in [thing for thing in gc.get_objects() if type(thing) in kinds]:
        with contextlib.suppress(Exception):
            if not isinstance(file, FILES) or stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.flush()  # but no pipe, which may block for ever


def _with_subclasses(kinds: Iterable[type]) -> Iterator[type]:
    for kind in kinds:
        yield kind
        yield from _with_subclasses(kind.__subclasses__())


def _end_by(number: int) -> None:
    """End this process as the signal does without a handler."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
