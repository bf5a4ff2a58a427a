"""Runs the parts of the table and prints a timed summary; the exit code is 1 if a part failed.

    .ci/run [all|fast]

Does: starts each part in a process group of its own, and ends it if the run is interrupted. A part
over its budget is marked, and does not fail: a busy machine says nothing about the tree. A tier
that no longer fits into a run's time has its gate only. The few failed tests of a part run once
more, and are named. Never: leaves out a part or a test without a line in the summary.
State: out/ci/times.json, and the record of scope.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import again
import leftovers
import scope
from check_commits import unchecked
from instructions import not_counted
from parts import FITS_MIN, LIMIT_MIN, PARTS, SETUP, Gate, Part
from scope import Scope

OUT = Path("out/ci")
MODES = ("gate", "all", "fast")
GRACE_S = 20.0
"""An interrupted part may take so long to end what it started."""
NICE = 19
REMARK_LENGTH_MAX = 200
"""Characters of what is left behind that the summary repeats; the output has all."""
FAILED = "FAILED"


class Interrupted(Exception):
    """A signal ends the run. The argument is its number."""


@dataclass
class Signals:
    """Signals that ended the run; handlers note them, and waits look.

    No handler raises: a process that was started an instant ago is known before anybody looks.
    """

    numbers: list[int] = field(default_factory=list)

    def catch(self) -> None:
        """Note every signal that ends a run; one that the starter ignores stays without effect.

        Runners and nohup ignore some. A handled signal is the usual one again in what is started.
        """
        for number in (
            signal.SIGALRM,
            signal.SIGHUP,
            signal.SIGINT,
            signal.SIGQUIT,
            signal.SIGTERM,
        ):
            ignored = signal.getsignal(number) is signal.SIG_IGN
            signal.signal(number, (lambda *_: None) if ignored else self._note)

    def _note(self, number: int, _frame: object) -> None:
        self.numbers.append(number)

    def check(self) -> None:
        """Raises Interrupted if a signal came."""
        if self.numbers:
            raise Interrupted(self.numbers[0])

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        """Return the exit code of a process. Raises Interrupted."""
        while True:
            self.check()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(0.2)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a part's process group: as by Ctrl-C, so that tests take down what they started."""
    for number in (signal.SIGINT, signal.SIGKILL):
        give_up_s = time.monotonic() + GRACE_S
        try:
            os.killpg(process.pid, number)
            while time.monotonic() < give_up_s:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.05)
        except ProcessLookupError:
            process.wait()
            return


class Run:
    """One run of the table."""

    def __init__(self, mode: str, chosen: Scope) -> None:
        self._mode, self._scope = mode, chosen
        self._signals = Signals()
        self._results: dict[str, str] = {}
        self._lines: list[str] = []
        self._times: list[dict[str, object]] = []
        self._beside: dict[str, subprocess.Popen[bytes]] = {}
        self._budget_min = 0.0
        self._begin_s = time.monotonic()
        self._groups = leftovers.groups()
        self._mark = f"CI_RUN_ID=reshape-ci-{secrets.token_hex(8)}"
        name, _, value = self._mark.partition("=")
        inherited = {key: os.environ[key] for key in os.environ if key != "GATE"}
        self._environ = inherited | {name: value, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def carry_out(self) -> int:
        """Run everything; the exit code."""
        self._signals.catch()
        if self._mode != "all":
            signal.setitimer(signal.ITIMER_REAL, 60 * LIMIT_MIN)
        status, commit = scope.status(), scope.head()
        cluster_before = ""
        code = 0
        try:
            for part in PARTS:
                self._turn(part)
                if part.name == SETUP:
                    cluster_before = self._cluster_left()
            self._check_leftovers(status, cluster_before)
            self._signals.check()
        except Interrupted as interrupted:
            code = 128 + int(interrupted.args[0])
            print(f"== interrupted by signal {interrupted.args[0]}", flush=True)
            if interrupted.args[0] == signal.SIGALRM:
                print(f"{FAILED}: the run is over its limit of {LIMIT_MIN:g} min", flush=True)
        finally:
            for process in self._beside.values():
                end(process)
        code = code or int(FAILED in self._results.values())
        record = ""
        if self._mode == "all":
            record = "record: not written, for the run did not pass"
            if code == 0:
                record = scope.write_record(commit, status)
        self._summarize(record)
        return code

    def _turn(self, part: Part) -> None:
        pulled_by = self._scope.pulls(part)
        whole = self._scope.whole or bool(pulled_by) or part.gate is Gate.WHOLE
        if part.kubernetes and self._mode == "fast":
            self._line("left out", part, remark="; .ci/run without `fast` runs it")
        elif part.after and self._results.get(part.after) != "ok":
            self._line("not run", part, remark=f"; it needs: {part.after}")
        elif whole and part.gate is not Gate.WHOLE and not self._fits(part):
            self._carry_out(part, False, "; no time is left for the whole tier")
        else:
            self._carry_out(part, whole, pulled_by and f"; {pulled_by} changed")

    def _fits(self, part: Part) -> bool:
        """Whether the whole tier and the gates after it fit, at the speed of the parts so far."""
        if self._mode == "all":
            return True
        took_min = (time.monotonic() - self._begin_s) / 60
        slowness = max(1.0, took_min / self._budget_min) if self._budget_min else 1.0
        after_min = sum(other.gate_min for other in PARTS[PARTS.index(part) + 1 :])
        return took_min + slowness * (part.all_min + after_min) <= FITS_MIN

    def _carry_out(self, part: Part, whole: bool, remark: str) -> None:
        command = part.command if whole else (*part.command, "GATE=1")
        if not whole:
            remark = f"; {part.gate.value}, `.ci/run all` runs it whole{remark}"
        print(f"== {part.name}: {' '.join(command)}", flush=True)
        begin_s = time.monotonic()
        again.forget()
        try:
            code = self._wait_beside(part) if part.beside else self._code_of(command)
            failed = again.failed()
            if code and again.are_worth_it(failed):
                print(f"== {part.name}: {len(failed)} failed tests run again", flush=True)
                code = self._code_of(command, **again.ONLY_FAILED)
                remark += "".join(f"; FAILED ONCE: {test}" for test in failed)
        except Interrupted:
            self._result(FAILED, part, whole, begin_s, f"{remark}; interrupted")
            raise
        if code:
            print(f"== {FAILED}: {part.name} (exit code {code})", flush=True)
            remark = f"{remark} (exit code {code})"
        self._result(FAILED if code else "ok", part, whole, begin_s, remark)
        for other in PARTS:
            if other.beside and other.after == part.name and not code and self._mode != "fast":
                self._start_beside(other)

    def _code_of(self, command: tuple[str, ...], **more: str) -> int:
        """Run a command with ``more`` variables; its exit code, as a shell gives it.

        Raises Interrupted.
        """
        words = [word for text in command for word in (sorted(glob.glob(text)) or [text])]
        try:
            process = subprocess.Popen(
                words,
                env=self._environ | more,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            print(error, flush=True)
            return 127
        try:
            return self._signals.wait(process)
        except Interrupted:
            end(process)
            raise

    def _start_beside(self, part: Part) -> None:
        """Start a part that others go before: Go builds for many minutes."""
        with self._log(part).open("wb") as log:
            self._beside[part.name] = subprocess.Popen(
                ["nice", "-n", str(NICE), *part.command],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait_beside(self, part: Part) -> int:
        code = self._signals.wait(self._beside[part.name])
        del self._beside[part.name]
        sys.stdout.write(self._log(part).read_text(errors="replace"))
        sys.stdout.flush()
        return code

    def _log(self, part: Part) -> Path:
        OUT.mkdir(parents=True, exist_ok=True)
        return OUT / f"{PARTS.index(part):02}.log"

    def _check_leftovers(self, status: str, cluster_before: str) -> None:
        """No process, file, cgroup or node of this run is left."""
        name = "nothing left behind"
        print(f"== {name}", flush=True)
        begin_s = time.monotonic()
        found = leftovers.of_processes(self._mark) + leftovers.of_files(status)
        found += leftovers.of_groups(self._groups)
        if cluster_before:
            print("a cluster was there before this run, and stays", flush=True)
        else:
            found += self._cluster_left()
        print(found, end="", flush=True)
        remark = f": {' '.join(found.split())[:REMARK_LENGTH_MAX]}" if found else ""
        self._result(FAILED if found else "ok", Part(name, ()), True, begin_s, remark)

    def _cluster_left(self) -> str:
        if self._mode == "fast" or self._results.get(SETUP) != "ok":
            return ""
        return leftovers.of_cluster(self._environ)

    def _result(self, result: str, part: Part, whole: bool, begin_s: float, remark: str) -> None:
        took_s = time.monotonic() - begin_s
        budget_min = part.all_min if whole else part.gate_min
        self._budget_min += budget_min
        self._results[part.name] = result
        self._times.append(
            {"part": part.name, "result": result, "whole": whole, "took_s": round(took_s, 1),
             "budget_min": budget_min}
        )  # fmt: skip
        self._line(result, part, took_s, budget_min, remark)

    def _line(
        self, result: str, part: Part, took_s: float = 0, budget_min: float = 0, remark: str = ""
    ) -> None:
        self._lines.append(line(result, took_s, budget_min, part.name + remark))

    def _summarize(self, record: str) -> None:
        took_s = time.monotonic() - self._begin_s
        print("== summary (budgets are those of two free cores)")
        print(self._scope.base)
        for text in self._lines:
            print(text)
        print(line("all", took_s, self._budget_min, "parts together"))
        for text in (unchecked(), not_counted(), record):
            if text:
                print(text)
        passed, failed = (
            sum(result == wanted for result in self._results.values()) for wanted in ("ok", FAILED)
        )
        print(f"parts: {passed} passed, {failed} failed", flush=True)
        OUT.mkdir(parents=True, exist_ok=True)
        times = {"mode": self._mode, "base": self._scope.base, "took_s": round(took_s, 1)}
        (OUT / "times.json").write_text(json.dumps(times | {"parts": self._times}, indent=1) + "\n")


def line(result: str, took_s: float, budget_min: float, text: str) -> str:
    """Return one line of the summary; a budget of 0 is none."""
    budget = f"of {budget_min:g} min" if budget_min else ""
    over = "OVER BUDGET: " if budget_min and took_s > 60 * budget_min else ""
    return f"{result:8} {took_s / 60:5.1f} min {budget:9}  {over}{text}"


def main(words: list[str]) -> int:
    """Choose what runs; the exit code."""
    mode = words[0] if words else "gate"
    if len(words) > 1 or mode not in MODES:
        print("usage: .ci/run [all|fast]", file=sys.stderr)
        return 2
    chosen = scope.of_changes()
    if mode == "all" and not chosen.whole:
        chosen = Scope(True, f"{chosen.base}; `all`: every tier runs whole", chosen.changed)
    return Run(mode, chosen).carry_out()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
