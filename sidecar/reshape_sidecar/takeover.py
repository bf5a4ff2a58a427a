"""A checkpoint folder that another job has used: its newest checkpoint is where this job begins.

Does: publishes that checkpoint once more as attempt 0, makes the folder this job's, and removes the
rest: each job counts its attempts from 1, so that those of two would be taken for each other.
Never: touches a folder that is this job's already, or one that nobody has claimed; hinders the
other job (two that live are refused at submission). State: the files of the folder.

A crash at any point loses nothing: the other job's checkpoint is removed when the claim names ours.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from reshape_sidecar import checkpoints, claims, codec, durable
from reshape_sidecar.checkpoints import TEMPORARY_PREFIX, PublishedCheckpoint
from reshape_sidecar.contract import CLAIM_FILE, MANIFEST_FILE, Claim

ATTEMPT = 0
"""Below every attempt of a job."""


def take_over(folder: Path, job: str) -> str:
    """Make ``folder`` that of ``job``. What was taken over, in words; empty: there was nothing to
    do. Raises CheckpointError."""
    holder = claims.read(folder)
    if holder is None or not holder.job or (holder.job == job and holder.attempt > ATTEMPT):
        return ""
    with checkpoints.disk_errors(folder, "claim"):
        if holder.job == job:  # a former try got as far as the claim
            _remove_all_but(folder, holder.base)
            return ""
        newest = checkpoints.newest(folder)
        base = None if newest is None else _published_again(folder, newest)
        claim = Claim(ATTEMPT, base, job)
        durable.write_whole(folder / CLAIM_FILE, codec.dumps(claim).encode())
        _remove_all_but(folder, base)
    left = "no checkpoint" if newest is None else f"step {newest.manifest.step}"
    return f"{folder} was the checkpoint folder of {holder.job}, which left {left} there"


def _published_again(folder: Path, newest: PublishedCheckpoint) -> str:
    """The same checkpoint under attempt 0; its name."""
    name = f"step-{newest.manifest.step:010d}-a{ATTEMPT}"
    if newest.path.name == name:
        return name
    temporary = folder / f"{TEMPORARY_PREFIX}{ATTEMPT}-{os.getpid()}-over"
    for unfinished in (temporary, folder / name):
        shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(newest.path, temporary, symlinks=True, copy_function=durable.link)
    manifest = codec.dumps(replace(newest.manifest, attempt=ATTEMPT, generation=0))
    content = manifest.encode(errors="surrogatepass")
    durable.write_whole(temporary / MANIFEST_FILE, content)
    durable.sync_tree(temporary)
    durable.sync_folder(temporary)
    os.rename(temporary, folder / name)
    durable.sync_folder(folder)
    return name


def _remove_all_but(folder: Path, kept: str | None) -> None:
    """Remove every other checkpoint, and what crashed saves left: they bear attempts of the other
    job."""
    for name in os.listdir(folder):
        if name != kept and name.startswith(("step-", TEMPORARY_PREFIX)):
            checkpoints.discard(folder, name, ATTEMPT)
