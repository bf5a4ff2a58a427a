"""A folder from which any Python program of a job imports the session API, and nothing else.

Does: links this package into a folder of the attempt, so that no image needs it installed, and says
whether a script uses it. Never: shows what lies beside the package: the agent's own libraries are
none of the program's. State: the link.
"""

from __future__ import annotations

import logging
from pathlib import Path

from reshape_sidecar.agent import environment
from reshape_sidecar.agent.spec import AttemptSpec

LIBRARY = "python"
SCRIPT_BYTES_MAX = 1 << 20
PACKAGE = Path(__file__).resolve().parents[1]

log = logging.getLogger("agent")


def install(run: Path) -> Path | None:
    """The folder, for ``PYTHONPATH``; None where there can be none, which is logged."""
    folder = run / LIBRARY
    link = folder / PACKAGE.name
    try:
        folder.mkdir(exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(PACKAGE)
    except OSError as error:
        log.error("programs cannot import %s without its installation: %s", PACKAGE.name, error)
        return None
    return folder


def is_used_by(spec: AttemptSpec) -> bool:
    """Whether the script of the command names this package: its session will tell of each step."""
    script = environment.script(spec)
    if script is None:
        return False
    path = Path(spec.code) / script
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            return PACKAGE.name.encode() in file.read(SCRIPT_BYTES_MAX)
    except OSError:
        return False
