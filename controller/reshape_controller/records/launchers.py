"""A command that starts one process per GPU by ``torchrun`` or ``accelerate launch``. Pure.

Does: finds the script and its arguments in it, so that the SideCar can start the processes itself,
and explains an option that says something else than one process for each GPU of the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from reshape_controller.records.command import python_options

TORCHRUN_MODULES = ("torch.distributed.run",)
ACCELERATE_MODULES = ("accelerate.commands.launch", "accelerate.commands.accelerate_cli")
OTHER_MODULES = ("torch.distributed.launch",)
"""Starts processes, and gives each an argument that names its rank."""
_SHOWN = 40
"""Characters of an option that a message shows."""

_TORCHRUN_IGNORED = frozenset(
    (
        "--rdzv-backend",
        "--rdzv-endpoint",
        "--rdzv-id",
        "--rdzv-conf",
        "--max-restarts",
        "--monitor-interval",
        "--start-method",
        "--event-log-handler",
        "--role",
        "--log-dir",
        "-r",
        "--redirects",
        "-t",
        "--tee",
        "--local-ranks-filter",
        "--master-addr",
        "--master-port",
        "--local-addr",
        "--logs-specs",
    )
)
"""Options with a value that only say how the processes meet, restart and log."""
_TORCHRUN_FLAGS = frozenset(["--standalone"])
_ACCELERATE_IGNORED = frozenset(
    (
        "--main-process-ip",
        "--main-process-port",
        "--rdzv-backend",
        "--rdzv-conf",
        "--max-restarts",
        "--monitor-interval",
        "--role",
        "--log-dir",
        "--tee",
    )
)
_ACCELERATE_FLAGS = frozenset(["--multi-gpu", "--same-network", "-q", "--quiet"])
_ACCELERATE_VARIABLES = {
    "--mixed-precision": "ACCELERATE_MIXED_PRECISION",
    "--gradient-accumulation-steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "--num-cpu-threads-per-process": "OMP_NUM_THREADS",
}
"""Options that ``accelerate launch`` hands to the script by a variable."""
_MODULE = frozenset(["-m", "--module"])


class LaunchError(ValueError):
    """An option of a launcher contradicts one process for each GPU; the message says how."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What each process of a launcher runs."""

    launcher: str
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()


def launcher_of(command: Sequence[str]) -> str | None:
    """Return the name of the launcher that a command starts; None without one."""
    found = _found(tuple(command))
    return None if found is None else found[0]


def parse_launch(command: Sequence[str], sizes: Sequence[int]) -> Launch | None:
    """Return what each process of the launcher in ``command`` runs; None without a launcher.

    ``sizes``: the job's optional numbers of GPUs. Raises LaunchError.
    """
    found = _found(tuple(command))
    if found is None:
        return None
    name, python, words = found
    match name:
        case "torchrun":
            return _torchrun(python, words, tuple(sizes))
        case "accelerate launch":
            return _accelerate(python, words, tuple(sizes))
    raise LaunchError(f"{name} gives each process an argument; use torchrun, or python")


def _found(command: tuple[str, ...]) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
    """Return the launcher's name, the Python that runs it, and its own arguments."""
    if not command:
        return None
    if (options := python_options(command)) is not None:
        rest = command[options:]
        if len(rest) < 2 or rest[0] != "-m":
            return None
        python, module, words = command[:options], rest[1], rest[2:]
        if module in TORCHRUN_MODULES:
            return "torchrun", python, words
        if module == ACCELERATE_MODULES[0]:
            return "accelerate launch", python, words
        if module in ACCELERATE_MODULES and words[:1] == ("launch",):
            return "accelerate launch", python, words[1:]
        return (module, python, words) if module in OTHER_MODULES else None
    program = PurePosixPath(command[0])
    if not program.name:
        return None  # a folder
    beside = (str(program.with_name("python")) if "/" in command[0] else "python",)
    if program.name == "torchrun":
        return "torchrun", beside, command[1:]
    if program.name == "accelerate" and command[1:2] == ("launch",):
        return "accelerate launch", beside, command[2:]
    if program.name == "accelerate-launch":
        return "accelerate launch", beside, command[1:]
    return None


class _Words:
    """The arguments of a launcher, up to its script."""

    def __init__(self, launcher: str, words: tuple[str, ...]) -> None:
        self._launcher, self._words, self._next = launcher, words, 0

    def options(self) -> Iterator[tuple[str, str | None]]:
        """Yield each option as written with ``-`` for ``_``, and the value after its ``=``."""
        while self._next < len(self._words):
            word = self._words[self._next]
            if word == "--":
                self._next += 1
                return
            if not word.startswith("-") or word == "-":
                return
            self._next += 1
            name, sign, value = word.partition("=")
            if name.startswith("--"):
                name = name.replace("_", "-")
            yield name, value if sign else None

    def value(self, name: str, given: str | None) -> str:
        """Return an option's value: the one after its ``=``, or the next word."""
        if given is not None:
            return given
        if self._next >= len(self._words):
            raise LaunchError(f"{self._launcher} {name} has no value; give it one")
        self._next += 1
        return self._words[self._next - 1]

    def rest(self) -> tuple[str, ...]:
        """Return the script and its arguments."""
        if self._next >= len(self._words):
            raise LaunchError(f"{self._launcher} names no script; write it after the options")
        return self._words[self._next :]


def _torchrun(python: tuple[str, ...], words: tuple[str, ...], sizes: tuple[int, ...]) -> Launch:
    name, left, is_module, is_program = "torchrun", _Words("torchrun", words), False, False
    for option, given in left.options():
        if option in _MODULE:
            is_module = True
        elif option == "--no-python":
            is_program = True
        elif option in ("--nproc-per-node",):
            _check_count(name, option, left.value(option, given), sizes)
        elif option == "--nnodes":
            _check_single(name, option, left.value(option, given), ("1", "1:1"))
        elif option == "--node-rank":
            _check_single(name, option, left.value(option, given), ("0",))
        elif option in _TORCHRUN_IGNORED:
            left.value(option, given)
        elif option not in _TORCHRUN_FLAGS:
            raise _unknown(name, option)
    return Launch(name, _each(python, left.rest(), is_module=is_module, is_program=is_program))


def _accelerate(python: tuple[str, ...], words: tuple[str, ...], sizes: tuple[int, ...]) -> Launch:
    name, left, is_module, is_program = (
        "accelerate launch",
        _Words("accelerate", words),
        False,
        False,
    )
    env: dict[str, str] = {}
    for option, given in left.options():
        if option in _MODULE:
            is_module = True
        elif option == "--no-python":
            is_program = True
        elif option == "--num-processes":
            _check_count(name, option, left.value(option, given), sizes)
        elif option == "--num-machines":
            _check_single(name, option, left.value(option, given), ("1",))
        elif option == "--machine-rank":
            _check_single(name, option, left.value(option, given), ("0",))
        elif option in _ACCELERATE_VARIABLES:
            env[_ACCELERATE_VARIABLES[option]] = left.value(option, given)
        elif option in _ACCELERATE_IGNORED:
            left.value(option, given)
        elif option not in _ACCELERATE_FLAGS:
            raise _unknown(name, option)
    each = _each(python, left.rest(), is_module=is_module, is_program=is_program)
    return Launch(name, each, tuple(sorted(env.items())))


def _each(
    python: tuple[str, ...], rest: tuple[str, ...], *, is_module: bool, is_program: bool
) -> tuple[str, ...]:
    if is_program:
        return rest
    return (*python, "-m", *rest) if is_module else (*python, *rest)


def _check_count(launcher: str, option: str, value: str, sizes: tuple[int, ...]) -> None:
    if value in ("gpu", "auto") or (len(sizes) == 1 and value == str(sizes[0])):
        return
    raise LaunchError(
        f"{launcher} {option} {value[:_SHOWN]} is a number of processes of its own, and the job's"
        f" GPUs are {', '.join(map(str, sizes))}; leave {option} out"
    )


def _check_single(launcher: str, option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise LaunchError(
            f"{launcher} {option} {value[:_SHOWN]} is for several machines, and a job's container"
            f" is on one; leave {option} out"
        )


def _unknown(launcher: str, option: str) -> LaunchError:
    return LaunchError(
        f"{launcher} {option[:_SHOWN]} is not understood; leave it out, or use python"
    )
