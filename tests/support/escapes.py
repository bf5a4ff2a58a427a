"""Twelve programs that leave init's tree and clear their environment, each in another way.

As a training program (``python escapes.py NAME TAG``) it starts its escape, waits until the escape
has come as far as it will, and trains until a SIGTERM. Each escape shows ``TAG`` on its command
line, which is how an auditor finds it: ``survivors`` reads /proc and nothing else.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

CLONE_PARENT, CLONE_NEWUTS, CLONE_NEWNS = 0x00008000, 0x04000000, 0x00020000
BOMB = 20
"""Processes of the fork bomb: small, for a machine that is shared."""
HIDDEN = "hides"
"""Word before the tag on the command line of an escape."""


def survivors(tag: str) -> list[int]:
    """Return the pids of the living escapes with this tag."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if f"{HIDDEN}-{tag}".encode() in words:
            found.append(int(name))
    return found


def _daemonise() -> bool:
    """Fork twice into a session of its own; True in the escape."""
    if os.fork():
        os.wait()
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    return True


def _hide(tag: str, code: str, program: str = sys.executable, name: str = "python") -> None:
    """Execute ``code`` without any environment."""
    prelude = "import os, signal, sys, time\n"
    os.execve(program, [name, "-I", "-S", "-c", prelude + code, f"{HIDDEN}-{tag}"], {})


SLEEP = "while True: time.sleep(1)"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN)"
CHASER = """
while True:
    if os.fork():
        os._exit(0)
    time.sleep(0.002)
"""
FORKS = f"""
for _ in range({BOMB}):
    if os.fork() == 0:
        os.setsid()
        break
while True: time.sleep(1)
"""
MOVES = """
for line in open("/proc/self/mountinfo"):
    place, _, kind = line.partition(" - ")
    if kind.startswith("cgroup2 "):
        point = place.split()[4]
        try:
            below = [each.path for each in os.scandir(point) if each.is_dir()]
        except OSError:
            below = []
        for folder in (point, *below):
            try:
                open(folder + "/cgroup.procs", "w").write("0")
                break
            except OSError:
                continue
while True: time.sleep(1)
"""


def double_fork(tag: str) -> None:
    if os.fork():
        os.wait()
        return
    if os.fork():
        os._exit(0)
    _hide(tag, SLEEP)


def new_session(tag: str) -> None:
    if os.fork():
        return
    os.setsid()
    _hide(tag, SLEEP)


def cleared_environment(tag: str) -> None:
    if os.fork():
        return
    _hide(tag, SLEEP)


def daemonised(tag: str) -> None:
    if _daemonise():
        os.chdir("/")
        os.umask(0)
        _hide(tag, SLEEP)


def clone_beside(tag: str) -> None:
    """A clone with CLONE_PARENT is no child of the program, but of its parent: init."""
    libc = ctypes.CDLL(None, use_errno=True)
    pid = libc.syscall(56, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        _hide(tag, SLEEP)


def fork_bomb(tag: str) -> None:
    if _daemonise():
        _hide(tag, FORKS)


def renamed_binary(tag: str) -> None:
    copy = os.path.abspath(f"kworker-{tag}")
    os.symlink(os.path.realpath(sys.executable), copy)
    if _daemonise():
        _hide(tag, SLEEP, copy, "[kworker/0:1]")


def unshared(tag: str) -> None:
    """Namespaces of its own; where that is not allowed it goes on without them."""
    if _daemonise():
        libc = ctypes.CDLL(None, use_errno=True)
        libc.unshare(CLONE_NEWNS)
        libc.unshare(CLONE_NEWUTS)
        _hide(tag, SLEEP)


def closed_descriptors(tag: str) -> None:
    if _daemonise():
        os.closerange(0, 1024)
        _hide(tag, SLEEP)


def deaf(tag: str) -> None:
    if _daemonise():
        _hide(tag, f"{DEAF}\n{SLEEP}")


def moves_itself(tag: str) -> None:
    """Write its pid into each cgroup that it sees, the topmost first."""
    if _daemonise():
        _hide(tag, MOVES)


def chaser(tag: str) -> None:
    """Fork for ever: each process lives a few milliseconds, ahead of every list of pids."""
    if _daemonise():
        _hide(tag, f"{DEAF}\n{CHASER}")


ESCAPES = {
    escape.__name__: escape
    for escape in (
        double_fork,
        new_session,
        cleared_environment,
        daemonised,
        clone_beside,
        fork_bomb,
        renamed_binary,
        unshared,
        closed_descriptors,
        deaf,
        moves_itself,
        chaser,
    )
}


def main(name: str, tag: str) -> None:
    """Start the escape, wait for it, and train until a SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    ESCAPES[name](tag)
    wanted = BOMB if name == "fork_bomb" else 1
    while len(survivors(tag)) < wanted:
        time.sleep(0.01)
    time.sleep(0.05)  # for what it does after it shows its tag
    Path(f"ready-{os.environ['RESHAPE_GENERATION']}").touch()
    while True:
        time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
