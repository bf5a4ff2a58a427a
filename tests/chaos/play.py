"""One round of the campaign: a home, real daemons and jobs, faults at random, and the auditor.

Does: submits jobs, hurts what lives, heals, waits until every job has ended, and returns every
violation: those that the auditor saw, and what a user sees wrong at the end. All of a round's dice
follow from its seed; the moments at which processes run are the machine's.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos import auditor, faults
from tests.chaos.faults import FAULTS, LETHAL, Ground
from tests.support import escapes
from tests.support.daemon_bed import Bed

UP_S = 60.0
HEAL_S = 120.0
"""Longest time after the last fault in which no job comes any further, or has ended."""
ASK_S = 20.0
PAUSE_S = (0.02, 0.6)
"""Shortest and longest time between two faults."""
JOBS_MAX = 8
GPUS = 4
WEIGHTS = {"kill-training": 3, "stop-training": 2, "kill-zygote": 3}
"""Faults that find a victim less often than others are tried more often."""
SIZES = ([1, 2], [1, 2, 4], [2, 4], [1, 2, 3, 4], [1, 3], [2])
RETRIES = 100
FULL = " its disk"
"""In the remedy of a start on a full disk."""
STAND_IN = Path(__file__).with_name("stand_in")
"""Folder of what a zygote imports in place of PyTorch."""
PROGRAM = Path(__file__).with_name("program.py")
PROGRESS = ("state", "stage", "step", "attempt", "generation")
DRAINS = 0.1
"""Share of the faults before which the host is drained for a moment."""
ENDED = ("completed", "failed", "cancelled", "rejected")


@dataclass
class Round:
    """What a round did and saw."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    jobs: int = 0
    reshapes: int = 0
    hand_overs: int = 0
    looks: int = 0
    starts: int = 0
    longest_s: float = 0.0
    took_s: float = 0.0
    containment: str = ""


class ChaosBed(Bed):
    """A home whose daemon is killed and started again by threads of the test."""

    def __init__(self, folder: Path, home: Path) -> None:
        super().__init__(folder)
        self.home = home
        self.lock = threading.Lock()
        """Held while there is no daemon, or one that starts."""

    def environment(self, **more: str) -> dict[str, str]:
        found = super().environment(**more)
        found["PYTHONPATH"] += f":{Path(__file__).resolve().parents[2]}:{STAND_IN}"
        return found

    def restart(self, wait_s: float) -> None:
        """Wait for the end of the daemon, and start the next."""
        with self.lock:
            assert self.daemon is not None
            self.daemon.wait(UP_S)
            time.sleep(wait_s)
            until_s = time.monotonic() + UP_S
            while True:
                try:
                    self.up("--policy", "churn", program="tests.chaos.daemon")
                    return
                except AssertionError:
                    # A start on a full disk is refused; a service manager tries again.
                    if FULL not in self.log.read_text()[-2000:] or time.monotonic() > until_s:
                        raise
                    time.sleep(0.2)

    def pid_now(self) -> int | None:
        """Return the pid of a daemon that answers; None if there is none at this moment."""
        if self.lock.locked() or self.daemon is None or self.daemon.poll() is not None:
            return None
        return self.daemon.pid

    def ask(self, path: str, document: object = None) -> tuple[int, Any]:
        """Ask the daemon; ask the next one if this one dies. Raises TimeoutError."""
        body = None if document is None else json.dumps(document).encode()
        until_s = time.monotonic() + UP_S + ASK_S
        while True:
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                status, answer = self._ask(path, body)
                if status != 503:
                    return status, answer
            if time.monotonic() > until_s:
                raise TimeoutError(f"no answer: {path}\n{self.log.read_text()[-3000:]}")
            time.sleep(0.05)


class Witness:
    """The auditor, a process of its own."""

    def __init__(self, home: Path, ledgers: Path) -> None:
        words = [sys.executable, "-I", auditor.__file__, str(home), str(ledgers)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tell(self, job: str) -> None:
        """Say that users were told of a job's completion."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"completed {job}\n".encode())
        self._process.stdin.flush()

    def end(self) -> tuple[list[str], dict[str, Any]]:
        """Return the violations and the summary."""
        text, _ = self._process.communicate(timeout=UP_S)
        lines = [json.loads(line) for line in text.splitlines()]
        if self._process.returncode:
            return ["the auditor failed"], {}
        return [line["violation"] for line in lines[:-1]], lines[-1]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


class Player:
    """Plays one round in a folder."""

    def __init__(self, folder: Path, seed: int, count: int, allowed: tuple[str, ...]) -> None:
        self.round = Round(seed)
        self._dice = random.Random(seed)
        self._count, self._folder = count, folder
        self._ledgers = folder / "ledgers"
        self._ledgers.mkdir(parents=True)
        self._allowed = [name for name in FAULTS if not allowed or name in allowed]
        if self._dice.random() < 0.2 and not allowed:  # a round that must cost no retry
            self._allowed = [name for name in FAULTS if name not in LETHAL]
        self._ids: dict[str, str] = {}
        """Acknowledged jobs: id by name."""
        self._ended: dict[str, Any] = {}
        self._began_s = time.monotonic()

    def play(self) -> Round:
        """Play the round; return what it saw."""
        home = self._folder / "home"
        with faults.small_disk(home) as mounted, self._bed(home) as bed:
            witness = Witness(home, self._ledgers)
            try:
                self._play(bed, witness, mounted)
            except (AssertionError, TimeoutError) as error:
                self._violated(f"does not heal: {error}")
                for violation in witness.end()[0]:
                    self._violated(violation)
            finally:
                witness.kill()
        self.round.took_s = time.monotonic() - self._began_s
        return self.round

    @contextlib.contextmanager
    def _bed(self, home: Path) -> Iterator[ChaosBed]:
        bed = ChaosBed(self._folder, home)
        (bed.code / "escapes.py").write_text(Path(escapes.__file__).read_text())
        try:
            yield bed
        finally:
            bed.close()

    def _play(self, bed: ChaosBed, witness: Witness, mounted: bool) -> None:
        bed.up("--policy", "churn", program="tests.chaos.daemon")
        status = bed.ask("/v1/status")[1]
        self.round.containment = status["containment"]
        may_escape = self.round.containment == "cgroup"
        threads: list[threading.Thread] = []

        def restart(wait_s: float) -> None:
            thread = threading.Thread(target=bed.restart, args=(wait_s,))
            threads.append(thread)
            thread.start()
            while not bed.lock.locked() and thread.is_alive():
                time.sleep(0.001)

        ground = Ground(bed.home, self._dice, bed.pid_now, restart, mounted)
        for _ in range(3):
            self._submit(bed, may_escape)
        while sum(self.round.faults.values()) < self._count:
            time.sleep(self._dice.uniform(*PAUSE_S))
            if self._dice.random() < 0.4:
                self._submit(bed, may_escape)
            if self._dice.random() < DRAINS:
                self._drain(bed)
            self._hurt(ground)
            self._see(bed, witness, wait=False)
        ground.heal()
        for thread in threads:
            thread.join(2 * UP_S)
        self._note("healed")
        self._see(bed, witness, wait=True)
        self._check_end(bed, witness)

    def _submit(self, bed: ChaosBed, may_escape: bool) -> None:
        """Submit a job; an answer that is lost is asked for again, as a user does."""
        number = len(self._ids)
        if len(self._ids) - len(self._ended) >= 4 or number >= JOBS_MAX:
            return
        dice, name = self._dice, f"job{number}"
        escape = dice.choice(sorted(escapes.ESCAPES)) if dice.random() < 0.4 else "none"
        words = [str(dice.randint(80, 250)), "0.025", str(dice.choice((7, 20, 50)))]
        path = bed.record(
            name,
            PROGRAM.read_text(),
            steps=int(words[0]),
            command=["python", f"{name}.py", *words, escape if may_escape else "none"],
            optional_gpus=dice.choice(SIZES),
            framework=dice.choice(("other", "pytorch")),
            env={"LEDGER": str(self._ledgers / f"{name}.ledger")},
            may_restart=False,
            retries=RETRIES,
            code=str(bed.code),
        )
        document = json.loads(path.read_text())
        status, answer = bed.ask("/v1/jobs", document)
        if status == 409 or (status == 422 and "unfinished" in json.dumps(answer)):
            status, answer = bed.ask(f"/v1/jobs/{name}")  # the answer to an earlier try was lost
        if status not in (200, 201):
            self._violated(f"a good record is refused: {status} {answer}")
            return
        self._ids[name] = answer["id"]
        self._note(f"submitted {name} ({escape}, {document['optional_gpus']})")

    def _drain(self, bed: ChaosBed) -> None:
        """Drain the host for a moment, as an operator does."""
        for action in ("drain", "undrain"):
            status, answer = bed.ask(f"/v1/hosts/local/{action}", {})
            if status != 200:
                self._violated(f"{action} is refused: {status} {answer}")
            time.sleep(self._dice.uniform(*PAUSE_S))
        self._note("drained for a moment")

    def _hurt(self, ground: Ground) -> None:
        weights = [WEIGHTS.get(name, 1) for name in self._allowed]
        (kind,) = self._dice.choices(self._allowed, weights)
        if (did := FAULTS[kind](ground)) is not None:
            self.round.faults[kind] += 1
            self._note(f"{kind}: {did}")

    def _see(self, bed: ChaosBed, witness: Witness, *, wait: bool) -> None:
        """Look at the jobs as a user does; with ``wait`` until all have ended."""
        until_s, before = time.monotonic() + HEAL_S, ""
        while True:
            if not wait and bed.pid_now() is None:
                return
            status, answer = bed.ask("/v1/jobs?limit=1000")
            assert status == 200, answer
            jobs = {job["id"]: job for job in answer["jobs"]}
            now = str([[job[name] for name in PROGRESS] for job in answer["jobs"]])
            if now != before:
                until_s, before = time.monotonic() + HEAL_S, now
            for name, job_id in self._ids.items():
                job = jobs.get(job_id)
                if job is None:
                    self._violated(f"an acknowledged job is gone: {name}")
                elif job["state"] in ENDED and name not in self._ended:
                    self._ended[name] = job
                    witness.tell(job_id)
                    self._note(f"{name} is {job['state']}")
                elif job["state"] == "halted" and wait:
                    bed.ask(f"/v1/jobs/{job_id}/resume", {})
            if not wait or len(self._ended) == len(self._ids):
                return
            if time.monotonic() > until_s:
                waits = [job for job in jobs.values() if job["state"] not in ENDED]
                raise TimeoutError(f"jobs do not end: {json.dumps(waits)}\n{_tail(bed)}")
            time.sleep(0.1)

    def _check_end(self, bed: ChaosBed, witness: Witness) -> None:
        """Compare what users see at the end with what programs wrote down."""
        jobs = bed.ask("/v1/jobs?limit=1000")[1]["jobs"]
        for name, count in Counter(job["name"] for job in jobs).items():
            if count > 1:
                self._violated(f"one submission became {count} jobs: {name}")
        for job in jobs:
            if job["state"] != "completed":
                self._violated(f"{job['name']} is {job['state']}: {job['reason']} {job['error']}")
            if job["failures"] and not any(self.round.faults[kind] for kind in LETHAL):
                self._violated(f"{job['name']} failed, and nothing killed it: {job['error']}")
            self.round.reshapes += job["reshape_ups"] + job["reshape_downs"]
        self.round.jobs = len(jobs)
        self._check_released(bed)
        self.round.hand_overs = _hand_overs(bed)
        if bed.stop(signal.SIGTERM) != 0:
            self._violated("the daemon ended with an error")
        found, summary = witness.end()
        for violation in found:
            self._violated(violation)
        for name in self._ids.keys() - set(summary.get("finished", ())):
            self._violated(f"{name} is called completed, and never finished")
        if summary.get("left"):
            self._violated(f"processes are left: {summary['left']}")
        self.round.looks, self.round.starts = summary.get("looks", 0), summary.get("starts", 0)
        self.round.longest_s = summary.get("longest_s", 0.0)

    def _check_released(self, bed: ChaosBed) -> None:
        """Every GPU is idle and every container gone soon after the last job. A daemon that is
        stopped before leaves the end of a container to the next one."""
        until_s = time.monotonic() + UP_S
        while True:
            gpus = bed.ask("/v1/gpus")[1]["gpus"]
            busy = [gpu for gpu in gpus if gpu["state"] != "idle"]
            jobs = bed.ask("/v1/jobs?limit=1000")[1]["jobs"]
            remain = [job["name"] for job in jobs if job["stage"] != "none"]
            if not busy and not remain and len(gpus) == GPUS:
                return
            if time.monotonic() > until_s:
                self._violated(f"GPUs are not idle: {busy}; containers do not end: {remain}")
                return
            time.sleep(0.1)

    def _violated(self, text: str) -> None:
        if text not in self.round.violations:
            self.round.violations.append(text)
            self._note(f"VIOLATION {text}")

    def _note(self, text: str) -> None:
        self.round.trace.append(f"{time.monotonic() - self._began_s:6.2f} {text}")


def _hand_overs(bed: ChaosBed) -> int:
    """Return how many grants the decisions of this home led to, from other jobs or from idle."""
    events = (
        event
        for job in bed.ask("/v1/jobs?limit=1000")[1]["jobs"]
        for event in bed.ask(f"/v1/jobs/{job['id']}/history?limit=1000")[1]["events"]
    )
    return sum(event["kind"] == "granted" for event in events)


def _tail(bed: ChaosBed) -> str:
    return "".join(bed.log.read_text(errors="replace")[-4000:])


def play(folder: Path, seed: int, count: int, allowed: tuple[str, ...] = ()) -> Round:
    """Play the round of a seed with ``count`` faults, of the ``allowed`` kinds or of all."""
    return Player(folder, seed, count, allowed).play()
