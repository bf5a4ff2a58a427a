"""A successor: a training process that runs its script while its predecessor still trains.

Does: listens on the descriptor of init, which releases this process or drops it; holds any thread
at a barrier until then; shows no output of the script before; starts the cold command in place if
what was prepared does not fit. Never: claims, reports to the agent or trains before the release.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import ClassVar, NoReturn

from reshape_sidecar import codec
from reshape_sidecar.contract import (
    ENV_GENERATION,
    ENV_PREPARED_IN_VAIN,
    ENV_SPAWNED_AT_S,
    ENV_STANDBY_FD,
    Release,
    StandbyReport,
)
from reshape_sidecar.hook import process_image
from reshape_sidecar.wire import PrepareStage

STEP_ON_ZEROS_MAX_S = 60.0
"""A step on zeros that takes longer is taken for one that does not end."""
MESSAGE_BYTES_MAX = 1 << 20
EXIT_DROPPED = 0


class Standby:
    """The wait of this process for its release; there is one object per process at most."""

    of_this_process: ClassVar[Standby | None] = None

    def __init__(self, descriptor: int) -> None:
        """Begin to listen. Called before the script runs, and before any effect of the hook."""
        type(self).of_this_process = self
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._environment = dict(os.environ)
        self._folder = os.getcwd()
        self._command = [sys.executable, *sys.orig_argv[1:]]
        os.environ.pop(ENV_STANDBY_FD)
        self._output = _HeldOutput()
        self._lock = threading.RLock()
        self._is_released = threading.Event()
        self._at_barrier = False
        self._step_by_s: float | None = None
        self._failure = ""
        """Why this process has reported to init, before its release, that it failed."""
        self._on_release: Callable[[], None]
        self.temporary: list[str] = []
        """Files and folders that this process has made before its release."""
        self._listener = threading.Thread(target=self._listen, daemon=True, name="reshape-standby")

    def start(self, on_release: Callable[[], None]) -> None:
        """Begin to listen; ``on_release`` is called, in another thread, before any wait ends."""
        self._on_release = on_release
        self.report(PrepareStage.IMPORTING)
        self._listener.start()

    @property
    def waits(self) -> bool:
        """Whether this process is not released yet."""
        return not self._is_released.is_set()

    @property
    def is_held(self) -> bool:
        """Whether output and effects are held until ``accept``."""
        return self._at_barrier

    def report(self, stage: PrepareStage, reason: str = "") -> None:
        """Report to init how far this process has come."""
        if self.waits:
            self._send(StandbyReport(stage, reason))

    def hold(self, reason: str) -> None:
        """Wait for the release before an effect outside this process; then it may happen."""
        if self.waits and threading.current_thread() is not self._listener:
            self.report(PrepareStage.EFFECT_BARRIER, reason)
            self._is_released.wait()
            self.accept()

    def reach_barrier(self) -> None:
        """Keep output and effects held until ``accept``, although the release may come."""
        with self._lock:
            self._at_barrier = self._at_barrier or self.waits

    def wait(self, reason: str) -> None:
        """Report that this process is ready, as far as ``reason`` says, and wait."""
        self.report(PrepareStage.READY, reason)
        self._is_released.wait()

    @contextlib.contextmanager
    def step_on_zeros(self) -> Iterator[None]:
        """Enclose a step that may not end: then this process gives up."""
        self._step_by_s = time.monotonic() + STEP_ON_ZEROS_MAX_S
        try:
            yield
        finally:
            self._step_by_s = None

    def accept(self) -> None:
        """Go on with what was prepared: the script's output appears, its effects happen."""
        with self._lock:
            self._at_barrier = False
            self.temporary.clear()
            self._output.show()
            self._socket.close()

    def give_up(self, reason: str) -> NoReturn:
        """Fail before the release, or start cold if init has released this process meanwhile.

        Init closes the connection of a successor that fails, and releases it no more.
        """
        self._fail(reason)
        self._is_released.wait()
        self.start_cold(reason)

    def start_cold(self, reason: str) -> NoReturn:
        """Execute the cold command in place of this process, which is the training process."""
        self._send(StandbyReport(PrepareStage.FAILED, reason))
        self._remove_temporary()
        environment = {
            **{name: text for name, text in self._environment.items() if name != ENV_STANDBY_FD},
            **{name: os.environ[name] for name in (ENV_GENERATION, ENV_SPAWNED_AT_S)},
            ENV_PREPARED_IN_VAIN: reason,
        }
        os.chdir(self._folder)
        self._output.drop()
        os.execve(self._command[0], self._command, environment)

    # -- the listener ---------------------------------------------------------------------------

    def _listen(self) -> None:
        line = self._line()
        if not line:
            self._leave(EXIT_DROPPED)
        self._mark(codec.loads(Release, line))
        if self._failure:
            self.start_cold(self._failure)
        try:
            self._on_release()
        except Exception as error:
            self.start_cold(f"its release failed: {error!r}")
        with self._lock:
            self._is_released.set()
            if not self._at_barrier:
                self.accept()
        while self._step_by_s is not None:
            self._end_a_long_step()
            time.sleep(0.1)

    def _send(self, report: StandbyReport) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(codec.dumps(report).encode(errors="replace") + b"\n")

    def _line(self) -> bytes:
        """Return init's message, or nothing if init has closed the connection."""
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._socket], [], [], 1.0)
            self._end_a_long_step()
            if not ready:
                continue
            try:
                part = self._socket.recv(MESSAGE_BYTES_MAX)
            except OSError:
                return b""
            if not part:
                return b""
            line += part
        return line

    def _end_a_long_step(self) -> None:
        due_s = self._step_by_s
        if due_s is None or time.monotonic() < due_s:
            return
        reason = f"a step on zeros did not end within {STEP_ON_ZEROS_MAX_S:g} s"
        if not self.waits:
            self.start_cold(reason)
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        """Report the first failure; init may have sent the release already, so listen on."""
        if not self._failure:
            self._failure = reason
            self.report(PrepareStage.FAILED, reason)

    def _mark(self, release: Release) -> None:
        """Make this process that of the generation, for itself, its children and /proc."""
        process_image.overwrite_variable(ENV_GENERATION, str(release.generation))
        os.environ[ENV_GENERATION] = str(release.generation)
        os.environ[ENV_SPAWNED_AT_S] = repr(release.spawned_at_s)
        self._environment |= dict(release.environment)
        os.environ.update(release.environment)

    def _leave(self, code: int) -> NoReturn:
        self._remove_temporary()
        os._exit(code)

    def _remove_temporary(self) -> None:
        for path in self.temporary:
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


class _HeldOutput:
    """Standard output and error of the script before its release, in memory."""

    def __init__(self) -> None:
        self._real = (os.dup(1), os.dup(2))
        same = os.path.samestat(os.fstat(1), os.fstat(2))
        first = os.memfd_create("reshape-output")
        self._held = (first, first if same else os.memfd_create("reshape-errors"))
        self._read = dict.fromkeys(self._held, 0)
        self._shown = False
        self._divert(self._held)

    def show(self) -> None:
        """Write what the script has written so far, and hold nothing back any more."""
        if self._shown:
            return
        self._shown = True
        self._copy()
        self._divert(self._real)
        self._copy()  # what another thread wrote meanwhile
        for descriptor in {*self._held, *self._real}:
            os.close(descriptor)

    def drop(self) -> None:
        """Forget what was written: the cold command writes it again."""
        if not self._shown:
            self._divert(self._real)

    def _divert(self, to: tuple[int, int]) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os.dup2(to[0], 1)
        os.dup2(to[1], 2)

    def _copy(self) -> None:
        for held, real in dict(zip(self._held, self._real, strict=True)).items():
            while part := os.pread(held, 1 << 20, self._read[held]):
                self._read[held] += len(part)
                with contextlib.suppress(OSError):  # a full disk is no error, as for any output
                    os.write(real, part)
