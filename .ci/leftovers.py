"""Finds what a run left behind: processes, files, cgroups, nodes of a test cluster.

Does: looks. Never: ends or removes anything. State: none.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from scope import status

STAYS_S = 20.0
"""A process or an empty cgroup that is there for this long is left behind."""


def of_processes(mark: str) -> str:
    """Return a line for each process that has this run's mark in its environment, and stays.

    Daemons of the tests have an environment of their own; their SideCars' files are named in full.
    """
    until_s = time.monotonic() + STAYS_S
    while (found := _marked(mark)) and time.monotonic() < until_s:
        time.sleep(0.5)
    return found


def _marked(mark: str) -> str:
    sidecar = f"{Path.cwd()}/sidecar/".encode()
    lines = ""
    for folder in sorted(Path("/proc").glob("[0-9]*")):
        if folder.name == str(os.getpid()):
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            marked = mark.encode() in (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if marked or sidecar in command:
            lines += f"still runs: {folder.name} {command.decode(errors='replace')}\n".replace(
                "\0", " "
            )
    return lines


def groups() -> set[Path]:
    """Return the cgroups of launchers below this process's own group."""
    own = next((line[3:] for line in _lines("/proc/self/cgroup") if line.startswith("0::")), None)
    found: set[Path] = set()
    for line in _lines("/proc/self/mountinfo"):
        place, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 ") and own is not None:
            found.update(Path(place.split()[4] + own).glob("reshape-*"))
    return found


def of_groups(before: set[Path]) -> str:
    """Return a line for each cgroup of a launcher that was not there ``before`` the run, and that
    stays without a process: a launcher removes the group of its last attempt."""
    found = {each for each in groups() - before if _is_empty(each)}
    if found:
        time.sleep(STAYS_S)
    return "".join(f"empty cgroup is left: {each}\n" for each in sorted(found) if _is_empty(each))


def _is_empty(group: Path) -> bool:
    return "populated 0" in _lines(str(group / "cgroup.events"))


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:  # it has ended, or this kernel has none
        return []


def of_files(status_before: str) -> str:
    """Return what git sees now, if that is not what it saw before the run."""
    now = status()
    if now == status_before:
        return ""
    return f"files changed by the tests; git status says now:\n{now}"


def of_cluster(environ: dict[str, str]) -> str:
    """Return what is left of any worker's cluster."""
    counted = subprocess.run(
        ["make", "-s", "kubernetes-workers"], capture_output=True, text=True, check=False
    )
    if counted.returncode != 0 or not counted.stdout.strip().isdecimal():
        return f"the number of clusters is unknown: {counted.stdout}{counted.stderr}\n"
    first, lines = int(environ.get("RESHAPE_KUBE_NUMBER", "0")), ""
    for worker in range(max(1, int(counted.stdout))):
        looked = subprocess.run(
            [".venv/bin/python", "-m", "tests.kubernetes.cluster", "left"],
            env=environ | {"RESHAPE_KUBE_NUMBER": str(first + worker)},
            capture_output=True,
            text=True,
            check=False,
        )
        if looked.returncode != 0:
            lines += f"{looked.stdout}{looked.stderr}" or f"cluster {first + worker} is left\n"
    return lines
