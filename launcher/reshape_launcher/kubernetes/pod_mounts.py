"""Where a job's folders are in its pod: volume claims, the image, or the pod's own scratch space.

Does: reads ``claim:NAME/FOLDER`` strictly and says what is mounted where. Never: mounts a folder of
a node, or takes a path that climbs out of its volume. State: none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from reshape_launcher.kubernetes.settings import ClaimMount, PodSettings
from reshape_launcher.spec import LaunchSpec, RecordRefused

OWN = PurePosixPath("/reshape/jobs")
"""Folders of jobs that name none are told as if they were below this one."""
CODE = "/reshape/code"
DATASET = "/reshape/dataset"
CHECKPOINTS = "/reshape/checkpoints"
LOGS = "/reshape/attempt/logs"
RESERVED = PurePosixPath("/reshape")
_SCHEME = "claim:"
_CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")
_FOLDER = re.compile(r"[A-Za-z0-9._@+=,~ -]{1,255}\Z")


CHIEF = "0"
"""The first of several workers."""
OWN_NUMBER = "$(JOB_COMPLETION_INDEX)"
"""Kubernetes puts the number of the worker there."""


def logs_folder(job: str, attempt: int, worker: str | None = None) -> str:
    """Where an attempt's log files are on the storage claim; of one of several workers."""
    own = "" if worker is None else f"/worker-{worker}"
    return f"{job}/attempt-{attempt}{own}/logs"


@dataclass(frozen=True, slots=True)
class Mounts:
    """The three folders as the pod has them, and the claims that bring them."""

    code: str
    checkpoints: str
    dataset: str | None
    mounts: tuple[ClaimMount, ...]
    own_code: bool
    """The code folder is an empty one of the pod's own."""


def mounts_of(spec: LaunchSpec, settings: PodSettings) -> Mounts:
    """Where everything is. Raises RecordRefused."""
    mounts: list[ClaimMount] = []
    placed_code = code(spec, mounts)
    placed_checkpoints = checkpoints(spec, settings, mounts)
    placed_dataset = dataset(spec, mounts)
    if settings.storage_claim is not None:
        kept = logs_folder(spec.job, spec.attempt, OWN_NUMBER if spec.workers > 1 else None)
        mounts.append(ClaimMount(settings.storage_claim, LOGS, kept, read_only=False))
    own_code = _not_named(spec.code)
    return Mounts(placed_code, placed_checkpoints, placed_dataset, tuple(mounts), own_code)


def code(spec: LaunchSpec, mounts: list[ClaimMount]) -> str:
    """The code folder, with what it takes added to ``mounts``. Raises RecordRefused."""
    return CODE if _not_named(spec.code) else _placed("code", spec.code, CODE, mounts)


def dataset(spec: LaunchSpec, mounts: list[ClaimMount]) -> str | None:
    """The same for the dataset, which is only read."""
    if spec.dataset is None:
        return None
    return _placed("dataset", spec.dataset, DATASET, mounts, read_only=True)


def checkpoints(spec: LaunchSpec, settings: PodSettings, mounts: list[ClaimMount]) -> str:
    """The same for the checkpoints, which have to outlive the pod."""
    text = spec.checkpoints
    if _not_named(text):
        if settings.storage_claim is None:
            raise RecordRefused(
                "checkpoints",
                "the record has none, and the cluster file has no `storage_claim`",
                "write `checkpoints: claim:NAME/FOLDER`, or set `storage_claim` in the"
                " controller's cluster file",
            )
        mount = ClaimMount(settings.storage_claim, CHECKPOINTS, f"{spec.job}/checkpoints", False)
        mounts.append(mount)
        return CHECKPOINTS
    placed = _placed("checkpoints", text, CHECKPOINTS, mounts)
    kept = [mount.path for mount in settings.mounts if not mount.read_only]
    if placed != CHECKPOINTS and not any(PurePosixPath(placed).is_relative_to(p) for p in kept):
        what = f"{text!r} is in the pod and would be lost with it"
        raise RecordRefused("checkpoints", what, "give a volume claim: claim:NAME/FOLDER")
    return placed


def _not_named(folder: str) -> bool:
    """Whether it is the one that a job gets whose record names none."""
    return PurePosixPath(folder).is_relative_to(OWN)


def _placed(
    field: str, text: str, path: str, mounts: list[ClaimMount], *, read_only: bool = False
) -> str:
    """The folder in the pod: a claim's at ``path``, another as it is in the image."""
    if text.startswith(_SCHEME):
        mounts.append(replace(_claim(field, text), path=path, read_only=read_only))
        return path
    folder = PurePosixPath(text)
    if not folder.is_absolute() or ".." in folder.parts or "\0" in text:
        what = f"{text!r} is neither a volume claim nor an absolute path in the image"
        raise RecordRefused(field, what, "write claim:NAME/FOLDER or /a/path")
    if folder.is_relative_to(RESERVED):
        what = f"{text!r} is in {RESERVED}, which is reserved for Reshape"
        raise RecordRefused(field, what, "give another folder")
    return text


def _claim(field: str, text: str) -> ClaimMount:
    name, _, folder = text.removeprefix(_SCHEME).partition("/")
    parts = [part for part in folder.split("/") if part not in ("", ".")]
    fits = all(_FOLDER.match(part) and part != ".." for part in parts)
    if not _CLAIM.match(name) or not fits:
        remedy = "write claim:NAME/FOLDER with the claim's name and plain folder names"
        raise RecordRefused(field, f"{text!r} is not a volume claim", remedy)
    return ClaimMount(name, "", "/".join(parts))
