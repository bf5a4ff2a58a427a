"""What a new record's program is, where the record does not say so: framework and processes.

Does: chooses ``pytorch`` for a program whose text imports PyTorch and no TensorFlow; for its
processes ``per-gpu`` if the text shows one of the understood forms, and ``one`` otherwise, with the
reason. A stored record is never judged again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from reshape_controller.core.model import FieldError, Framework
from reshape_controller.records.command import module_of, script_of
from reshape_controller.records.fields import RecordFields
from reshape_controller.records.launchers import Launch, LaunchError, parse_launch
from reshape_controller.records.script_forms import ALONE, IN_MICRO_BATCHES, UNDERSTOOD
from reshape_controller.records.script_modules import Program, Unread
from reshape_gpu.locations import is_local
from reshape_sidecar.wire import Processes

_LIGHTNING = ("lightning", "pytorch_lightning")
_HUGGING_FACE = ("transformers", "accelerate", "trl", "sentence_transformers")
_PYTORCH = frozenset(("torch", *_LIGHTNING, *_HUGGING_FACE))
_TENSORFLOW = frozenset(("tensorflow", "keras", "tf_keras"))
"""A program that imports both is one of Keras, which may train with PyTorch below it."""


@dataclass(frozen=True, slots=True)
class ProcessChoice:
    """The processes of a job: of which framework, how many, why, and what each runs."""

    framework: Framework
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
    command, given = tuple(fields.command or ()), fields.processes
    if given is Processes.PER_GPU:
        return _per_gpu("", command, parse_launch(command, tuple(fields.optional_gpus or ())))
    framework = fields.framework
    if not command or framework not in (None, Framework.PYTORCH):
        return ProcessChoice(framework or Framework.KERAS, Processes.ONE, "", command)
    text = _Text(fields, code if reads else None)
    if framework is None:
        framework = _framework(text)
    if given is Processes.ONE or framework is not Framework.PYTORCH:
        return ProcessChoice(framework, Processes.ONE, "", command)
    try:
        return _by_script(text, fields.workers or 1)
    except (LaunchError, Unread) as reason:
        return ProcessChoice(framework, Processes.ONE, str(reason), command)


class _Text:
    """What the command of a record and the text of its program say; each is read once."""

    def __init__(self, fields: RecordFields, code: str | None) -> None:
        self.command = tuple(fields.command or ())
        self._optional_gpus, self._code = tuple(fields.optional_gpus or ()), code

    @cached_property
    def launch(self) -> Launch | None:
        """What a launcher in the command starts; None: there is none. Raises LaunchError."""
        return parse_launch(self.command, self._optional_gpus)

    @cached_property
    def program(self) -> Program:
        """The program that the command runs. Raises LaunchError and Unread."""
        return _program(self.launch.command if self.launch else self.command, self._code)


def _framework(text: _Text) -> Framework:
    """Return the framework of a record that names none: ``keras`` unless all speaks for PyTorch."""
    try:
        if text.launch is not None:
            return Framework.PYTORCH
        imports = text.program.imports()
    except LaunchError:
        return Framework.PYTORCH
    except Unread:
        return Framework.KERAS
    return (
        Framework.PYTORCH if imports & _PYTORCH and not imports & _TENSORFLOW else Framework.KERAS
    )


def no_micro_batches(chosen: ProcessChoice, code: str | None) -> Iterator[FieldError]:
    """Yield why a job of ``chosen`` processes has no ``batch: micro``.

    ``code``: the absolute folder of its code; None: it cannot be read here, so its process says so.
    """
    if chosen.framework is not Framework.PYTORCH:
        what = f"micro is for framework pytorch, and this record's is {chosen.framework.value}"
        yield FieldError("batch", what, "write framework: pytorch, or leave batch out")
        return
    if chosen.processes is Processes.ONE:
        because = f": {chosen.reason}" if chosen.reason else ""
        what = f"micro is for a process for each GPU, and the job has one{because}"
        yield FieldError("batch", what, "write processes: per-gpu, or leave batch out")
        return
    with contextlib.suppress(Unread):
        found = _program(chosen.command, code).form()
        if found.form not in IN_MICRO_BATCHES:
            what = f"micro is for job.batches and trainers, and the script {found.text}"
            hint = "loop over job.batches and job.micro_batches, or leave batch out"
            yield FieldError("batch", what, hint)


def _per_gpu(reason: str, command: tuple[str, ...], launch: Launch | None) -> ProcessChoice:
    env: tuple[tuple[str, str], ...] = ()
    if launch is not None:
        command, env = launch.command, launch.env
    return ProcessChoice(Framework.PYTORCH, Processes.PER_GPU, reason, command, env)


def _by_script(text: _Text, workers: int) -> ProcessChoice:
    """Return what the text of a PyTorch program says. Raises LaunchError and Unread."""
    if workers > 1:
        raise Unread(f"its {workers} workers are processes of their own")
    launch, found = text.launch, text.program.form()
    if launch is not None and found.form not in ALONE:
        return _per_gpu(f"{launch.launcher} starts one for each GPU", text.command, launch)
    if launch is None and found.form in UNDERSTOOD:
        return _per_gpu(f"its script {found.text}", text.command, None)
    return ProcessChoice(Framework.PYTORCH, Processes.ONE, f"its script {found.text}", text.command)


def _program(command: tuple[str, ...], code: str | None) -> Program:
    """Return the program of a command. Raises Unread."""
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
        return Program(path, package, tuple(dict.fromkeys(roots)))
    raise Unread(f"{names[0]} is not on this machine, or this user may not read it")
