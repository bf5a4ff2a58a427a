"""The folders of attempts of jobs that ended long ago.

Does: look each hour, and remove logs and launch files of a job so many days after its end. Never:
touch a checkpoint, a work folder, a job that the store does not know, or one with a container.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import structlog

from reshape_controller.core.model import JobId
from reshape_controller.store.protocol import Store, StoreError
from reshape_launcher.spec import Launcher
from reshape_sidecar import foreign

LOOK_EVERY_S = 3600.0
DAY_S = 86_400.0
_ATTEMPT_NAME = re.compile(r"attempt-\d+")

log = structlog.get_logger("reshape.retention")


async def watch(
    roots: tuple[Path, ...],
    store: Store,
    launcher: Launcher,
    keep_s: float,
    now_s: Callable[[], float],
    trusted: Callable[[], bool],
) -> None:
    """Remove old attempts for ever. A look that fails is logged, and the next comes in time; while
    the time is in doubt (``trusted``), nothing is removed."""
    while True:
        if not trusted():
            await asyncio.sleep(LOOK_EVERY_S)
            continue
        try:
            removed = await remove_old(roots, store, launcher, now_s() - keep_s)
        except (OSError, StoreError) as error:
            where = ", ".join(map(str, roots))
            log.warning("old-logs-not-removed", folder=where, error=str(error))
        else:
            if removed:
                log.info("old-logs-removed", jobs=len(removed))
        await asyncio.sleep(LOOK_EVERY_S)


async def remove_old(
    roots: tuple[Path, ...], store: Store, launcher: Launcher, ended_before_s: float
) -> tuple[JobId, ...]:
    """Remove the attempts below ``ROOT/JOB`` of jobs that ended before this Unix time.

    Returns these jobs. Raises OSError if folders or containers cannot be listed, and StoreError.
    """
    attempts = await asyncio.to_thread(_attempts, roots)
    if not attempts:
        return ()
    running = {status.job for status in await launcher.containers() if status.running}
    removed: list[JobId] = []
    for name in sorted(attempts.keys() - running):
        row = await store.job(name)
        if row is None or row.id != name or row.job is None or not row.state.terminal:
            continue
        if row.job.finished_at_s is None or row.job.finished_at_s >= ended_before_s:
            continue
        await asyncio.to_thread(_remove, attempts[name])
        removed.append(row.id)
    return tuple(removed)


def _attempts(roots: tuple[Path, ...]) -> dict[str, list[Path]]:
    """Return the folders of attempts by job; a root need not exist. Raises OSError."""
    found: dict[str, list[Path]] = {}
    for job in (each for root in roots if root.exists() for each in root.iterdir()):
        if job.is_dir() and not job.is_symlink():
            folders = [each for each in job.iterdir() if _ATTEMPT_NAME.fullmatch(each.name)]
            if folders:
                found.setdefault(job.name, []).extend(folders)
    return found


def _remove(attempts: list[Path]) -> None:
    """Remove the folders, and those of the job if nothing else is in them. Raises OSError."""
    for folder in attempts:
        foreign.remove_tree(folder)
    for parent in {folder.parent for folder in attempts}:
        with contextlib.suppress(OSError):  # it has checkpoints, or other files of the user
            parent.rmdir()
