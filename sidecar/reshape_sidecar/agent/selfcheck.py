"""The self-check of an attempt before it reports itself initialised.

Does: checks code folder, script, executable, writable checkpoints, data and GPUs, without starting
the user's program; names the first fault with its remedy.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from reshape_sidecar import durable, gpu
from reshape_sidecar.agent import environment
from reshape_sidecar.agent.spec import AttemptSpec, DeviceMode, Folder
from reshape_sidecar.user import User, closed_folder, files_as


def fault(
    spec: AttemptSpec, folder: Folder, env: Mapping[str, str], user: User | None = None
) -> str | None:
    """Return the fault that keeps this attempt from training, with its remedy; None if none.

    ``user``: runs training; None: the user of this process.
    """
    found = _folder_fault("work folder", folder.run)
    if found is not None:
        return found
    with files_as(user):
        try:
            return (
                _way_fault(spec, folder, user)
                or _code_fault(spec)
                or _program_fault(spec, env)
                or _folder_fault("checkpoint folder", spec.checkpoint_folder)
                or _data_fault(spec)
                or _gpu_fault(spec)
            )
        except PermissionError as error:
            return f"{error.filename} is closed to the job's user; open it, or name another path"


def _way_fault(spec: AttemptSpec, folder: Folder, user: User | None) -> str | None:
    """Return which folder keeps another user than this one from what every job needs."""
    if user is None:
        return None
    needs = [
        ("its work folder", folder.run, "start the daemon with a --home outside of it"),
        ("its code", Path(spec.code), "correct `code` in the job record"),
    ]
    if spec.python is not None and environment.finds_python(spec):
        needs.append(("Python", Path(spec.python), "install Python outside of it"))
    if environment.hooked(spec):
        needs.append(("Reshape", environment.hook_path(), "install Reshape outside of it"))
    for what, path, remedy in needs:
        closed = closed_folder(path.resolve()) or closed_folder(path)
        if closed is not None:
            return (
                f"folder {closed} is closed to the job's user (uid {user.uid}), and {what} is "
                f"below it ({path}); open it (chmod o+x), or {remedy}"
            )
    return None


def _code_fault(spec: AttemptSpec) -> str | None:
    if not Path(spec.code).is_dir():
        return f"code folder {spec.code} does not exist; correct `code` in the job record"
    script = environment.script(spec)
    if script is not None and not Path(spec.code, script).is_file():
        return (
            f"script {script} is not in the code folder {spec.code}; "
            "correct `command` or `code` in the job record"
        )
    return None


def _program_fault(spec: AttemptSpec, env: Mapping[str, str]) -> str | None:
    if not spec.command:
        return "the command is empty; set `command` in the job record"
    word = environment.program(spec)[0]
    if "/" in word:
        path = Path(spec.code, word)
        exists = path.is_file() and os.access(path, os.X_OK)
    else:
        exists = shutil.which(word, path=env.get("PATH", os.defpath)) is not None
    if exists:
        return None
    return (
        f"program {word} does not exist or is not executable; correct `command` in the job record"
    )


def _folder_fault(what: str, path: Path) -> str | None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return None
    except OSError as error:
        if error.errno in durable.NO_ROOM:
            return None  # a start waits for room
        return (
            f"{what} {path} is not writable ({error.strerror or error}); make it writable for "
            "the user that runs the job"
        )


def _data_fault(spec: AttemptSpec) -> str | None:
    if spec.dataset is None or Path(spec.dataset).exists():
        return None
    return f"dataset {spec.dataset} does not exist; correct `dataset` in the job record"


def _gpu_fault(spec: AttemptSpec) -> str | None:
    if spec.device_mode is not DeviceMode.POOL:
        return None
    visible = gpu.visible()
    missing = [uuid for uuid in spec.host_devices if uuid not in visible]
    if not missing:
        return None
    return (
        f"GPU {', '.join(missing)} is not visible here (visible: {', '.join(visible) or 'none'}); "
        "check the driver and the container's GPU access, or drain the GPU"
    )
