"""A test bed for the zygote: a real init without an agent, asked over its socket.

Does: starts init, has it keep a zygote and start scripts, and reads what they print from the log.
This module does not import TensorFlow.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from reshape_sidecar import codec
from reshape_sidecar.agent import environment, script_variables
from reshape_sidecar.agent.spec import AttemptSpec, DeviceMode, Folder
from reshape_sidecar.init import files
from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.init.values import (
    SOCKET_NAME,
    Adopt,
    End,
    GetStatus,
    InitStatus,
    Prepare,
    Request,
    Spawn,
    SuccessorProcess,
    Sweep,
    TrainingProcess,
    UseZygote,
    ZygoteProcess,
)
from reshape_sidecar.wire import PrepareStage, Processes, StandbyState, StartKind
from tests.support.hook_bed import ROOT, clean_environment

INIT = ROOT / "sidecar" / "reshape_sidecar" / "init" / "__main__.py"
PATIENCE_S = 120.0
WAITING = (PrepareStage.READY, PrepareStage.EFFECT_BARRIER, PrepareStage.FAILED)
T = TypeVar("T")


class ZygoteBed:
    """One container with init alone; ``generation`` counts the starts."""

    def __init__(
        self,
        path: Path,
        /,
        again_s: float = 30.0,
        framework: str = "keras",
        python: str = sys.executable,
        processes: Processes = Processes.ONE,
        **variables: str,
    ) -> None:
        self._framework, self._python, self._processes = framework, python, processes
        self.code = path / "code"
        self.folder = Folder(path / "attempt")
        self.checkpoints = path / "checkpoints"
        for folder in (self.code, self.folder.run, self.folder.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.variables = {**clean_environment(), **variables}
        self.marker = Marker("job-1", 1, str(self.folder.socket))
        self.generation = 0
        self.init = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(INIT), "--folder", str(self.folder.path)),
                *(
                    "--job",
                    "job-1",
                    "--attempt",
                    "1",
                    "--zygote-again-s",
                    str(again_s),
                    "--",
                    "sleep",
                    "3600",
                ),
            ],
            env=clean_environment(),
            start_new_session=True,
        )
        self.until("init", lambda: (self.folder.run / "init.json").exists())

    def script(self, name: str, text: str) -> None:
        """Write a script into the code folder."""
        (self.code / name).write_text(text)

    def spec(self, *words: str) -> AttemptSpec:
        """The spec of a job that runs ``words`` after the interpreter."""
        return AttemptSpec(
            job="job-1",
            attempt=1,
            name="a",
            command=("python", *words),
            code=str(self.code),
            checkpoints=str(self.checkpoints),
            coordinator_url="http://127.0.0.1:9",
            epoch=1,
            device_mode=DeviceMode.SIMULATED,
            python=self._python,
            framework=self._framework,
            processes=self._processes,
        )

    def ask(self, request: Request) -> InitStatus:
        """Send one request to init; return the status that it answers."""
        with files.connect(self.folder.run / SOCKET_NAME, PATIENCE_S) as client:
            client.sendall(codec.dumps(request).encode(errors="surrogatepass") + b"\n")
            with client.makefile("rb") as stream:
                return codec.loads(InitStatus, stream.readline())

    def status(self) -> InitStatus:
        return self.ask(GetStatus())

    def zygote(self) -> ZygoteProcess:
        found = self.status().zygote
        assert found is not None
        return found

    def environment(self, devices: int = 1) -> dict[str, str]:
        """Environment of the next start, as the agent makes it."""
        return environment.variables(
            self.spec("train.py"),
            tuple(f"GPU-{n}" for n in range(devices)),
            self.variables,
            socket=self.folder.socket,
            keep_running=self.folder.run / "keep-running",
            now_s=time.monotonic(),
            free_port=1,
        )

    def use_zygote(self, *words: str) -> None:
        """Have init keep a zygote for ``words``; do not wait for it."""
        spec, env = self.spec(*(words or ("train.py",))), self.environment()
        command = environment.zygote_command(spec, script_variables.names_of_libraries(spec))
        assert command is not None
        key = environment.zygote_key(spec, env)
        env = environment.zygote_variables(spec, env)
        self.ask(UseZygote(key, command, str(self.code), tuple(sorted(env.items()))))

    def ready(self, *words: str) -> ZygoteProcess:
        """Have init keep a zygote, and wait until it can fork."""
        self.use_zygote(*words)
        self.until("zygote", lambda: self.zygote().state is not StandbyState.STARTING)
        return self.zygote()

    def ask_start(
        self, *words: str, devices: int = 1, cold: bool = False, key: str | None = ""
    ) -> InitStatus:
        """Ask init to start ``words`` as the next generation; return what it answers.

        ``key``: that of the spec if it is empty.
        """
        self.generation += 1
        spec, env = self.spec(*words), self.environment(devices)
        if key == "":
            key = None if cold else environment.zygote_key(spec, env)
        command = environment.command(spec)
        env_pairs = tuple(sorted(env.items()))
        return self.ask(Spawn(self.generation, command, str(self.code), env_pairs, key))

    def start(
        self, *words: str, devices: int = 1, cold: bool = False, key: str | None = ""
    ) -> TrainingProcess:
        """Start ``words`` as the next generation, and wait until it has begun."""
        self.ask_start(*words, devices=devices, cold=cold, key=key)

        def look() -> TrainingProcess | None:
            training = self.status().training
            begun = training is not None and training.generation == self.generation
            return training if begun else None

        training = self.until("its start", look)
        assert training is not None
        return training

    def prepare(self, *words: str, devices: int = 1, cold: bool = False) -> SuccessorProcess:
        """Have init prepare a successor that runs ``words``; return it where it waits."""
        spec, env = self.spec(*words), self.environment(devices)
        key = None if cold else environment.zygote_key(spec, env)
        number = (self.status().prepare_number or 0) + 1
        command, pairs = environment.command(spec), tuple(sorted(env.items()))
        self.ask(Prepare(number, ("GPU-0",) * devices, command, str(self.code), pairs, key))

        def look() -> SuccessorProcess | None:
            found = self.status().prepared
            assert found is not None
            return found if found.stage in WAITING else None

        prepared = self.until("a successor", look)
        assert prepared is not None
        return prepared

    def adopt(self) -> None:
        """Make the newest successor the training process of the next generation."""
        self.generation += 1
        number = self.status().prepare_number
        assert number is not None
        self.ask(Adopt(self.generation, number))

    def ended(self) -> TrainingProcess:
        """Wait for the end of the newest start."""

        def look() -> TrainingProcess | None:
            training = self.status().training
            return training if training is not None and not training.running else None

        found = self.until("end of training", look)
        assert found is not None
        return found

    def run(
        self, *words: str, devices: int = 1, cold: bool = False, key: str | None = ""
    ) -> tuple[TrainingProcess, str]:
        """Start ``words``, wait for the end; return the process and its output."""
        began = self.start(*words, devices=devices, cold=cold, key=key)
        ended = self.ended()
        return ended, self.log(begin_bytes=began.log_offset_bytes)

    def run_both(self, code: int, *words: str, devices: int = 1) -> tuple[str, str]:
        """Run ``words`` as a fork and cold, each to its end with ``code``; return both outputs."""
        forked, by_zygote = self.run(*words, devices=devices)
        executed, by_interpreter = self.run(*words, devices=devices, cold=True)
        assert (forked.how, forked.exit_code) == (StartKind.ZYGOTE, code), by_zygote
        assert (executed.how, executed.exit_code) == (StartKind.COLD, code), by_interpreter
        return by_zygote, by_interpreter

    def sweep(self, kill_after_s: float = 5.0) -> None:
        """End every process of earlier starts, and wait until none is left."""
        generation = self.generation + 1
        self.generation = generation
        self.ask(Sweep(generation, kill_after_s))
        self.until("sweep", lambda: self.status().swept >= generation)

    def log(self, name: str = "training.log", *, begin_bytes: int = 0) -> str:
        path = self.folder.logs / name
        return path.read_bytes()[begin_bytes:].decode() if path.exists() else ""

    def gone(self, pid: int, start_time: int) -> None:
        """Wait for the end of a process after that of init."""
        give_up_s = time.monotonic() + PATIENCE_S
        while proc.alive(pid, start_time):
            assert time.monotonic() < give_up_s, f"{pid} lives on"
            time.sleep(0.01)

    def until(self, what: str, look: Callable[[], T]) -> T:
        """Poll ``look`` until it returns a true value; return that."""
        give_up_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_s:
            found = look()
            if found:
                return found
            assert self.init.poll() is None, f"init ended: {what}"
            time.sleep(0.01)
        raise AssertionError(f"not within {PATIENCE_S:g} s: {what}")

    def end(self) -> None:
        """End the container; every process must be gone."""
        with contextlib.suppress(OSError, codec.CodecError):
            self.ask(End(1.0))
        try:
            self.init.wait(PATIENCE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.init.pid, signal.SIGKILL)
            self.init.wait()


@contextlib.contextmanager
def zygote_bed(
    path: Path,
    /,
    again_s: float = 30.0,
    processes: Processes = Processes.ONE,
    **options: str,
) -> Iterator[ZygoteBed]:
    """A bed that is ended afterwards, with no process left.

    ``options``: framework and interpreter of its scripts, and variables.
    """
    bed = ZygoteBed(path, again_s, processes=processes, **options)
    try:
        yield bed
    finally:
        bed.end()
    left = [
        entry.proc.pid
        for entry in proc.marked_processes(proc.snapshot())
        if entry.marker == bed.marker
    ]
    assert left == [], f"processes are left: {left}"
