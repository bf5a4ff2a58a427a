"""The agent's part of the zygote: asks init for one, and lets a start wait while it imports.

Does: decides from the spec and the container's memory whether a zygote is worth it, and makes the
request. Reads the cgroup's limit; starts no process.
"""

from __future__ import annotations

import time

from reshape_sidecar import cgroup, limits
from reshape_sidecar.agent import converge, environment, library, script_variables
from reshape_sidecar.agent.memory import Memory
from reshape_sidecar.agent.spec import AttemptSpec, Folder
from reshape_sidecar.init.values import InitStatus, UseZygote, ZygoteProcess
from reshape_sidecar.user import User, run_as
from reshape_sidecar.wire import Shortcut, Standby, StandbyState, StartKind

ZYGOTE_BYTES = 512 << 20
"""Memory that a zygote may take, with what its forks do not share with it."""
SWITCH = "RESHAPE_ZYGOTE"
"""Variable of the container that switches the zygote off with the value ``off``."""


def request(
    spec: AttemptSpec, folder: Folder, base: dict[str, str], user: User | None = None
) -> UseZygote | str:
    """Return the request for a zygote; a reason if this attempt shall have none.

    ``user`` reads the script.
    """
    if spec.standby is Shortcut.OFF or base.get(SWITCH) == "off":
        return "switched off"
    names = run_as(user, script_variables.names_of_libraries, spec)
    command = environment.zygote_command(spec, names)
    if command is None:
        return f"no zygote for this command of a job with framework {spec.framework}"
    left_bytes = cgroup.memory_left_bytes()
    if left_bytes is not None and left_bytes < ZYGOTE_BYTES:
        return f"{left_bytes >> 20} MiB of memory are left, a zygote takes {ZYGOTE_BYTES >> 20}"
    env = environment.variables(
        spec,
        (),
        base,
        socket=folder.socket,
        keep_running=folder.run,
        now_s=time.monotonic(),
        free_port=0,
        library=library.install(folder.run),
    )
    key = environment.zygote_key(spec, env)
    env = environment.zygote_variables(spec, env)
    env = run_as(user, script_variables.after, spec, env)
    return UseZygote(key, command, spec.code, tuple(sorted(env.items())))


def is_importing(status: InitStatus, asked_at_s: float, now_s: float) -> bool:
    """Return whether a start that was asked for at ``asked_at_s`` waits for the zygote.

    Imports that were slow until then are not begun again beside the ones under way.
    """
    zygote = status.zygote
    if zygote is None or zygote.state is not StandbyState.STARTING:
        return False
    return now_s < max(zygote.started_at_s, asked_at_s) + limits.ZYGOTE_IMPORT_S


def doubt(memory: Memory, status: InitStatus) -> str | None:
    """Return why the next start shall be cold: the fork before it ended before its first step."""
    training = status.training
    if training is None or training.how is not StartKind.ZYGOTE or training.running:
        return None
    if training.rung or training.exit_code in converge.SAVED_CODES:
        return None
    if memory.trained_generation >= training.generation:
        return None
    return f"the fork of generation {training.generation} ended before its first step"


def observed(status: InitStatus, refusal: str | None, *, is_asked: bool) -> Standby | None:
    """Return what a report says of the zygote; ``refusal``: why none was asked for; ``is_asked``:
    init was asked for one, and starts it at once."""
    if status.zygote is None:
        return None
    if refusal is not None:
        return Standby(StandbyState.OFF, refusal)
    if is_asked and status.zygote == ZygoteProcess(StandbyState.NONE):
        return Standby(StandbyState.STARTING)
    return Standby(status.zygote.state, status.zygote.reason)
