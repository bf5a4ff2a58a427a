"""``python -I PATH/ranks/run.py COMMAND...``: one process per GPU, with what PyTorch wants to know.

Does: starts a rank of COMMAND for each device, makes all of them stop after the same step, and ends
with them. It is the training process that init knows, and gets init's SIGTERM. A rank that dies
ends the others at once. Standard library only.

Ranks without a session get the SIGTERM themselves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reshape_sidecar.contract import (
    ENV_DEVICES,
    ENV_KEEP_RUNNING,
    ENV_RANK,
    ENV_RANK_PAGE,
    ENV_RANKS,
    ENV_RENDEZVOUS_FD,
)
from reshape_sidecar.death_signal import die_with
from reshape_sidecar.ranks.page import Page
from reshape_sidecar.wire import EXIT_SAVED, SIGNAL_BASE

POLL_S = 0.002
"""Pause between two looks at the page while a stop is asked."""
SAVE_AGAIN_AFTER_S = 5.0
"""Pause before ranks whose save failed are asked to stop again."""
LEAVE_WAIT_S = 10.0
"""Longest wait for ranks without a session after rank 0 has left on a SIGTERM."""
NOT_EXECUTABLE = 127
HOOK = str(Path(__file__).resolve().parents[1] / "hook" / "run.py")
"""A rank that runs under it takes the socket of the rendezvous."""
HOST = "127.0.0.1"
"""All ranks are in one container."""
LEFT = (0, EXIT_SAVED, -signal.SIGTERM, SIGNAL_BASE + signal.SIGTERM)
"""Exit codes of a program that was asked to save and leave (``contract``)."""
DEFAULTS = {"OMP_NUM_THREADS": "1"}
"""Variables of a rank unless the job sets them, as with torchrun: ranks share the processors."""
SIGNALS = (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP)


class Rank(Protocol):
    """The process of one rank, a child of this one."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""

    def wait(self) -> int | None:
        """Reap it once it has ended."""

    def send_signal(self, number: int, /) -> None:
        """Send it a signal, unless it has ended."""


class Group:
    """The ranks of one start."""

    def __init__(self, page: Page, ranks: Sequence[Rank]) -> None:
        self._page = page
        self._running = dict(enumerate(ranks))
        path = os.environ.get(ENV_KEEP_RUNNING)
        self._keep_running = Path(path) if path else None
        self._asked = False
        self._signalled: set[int] = set()
        self._retry_at_s = 0.0
        self._left: int | None = None
        """Exit code of rank 0, which has left."""
        self._give_up_s: float | None = None
        self._missing: int | None = None
        """Exit code of another rank, which has left without taking part."""

    def wait(self) -> int:
        """Return the exit code of the group once it has ended or must end."""
        while self._running:
            waits = self._asked or self._give_up_s is not None or self._missing is not None
            got = signal.sigtimedwait(SIGNALS, POLL_S) if waits else signal.sigwaitinfo(SIGNALS)
            if got is not None and got.si_signo != signal.SIGCHLD:
                self.ask()
            if self._asked:
                self.advance(time.monotonic())
            if (code := self._ended()) is not None:
                return code
            if self._give_up_s is not None and time.monotonic() >= self._give_up_s:
                break
        return self._left or 0

    def end(self) -> None:
        """Kill the ranks that are left, with the processes that they started, and reap them."""
        for rank in self._running.values():
            try:
                os.killpg(rank.pid, signal.SIGKILL)
            except ProcessLookupError:  # a fork that does not lead its session yet
                rank.send_signal(signal.SIGKILL)
        for rank in self._running.values():
            rank.wait()

    def ask(self) -> None:
        """Ask all ranks to stop, unless the request is withdrawn."""
        if self._withdrawn():
            return
        self._asked = True
        self._signalled = set()
        self._signal()

    def _signal(self) -> None:
        """Send each rank that takes no part, or no longer, the SIGTERM once."""
        for rank, process in self._running.items():
            if rank not in self._signalled and not self._page.begun(rank):
                self._signalled.add(rank)
                process.send_signal(signal.SIGTERM)

    def _withdrawn(self) -> bool:
        return self._keep_running is not None and self._keep_running.exists()

    def advance(self, now_s: float) -> None:
        """Bring all ranks to the same boundary."""
        page, ranks = self._page, range(self._page.ranks)
        begun = [page.begun(rank) for rank in ranks]
        stops = {page.parked(rank) for rank in ranks}
        if page.target == page.committed != 0:
            if page.failed != page.committed:
                return  # rank 0 saves
            page.target, self._retry_at_s = 0, now_s + SAVE_AGAIN_AFTER_S
        if self._withdrawn():
            page.target, self._asked = 0, False
            return
        self._signal()
        if not all(begun) or now_s < self._retry_at_s:
            return
        elif page.target == 0 and any(stops):
            return  # a rank has not yet written that it goes on after the request before
        elif page.target < max(begun):
            page.target = max(begun)  # none has begun a later step, or a rank has passed
        elif len(stops) == 1 and (step := stops.pop()) >= page.target:
            page.target = step  # later than the target if a boundary counts several steps
            page.committed = step

    def _ended(self) -> int | None:
        """Return the exit code of the group if a rank has ended in a way that ends it."""
        for rank, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[rank]
            if code == -signal.SIGABRT and self._page.is_finished(rank):
                # PyTorch aborts now and then as Python ends (as in pytorch/pytorch, 179291).
                self._say(rank, process.pid, "aborted after its script: this is no failure")
                code = 0
            if rank == 0 and self._asked and code in LEFT:
                self._left = _positive(code)
                if code == EXIT_SAVED and self._page.begun(0):
                    return code  # it has saved, and the others are parked
                self._give_up_s = time.monotonic() + LEAVE_WAIT_S
            elif rank == 0 and code == EXIT_SAVED:
                return code
            elif rank > 0 and self._left == EXIT_SAVED:
                return self._left  # it was in a collective with rank 0, which has left
            elif code not in (LEFT if self._asked else (0, EXIT_SAVED)):
                self._tell(rank, process.pid, code)
                return _positive(code)
            elif rank > 0 and self._asked and not self._page.begun(rank):
                self._missing = _positive(code)
        if any(self._page.begun(rank) for rank in self._running):
            return self._missing  # the others would wait for it without end
        return None

    def _tell(self, rank: int, pid: int, code: int) -> None:
        what = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        others = f", and {len(self._running)} others end with it" if self._running else ""
        self._say(rank, pid, what + others)

    def _say(self, rank: int, pid: int, what: str) -> None:
        text = f"reshape: rank {rank} of {self._page.ranks} (pid {pid}) {what}"
        print(text, file=sys.stderr, flush=True)


def rendezvous(command: Sequence[str]) -> socket.socket | None:
    """Return a socket that listens where the ranks of ``command`` meet; None: without the hook.

    It is open from now until rank 0 has taken it, so no other process gets its port. Without the
    hook nothing would take it: then the ranks meet at the agent's ``MASTER_PORT``. Raises OSError.
    """
    return socket.create_server((HOST, 0)) if HOOK in command else None


def environment(
    rank: int, ranks: int, page: Path, meeting: socket.socket | None = None
) -> dict[str, str]:
    """Return the environment of one rank: what ``torchrun`` sets, the page, and the rendezvous."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    for name, value in DEFAULTS.items():
        env.setdefault(name, value)
    if meeting is not None:
        env |= {"MASTER_ADDR": HOST, "MASTER_PORT": str(meeting.getsockname()[1])}
        if rank == 0:
            env[ENV_RENDEZVOUS_FD] = str(meeting.fileno())
    return env | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        ENV_RANK: str(rank),
        ENV_RANKS: str(ranks),
        ENV_RANK_PAGE: str(page),
    }


def start(
    command: Sequence[str], env: dict[str, str], keeps: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start one rank, which the kernel kills if this process dies. Raises OSError.

    ``keeps``: descriptors that it inherits.
    """
    parent = os.getpid()

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if not die_with(parent):
            os._exit(SIGNAL_BASE + signal.SIGKILL)

    return subprocess.Popen(
        command, env=env, pass_fds=keeps, preexec_fn=prepare, start_new_session=True
    )


def _positive(code: int) -> int:
    return code if code >= 0 else SIGNAL_BASE - code


def number() -> int:
    """Return how many ranks this start has."""
    return max(1, len([name for name in os.environ.get(ENV_DEVICES, "").split(",") if name]))


def main(command: list[str]) -> int:
    """Run the group; return its exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    count = number()
    ranks: list[subprocess.Popen[bytes]] = []
    page = Page.create(count)
    group = None
    try:
        with rendezvous(command) or contextlib.nullcontext() as meeting:
            for rank in range(count):
                keeps = [] if meeting is None or rank else [meeting.fileno()]
                env = environment(rank, count, page.path, meeting)
                ranks.append(start(command, env, keeps))
        group = Group(page, ranks)
        return group.wait()
    except OSError as error:
        print(f"reshape: {command[0]} cannot be started: {error}", file=sys.stderr, flush=True)
        return NOT_EXECUTABLE
    finally:
        (group or Group(page, ranks)).end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
