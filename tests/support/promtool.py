"""Prometheus' own checker of rules: from the search path, or out of Debian's package.

Does: fetches the package once for this user and takes the program out of it; the package is not
installed, so no server starts. State: the program in ``~/.cache/reshape/promtool``
(``XDG_CACHE_HOME`` moves it).

    python -m tests.support.promtool    # print the program's path
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "prometheus"
FETCH_S = 300.0
REMEDY = f"install it: apt-get install --no-install-recommends {PACKAGE}; or put it on PATH"


def program() -> Path:
    """Path of the program. Raises RuntimeError with the remedy."""
    found = shutil.which("promtool")
    if found is not None:
        return Path(found)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "reshape" / "promtool"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "promtool"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                _fetch(Path(scratch)).replace(made)
    return made


def _fetch(scratch: Path) -> Path:
    for needed in ("apt-get", "dpkg-deb"):
        if shutil.which(needed) is None:
            raise RuntimeError(f"promtool not found, and no {needed} to fetch it; {REMEDY}")
    # As root apt fetches as a user of its own, who may not write into this folder.
    download = ("apt-get", "-o", "APT::Sandbox::User=root", "download", PACKAGE)
    try:
        _run(*download, folder=scratch)
    except RuntimeError:  # a fresh machine has no lists of packages yet
        _run("apt-get", "update", "-qq", folder=scratch)
        _run(*download, folder=scratch)
    (package,) = scratch.glob("*.deb")
    _run("dpkg-deb", "--extract", str(package), str(scratch / "content"), folder=scratch)
    return scratch / "content" / "usr" / "bin" / "promtool"


def _run(*command: str, folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=FETCH_S, check=False
    )
    if done.returncode:
        words = " ".join(command[:1])
        raise RuntimeError(
            f"promtool not found, and {words} failed: {done.stderr[-500:]}; {REMEDY}"
        )


if __name__ == "__main__":
    print(program())
    sys.exit(0)
