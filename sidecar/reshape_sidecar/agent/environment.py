"""Command and environment of a training process. Pure.

Does: fills in placeholders, puts the hook before an unmodified Keras script, and sets the variables
of ``contract``. The job record's variables override those of the container, and Reshape's override
both.

``python`` or ``python3`` as the first word stands for ``spec.python`` if that is set: on a local
launch the interpreter that runs the launcher, with its installed packages.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from reshape_sidecar import contract
from reshape_sidecar.agent.spec import AttemptSpec, DeviceMode
from reshape_sidecar.hook.import_world import read_by_imports
from reshape_sidecar.ranks.run import DEFAULTS
from reshape_sidecar.wire import WIRE_LEVEL, Processes

ZYGOTE = "zygote.py"
HOOKED_FRAMEWORKS = ("keras", "tensorflow")
PYTORCH = "pytorch"
FOR_PYTORCH, FOR_RANKS = "torch", "ranks"
"""The zygote's argument for PyTorch, and for one process per GPU."""
ALONE = Path("reshape_sidecar", "alone")
"""Folder of the library that notices a trainer in a single process (``reshape_sidecar.alone``)."""
_INTERPRETER = re.compile(r"python(\d+(\.\d+)?)?\Z")
_WITH_VALUE = ("--check-hash-based-pycs",)
_DROPPED = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "TF_CONFIG")


def hook_path() -> Path:
    """Return the program that runs an unmodified script under the hook."""
    return Path(__file__).resolve().parents[1] / "hook" / "run.py"


def ranks_path() -> Path:
    """Return the program that starts one process per GPU."""
    return Path(__file__).resolve().parents[1] / "ranks" / "run.py"


def command(spec: AttemptSpec, hook: Path | None = None) -> tuple[str, ...]:
    """Return the argument list to execute; with ``per-gpu`` that of the parent of the ranks."""
    words = program(spec, hook)
    if spec.processes is not Processes.PER_GPU:
        return words
    interpreter = words[0] if words and _is_interpreter(words[0]) else sys.executable
    return (interpreter, "-I", str(ranks_path()), *words)


def program(spec: AttemptSpec, hook: Path | None = None) -> tuple[str, ...]:
    """Return the record's command, filled in, with the hook if the framework has one."""
    words = [_filled(word, spec) for word in spec.command]
    if words and _is_interpreter(words[0]):
        if spec.framework in HOOKED_FRAMEWORKS or spec.processes is Processes.PER_GPU:
            index = hook_index(words)
            if index is not None:
                words.insert(index, str(hook or hook_path()))
        if spec.python is not None and "/" not in words[0]:
            words[0] = spec.python
    return tuple(words)


def finds_python(spec: AttemptSpec) -> bool:
    """Return whether ``spec.python`` stands for the first word of the command."""
    word = spec.command[0] if spec.command else ""
    return _is_interpreter(word) and "/" not in word


def hooked(spec: AttemptSpec) -> bool:
    """Return whether the training process runs under the hook, which reports the first step."""
    words = spec.command
    known = bool(words) and _is_interpreter(words[0]) and spec.framework in HOOKED_FRAMEWORKS
    return known and hook_index(words) is not None


def zygote_command(spec: AttemptSpec, names: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """Return the command of the zygote; None if training is no Python script of a framework.

    ``names``: what the script takes from libraries on top of PyTorch (``script_variables``).

    It is as long as the cold command where that is possible, because the fork shows that command in
    the zygote's place.
    """
    words = spec.command
    is_pytorch = spec.framework == PYTORCH and bool(words) and _is_interpreter(words[0])
    index = hook_index(words) if hooked(spec) or is_pytorch else None
    if index is None:
        return None
    words = (*program(spec)[:index], str(hook_path().with_name(ZYGOTE)))
    if is_pytorch:
        is_per_gpu = spec.processes is Processes.PER_GPU
        on_top = ":".join([FOR_RANKS, ",".join(names)]) if names else FOR_RANKS
        words = (*words, on_top if is_per_gpu else FOR_PYTORCH)
    room = _length(command(spec)) - _length(words)
    return (*words, "_" * (room - 1)) if room > 0 else words


def zygote_key(spec: AttemptSpec, env: Mapping[str, str]) -> str:
    """Return the interpreter, its options and the variables that an import depends on."""
    index = hook_index(spec.command) or 0
    read = {
        **read_by_imports(env),
        **{name: value for name, value in env.items() if name.startswith(("LD_", "PYTHON"))},
    }
    return json.dumps([program(spec)[:index], sorted(read.items())])


def zygote_variables(spec: AttemptSpec, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the zygote whose forks start in ``env``.

    With ``per-gpu`` it has what a rank has before its imports.
    """
    defaults = DEFAULTS if spec.processes is Processes.PER_GPU else {}
    return {**defaults, **env}


def _length(words: tuple[str, ...]) -> int:
    return sum(len(os.fsencode(word)) + 1 for word in words)


def script(spec: AttemptSpec) -> str | None:
    """Return the script of a Python command; None for another program, ``-m`` or ``-c``."""
    words = spec.command
    if not words or not _is_interpreter(words[0]):
        return None
    index = hook_index(words)
    if index is None or words[index].startswith("-"):
        return None
    return words[index]


def hook_index(words: tuple[str, ...] | list[str]) -> int | None:
    """Return the index of the script or of ``-m`` in a Python command; None for ``-c``."""
    index = 1
    while index < len(words):
        word = words[index]
        if not word.startswith("-"):
            return index
        if word in ("-", "--"):
            return None
        if word.startswith("--"):
            index += 2 if word in _WITH_VALUE else 1
            continue
        for position, letter in enumerate(word[1:], start=1):
            if letter == "m":
                return index if word == "-m" else None
            if letter == "c":
                return None
            if letter in "WX":
                index += 0 if position < len(word) - 1 else 1
                break
        index += 1
    return None


def variables(
    spec: AttemptSpec,
    devices: tuple[str, ...],
    base: Mapping[str, str],
    *,
    socket: Path,
    keep_running: Path,
    now_s: float,
    free_port: int,
    library: Path | None = None,
    peers: tuple[str, ...] = (),
    meeting: Path | None = None,
    hashed_generation: int | None = None,
) -> dict[str, str]:
    """Return the environment of a training process on ``devices``, without init's marker.

    ``base``: the container's environment. ``now_s``: monotonic clock. ``free_port``: rendezvous
    of a PyTorch process group of one. ``library``: folder of the session API, which the hook finds
    by itself. ``peers``: addresses of all workers. ``meeting``: file with the step of the save
    barrier of several workers. ``hashed_generation``: that of the process before this one in
    the same container, whose checkpoints are not hashed again.
    """
    env = {
        name: value
        for name, value in base.items()
        if name not in _DROPPED and not name.startswith("RESHAPE_")
    }
    env |= dict(spec.env)
    env |= {
        "PYTHONUNBUFFERED": "1",
        contract.ENV_NAME: spec.name,
        contract.ENV_DEVICES: ",".join(devices),
        contract.ENV_DEVICE_MODE: spec.device_mode.value,
        contract.ENV_CHECKPOINTS: str(spec.checkpoint_folder),
        contract.ENV_SOCKET: str(socket),
        contract.ENV_KEEP_RUNNING: str(keep_running),
        contract.ENV_SPAWNED_AT_S: repr(now_s),
        contract.ENV_REPORT_LEVEL: str(WIRE_LEVEL),
    }
    optional = {
        contract.ENV_EPOCHS: spec.length_epochs,
        contract.ENV_STEPS: spec.length_steps,
        contract.ENV_TARGET_ACCURACY: spec.target_accuracy,
        contract.ENV_METRIC: spec.metric,
        contract.ENV_EPOCHS_IN_A_ROW: spec.epochs_in_a_row if spec.epochs_in_a_row > 1 else None,
        contract.ENV_GLOBAL_BATCH: spec.global_batch,
        contract.ENV_SEED: spec.seed,
        contract.ENV_DEVICE_TRUTH: spec.device_truth,
        contract.ENV_JOB_TYPE: spec.job_type,
        contract.ENV_HASHED_GENERATION: hashed_generation,
    }
    env |= {name: str(value) for name, value in optional.items() if value is not None}
    if spec.device_mode is DeviceMode.POOL:
        env["CUDA_VISIBLE_DEVICES"] = env["NVIDIA_VISIBLE_DEVICES"] = ",".join(devices)
    else:
        env["CUDA_VISIBLE_DEVICES"] = ""
    if library is not None and not hooked(spec):
        folders = [str(library)]
        if spec.framework == PYTORCH and spec.processes is Processes.ONE:
            folders.append(str(library / ALONE))
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (*folders, env.get("PYTHONPATH"))))
    if spec.workers > 1:
        env |= _among_workers(spec, peers, meeting)
    if spec.framework == PYTORCH:
        chief = peers[0] if peers else f"127.0.0.1:{free_port}"
        env |= _torchrun(spec, len(devices), chief)
    return env


def tf_config(peers: tuple[str, ...], worker: int) -> str:
    """Return TF_CONFIG of one of several workers."""
    task = {"type": "worker", "index": worker}
    return json.dumps({"cluster": {"worker": list(peers)}, "task": task})


def _among_workers(
    spec: AttemptSpec, peers: tuple[str, ...], meeting: Path | None
) -> dict[str, str]:
    return {
        "TF_CONFIG": tf_config(peers, spec.worker),
        contract.ENV_WORKER: str(spec.worker),
        contract.ENV_WORKERS: str(spec.workers),
        contract.ENV_PEERS: ",".join(peers),
        contract.ENV_MEETING: str(meeting or ""),
    }


def _torchrun(spec: AttemptSpec, devices: int, chief: str) -> dict[str, str]:
    """Return the variables of a process group with one process per worker, for a plain script.

    PET_* are the defaults of torchrun's options.
    """
    host, _, port = chief.rpartition(":")
    alone = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": str(max(1, devices))}
    several = {
        "PET_NNODES": str(spec.workers),
        "PET_NODE_RANK": str(spec.worker),
        "PET_MASTER_ADDR": host.strip("[]"),
        "PET_MASTER_PORT": port,
    }
    return {
        "MASTER_ADDR": host.strip("[]"),
        "MASTER_PORT": port,
        "RANK": str(spec.worker),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(spec.workers),
        "LOCAL_WORLD_SIZE": "1",
        **alone,
        **(several if spec.workers > 1 else {}),
    }


def _filled(word: str, spec: AttemptSpec) -> str:
    for name, value in (("{epochs}", spec.length_epochs), ("{steps}", spec.length_steps)):
        if value is not None:
            word = word.replace(name, str(value))
    return word


def _is_interpreter(word: str) -> bool:
    return _INTERPRETER.match(Path(word).name) is not None
