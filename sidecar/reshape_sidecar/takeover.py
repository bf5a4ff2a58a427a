"""Takes over a checkpoint folder of another job: this job begins at its newest checkpoint.

Does: publishes that checkpoint again as attempt 0, claims the folder for this job, and removes the
rest. Each job counts its attempts from 1, so the attempts of two jobs would be confused. A folder
that is this job's already, or without a claim, stays as it is. Two live jobs with one folder are
refused at submission.

A crash at any point loses nothing: the other job's checkpoint is removed after the claim names the
new one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from reshape_sidecar import checkpoints, claims, codec, durable, foreign
from reshape_sidecar.checkpoints import TEMPORARY_PREFIX, PublishedCheckpoint
from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.contract import CLAIM_FILE, MANIFEST_FILE, Claim

ATTEMPT = 0
"""Below every attempt of a job."""


def take_over(folder: Path, job: str, stop: Callable[[], bool] = foreign.never) -> str:
    """Make ``folder`` that of ``job``; return a line for the log, empty if nothing was to do.

    Raises CheckpointError, and foreign.Stopped once ``stop`` says so.
    """
    holder = claims.read(folder)
    if holder is None or not holder.job or (holder.job == job and holder.attempt > ATTEMPT):
        return ""
    with checkpoints.disk_errors(folder, "claim"):
        if holder.job == job:  # an earlier try reached the claim
            _remove_all_but(folder, holder.base)
            return ""
        newest = checkpoints.newest(folder, stop=stop)
        base = None if newest is None else _published_again(folder, newest)
        claim = Claim(ATTEMPT, base, job)
        durable.write_whole(folder / CLAIM_FILE, codec.dumps(claim).encode())
        _remove_all_but(folder, base)
    left = "no checkpoint" if newest is None else f"step {newest.manifest.step}"
    return f"{folder} was the checkpoint folder of {holder.job}, which left {left} there"


def _published_again(folder: Path, newest: PublishedCheckpoint) -> str:
    """Publish ``newest`` under attempt 0; return its name."""
    name = f"step-{newest.manifest.step:010d}-a{ATTEMPT}"
    if newest.path.name == name:
        return name
    temporary = folder / f"{TEMPORARY_PREFIX}{ATTEMPT}-{os.getpid()}-over"
    for unfinished in (temporary, folder / name):
        foreign.remove_tree(unfinished)
    try:
        shutil.copytree(newest.path, temporary, symlinks=True, copy_function=durable.link)
    except (shutil.Error, RecursionError) as error:
        raise CheckpointError(f"{newest.path} cannot be taken over: {error!s:.200}") from None
    manifest = codec.dumps(replace(newest.manifest, attempt=ATTEMPT, generation=0))
    content = manifest.encode(errors="surrogatepass")
    durable.write_whole(temporary / MANIFEST_FILE, content)
    durable.sync_tree(temporary)
    durable.sync_folder(temporary)
    os.rename(temporary, folder / name)
    durable.sync_folder(folder)
    return name


def _remove_all_but(folder: Path, retained: str | None) -> None:
    """Remove every other checkpoint and the rest of crashed saves, all of the other job."""
    for name in os.listdir(folder):
        if name != retained and name.startswith(("step-", TEMPORARY_PREFIX)):
            checkpoints.discard(folder, name, ATTEMPT)
