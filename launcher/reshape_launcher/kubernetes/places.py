"""Where a job's folders are in its pod: volume claims, the image, or the pod's own scratch space.

Does: reads ``claim:NAME/FOLDER`` strictly and says what is mounted where. Never: mounts a folder of
a node, or takes a path that climbs out of its volume. State: none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from reshape_launcher.kubernetes.settings import ClaimMount, PodSettings
from reshape_launcher.spec import LaunchError, LaunchSpec

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
class Places:
    """The three folders as the pod has them, and the claims that bring them."""

    code: str
    checkpoints: str
    dataset: str | None
    mounts: tuple[ClaimMount, ...]
    own_code: bool
    """The code folder is an empty one of the pod's own."""


def places(spec: LaunchSpec, settings: PodSettings) -> Places:
    """Where everything is. Raises LaunchError with what, where, remedy."""
    code, dataset = spec.code, spec.dataset
    mounts: list[ClaimMount] = []
    own_code = PurePosixPath(code).is_relative_to(OWN)
    code = CODE if own_code else _placed("code", code, CODE, mounts)
    checkpoints = _checkpoints(spec, settings, mounts)
    if dataset is not None:
        dataset = _placed("dataset", dataset, DATASET, mounts, read_only=True)
    if settings.storage_claim is not None:
        kept = logs_folder(spec.job, spec.attempt, OWN_NUMBER if spec.workers > 1 else None)
        mounts.append(ClaimMount(settings.storage_claim, LOGS, kept, read_only=False))
    return Places(code, checkpoints, dataset, tuple(mounts), own_code)


def _checkpoints(spec: LaunchSpec, settings: PodSettings, mounts: list[ClaimMount]) -> str:
    text = spec.checkpoints
    if PurePosixPath(text).is_relative_to(OWN):
        if settings.storage_claim is None:
            raise LaunchError(
                "the record names no checkpoints, and this controller has no volume claim for them;"
                " set `checkpoints: claim:NAME/FOLDER` in the job record, or `storage_claim` in the"
                " controller's cluster file"
            )
        mount = ClaimMount(settings.storage_claim, CHECKPOINTS, f"{spec.job}/checkpoints", False)
        mounts.append(mount)
        return CHECKPOINTS
    placed = _placed("checkpoints", text, CHECKPOINTS, mounts)
    kept = [mount.path for mount in settings.mounts if not mount.read_only]
    if placed != CHECKPOINTS and not any(PurePosixPath(placed).is_relative_to(p) for p in kept):
        raise LaunchError(
            f"checkpoints {text!r} would be lost with the pod; name a volume claim:"
            " `checkpoints: claim:NAME/FOLDER`"
        )
    return placed


def _placed(
    field: str, text: str, path: str, mounts: list[ClaimMount], *, read_only: bool = False
) -> str:
    """The folder in the pod: a claim's at ``path``, another as it is in the image."""
    if text.startswith(_SCHEME):
        mounts.append(replace(_claim(field, text), path=path, read_only=read_only))
        return path
    folder = PurePosixPath(text)
    if not folder.is_absolute() or ".." in folder.parts or "\0" in text:
        raise LaunchError(
            f"{field} {text!r} is neither `claim:NAME/FOLDER` nor an absolute path in the image"
        )
    if folder.is_relative_to(RESERVED):
        raise LaunchError(f"{field} {text!r}: {RESERVED} is Reshape's own; name another folder")
    return text


def _claim(field: str, text: str) -> ClaimMount:
    name, _, folder = text.removeprefix(_SCHEME).partition("/")
    parts = [part for part in folder.split("/") if part not in ("", ".")]
    fits = all(_FOLDER.match(part) and part != ".." for part in parts)
    if not _CLAIM.match(name) or not fits:
        raise LaunchError(
            f"{field} {text!r} is no volume claim; write claim:NAME/FOLDER with the claim's name"
            " and plain folder names"
        )
    return ClaimMount(name, "", "/".join(parts))
