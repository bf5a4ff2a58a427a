"""Answers the questions that only a GPU can answer, in one command of at most 8 minutes.

    python3 benchmarks/gpu [--out out/gpu] [--steps 1,3] [--stand-in]      # `make gpu`

Needs an NVIDIA driver, Python 3.11 or newer and its PyTorch; the other packages come from
gpu-bundle/ (`make gpu-bundle`) or are installed. Uses no network and changes no setting of the GPU.
Each step is a process with a time limit; when it ends, everything that it started is killed.
OUT has report.json and summary.txt after each step, and all logs, also as logs.tar.gz. Exit code: 0
if every step passed or was refused by the machine, 1 if not, 2 if nothing could run (one line says
why). ``--stand-in`` runs on a machine without a GPU; the report says what was replaced.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(f"make gpu: Python 3.11 or newer is needed; give it as PYTHON=, not {sys.executable}")

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("controller", "sidecar", "launcher", "profiles", "benchmarks")
sys.path[:0] = [str(ROOT / name) for name in SOURCES]

from gpu import packages, processes, stand_in  # noqa: E402
from gpu.report import Outcome, Report, Result, line, read_result, text, write  # noqa: E402

from reshape_launcher.local.groups import Groups  # noqa: E402

ALL_S = 470.0
"""Time of the whole run; ten seconds of the 8 minutes are for its end."""
LOG_BYTES_MAX = 4 << 20
NOTHING_RAN = 2


@dataclass(frozen=True, slots=True)
class Task:
    """A step of the run, and what it needs of the machine besides a GPU."""

    name: str
    title: str
    limit_s: float
    needs: tuple[str, ...] = ("all",)


TASKS = (
    Task("inventory", "1 inventory by NVML and PyTorch", 120.0, ()),
    Task("training", "2 a job trains on the GPU in pool mode", 100.0),
    Task("handover", "3 the GPU goes from job to job and back", 170.0),
    Task("forking", "4 start by a fork; a GPU named after it", 150.0),
    Task("quarantine", "5 memory that stays in use", 130.0, ("all", "second context")),
    Task("contexts", "6 two processes on one GPU", 60.0, ("all", "second context")),
    Task("checkpoint", "7 pause and resume by the driver", 60.0),
)


class Ended(Exception):
    """A signal asked the run to end."""


def main() -> int:
    """Run the steps; the exit code."""
    options = _options()
    out: Path = options.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    (out / "logs").mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="gpu-run-", ignore_cleanup_errors=True) as place:
        work = Path(place)
        try:
            env = _environment(work, options)
        except LookupError as error:
            return _nothing(str(error))
        return Run(out, work, env, options).run()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "gpu")
    parser.add_argument("--steps", default="", help="numbers of steps, for example 1,3; 1 is run")
    parser.add_argument("--stand-in", action="store_true", help="without a GPU")
    parser.add_argument("--without-torch", action="store_true", help="with --stand-in: pauses")
    return parser.parse_args()


def _nothing(why: str) -> int:
    print(f"make gpu: {why}", file=sys.stderr)
    return NOTHING_RAN


def _environment(work: Path, options: argparse.Namespace) -> dict[str, str]:
    """Return the variables of all steps. Raises LookupError with what is missing."""
    path = [ROOT / name for name in SOURCES]
    if packages.covers(packages.FOLDER):
        packages.unpack(packages.FOLDER, work / "packages")
        path.append(work / "packages")
        sys.path.append(str(work / "packages"))
    missing = packages.missing()
    if missing:
        python = ".".join(map(str, sys.version_info[:2]))
        raise LookupError(
            f"Python {python} ({sys.executable}) lacks {', '.join(missing)}; run `make gpu-bundle` "
            f"where there is a network, and copy {packages.FOLDER.name}/ beside the checkout"
        )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RESHAPE_")}
    if kept.pop("CUDA_VISIBLE_DEVICES", "0") not in ("0", "all"):
        raise LookupError(
            "CUDA_VISIBLE_DEVICES is set, and the run uses the first GPU that NVML shows; "
            "unset it if that GPU is yours"
        )
    kept["GPU_RUN_PYTHON"] = str(packages.environment(work / "python", path))
    kept |= {"GPU_RUN_FOUND": sys.executable, "XDG_CONFIG_HOME": str(work)}
    kept.pop("PYTHONPATH", None)
    if options.stand_in:
        with_torch = stand_in.has_torch() and not options.without_torch
        kept |= stand_in.build(work / "stand-in", with_torch=with_torch)
    return kept


class Run:
    """All steps, one after another."""

    def __init__(
        self, out: Path, work: Path, env: dict[str, str], options: argparse.Namespace
    ) -> None:
        self._out = out
        self._work = work
        self._env = env
        self._stand_in = _replaced(env) if options.stand_in else ""
        self._asked = set(filter(None, options.steps.split(",")))
        self._began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        self._began_s = time.monotonic()
        self._results = {task.name: _empty(task) for task in TASKS}

    def run(self) -> int:
        """Run them; the exit code."""
        with contextlib.suppress(Ended), _signals():
            for task in TASKS:
                if self._asked and task.title[0] not in self._asked and task.needs:
                    continue
                self._results[task.name] = result = self._step(task)
                if not task.needs and "uuid" not in result.facts:
                    return _nothing(result.reason)
                print(line(result), flush=True)
                self._write()
        self._pack()
        report = self._write()
        print(f"\n{text(report)}\n{self._out / 'report.json'}")
        return 0 if report.good else 1

    def _step(self, task: Task) -> Result:
        """Run a step, or say why not; its result."""
        known = self._results[task.name]
        refusals = self._results[TASKS[0].name].facts.get("refusals", {})
        refused = [refusals[need] for need in task.needs if need in refusals]
        if refused:
            return replace(known, outcome=Outcome.REFUSED, reason=refused[0])
        limit_s = min(task.limit_s, ALL_S - (time.monotonic() - self._began_s))
        if limit_s < task.limit_s / 4:
            return replace(known, reason="the 8 minutes of the run are over")
        return self._started(task, limit_s)

    def _started(self, task: Task, limit_s: float) -> Result:
        known = replace(self._results[task.name], limit_s=round(limit_s, 1))
        word = f"{task.name}-{os.getpid()}-{time.monotonic_ns()}"
        file, logs = self._work / f"{task.name}.json", self._out / "logs" / task.name
        logs.mkdir()
        began_s = time.monotonic()
        uuid = self._results[TASKS[0].name].facts.get("uuid", "")
        words = [
            self._env["GPU_RUN_PYTHON"],
            str(Path(__file__).with_name("one_step.py")),
            task.name,
        ]
        words += [task.title, str(file), str(self._work), str(logs), repr(began_s + limit_s), uuid]
        timed_out = False
        with (logs / "step.log").open("ab") as log:
            process = subprocess.Popen(
                words,
                env={**self._env, "GPU_RUN_STEP": word},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                timed_out = True
            except Ended:
                known = replace(read_result(file, known), reason="a signal ended the run")
                self._results[task.name] = known
                raise
            finally:
                left = processes.kill(word)
                process.wait()
                Groups(self._work / task.name / "home" / "jobs").end_all(processes.KILL_S)
                self._keep_logs(task.name)
        result = read_result(file, known)
        result = replace(result, took_s=round(time.monotonic() - began_s, 1), limit_s=known.limit_s)
        if timed_out:
            reason = f"its {limit_s:.0f} s were over; {left} processes were killed"
            return replace(result, outcome=Outcome.TIMED_OUT, reason=reason)
        if process.returncode != 0 and result.outcome is not Outcome.REFUSED:
            reason = result.reason or f"it ended with {process.returncode}"
            return replace(result, outcome=Outcome.FAILED, reason=reason)
        return result

    def _keep_logs(self, name: str) -> None:
        """Copy the logs of the step's jobs, and empty its folder."""
        home = self._work / name / "home"
        for path in sorted(home.glob("jobs/*/attempt-*/logs/*.log")):
            job, attempt = path.parts[-4], path.parts[-3]
            with contextlib.suppress(OSError):
                data = path.read_bytes()[-LOG_BYTES_MAX:]
                target = self._out / "logs" / name / f"{job}-{attempt}-{path.name}"
                target.write_bytes(data)
        shutil.rmtree(self._work / name, ignore_errors=True)

    def _write(self) -> Report:
        """Write the report as far as it is; return it."""
        results = [
            result
            for result in self._results.values()
            if not self._asked or result.title[0] in {"1", *self._asked}
        ]
        report = Report(
            began=self._began,
            stand_in=self._stand_in,
            machine=self._results[TASKS[0].name].facts.get("machine", {}),
            results=tuple(results),
            took_s=round(time.monotonic() - self._began_s, 1),
            limit_s=ALL_S,
        )
        write(self._out / "report.json", {**asdict(report), "good": report.good})
        (self._out / "summary.txt").write_text(text(report))
        return report

    def _pack(self) -> None:
        """Pack the logs, so that few files have to be carried back."""
        with contextlib.suppress(OSError), tarfile.open(self._out / "logs.tar.gz", "w:gz") as tar:
            tar.add(self._out / "logs", "logs")


def _empty(task: Task) -> Result:
    return Result(task.name, task.title, reason="it was not reached", limit_s=task.limit_s)


def _replaced(env: dict[str, str]) -> str:
    steps = "CPU PyTorch" if env["GPU_RUN_TORCH"] == "on" else "pauses for training steps"
    return f"stand-ins for NVML and the driver, {steps}, and a shorter wait for releases"


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Raise Ended at SIGTERM and Ctrl-C within the context."""

    def end(*_: object) -> None:
        raise Ended

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
