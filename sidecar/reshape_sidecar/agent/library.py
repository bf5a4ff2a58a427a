"""The folder from which any Python program of a job imports the session API.

Does: links this package into a folder of the attempt, so that no image needs it installed, and says
whether a script uses it. The folder holds nothing else: the agent's own libraries stay invisible to
the program.
"""

from __future__ import annotations

import logging
from pathlib import Path

from reshape_sidecar import foreign
from reshape_sidecar.agent import environment
from reshape_sidecar.agent.spec import AttemptSpec
from reshape_sidecar.wire import Processes

LIBRARY = "python"
LIBRARIES = (b"lightning", b"transformers")
"""Libraries whose trainers the hook of ``processes: per-gpu`` saves and reports."""
MODE = 0o755
PACKAGE = Path(__file__).resolve().parents[1]

log = logging.getLogger("agent")


def install(run: Path) -> Path | None:
    """Create the folder and return it for ``PYTHONPATH``; None (logged) if that fails."""
    folder = run / LIBRARY
    link = folder / PACKAGE.name
    try:
        folder.mkdir(exist_ok=True)
        folder.chmod(MODE)  # training may be another user's
        if not link.is_symlink():
            link.symlink_to(PACKAGE)
    except OSError as error:
        log.error("programs cannot import %s without its installation: %s", PACKAGE.name, error)
        return None
    return folder


def is_used_by(spec: AttemptSpec) -> bool:
    """Return whether a session reports steps: the script names this package, or a trainer's."""
    script = environment.script(spec)
    if script is None:
        return False
    path = Path(spec.code) / script
    try:
        text = foreign.begin_of(path, foreign.SCRIPT_BYTES_MAX)
    except OSError:
        return False
    names = [PACKAGE.name.encode()]
    if spec.processes is Processes.PER_GPU:
        names += LIBRARIES
    return any(name in text for name in names)
