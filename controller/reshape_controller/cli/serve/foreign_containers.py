"""Living containers that the store does not know, because it is an older copy or another store.

Does: compare what runs with the log, before any GPU is assigned. It ends no container and does not
guess its GPUs. A pod reports its desired state later, in its first report (``live.sidecar_hub``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.cli.home import Home
from reshape_controller.core.model import HostId, JobId, Stage
from reshape_controller.core.state import State
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.local.naming import HOST
from reshape_launcher.spec import ContainerStatus, Launcher
from reshape_sidecar import state_files
from reshape_sidecar.agent.memory import MEMORY_FILE, Memory
from reshape_sidecar.agent.spec import Folder
from reshape_sidecar.init.look import init_of

SHOWN_MAX = 5


async def any_lives(
    launcher: Launcher, home: Home, state: State, epoch: int, *, loss_accepted: bool = False
) -> bool:
    """Return True if a container lives here. ``epoch``: this controller's.

    Raises CliError if one is ahead of the log: it may train on GPUs that the log calls free. If a
    loss was accepted, one whose memory cannot be read counts as ahead.
    """
    try:
        statuses = await launcher.containers()
    except OSError as error:
        what = f"the job folders of this home cannot be read: {error}"
        raise failed(Exit.FAILED, what, str(home.jobs), "fix that and start again") from None
    found = [
        status
        for status in statuses
        if status.running
        and (_unknown(status, state) or _is_ahead(home, status, state, epoch, loss_accepted))
    ]
    if found:
        inits = (init_of(_run_folder(home, status)) for status in found)
        pids = " ".join(str(init.pid) for init in inits if init is not None)
        raise _refused(found, str(home.jobs), f"kill -TERM {pids}".rstrip())
    return any(status.running for status in statuses)


async def refuse_pods(
    launcher: KubernetesLauncher, state: State, *, loss_accepted: bool = False
) -> None:
    """Check that the log knows the job and attempt of each pod of this controller.

    If a loss was accepted, no pod may run: what it was told is in its first report, which may not
    come before its GPUs are assigned. Raises CliError if not, and OSError while the pods cannot be
    listed.
    """
    found = [
        status
        for status in await launcher.containers()
        if status.running and (loss_accepted or _unknown(status, state)) and _counts(status, state)
    ]
    if found:
        by_hand = launcher.end_by_hand([(status.job, status.attempt) for status in found])
        raise _refused(found, "--launcher kubernetes", by_hand)


def _unknown(status: ContainerStatus, state: State) -> bool:
    """True if the container was launched after the log's end.

    The daemon ends containers of earlier attempts.
    """
    job = state.jobs.get(JobId(status.job))
    return job is None or status.attempt > job.attempt


def _counts(status: ContainerStatus, state: State) -> bool:
    """False on a host that is away: its GPUs are not assigned, and its containers end on return."""
    host = state.hosts.get(HostId(status.host)) if status.host is not None else None
    return host is None or host.present


def _is_ahead(
    home: Home, status: ContainerStatus, state: State, epoch: int, loss_accepted: bool
) -> bool:
    """True if its SideCar has a newer desired state than the log, or the log has no such job.

    A SideCar of an epoch that the log has lost, but of no newer generation, is not ahead: this
    controller's epoch is higher.
    """
    job = state.jobs[JobId(status.job)]
    if status.attempt < job.attempt:
        return False
    found = state_files.read(Memory, _run_folder(home, status) / MEMORY_FILE)
    if not isinstance(found, Memory) and loss_accepted:
        return True
    # Without one it has no desired state yet, or has lost it.
    memory = found if isinstance(found, Memory) else Memory()
    told_more = memory.generation > job.generation or memory.epoch >= epoch
    return job.stage is Stage.NONE or told_more


def _run_folder(home: Home, status: ContainerStatus) -> Path:
    root = home.attempts_of(status.host or HOST)
    return Folder(root / status.job / f"attempt-{status.attempt}").run


def _refused(found: Sequence[ContainerStatus], where: str, end_them: str) -> CliError:
    names = ", ".join(f"{status.job} (attempt {status.attempt})" for status in found[:SHOWN_MAX])
    more = f" and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    return failed(
        Exit.FAILED,
        "running containers are newer than this store, which is old or another one; their "
        f"GPUs would be given to other jobs: {names}{more}",
        where,
        "restore the right store; or keep this one, end these containers (they save first), "
        f"and start again: {end_them}",
    )
