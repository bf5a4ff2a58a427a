"""How many training processes a new PyTorch record has, if it does not say so.

Does: chooses ``per-gpu`` for a script whose text shows one of the understood forms, and ``one``
otherwise, with the reason. A stored record is never judged again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reshape_controller.core.model import Framework
from reshape_controller.records.command import module_of, script_of
from reshape_controller.records.fields import RecordFields
from reshape_controller.records.launchers import Launch, LaunchError, parse_launch
from reshape_controller.records.script_forms import ALONE, UNDERSTOOD, Found
from reshape_controller.records.script_modules import Unread, form_of
from reshape_gpu.locations import is_local
from reshape_sidecar.wire import Processes


@dataclass(frozen=True, slots=True)
class ProcessChoice:
    """The processes of a job: how many, why, and what each runs."""

    processes: Processes
    reason: str
    """Empty if the record says so itself, or the framework has no choice."""
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    """Variables that a launcher in the command would have set."""


def choose_processes(fields: RecordFields, code: str | None, *, reads: bool) -> ProcessChoice:
    """Return the processes of a valid record.

    ``code``: the absolute folder of its code. ``reads``: whether the script may be read here.
    """
    command, sizes = tuple(fields.command or ()), tuple(fields.optional_gpus or ())
    given = fields.processes
    if given is Processes.PER_GPU:
        return _per_gpu("", command, parse_launch(command, sizes))
    if given is Processes.ONE or fields.framework is not Framework.PYTORCH or not command:
        return ProcessChoice(Processes.ONE, "", command)
    try:
        return _by_script(fields, command, sizes, code if reads else None)
    except (LaunchError, Unread) as reason:
        return ProcessChoice(Processes.ONE, str(reason), command)


def _per_gpu(reason: str, command: tuple[str, ...], launch: Launch | None) -> ProcessChoice:
    if launch is None:
        return ProcessChoice(Processes.PER_GPU, reason, command)
    return ProcessChoice(Processes.PER_GPU, reason, launch.command, launch.env)


def _by_script(
    fields: RecordFields, command: tuple[str, ...], sizes: Sequence[int], code: str | None
) -> ProcessChoice:
    """Return what the script's text says. Raises LaunchError and Unread."""
    if (fields.workers or 1) > 1:
        raise Unread(f"its {fields.workers} workers are processes of their own")
    launch = parse_launch(command, sizes)
    found = _read(command if launch is None else launch.command, code)
    if launch is not None and found.form not in ALONE:
        return _per_gpu(f"{launch.launcher} starts one for each GPU", command, launch)
    if launch is None and found.form in UNDERSTOOD:
        return _per_gpu(f"its script {found.text}", command, None)
    return ProcessChoice(Processes.ONE, f"its script {found.text}", command)


def _read(command: tuple[str, ...], code: str | None) -> Found:
    script = script_of(command)
    module = module_of(command)
    if module is not None:
        place = module.replace(".", "/")
        names = [f"{place}.py", f"{place}/__main__.py"]
    elif script is not None and script.endswith(".py"):
        names = [script]
    else:
        raise Unread("its command names no Python script")
    if code is None or not is_local(code):
        raise Unread(f"{names[0]} is not read here; write `processes: per-gpu` if it trains so")
    for name in names:
        path = Path(code) / name
        try:
            if not path.is_file():
                continue
        except (OSError, ValueError) as error:
            raise Unread(f"{path} cannot be read: {error}") from None
        package = "" if module is None else ".".join(Path(name).parts[:-1])
        beside = Path(code) if module is not None else path.parent
        roots = (beside, Path(code), Path(code, "src"))
        return form_of(path, package, tuple(dict.fromkeys(roots)))
    raise Unread(f"{names[0]} is not on this machine, or this user may not read it")
