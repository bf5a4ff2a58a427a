"""Whether this machine can compile C for its Python.

Does: looks for a compiler and for Python's headers; ``python -m native.toolchain`` says what is
missing. Never: installs anything. State: none.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path


class Missing(Exception):
    """Nothing can be compiled here. The text names what is missing and the remedy."""


def check() -> None:
    """Raises Missing."""
    problem = missing(
        os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc",
        Path(sysconfig.get_paths()["include"]),
    )
    if problem:
        raise Missing(problem)


def missing(compiler: str, headers: Path) -> str:
    """What is missing and the remedy; empty if everything is there."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = []
    words = shlex.split(compiler)
    if not words or shutil.which(words[0]) is None:
        found.append(f"the C compiler {compiler!r} (Debian: gcc; another: CC=)")
    if not (headers / "Python.h").is_file():
        found.append(f"{headers / 'Python.h'} (Debian: {version}-dev)")
    if not found:
        return ""
    need = " and ".join(found)
    return f"to compile, install {need}; the interpreted Reshape needs neither (make setup)"


def main() -> int:
    """Say what is missing; 1 if something is."""
    try:
        check()
    except Missing as error:
        print(f"make compiled: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
