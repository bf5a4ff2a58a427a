"""The folder from which any Python program of a job imports the session API.

Does: links this package into a folder of the attempt, so that no image needs it installed, and says
whether a script uses it. The folder holds nothing else: the agent's own libraries stay invisible to
the program.
"""

from __future__ import annotations

import logging
from pathlib import Path

from reshape_sidecar import foreign, limits
from reshape_sidecar.agent import environment
from reshape_sidecar.agent.spec import AttemptSpec
from reshape_sidecar.wire import Processes

LIBRARY = "python"
FRAMEWORKS = (b"keras", b"tensorflow")
"""Libraries whose training the hook of a Keras script saves and reports."""
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


def prepares_s(spec: AttemptSpec) -> float:
    """Return after which time a process without a report of its first step counts as training: long
    if the script names what reports it, this package or a library under a hook."""
    names, hooked = [PACKAGE.name.encode()], environment.hooked(spec)
    if hooked:
        names += FRAMEWORKS
    elif spec.processes is Processes.PER_GPU:
        names += LIBRARIES
    text = _text(spec)
    if any(name in text for name in names):
        return limits.FIRST_STEP_SEEN_S
    return limits.HOOKED_RUNNING_S if hooked else limits.UNHOOKED_RUNNING_S


def _text(spec: AttemptSpec) -> bytes:
    """Return the begin of the script; empty if there is none that can be read."""
    script = environment.script(spec)
    if script is None:
        return b""
    try:
        return foreign.begin_of(Path(spec.code) / script, foreign.SCRIPT_BYTES_MAX)
    except OSError:
        return b""
