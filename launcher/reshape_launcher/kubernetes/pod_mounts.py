"""Where a job's folders are in its pod: volume claims, the image, or the pod's own scratch space.

Does: parse ``claim:NAME/FOLDER`` strictly and say what is mounted where. Never: mount a folder of a
node, or accept a path that leaves its volume.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from reshape_launcher.kubernetes.settings import ClaimMount, PodSettings
from reshape_launcher.spec import LaunchSpec, RecordRefused

OWN = PurePosixPath("/reshape/jobs")
"""A job whose record names no folder has its default folders below this path."""
CODE = "/reshape/code"
DATASET = "/reshape/dataset"
CHECKPOINTS = "/reshape/checkpoints"
LOGS = "/reshape/attempt/logs"
RESERVED = PurePosixPath("/reshape")
_SCHEME = "claim:"
_CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")
_FOLDER = re.compile(r"[A-Za-z0-9._@+=,~ -]{1,255}\Z")
FIRST_WORKER = "0"
"""Number of the first of several workers, as in the names of folders."""
WORKER_INDEX = "$(JOB_COMPLETION_INDEX)"
"""Kubernetes replaces this variable with the number of the worker."""


def logs_folder(job: str, attempt: int, worker: str | None = None) -> str:
    """Return where the log files of an attempt (or of one worker) are on the storage claim."""
    own = "" if worker is None else f"/worker-{worker}"
    return f"{job}/attempt-{attempt}{own}/logs"


@dataclass(frozen=True, slots=True)
class PodFolder:
    """A folder as the pod has it."""

    path: str
    mount: ClaimMount | None = None
    """The claim that brings it; None: it is in the image, or scratch space of the pod."""


@dataclass(frozen=True, slots=True)
class Mounts:
    """The three folders as the pod has them, and the claims that bring them."""

    code: str
    checkpoints: str
    dataset: str | None
    claims: tuple[ClaimMount, ...]
    own_code: bool
    """True if the code folder is an empty one that belongs to the pod."""


def mounts_of(spec: LaunchSpec, settings: PodSettings) -> Mounts:
    """Return all folders of the job's pod. Raises RecordRefused."""
    code = code_folder(spec, settings)
    checkpoints = checkpoint_folder(spec, settings)
    dataset = dataset_folder(spec, settings)
    folders = (code, checkpoints, dataset)
    claims = [folder.mount for folder in folders if folder is not None and folder.mount]
    if settings.storage_claim is not None:
        logs = logs_folder(spec.job, spec.attempt, _worker(spec))
        claims.append(ClaimMount(settings.storage_claim, LOGS, logs, read_only=False))
    return Mounts(
        code.path,
        checkpoints.path,
        None if dataset is None else dataset.path,
        tuple(claims),
        own_code=_is_unnamed(spec.code),
    )


def _worker(spec: LaunchSpec) -> str | None:
    """Return the number of one of several workers, for the names of folders.

    Kubernetes cannot add, so on a later host of a gang ``2+1`` is the worker 3.
    """
    if spec.workers == 1:
        return None
    numbers = spec.workers_on(spec.host)
    if numbers[0] == 0:
        return WORKER_INDEX
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}+{WORKER_INDEX}"


def code_folder(spec: LaunchSpec, settings: PodSettings) -> PodFolder:
    """Return the code folder. Raises RecordRefused."""
    return PodFolder(CODE) if _is_unnamed(spec.code) else _folder("code", spec.code, CODE)


def dataset_folder(spec: LaunchSpec, settings: PodSettings) -> PodFolder | None:
    """Return the dataset's folder, mounted read-only; None without one. Raises RecordRefused."""
    if spec.dataset is None:
        return None
    return _folder("dataset", spec.dataset, DATASET, read_only=True)


def checkpoint_folder(spec: LaunchSpec, settings: PodSettings) -> PodFolder:
    """Return the folder of the checkpoints, which outlives the pod. Raises RecordRefused."""
    text = spec.checkpoints
    if _is_unnamed(text):
        if settings.storage_claim is None:
            raise RecordRefused(
                "checkpoints",
                "the record has none, and the cluster file has no `storage_claim`",
                "write `checkpoints: claim:NAME/FOLDER`, or set `storage_claim` in the"
                " controller's cluster file",
            )
        mount = ClaimMount(settings.storage_claim, CHECKPOINTS, f"{spec.job}/checkpoints", False)
        return PodFolder(CHECKPOINTS, mount)
    folder = _folder("checkpoints", text, CHECKPOINTS)
    path = PurePosixPath(folder.path)
    writable = [mount.path for mount in settings.mounts if not mount.read_only]
    if folder.path != CHECKPOINTS and not any(path.is_relative_to(each) for each in writable):
        what = f"{text!r} is in the pod and would be lost with it"
        raise RecordRefused("checkpoints", what, "give a volume claim: claim:NAME/FOLDER")
    return folder


def _is_unnamed(folder: str) -> bool:
    """True if it is the default folder of a job whose record names none."""
    return PurePosixPath(folder).is_relative_to(OWN)


def _folder(field: str, text: str, path: str, *, read_only: bool = False) -> PodFolder:
    """Return the folder in the pod: a claim is at ``path``, another as it is in the image."""
    if text.startswith(_SCHEME):
        return PodFolder(path, replace(_claim(field, text), path=path, read_only=read_only))
    folder = PurePosixPath(text)
    if not folder.is_absolute() or ".." in folder.parts or "\0" in text:
        what = f"{text!r} is neither a volume claim nor an absolute path in the image"
        raise RecordRefused(field, what, "write claim:NAME/FOLDER or /a/path")
    if folder.is_relative_to(RESERVED):
        what = f"{text!r} is in {RESERVED}, which is reserved for Reshape"
        raise RecordRefused(field, what, "give another folder")
    return PodFolder(text)


def _claim(field: str, text: str) -> ClaimMount:
    name, _, folder = text.removeprefix(_SCHEME).partition("/")
    parts = [part for part in folder.split("/") if part not in ("", ".")]
    fits = all(_FOLDER.match(part) and part != ".." for part in parts)
    if not _CLAIM.match(name) or not fits:
        remedy = "write claim:NAME/FOLDER with the claim's name and plain folder names"
        raise RecordRefused(field, f"{text!r} is not a volume claim", remedy)
    return ClaimMount(name, "", "/".join(parts))
