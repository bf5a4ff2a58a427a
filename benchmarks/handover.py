"""How long a reshape pauses training, by the way in which the new process starts.

    python benchmarks/handover.py [--model lenet|resnet50] [--repeats 10] [--changes 4-2,2-1,1-4]
                                  [--modes terminate,cold,zygote,successor] [--out FILE]

Real launcher, init, agent, hook and TensorFlow on simulated devices; only the controller is a
double that gives the desired states at once. The modes take turns, so that load on the machine
falls on all alike: *terminate* ends the container and launches another, the others keep it and
start the process *cold*, from the *zygote*, or have a *successor* prepared. A mode that the SideCar
does not have is refused.

Each measurement is a line of JSON in FILE. Run again, the program continues after the last one.
The end prints a table and draws FILE's name with ``.svg``. Seconds and megabytes:

*pause*: end of the last old step to end of the first new one. *processor*: processor seconds of the
container from the order to that step (in *terminate* of the new container alone); a busy machine
changes them least. *GPU-idle*: GPU-seconds without a step; a GPU that stays counts for the pause,
one that leaves until its processes are gone, one that comes from the order on. *floor*: save,
leave, restore and one step of the same measurement. *prepare*, *slow-down*: seconds until the
successor is ready, and by how much the steps of the old process take longer meanwhile. *memory*:
PSS of all processes of the container before the order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from handover_table import MODES, Row, picture, read_rows, table  # noqa: E402

from reshape_launcher.local import processes  # noqa: E402
from reshape_launcher.local.launcher import LocalLauncher  # noqa: E402
from reshape_launcher.spec import DeviceMode, LaunchSpec  # noqa: E402
from reshape_sidecar.agent.spec import Folder  # noqa: E402
from reshape_sidecar.init.processes import Marker  # noqa: E402
from reshape_sidecar.wire import (  # noqa: E402
    Mode,
    Observed,
    Phase,
    PrepareStage,
    Shortcut,
    StandbyState,
)
from tests.support.coordinator_double import CoordinatorDouble  # noqa: E402

T = TypeVar("T")
CHANGES = "4-2,2-1,1-4"
DEVICES = tuple(f"GPU-{number}" for number in range(4))
SETTLE_S = {"lenet": 2.5, "resnet50": 8.0}
"""How long a process trains before and after a change, so that its pace can be read."""
WAIT_S = 600.0
STANDBY_WAIT_S = 120.0
KNOWN_WAIT_S = 20.0
"""Within this time a SideCar that has a zygote or a successor says so."""
POLL_S = 0.005
STEPS_FILE = "HANDOVER_STEPS"

SCRIPT = """
import os, sys, time
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras, numpy as np, tensorflow as tf
class Steps(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        with open(os.environ["HANDOVER_STEPS"], "a") as file:
            print(f"{time.monotonic():.6f} {os.getpid()}", file=file)
keras.utils.set_random_seed(1)
side, channels, batch = (28, 1, 64) if sys.argv[1] == "lenet" else (32, 3, 8)
with tf.distribute.MirroredStrategy().scope():
    if sys.argv[1] == "lenet":
        model = keras.Sequential([
            keras.layers.Input((side, side, channels)),
            keras.layers.Conv2D(6, 5, strides=2, activation="relu"),
            keras.layers.Conv2D(16, 5, strides=2, activation="relu"),
            keras.layers.Flatten(), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
    else:
        model = keras.applications.ResNet50(
            weights=None, input_shape=(side, side, channels), classes=10,
            classifier_activation=None)
    model.compile(keras.optimizers.SGD(0.001, momentum=0.9),
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x = np.zeros((batch * 400, side, side, channels), "float32")
y = np.arange(len(x)) % 10
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1024, seed=1).batch(batch).prefetch(2)
model.fit(data, epochs=100000, verbose=0, callbacks=[Steps()])
"""


class NotThere(Exception):
    """The SideCar does not have this mode."""


Change = tuple[int, int]


def _until(what: str, look: Callable[[], T | None], wait_s: float = WAIT_S) -> T:
    give_up_s = time.monotonic() + wait_s
    while time.monotonic() < give_up_s:
        found = look()
        if found:
            return found
        time.sleep(POLL_S)
    raise TimeoutError(f"not within {wait_s:g} s: {what}")


class Job:
    """One job whose container, or containers, are measured."""

    def __init__(self, folder: Path, model: str, mode: str) -> None:
        self.folder, self.model, self.mode = folder, model, mode
        (folder / "code").mkdir()
        (folder / "code" / "train.py").write_text(SCRIPT)
        self.steps_file = folder / "steps"
        self.steps_file.touch()
        self.launcher = LocalLauncher(folder / "jobs")
        self.coordinator = CoordinatorDouble().start()
        self.attempt = 0
        self.pid = 0

    def end(self) -> None:
        """End the container."""
        self.coordinator.stop()
        asyncio.run(self.launcher.remove("job-1", self.attempt, 0.0))
        _until("the container's end", lambda: not self._running())

    def launch(self) -> None:
        """Launch the next attempt and wait until it is initialised."""
        self.attempt += 1
        self.coordinator.want(Mode.SAVE_AND_STOP, attempt=self.attempt)
        fast = self.mode in ("zygote", "successor")
        spec = LaunchSpec(
            job="job-1",
            attempt=self.attempt,
            name="handover",
            host="host-0",
            command=("python", "train.py", self.model),
            code=str(self.folder / "code"),
            checkpoints=str(self.folder / "checkpoints"),
            coordinator_url=self.coordinator.url,
            epoch=1,
            device_mode=DeviceMode.SIMULATED,
            host_devices=DEVICES,
            env=((STEPS_FILE, str(self.steps_file)),),
            standby=Shortcut.AUTO if fast else Shortcut.OFF,
            overlap=Shortcut.AUTO if self.mode == "successor" else Shortcut.OFF,
        )
        asyncio.run(self.launcher.launch(spec, "secret"))
        self._report("initialised", lambda seen: seen.phase is Phase.INITIALIZED)
        if self.mode == "zygote":
            self._await_zygote()

    def train(self, size: int) -> None:
        """Train on ``size`` devices and wait until the pace is steady."""
        generation = self.coordinator.want(Mode.RUN, *DEVICES[:size], attempt=self.attempt)
        self._first_step(generation)
        time.sleep(SETTLE_S[self.model])

    def measure(self, change: Change, repeat: int) -> Row:
        """Make one change and return what it cost."""
        old, new = change
        if self.mode == "zygote":
            self._await_zygote()  # it is made again if the script had set variables above imports
        load = os.getloadavg()[0]
        prepare_s, slow_down = None, None
        if self.mode == "successor":
            prepare_s, slow_down = self._prepare(new)
        memory_mb = self._memory_mb()
        before, attempt, used_s = self.pid, self.attempt, self._processor_s()
        order_s = time.monotonic()
        generation, left_s = self._change(new)
        seen = self._first_step(generation)
        processor_s = self._processor_s() - (used_s if self.attempt == attempt else 0.0)
        steps = self._steps()
        last_s = max(moment for moment, pid in steps if pid == before)
        first_s = min(moment for moment, pid in steps if pid == self.pid)
        time.sleep(SETTLE_S[self.model])
        times = seen.times
        parts = (times.save_s, times.stop_s, times.restore_s, self._step_s(first_s))
        known = [part for part in parts if part is not None]
        pause_s = first_s - last_s
        idle_s = min(old, new) * pause_s
        idle_s += max(0, old - new) * (left_s - last_s) + max(0, new - old) * (first_s - order_s)
        return Row(
            model=self.model,
            mode=self.mode,
            change=f"{old}-{new}",
            repeat=repeat,
            how="" if times.how is None else times.how.value,
            fallback=times.fallback,
            pause_s=pause_s,
            processor_s=processor_s,
            gpu_idle_s=idle_s,
            floor_s=sum(known) if len(known) == len(parts) else None,
            times={name: value for name, value in asdict(times).items() if value is not None},
            prepare_s=prepare_s,
            slow_down=slow_down,
            memory_mb=memory_mb,
            load=load,
        )

    def _change(self, size: int) -> tuple[int, float]:
        """Want ``size`` devices; return the generation, and when the old process was gone."""
        devices = DEVICES[:size]
        if self.mode != "terminate":
            generation = self.coordinator.want(Mode.RUN, *devices, attempt=self.attempt)
            self._report("a stop", lambda seen: seen.stopped_generation >= generation)
            return generation, time.monotonic()
        self.coordinator.want(Mode.EXIT, attempt=self.attempt)
        _until("the container's end", lambda: not self._running())
        left_s = time.monotonic()
        self.launch()
        return self.coordinator.want(Mode.RUN, *devices, attempt=self.attempt), left_s

    def _prepare(self, size: int) -> tuple[float, float | None]:
        """Have a successor prepared; return its seconds, and the slow-down of the old process."""
        began_s = time.monotonic()
        calm_s = self._step_s(began_s - SETTLE_S[self.model], began_s)
        desired = self.coordinator.desired
        assert desired is not None
        devices = DEVICES[:size]
        self.coordinator.set(replace(desired, prepare=devices))

        def ready(seen: Observed) -> bool:
            if seen.prepared is None or seen.prepared.devices != devices:
                return False
            if seen.prepared.stage is PrepareStage.FAILED:
                raise NotThere(f"the successor failed: {seen.prepared.reason}")
            return seen.prepared.stage is PrepareStage.READY

        try:
            self._report("its word", lambda seen: seen.prepared is not None, KNOWN_WAIT_S)
            self._report("a successor", ready, STANDBY_WAIT_S)
        except TimeoutError as error:
            raise NotThere(f"this version's SideCar prepares no successor ({error})") from None
        ended_s = time.monotonic()
        busy_s = self._step_s(began_s, ended_s)
        slow_down = None if calm_s is None or busy_s is None else busy_s / calm_s
        return ended_s - began_s, slow_down

    def _await_zygote(self) -> None:
        """Wait until the zygote is ready; nothing waits for it in use."""

        def ready(seen: Observed) -> bool:
            if seen.standby is not None and seen.standby.state is StandbyState.OFF:
                raise NotThere(f"the zygote is off: {seen.standby.reason}")
            return seen.standby is not None and seen.standby.state is StandbyState.READY

        try:
            self._report("a word of a zygote", lambda seen: seen.standby is not None, KNOWN_WAIT_S)
            self._report("a zygote", ready, STANDBY_WAIT_S)
        except TimeoutError as error:
            raise NotThere(f"this version's SideCar has no zygote ({error})") from None

    def _first_step(self, generation: int) -> Observed:
        """Wait for the first step of ``generation``; note its pid."""

        def trains(seen: Observed) -> bool:
            if seen.phase in (Phase.CRASHED, Phase.UNFIT):
                raise RuntimeError(f"training failed: {seen.error}")
            return (
                (seen.attempt, seen.generation) == (self.attempt, generation)
                and seen.phase is Phase.RUNNING
                and seen.times.first_step_s is not None
            )

        seen = self._report(f"a step of generation {generation}", trains)
        self.pid = seen.pid or 0
        _until("its step in the file", lambda: any(pid == self.pid for _, pid in self._steps()))
        return seen

    def _report(
        self, what: str, holds: Callable[[Observed], bool], wait_s: float = WAIT_S
    ) -> Observed:
        def look() -> Observed | None:
            reports = self.coordinator.reports
            newest = reports[-1] if reports else None
            same = newest is not None and newest.attempt == self.attempt
            return newest if newest is not None and same and holds(newest) else None

        return _until(what, look, wait_s)

    def _steps(self) -> list[tuple[float, int]]:
        lines = self.steps_file.read_text().splitlines()
        return [(float(line.split()[0]), int(line.split()[1])) for line in lines]

    def _step_s(self, from_s: float, to_s: float = float("inf")) -> float | None:
        """Return the mean seconds per step of the process that trains, between two moments."""
        moments = [at for at, pid in self._steps() if pid == self.pid and from_s <= at <= to_s]
        return (moments[-1] - moments[0]) / (len(moments) - 1) if len(moments) > 1 else None

    def _running(self) -> bool:
        statuses = asyncio.run(self.launcher.containers())
        return any(one.attempt == self.attempt and one.running for one in statuses)

    def _pids(self) -> list[int]:
        path = Folder(self.folder / "jobs" / "job-1" / f"attempt-{self.attempt}")
        marker = Marker("job-1", self.attempt, str(path.socket))
        return [entry.proc.pid for entry in processes.living((marker,))[marker]]

    def _memory_mb(self) -> float:
        return sum(_pss_mb(pid) for pid in self._pids())

    def _processor_s(self) -> float:
        """Return the processor seconds of all processes of the container so far, ended ones too."""
        return sum(_processor_s(pid) for pid in self._pids())


def _pss_mb(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:") / 1000


def _processor_s(pid: int) -> float:
    """Return the processor seconds of a process and of the children that it has reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    ticks = text[text.rindex(")") + 2 :].split()[11:15]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _job(model: str, mode: str) -> Iterator[Job]:
    with tempfile.TemporaryDirectory(prefix="handover-") as name:
        job = Job(Path(name), model, mode)
        try:
            yield job
        finally:
            job.end()


def _measure_all(
    model: str, mode: str, repeat: int, changes: list[Change], write: Callable[[Row], None]
) -> None:
    """Measure ``changes`` one after the other in one job."""
    with _job(model, mode) as job:
        job.launch()
        size = 0
        for change in changes:
            if change[0] != size:
                job.train(change[0])
            row = job.measure(change, repeat)
            size = change[1]
            write(row)
            print(
                f"{_time()} {model} {mode} {row.change} {repeat}: {row.pause_s:.2f} s", flush=True
            )


def _time() -> str:
    return time.strftime("%H:%M:%S")


def _conditions() -> str:
    packages = packages_distributions()
    frameworks = [f"{name} {version(packages[name][0])}" for name in ("tensorflow", "keras")]
    today = time.strftime("%Y-%m-%d")
    interpreter = f"Python {platform.python_version()}"
    return ", ".join([today, f"{os.cpu_count()} cores", interpreter, *frameworks])


def _changes(text: str) -> list[Change]:
    """Return the changes in ``text``, such as ``4-2,2-1``."""
    changes = []
    for word in text.split(","):
        old, _, new = word.partition("-")
        sizes = range(1, len(DEVICES) + 1)
        if not (old.isdigit() and new.isdigit() and int(old) in sizes and int(new) in sizes):
            raise argparse.ArgumentTypeError(f"{word!r} is no change; give sizes such as 4-2")
        if old == new:
            raise argparse.ArgumentTypeError(f"{word!r} changes nothing; give two sizes")
        changes.append((int(old), int(new)))
    return changes


def _modes(text: str) -> list[str]:
    """Return the modes in ``text``, such as ``cold,zygote``."""
    for word in text.split(","):
        if word not in MODES:
            raise argparse.ArgumentTypeError(f"{word!r} is no mode; choose of {', '.join(MODES)}")
    return text.split(",")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=tuple(SETTLE_S), default="lenet")
    parser.add_argument("--repeats", type=int, default=None, help="default: 10, ResNet-50: 3")
    parser.add_argument("--modes", type=_modes, default=list(MODES))
    parser.add_argument("--changes", type=_changes, default=_changes(CHANGES))
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "bench" / "handover.jsonl")
    return parser.parse_args()


def main() -> int:
    """Measure what is missing, then print and draw all of it; the exit code."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the container ends first
    repeats = options.repeats or (10 if options.model == "lenet" else 3)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = {(row.model, row.mode, row.change, row.repeat) for row in read_rows(options.out)}

    def write(row: Row) -> None:
        with open(options.out, "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row)) + "\n")

    refused: dict[str, str] = {}
    for repeat in range(repeats):
        turns = deque(options.modes)
        turns.rotate(-repeat)
        for mode in turns:
            missing = [
                change
                for change in options.changes
                if (options.model, mode, "{}-{}".format(*change), repeat) not in done
            ]
            if not missing or mode in refused:
                continue
            try:
                _measure_all(options.model, mode, repeat, missing, write)
            except NotThere as reason:
                refused[mode] = str(reason)
                print(f"mode {mode} is refused: {reason}; leave it out of --modes", flush=True)
    rows = read_rows(options.out)
    if rows:
        print(f"conditions: {_conditions()}")
        print(table(rows))
        picture(rows, options.out.with_suffix(".svg"))
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
