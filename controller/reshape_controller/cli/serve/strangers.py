"""Living containers of this home that its store does not know: an older store was put back.

Does: compares what runs with what the log says, before anything is given out. Never: ends one, or
guesses what GPUs it has. State: none.
"""

from __future__ import annotations

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.home import Home
from reshape_controller.core.model import Job, JobId, Stage
from reshape_controller.core.state import State
from reshape_launcher.spec import Launcher
from reshape_sidecar import codec
from reshape_sidecar.agent.memory import MEMORY_FILE, Memory
from reshape_sidecar.agent.spec import Folder
from reshape_sidecar.init.look import init_of

SHOWN_MAX = 5


async def any_lives(launcher: Launcher, home: Home, state: State) -> bool:
    """Whether a container lives here. Raises CliError if one is ahead of the log: it may train on
    GPUs that are nobody's there."""
    found = []
    try:
        statuses = await launcher.containers()
    except OSError as error:
        what = f"what runs in this home cannot be looked at: {error}"
        raise failed(Exit.FAILED, what, str(home.jobs), "mend that, and start again") from None
    for status in statuses:
        folder = Folder(home.jobs / status.job / f"attempt-{status.attempt}")
        job = state.jobs.get(JobId(status.job))
        if status.running and _ahead(folder, status.attempt, job):
            found.append((f"{status.job} (attempt {status.attempt})", init_of(folder.run)))
    if not found:
        return any(status.running for status in statuses)
    names = ", ".join(name for name, _ in found[:SHOWN_MAX])
    more = f" and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    pids = " ".join(str(init.pid) for _, init in found if init is not None)
    raise failed(
        Exit.FAILED,
        f"containers live here that are ahead of this store, so it is an older or another one, and "
        f"their GPUs would be given out under them: {names}{more}",
        str(home.jobs),
        "put the right store back; or, if this is to be the store, end them, which lets them save, "
        f"and start again: kill -TERM {pids}".rstrip(),
    )


def _ahead(folder: Folder, attempt: int, job: Job | None) -> bool:
    """Whether a living container is of a later moment than the log. One of an earlier attempt is
    not: the daemon ends it."""
    if job is None or attempt > job.attempt:
        return True
    if attempt < job.attempt:
        return False
    return job.stage is Stage.NONE or _told(folder) > job.generation


def _told(folder: Folder) -> int:
    """The newest generation that its SideCar has taken up; 0 while it has none, or lost it."""
    try:
        return codec.loads(Memory, (folder.run / MEMORY_FILE).read_bytes()).generation
    except (FileNotFoundError, codec.CodecError):
        return 0
