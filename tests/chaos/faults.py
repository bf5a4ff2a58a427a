"""The faults of the campaign: each hurts one process, or one disk, of one home.

Does: finds its victim in /proc alone, at random among those that live at that moment. Returns what
it did, or None if there is no victim now. Never: ends a process of another home.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

STOP_S = (0.1, 2.0)
"""Shortest and longest time for which a process stands still, or a disk is full."""
DOWN_S = (0.0, 1.5)
"""Time for which there is no daemon."""
DISK_BYTES = 12 << 20
ROLES = ("init", "agent", "training", "zygote")
LETHAL = ("kill-init", "kill-training", "full-disk")
"""Faults that may cost a job one of its retries. No other may."""


@dataclass
class Ground:
    """What faults reach of one home."""

    home: Path
    dice: random.Random
    daemon_pid: Callable[[], int | None]
    restart: Callable[[float], None]
    """Start the next daemon after so many seconds."""
    mounted: bool = False
    """Whether the home is a small disk of its own."""
    later: list[threading.Timer] = field(default_factory=list)

    def processes(self, role: str) -> list[tuple[int, str]]:
        """Return pid and job of the living processes of a role."""
        return [(pid, job) for pid, job, of in sidecar_processes(self.home) if of == role]

    def after(self, wait_s: float, act: Callable[[], None]) -> None:
        timer = threading.Timer(wait_s, act)
        self.later.append(timer)
        timer.start()

    def heal(self) -> None:
        """Wait until everything that stands still goes on."""
        while self.later:
            self.later.pop().join()


def sidecar_processes(home: Path) -> Iterator[tuple[int, str, str]]:
    """Yield pid, job and role of the processes of every SideCar of a home."""
    jobs = f"{home}/jobs/"
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace").split("\0")
            text = Path(f"/proc/{name}/environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        env = dict(each.partition("=")[::2] for each in text.split("\0"))
        if not env.get("RESHAPE_SOCKET", "").startswith(jobs):
            continue
        programs = {word.rsplit("/", 2)[-2] for word in words[:4] if word.endswith("__main__.py")}
        role = "init" if "init" in programs else "agent" if "agent" in programs else ""
        if any(word.endswith("/hook/zygote.py") for word in words):
            role = "zygote"
        elif not role and env.get("RESHAPE_GENERATION", "").isdecimal():
            role = "training"
        if role:
            yield int(name), env.get("RESHAPE_JOB", ""), role


def _kill(role: str) -> Callable[[Ground], str | None]:
    def fault(ground: Ground) -> str | None:
        found = ground.processes(role)
        if not found:
            return None
        pid, job = ground.dice.choice(sorted(found))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return f"{role} of {job}"

    return fault


def _stop(role: str) -> Callable[[Ground], str | None]:
    def fault(ground: Ground) -> str | None:
        found = ground.processes(role)
        if not found:
            return None
        pid, job = ground.dice.choice(sorted(found))
        return f"{role} of {job} for {_stand_still(ground, pid):.1f} s"

    return fault


def _stand_still(ground: Ground, pid: int) -> float:
    stop_s = ground.dice.uniform(*STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    ground.after(stop_s, go_on)
    return stop_s


def kill_daemon(ground: Ground) -> str | None:
    return _end_daemon(ground, signal.SIGKILL)


def end_daemon(ground: Ground) -> str | None:
    return _end_daemon(ground, signal.SIGTERM)


def _end_daemon(ground: Ground, number: signal.Signals) -> str | None:
    pid = ground.daemon_pid()
    if pid is None:
        return None
    down_s = ground.dice.uniform(*DOWN_S)
    os.kill(pid, number)
    ground.restart(down_s)
    return f"{number.name}, the next after {down_s:.1f} s"


def stop_daemon(ground: Ground) -> str | None:
    pid = ground.daemon_pid()
    return None if pid is None else f"for {_stand_still(ground, pid):.1f} s"


def full_disk(ground: Ground) -> str | None:
    """Fill the disk of the store, the jobs and the checkpoints."""
    filler = ground.home / "filler"
    if not ground.mounted or filler.exists():
        return None
    full_s = ground.dice.uniform(*STOP_S)
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    ground.after(full_s, lambda: filler.unlink(missing_ok=True))
    return f"for {full_s:.1f} s"


FAULTS: dict[str, Callable[[Ground], str | None]] = {
    "kill-daemon": kill_daemon,
    "end-daemon": end_daemon,
    "stop-daemon": stop_daemon,
    **{f"kill-{role}": _kill(role) for role in ROLES},
    **{f"stop-{role}": _stop(role) for role in ("init", "agent", "training")},
    "full-disk": full_disk,
}


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a small disk at a folder; yields False where this user may not."""
    folder.mkdir(mode=0o700, parents=True)
    words = ("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", str(folder))
    done = subprocess.run(words, capture_output=True, check=False)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(("umount", "-l", str(folder)), check=True)


def wait_for_end(pid: int, give_up_s: float) -> None:
    """Wait until a process has ended."""
    while Path(f"/proc/{pid}").exists() and time.monotonic() < give_up_s:
        time.sleep(0.01)
