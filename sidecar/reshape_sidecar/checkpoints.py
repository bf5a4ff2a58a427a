"""Checkpoints on disk: claimed by one attempt, published complete and verified, or not at all.

Does: writes the claim of an attempt, publishes a folder ``step-SSSSSSSSSS-aN`` with its manifest,
finds the newest one that is whole and acceptable, keeps the last two. Standard library only: the
hook, the session API and the agent share it. Never: knows what a checkpoint holds, or decides when
to save. State: the files of the checkpoint folder, nothing in memory.

A crash at any point leaves the newest published checkpoint readable: files are written into a
temporary folder, synced, and appear by one rename; what is removed disappears by one rename first.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reshape_sidecar import claims, codec, durable
from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.contract import (
    CHECKPOINTS_KEPT,
    CLAIM_FILE,
    MANIFEST_FILE,
    Claim,
    FileEntry,
    Manifest,
)

RESCANS = 5
"""How often a reader looks again when a checkpoint went away under its eyes (it was replaced)."""
TEMPORARY_PREFIX = ".tmp-a"
REPLACED_SUFFIX = ".replaced"
"""A checkpoint of a step that is being published a second time; readable until that is done."""

_NAME = re.compile(r"step-(\d{10})-a(\d+)(\.replaced)?\Z")
_TEMPORARY = re.compile(r"\.tmp-a(\d+)-")


class DiskFull(CheckpointError):
    """The disk has no room for it: another try may find some."""


class DamagedCheckpoint(CheckpointError):
    """A checkpoint folder is not whole: a file is missing, short or altered."""


@dataclass(frozen=True, slots=True)
class PublishedCheckpoint:
    """A whole checkpoint: its folder and its verified manifest."""

    path: Path
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    step: int
    attempt: int
    replaced: bool

    @property
    def order(self) -> tuple[int, int, bool]:
        return (self.attempt, self.step, not self.replaced)


def claim(folder: Path, attempt: int, job: str = "") -> Claim:
    """Make ``attempt`` the one that may publish in ``folder``; create the folder if need be.

    Claiming again with the same attempt changes nothing. Raises Fenced if a higher attempt or
    another job holds the folder, CheckpointError if the claim cannot be written.
    """
    with disk_errors(folder, "claim"):
        folder.mkdir(parents=True, exist_ok=True)
        holder = claims.require_current(folder, attempt, job)
        if holder is not None and holder.attempt == attempt:
            return holder
        while True:
            seen = _candidates(folder)
            base = _scan(folder, holder)
            mine = Claim(attempt, base.path.name if base else None, job)
            durable.write_whole(folder / CLAIM_FILE, codec.dumps(mine).encode())
            # What the attempt before published until our claim was there is still its good work.
            if _candidates(folder) == seen:
                break
        _remove_temporary(folder, attempt)
        return mine


def newest(folder: Path, process: tuple[int, int] | None = None) -> PublishedCheckpoint | None:
    """The newest whole checkpoint that the claim of ``folder`` accepts; None if there is none.

    Accepted are the claim's base, what the claiming attempt published, and, should the base have
    been damaged since, what the base's attempt published before it. Every file is compared with
    its size and SHA-256, so this reads the whole checkpoint. Of what ``process`` (attempt and
    generation) has published only the sizes are compared: it has just hashed what it synced, and
    whoever loads it compares everything. That is not to be read a second time while a job waits.
    """
    return _scan(folder, claims.read(folder), process)


def publish(
    folder: Path,
    *,
    step: int,
    epoch: int,
    attempt: int,
    generation: int,
    write: Callable[[Path], None],
    complete: bool = False,
    job: str = "",
) -> PublishedCheckpoint:
    """Publish what ``write`` puts into the empty folder that it is given, as the state at ``step``.

    Publishing a step again replaces it. Raises Fenced under a higher claim or that of a job other
    than ``job`` (empty: not known), CheckpointError when the disk refuses; in both cases the older
    checkpoints remain. What ``write`` raises otherwise passes through.
    """
    claims.require_held(folder, attempt, job)
    name = f"step-{step:010d}-a{attempt}"
    temporary = folder / f"{TEMPORARY_PREFIX}{attempt}-{os.getpid()}-{step}"
    with disk_errors(folder, f"checkpoint of step {step}"):
        _remove_temporary(folder, attempt)
        try:
            os.mkdir(temporary)
            write(temporary)
            if os.path.lexists(temporary / MANIFEST_FILE):
                what = f"what was saved has a {MANIFEST_FILE}, which is Reshape's own name"
                raise CheckpointError(f"checkpoint of step {step}: {what}; save it under another")
            files = tuple(FileEntry(*found) for found in durable.sync_and_hash(temporary))
            manifest = Manifest(step, epoch, attempt, generation, files, complete)
            # A file's name may hold bytes that are no text; they come back as they are.
            content = codec.dumps(manifest).encode(errors="surrogatepass")
            durable.write_synced(temporary / MANIFEST_FILE, content)
            durable.sync_folder(temporary)
            claims.require_held(folder, attempt, job)
            target = folder / name
            if target.exists():
                discard(folder, name + REPLACED_SUFFIX, attempt)
                os.rename(target, folder / (name + REPLACED_SUFFIX))
            os.rename(temporary, target)
        except Exception as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if isinstance(error, OSError):
                # A claim in the meantime removes our files: say that, not what it looks like.
                claims.require_held(folder, attempt, job)
            raise
        durable.sync_folder(folder)
    # The checkpoint is out: failing to tidy up must not look like failing to save.
    with contextlib.suppress(OSError, CheckpointError):
        _prune(folder, name, attempt)
    return PublishedCheckpoint(target, manifest)


def verify(path: Path, process: tuple[int, int] | None = None) -> Manifest:
    """Manifest of the checkpoint folder ``path``; raises Torn unless every file is as it says.

    ``process``: as in ``newest``.
    """
    match = _NAME.match(path.name)
    try:
        manifest = codec.loads(Manifest, (path / MANIFEST_FILE).read_bytes())
        if match is None or (manifest.step, manifest.attempt) != tuple(map(int, match.group(1, 2))):
            raise DamagedCheckpoint(f"{path}: the manifest is of another checkpoint")
        hashed = (manifest.attempt, manifest.generation) == process
        for entry in manifest.files:
            if Path(entry.name).is_absolute() or ".." in Path(entry.name).parts:
                raise DamagedCheckpoint(f"{path}: {entry.name} is outside of the checkpoint")
            file = path / entry.name
            same = file.stat().st_size == entry.size_bytes
            if not same or not (hashed or durable.sha256(file) == entry.sha256):
                raise DamagedCheckpoint(f"{file}: size or SHA-256 differ from the manifest")
    except (OSError, codec.CodecError) as error:
        raise DamagedCheckpoint(f"{path}: {error}") from None
    return manifest


def _scan(
    folder: Path, holder: Claim | None, process: tuple[int, int] | None = None
) -> PublishedCheckpoint | None:
    for _ in range(RESCANS):
        vanished = False
        for candidate in _acceptable(_candidates(folder), holder):
            path = folder / candidate.name
            try:
                return PublishedCheckpoint(path, verify(path, process))
            except DamagedCheckpoint:
                vanished = vanished or not path.exists()
        if not vanished:
            return None
    return None


def _acceptable(candidates: list[_Candidate], holder: Claim | None) -> list[_Candidate]:
    if holder is None:
        return candidates
    match = _NAME.match(holder.base) if holder.base else None
    base = (int(match.group(2)), int(match.group(1))) if match else (-1, -1)
    return [
        found
        for found in candidates
        if found.attempt == holder.attempt or (found.attempt == base[0] and found.step <= base[1])
    ]


def _candidates(folder: Path) -> list[_Candidate]:
    """Checkpoint folders by name, newest first: a later attempt continues an earlier one."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    matches = [match for match in map(_NAME.match, names) if match]
    found = [
        _Candidate(m.group(0), int(m.group(1)), int(m.group(2)), bool(m.group(3))) for m in matches
    ]
    return sorted(found, key=lambda candidate: candidate.order, reverse=True)


def _prune(folder: Path, published: str, attempt: int) -> None:
    """Keep ``published`` and the newest before it; the rest is older, replaced or damaged."""
    kept = [published]
    candidates = _candidates(folder)
    new = next((found for found in candidates if found.name == published), None)
    if new is None:
        return  # a newer attempt has removed it
    for found in _acceptable(candidates, claims.read(folder)):
        if len(kept) < CHECKPOINTS_KEPT and found.order < new.order and not found.replaced:
            kept.append(found.name)
    for found in candidates:
        if found.name not in kept and found.attempt <= attempt:
            discard(folder, found.name, attempt)


def discard(folder: Path, name: str, attempt: int) -> None:
    """Remove a checkpoint, or what a save left, which disappears by one rename first."""
    doomed = folder / f"{TEMPORARY_PREFIX}{attempt}-{os.getpid()}-gone-{name}"
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder / name, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _remove_temporary(folder: Path, attempt: int) -> None:
    """Remove what crashed saves of this and earlier attempts left; never a later attempt's."""
    for name in os.listdir(folder):
        match = _TEMPORARY.match(name)
        if match and int(match.group(1)) <= attempt:
            shutil.rmtree(folder / name, ignore_errors=True)


@contextlib.contextmanager
def disk_errors(folder: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in durable.NO_ROOM
        remedy = "free space there" if full else "make it writable"
        raise (DiskFull if full else CheckpointError)(
            f"{what}: {folder} cannot be written ({error}); {remedy} or give the "
            "job another `checkpoints` folder. Older checkpoints were left as they are."
        ) from error
