"""Finds what a run left behind: processes, files, nodes of a test cluster.

Does: looks. Never: ends or removes anything. State: none.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from scope import status


def of_processes(mark: str) -> str:
    """Return a line for each process that has this run's mark in its environment.

    Daemons of the tests have an environment of their own; their SideCars' files are named in full.
    """
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
