"""Where a job's folders are in its pod: volume claims, the image, or the pod's own scratch space.

Does: parse ``claim:NAME/FOLDER`` strictly, say what is mounted where, and which claims a record may
name. Never: mount a folder of a node, or the controller's own claim, or accept a path that leaves
its volume.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from reshape_launcher.kubernetes.settings import ClaimMount, OpenClaim, PodSettings
from reshape_launcher.spec import LaunchSpec, RecordRefused

OWN = PurePosixPath("/reshape/jobs")
"""A job whose record names no folder has its default folders below this path."""
CODE = "/reshape/code"
DATASET = "/reshape/dataset"
CHECKPOINTS = "/reshape/checkpoints"
LOGS = "/reshape/attempt/logs"
WORK = "work"
"""Folder in that of the checkpoints; without a folder of code, training runs there."""
RESERVED = PurePosixPath("/reshape")
_SCHEME = "claim:"
_CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")
_FOLDER = re.compile(r"[A-Za-z0-9._@+=,~ -]{1,255}\Z")
_JOB_FOLDER = re.compile(r".+-[0-9a-f]{8}\Z")
"""Form of the names of jobs' own folders in the storage claim: those of job ids."""
_USER = "{user}"
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

    @property
    def work(self) -> str:
        """Return the folder for what a script writes beside itself; it outlives the pod."""
        return f"{self.checkpoints}/{WORK}"


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
    text = None if dataset is None else dataset.path
    found = Mounts(code.path, checkpoints.path, text, tuple(claims))
    return replace(found, code=found.work) if _is_unnamed(spec.code) else found


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
    if _is_unnamed(spec.code):
        return PodFolder(CODE)
    return _folder("code", spec.code, CODE, spec, settings)


def dataset_folder(spec: LaunchSpec, settings: PodSettings) -> PodFolder | None:
    """Return the dataset's folder, mounted read-only; None without one. Raises RecordRefused."""
    if spec.dataset is None:
        return None
    return _folder("dataset", spec.dataset, DATASET, spec, settings)


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
    folder = _folder("checkpoints", text, CHECKPOINTS, spec, settings)
    path = PurePosixPath(folder.path)
    writable = [mount.path for mount in settings.mounts if not mount.read_only]
    if folder.mount is None and not any(path.is_relative_to(each) for each in writable):
        what = f"{text!r} is in the pod and would be lost with it"
        raise RecordRefused("checkpoints", what, "give a volume claim: claim:NAME/FOLDER")
    return folder


def _is_unnamed(folder: str) -> bool:
    """True if it is the default folder of a job whose record names none."""
    return PurePosixPath(folder).is_relative_to(OWN)


def _folder(field: str, text: str, path: str, spec: LaunchSpec, settings: PodSettings) -> PodFolder:
    """Return the folder in the pod: a claim is at ``path``, another as it is in the image.

    Of a claim that is listed the listed folder is mounted, and the record's folder is below it: a
    link there leads to nothing outside. Of the storage claim it is at least the outermost folder.
    Of any other claim, accepted by an earlier list, the record's folder itself is mounted.
    """
    if text.startswith(_SCHEME):
        named = _claim(field, text)
        if named.claim == settings.controller_claim:
            what = f"{text!r} is in the controller's own claim"
            raise RecordRefused(field, what, "name another claim")
        opened = _opened(field, named, spec.user, settings)
        reads = field == "dataset" or (opened is not None and opened.read_only)
        if opened is None:
            return PodFolder(path, replace(named, path=path, read_only=reads))
        rest = PurePosixPath(named.sub_path).relative_to(opened.folder)
        mount = ClaimMount(named.claim, path, opened.folder, reads)
        return PodFolder(str(path / rest), mount)
    folder = PurePosixPath(text)
    if not folder.is_absolute() or ".." in folder.parts or "\0" in text:
        what = f"{text!r} is neither a volume claim nor an absolute path in the image"
        raise RecordRefused(field, what, "write claim:NAME/FOLDER or /a/path")
    if folder.is_relative_to(RESERVED):
        what = f"{text!r} is in {RESERVED}, which is reserved for Reshape"
        raise RecordRefused(field, what, "give another folder")
    return PodFolder(text)


def _opened(field: str, named: ClaimMount, user: str, settings: PodSettings) -> OpenClaim | None:
    """Return the listed claim that holds a record's folder, with the folder to mount; None if none
    does."""
    claims = settings.claims
    if claims is None:  # the storage claim is open to all
        storage = settings.storage_claim
        claims = () if storage is None else (OpenClaim(storage, read_only=False),)
    for listed in claims:
        if listed.claim != named.claim or (listed.read_only and field == "checkpoints"):
            continue
        if _USER in listed.folder and not _FOLDER.match(user):
            continue
        folder = listed.folder.replace(_USER, user)
        if PurePosixPath(named.sub_path).is_relative_to(folder):
            if named.claim == settings.storage_claim and not folder:
                folder = named.sub_path.partition("/")[0]  # the folders of jobs are beside it
            return replace(listed, folder=folder)
    return None


def check_claims(spec: LaunchSpec, settings: PodSettings) -> tuple[RecordRefused, ...]:
    """Return a problem for each field that names a claim, or a folder of it, that is not open to
    the job's user. A launch does not look: what was accepted stays so if the list changes."""
    texts = {"code": spec.code, "dataset": spec.dataset, "checkpoints": spec.checkpoints}
    found = (
        _problem(field, text, spec.user, settings)
        for field, text in texts.items()
        if text is not None and text.startswith(_SCHEME)
    )
    return tuple(each for each in found if each is not None)


def _problem(field: str, text: str, user: str, settings: PodSettings) -> RecordRefused | None:
    try:
        named = _claim(field, text)
    except RecordRefused:
        return None  # told already, with its own remedy
    # Some volumes take names in any case, and without dots and blanks at their end.
    first = named.sub_path.partition("/")[0].lower().rstrip(". ")
    if named.claim == settings.storage_claim and (not first or _JOB_FOLDER.match(first)):
        what = f"{text!r} has the folders of jobs, which no record may name"
        return RecordRefused(field, what, "name another folder of the claim")
    if settings.claims is None:
        open_to_all = settings.storage_claim
        if named.claim == open_to_all:
            return None
        named_there = f"claim:{open_to_all}/FOLDER" if open_to_all else "no claim"
        what = f"{text!r} is not open to records: the cluster file has no `claims`"
        remedy = f"name {named_there}, or ask an operator to list the claim there"
        return RecordRefused(field, what, remedy)
    if _opened(field, named, user, settings) is not None:
        return None
    fits = [each for each in settings.claims if field != "checkpoints" or not each.read_only]
    places = ", ".join(f"{_SCHEME}{each.claim}/{each.folder}".rstrip("/") for each in fits)
    what = f"{text!r} is not among the claims that the cluster file opens for {field}"
    return RecordRefused(field, what, f"name a folder of: {places or 'none'}")


def _claim(field: str, text: str) -> ClaimMount:
    name, _, folder = text.removeprefix(_SCHEME).partition("/")
    parts = [part for part in folder.split("/") if part not in ("", ".")]
    fits = all(_FOLDER.match(part) and part != ".." for part in parts)
    if not _CLAIM.match(name) or not fits:
        remedy = "write claim:NAME/FOLDER with the claim's name and plain folder names"
        raise RecordRefused(field, f"{text!r} is not a volume claim", remedy)
    return ClaimMount(name, "", "/".join(parts))
