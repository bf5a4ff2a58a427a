"""Checkpoints on disk: claimed by one attempt, and published whole or not at all.

Does: writes the claim of an attempt, publishes a folder ``step-SSSSSSSSSS-aN`` with its manifest,
finds the newest whole and acceptable one, and retains the last two. Standard library only: the
hook, the session API and the agent share it.

A crash at any point leaves the newest published checkpoint readable: files are written into a
temporary folder, synced, and appear by one rename; what is removed disappears by one rename first.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import heapq
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reshape_sidecar import claims, codec, durable, foreign
from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.contract import (
    CHECKPOINTS_KEPT,
    CLAIM_FILE,
    MANIFEST_FILE,
    Claim,
    FileEntry,
    Manifest,
)

SHUFFLE_SEED_BYTES = 4
RESCANS = 5
"""How often a reader scans again if a checkpoint vanished during the read (it was replaced)."""
TEMPORARY_PREFIX = ".tmp-a"
CANDIDATES_MAX = 1_000
"""Newest checkpoint folders that are looked at; Reshape leaves three at most."""
MANIFEST_BYTES_MAX = 4 << 20
"""Longest manifest: some 25,000 files."""
REPLACED_SUFFIX = ".replaced"
"""Suffix of the old checkpoint of a step that is being published again; it stays readable."""

_NAME = re.compile(r"step-(\d{10})-a(\d+)(\.replaced)?\Z")
_TEMPORARY = re.compile(r"\.tmp-a(\d+)-")


class DiskFull(CheckpointError):
    """The disk has no room for the checkpoint; a retry may succeed."""


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


def claim(
    folder: Path, attempt: int, job: str = "", stop: Callable[[], bool] = foreign.never
) -> Claim:
    """Make ``attempt`` the only one that may publish in ``folder``; create the folder if needed.

    Claiming again with the same attempt changes nothing. Raises StaleAttempt if a higher attempt or
    another job holds the folder, CheckpointError if the claim cannot be written, and
    foreign.Stopped once ``stop`` says so.
    """
    with disk_errors(folder, "claim"):
        folder.mkdir(parents=True, exist_ok=True)
        holder = claims.require_current(folder, attempt, job)
        if holder is not None and holder.attempt == attempt:
            return holder
        while True:
            before = _candidates(folder)
            base = _scan(folder, holder, stop=stop)
            mine = Claim(attempt, base.path.name if base else None, job, _seed(folder, holder, job))
            durable.write_whole(folder / CLAIM_FILE, codec.dumps(mine).encode())
            # The attempt before may publish until this claim exists; its checkpoint counts.
            if _candidates(folder) == before:
                break
        # A thread that has claimed too may be saving already: its files have this attempt.
        _remove_temporary(folder, attempt - 1)
        return mine


def _seed(folder: Path, holder: Claim | None, job: str) -> int:
    """Return the shuffle seed in the claim before, if that is of ``job``; or a new one."""
    if holder is not None and holder.job == job and holder.shuffle_seed is not None:
        return holder.shuffle_seed
    return _new_seed(folder, job)


@functools.cache
def _new_seed(folder: Path, job: str) -> int:
    """Return a random seed; the same in all threads of this process, which may claim at once."""
    return int.from_bytes(os.urandom(SHUFFLE_SEED_BYTES), "big") >> 1


def newest(
    folder: Path,
    process: tuple[int, int] | None = None,
    stop: Callable[[], bool] = foreign.never,
) -> PublishedCheckpoint | None:
    """Return the newest whole checkpoint that the claim of ``folder`` accepts, or None.

    Accepted are the claim's base, checkpoints of the claiming attempt, and, if the base is damaged,
    earlier checkpoints of the base's attempt. The size and SHA-256 of every file are compared, so
    this reads the whole checkpoint.

    ``process`` (attempt and generation): of its checkpoints only the sizes are compared. Pass it
    only for a process that ended in this container since the machine's boot: it has hashed what it
    synced, and a job that waits need not wait for a second read.

    ``stop`` is asked while files are read; once it says yes, foreign.Stopped is raised.
    """
    return _scan(folder, claims.read(folder), process, stop)


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
    """Publish the state at ``step``, which ``write`` writes into an empty folder.

    Publishing a step again replaces it. Raises StaleAttempt under a higher claim or the claim of
    another job than ``job`` (empty: unknown), CheckpointError if the disk refuses; in both cases
    the older checkpoints remain. Other exceptions of ``write`` pass through.
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
                what = f"the saved folder contains {MANIFEST_FILE}, a name reserved for Reshape"
                raise CheckpointError(f"checkpoint of step {step}: {what}; use another name")
            files = tuple(FileEntry(*entry) for entry in durable.sync_and_hash(temporary))
            manifest = Manifest(step, epoch, attempt, generation, files, complete)
            # A file's name may hold bytes that are no text; they pass unchanged.
            content = codec.dumps(manifest).encode(errors="surrogatepass")
            if len(content) > MANIFEST_BYTES_MAX:
                what = f"checkpoint of step {step}: {len(files)} files are too many for its list"
                raise CheckpointError(f"{what}; save fewer and larger files")
            durable.write_synced(temporary / MANIFEST_FILE, content)
            durable.sync_folder(temporary)
            claims.require_held(folder, attempt, job)
            target = folder / name
            if target.exists():
                discard(folder, name + REPLACED_SUFFIX, attempt)
                os.rename(target, folder / (name + REPLACED_SUFFIX))
            os.rename(temporary, target)
        except Exception as error:
            _remove(temporary)
            if isinstance(error, OSError):
                # A newer claim removes these files: report that, and not the missing file.
                claims.require_held(folder, attempt, job)
            raise
        durable.sync_folder(folder)
    # The checkpoint is published: a failure to remove old ones is no failure to save.
    with contextlib.suppress(OSError, CheckpointError):
        _prune(folder, name, attempt)
    return PublishedCheckpoint(target, manifest)


def write_and_discard(write: Callable[[Path], None]) -> None:
    """Write without publishing, because a save may need all workers; a full disk is no error."""
    with (
        contextlib.suppress(OSError),
        tempfile.TemporaryDirectory(prefix="reshape-worker-") as folder,
    ):
        write(Path(folder))


def verify(
    path: Path,
    process: tuple[int, int] | None = None,
    stop: Callable[[], bool] = foreign.never,
) -> Manifest:
    """Return the manifest of the checkpoint folder ``path``, after comparing every file with it.

    ``process``, ``stop``: as in ``newest``. Raises DamagedCheckpoint.
    """
    match = _NAME.match(path.name)
    try:
        text = foreign.read(path / MANIFEST_FILE, MANIFEST_BYTES_MAX, follow=False)
        manifest = codec.loads(Manifest, text)
        if match is None or (manifest.step, manifest.attempt) != tuple(map(int, match.group(1, 2))):
            raise DamagedCheckpoint(f"{path}: the manifest belongs to another checkpoint")
        hashed = (manifest.attempt, manifest.generation) == process
        for entry in manifest.files:
            _go_on(stop, path)
            if Path(entry.name).is_absolute() or ".." in Path(entry.name).parts:
                raise DamagedCheckpoint(f"{path}: {entry.name} is outside of the checkpoint")
            file = path / entry.name
            same = file.stat().st_size == entry.size_bytes
            if not same or not (hashed or foreign.sha256(file, stop) == entry.sha256):
                raise DamagedCheckpoint(f"{file}: size or SHA-256 differ from the manifest")
    except foreign.Stopped:
        raise
    except (OSError, ValueError, codec.CodecError) as error:  # ValueError: a name with a null byte
        raise DamagedCheckpoint(f"{path}: {error}") from None
    return manifest


def _scan(
    folder: Path,
    holder: Claim | None,
    process: tuple[int, int] | None = None,
    stop: Callable[[], bool] = foreign.never,
) -> PublishedCheckpoint | None:
    for _ in range(RESCANS):
        vanished = False
        for candidate in _acceptable(_candidates(folder), holder):
            path = folder / candidate.name
            _go_on(stop, path)
            try:
                return PublishedCheckpoint(path, verify(path, process, stop))
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
        candidate
        for candidate in candidates
        if candidate.attempt == holder.attempt
        or (candidate.attempt == base[0] and candidate.step <= base[1])
    ]


def _candidates(folder: Path) -> list[_Candidate]:
    """Return the checkpoint folders, newest first: a later attempt continues an earlier one."""
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:
        return []
    with entries:
        matches = (match for match in (_NAME.match(entry.name) for entry in entries) if match)
        candidates = (
            _Candidate(m.group(0), int(m.group(1)), int(m.group(2)), bool(m.group(3)))
            for m in matches
        )
        return heapq.nlargest(CANDIDATES_MAX, candidates, key=lambda candidate: candidate.order)


def _prune(folder: Path, published: str, attempt: int) -> None:
    """Remove every checkpoint but ``published`` and the newest acceptable one before it."""
    retained = [published]
    candidates = _candidates(folder)
    new = next((candidate for candidate in candidates if candidate.name == published), None)
    if new is None:
        return  # a newer attempt has removed it
    for candidate in _acceptable(candidates, claims.read(folder)):
        if (
            len(retained) < CHECKPOINTS_KEPT
            and candidate.order < new.order
            and not candidate.replaced
        ):
            retained.append(candidate.name)
    for candidate in candidates:
        if candidate.name not in retained and candidate.attempt <= attempt:
            discard(folder, candidate.name, attempt)


def discard(folder: Path, name: str, attempt: int) -> None:
    """Remove a checkpoint or the rest of a save; it disappears by one rename first."""
    doomed = folder / f"{TEMPORARY_PREFIX}{attempt}-{os.getpid()}-gone-{name}"
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder / name, doomed)
    _remove(doomed)


def _remove_temporary(folder: Path, attempt: int) -> None:
    """Remove the rest of crashed saves of attempts up to ``attempt``."""
    with os.scandir(folder) as entries:
        for entry in entries:
            match = _TEMPORARY.match(entry.name)
            if match and int(match.group(1)) <= attempt:
                _remove(folder / entry.name)


def _remove(folder: Path) -> None:
    """Remove a folder if that is possible; what stays is removed by a later save."""
    with contextlib.suppress(OSError):
        foreign.remove_tree(folder)


def _go_on(stop: Callable[[], bool], path: Path) -> None:
    if stop():
        raise foreign.Stopped(errno.ECANCELED, "was not read to its end in time", str(path))


@contextlib.contextmanager
def disk_errors(folder: Path, what: str) -> Iterator[None]:
    """Turn an OSError into a CheckpointError (DiskFull without room) that names a remedy."""
    try:
        yield
    except foreign.Stopped:
        raise
    except OSError as error:
        full = error.errno in durable.NO_ROOM
        remedy = "free space there" if full else "make it writable"
        raise (DiskFull if full else CheckpointError)(
            f"{what}: {folder} cannot be written ({error}); {remedy} or give the "
            "job another `checkpoints` folder. Older checkpoints were left as they are."
        ) from error
