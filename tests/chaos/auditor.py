"""Whether what must never happen did happen: an auditor that looks at the machine alone.

    python tests/chaos/auditor.py HOME LEDGERS

Does: reads /proc, cgroups and the training programs' ledgers again and again, and prints a line of
JSON for each violation. A line ``completed JOB`` on its input says that users were told so; the end
of its input asks for a last look and a summary. Never: imports anything of the product, or asks the
daemon. Standard library only.

A process holds GPUs if one of these says so, so that none can hide by clearing its environment:
its environment, the cgroup of a start, or the tag on the command line of an escape.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

POLL_S = 0.02
FOREIGN_AFTER_S = 2.0
"""A process that is not of this home, and older than this, is not looked at again."""
LATER_S = 0.1
"""A start so long after its job was said to be completed began after that."""
OWN = str(os.getpid())
TICKS = os.sysconf("SC_CLK_TCK")
GROUP = re.compile(
    r"/(reshape-[0-9a-f]{12})/([^/]+)\.attempt-(\d+)(?:\.[^/]*)?/generation-(\d+)(?:/|$)"
)
TAG = re.compile(r"hides-([a-z0-9-]+)\.(\d+)\.(\d+)\.([A-Za-z0-9_+-]+)\Z")
HOMES = ("RESHAPE_HOME", "RESHAPE_SOCKET", "RESHAPE_CHECKPOINTS")
"""Variables whose value begins with the home of a process's daemon."""
MODULUS = (1 << 61) - 1


@dataclass(frozen=True, slots=True, order=True)
class Start:
    """One start of a training program: the unit that may hold GPUs."""

    job: str
    attempt: int
    generation: int


@dataclass(frozen=True, slots=True)
class Process:
    """A process, safe against reuse of its pid."""

    pid: int
    began_ticks: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A living process of a start, with the GPUs that it may use."""

    process: Process
    start: Start
    gpus: frozenset[str]


VALUES = [1]


def value_at(step: int) -> int:
    """Return what the training program computes in ``step`` steps; none may be left out."""
    while len(VALUES) <= step:
        VALUES.append((VALUES[-1] * 1_000_003 + len(VALUES)) % MODULUS)
    return VALUES[step]


class Proc:
    """The processes of one home, as ``/proc`` shows them."""

    def __init__(self, home: str, proc: Path = Path("/proc")) -> None:
        self._home, self._proc = home, proc
        self._foreign: set[Process] = set()
        self._gpus: dict[Start, frozenset[str]] = {}
        self._groups: set[str] = set()
        """Names of the groups in which a process of this home was seen."""
        self.alive: set[Process] = set()
        """Processes of this home at the last look."""

    def lives(self, process: Process) -> bool:
        """Return whether a process has not ended."""
        return self._began(process.pid) == process.began_ticks

    def holders(self) -> Iterator[Holder]:
        """Yield every living process that may use GPUs."""
        self.alive = set()
        foreign = set()
        for name in os.listdir(self._proc):
            if not name.isdecimal() or name == OWN:
                continue
            began_ticks = self._began(int(name))
            if began_ticks is None:
                continue
            process = Process(int(name), began_ticks)
            if process in self._foreign:
                foreign.add(process)
                continue
            start, gpus, ours = self._look(int(name))
            if ours:
                self.alive.add(process)
            elif time.clock_gettime(time.CLOCK_BOOTTIME) - began_ticks / TICKS > FOREIGN_AFTER_S:
                foreign.add(process)
            if start is not None and gpus:
                yield Holder(process, start, gpus)
        self._foreign = foreign

    def described(self) -> list[str]:
        """Return the processes of this home at the last look: pid, parent, group, command."""
        found = []
        for pid in sorted(each.pid for each in self.alive):
            with contextlib.suppress(OSError, IndexError):
                parent = self._read(pid, "stat").rpartition(")")[2].split()[1]
                group = self._read(pid, "cgroup").strip().rpartition("/")[2]
                command = self._read(pid, "cmdline").replace("\0", " ").strip()
                found.append(f"{pid} of {parent} in {group}: {command[:300]}")
        return found

    def _began(self, pid: int) -> int | None:
        """Return when a process began; None if it has ended, or has no memory any more."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = self._read(pid, "stat").rpartition(")")[2].split()
            if fields[0] not in "ZX" and fields[20] != "0":
                return int(fields[19])
        return None

    def _look(self, pid: int) -> tuple[Start | None, frozenset[str], bool]:
        """Return the start of a process, its GPUs, and whether it belongs to this home."""
        try:
            pairs = (word.partition("=") for word in self._read(pid, "environ").split("\0"))
            env = {name: value for name, _, value in pairs}
            group, command = self._read(pid, "cgroup"), self._read(pid, "cmdline")
        except OSError:
            return None, frozenset(), False
        paths = (env.get(name, "") + "/" for name in HOMES)
        ours = any(path.startswith(self._home + "/") for path in paths)
        in_group = GROUP.search(group)
        if ours and in_group:
            self._groups.add(in_group[1])
        if ours and env.get("RESHAPE_GENERATION", "").isdecimal():
            start = _start(env["RESHAPE_JOB"], env["RESHAPE_ATTEMPT"], env["RESHAPE_GENERATION"])
            named = env.get("CUDA_VISIBLE_DEVICES") or env.get("RESHAPE_DEVICES", "")
            self._gpus[start] = frozenset(filter(None, named.split(",")))
            return start, self._gpus[start], True
        for word in command.split("\0"):
            if (tag := TAG.match(word)) and os.path.isdir(f"{self._home}/jobs/{tag[1]}"):
                return _start(*tag.groups()[:3]), frozenset(tag[4].split("+")), True
        if in_group and in_group[1] in self._groups:
            start = _start(*in_group.groups()[1:])
            return start, self._gpus.get(start, frozenset()), True
        return None, frozenset(), ours or self._home in command

    def _read(self, pid: int, name: str) -> str:
        return (self._proc / str(pid) / name).read_bytes().decode(errors="replace")


def _start(job: str, attempt: str, generation: str) -> Start:
    return Start(job, int(attempt), int(generation))


@dataclass(slots=True)
class Span:
    """The time in which a start wrote lines, and the GPUs that it had."""

    start: Start
    gpus: frozenset[str]
    begin_s: float
    end_s: float

    def overlaps(self, other: Span) -> bool:
        """Return whether both starts lived at one moment, with one GPU."""
        at_once = self.begin_s < other.end_s and other.begin_s < self.end_s
        return at_once and bool(self.gpus & other.gpus)


@dataclass
class Ledger:
    """The lines that the starts of one job appended, oldest first."""

    saved: int = 0
    """Largest step of a published checkpoint."""
    finished: bool = False
    newest: Start | None = None
    offset: int = 0
    lines: int = 0


@dataclass
class Auditor:
    """Keeps what was seen, and the violations."""

    proc: Proc
    ledgers: Path
    found: dict[str, str] = field(default_factory=dict)
    """Each violation once, with its first description."""
    looks: int = 0
    starts: set[Start] = field(default_factory=set)
    longest_s: float = 0.0
    """Longest time from one look to the next."""
    _completed_s: dict[str, float] = field(default_factory=dict)
    _ledgers: dict[str, Ledger] = field(default_factory=dict)
    _spans: dict[Start, Span] = field(default_factory=dict)
    _looked_s: float = field(default_factory=time.monotonic)

    def completed(self, job: str) -> None:
        """Note that users are told now that a job has completed."""
        self._completed_s.setdefault(job, time.clock_gettime(time.CLOCK_BOOTTIME))

    def look(self) -> list[str]:
        """Look once at everything; return the new violations."""
        before = len(self.found)
        for path in self.ledgers.glob("*.ledger"):
            self._read(path)
        holders = list(self.proc.holders())
        self._compare(holders)
        for each in holders:
            said_s = self._completed_s.get(each.start.job)
            later = said_s is not None and each.process.began_ticks / TICKS > said_s + LATER_S
            if later and each.start not in self.starts:  # else it is a fork of an earlier process
                self._note("trained again", each.start.job, f"it had completed: {each}")
        self.starts.update(each.start for each in holders)
        now_s = time.monotonic()
        self.looks += 1
        self.longest_s = max(self.longest_s, now_s - self._looked_s)
        self._looked_s = now_s
        return list(self.found.values())[before:]

    def _compare(self, holders: list[Holder]) -> None:
        of_gpu: dict[str, list[Holder]] = {}
        for holder in holders:
            for gpu in holder.gpus:
                of_gpu.setdefault(gpu, []).append(holder)
        for gpu, users in of_gpu.items():
            if len({each.start for each in users}) < 2:
                continue
            # Each was seen alive during this look. Those that still live all lived at the moment
            # at which the last of them was seen.
            living = {each.start: each for each in users if self.proc.lives(each.process)}
            if len(living) > 1:
                of = [*living.values()]
                self._note("two hold a GPU", f"{gpu} {sorted(living)}", f"{gpu}: {of}")

    def _read(self, path: Path) -> None:
        ledger = self._ledgers.setdefault(path.stem, Ledger())
        with path.open("rb") as file:
            file.seek(ledger.offset)
            text = file.read()
        text = text[: text.rfind(b"\n") + 1]
        ledger.offset += len(text)
        for line in text.decode().splitlines():
            ledger.lines += 1
            self._take(path.stem, ledger, line)

    def _take(self, name: str, ledger: Ledger, line: str) -> None:
        """Judge one line: JOB ATTEMPT GENERATION WHAT STEP VALUE TIME GPUS."""
        job, attempt, generation, what, step_text, value, at_s, gpus = line.split()
        start, step = _start(job, attempt, generation), int(step_text)
        key = f"{name} {start}"
        if ledger.newest is not None and start < ledger.newest:
            self._note("an older start goes on", key, f"{line}; newest: {ledger.newest}")
        ledger.newest = max(start, ledger.newest or start)
        if what == "begin" and step < ledger.saved:
            self._note("saved steps lost", key, f"{line}; step {ledger.saved} was saved")
        if int(value) != value_at(step):
            self._note("a step left out or repeated", key, line)
        if what == "step" and ledger.finished:
            self._note("trained again", key, f"{line}; it had finished")
        if what in ("saved", "finished"):
            ledger.saved = max(ledger.saved, step)
        ledger.finished |= what == "finished"
        self._extend(start, float(at_s), frozenset(gpus.split(",")))

    def _extend(self, start: Start, at_s: float, gpus: frozenset[str]) -> None:
        span = self._spans.setdefault(start, Span(start, gpus, at_s, at_s))
        span.end_s = max(span.end_s, at_s)
        for other in self._spans.values():
            if other is not span and span.overlaps(other):
                pair = sorted((span.start, other.start))
                self._note("two train on a GPU", str(pair), f"{span} {other}")

    def finished(self) -> set[str]:
        """Return the names of the jobs whose ledgers say that they finished."""
        return {name for name, ledger in self._ledgers.items() if ledger.finished}

    def _note(self, kind: str, key: str, text: str) -> None:
        self.found.setdefault(f"{kind} {key}", f"{kind}: {text}")

    def summary(self) -> dict[str, object]:
        """Return what was seen, for the end of a round."""
        return {
            "looks": self.looks,
            "starts": len(self.starts),
            "lines": sum(each.lines for each in self._ledgers.values()),
            "finished": sorted(self.finished()),
            "left": self.proc.described(),
            "longest_s": round(self.longest_s, 2),
        }


def main(home: str, ledgers: str) -> None:
    """Look until the end of the input."""
    auditor = Auditor(Proc(home), Path(ledgers))
    rest = b""
    while True:
        for violation in auditor.look():
            print(json.dumps({"violation": violation}), flush=True)
        if not select.select([sys.stdin], [], [], POLL_S)[0]:
            continue
        text = os.read(sys.stdin.fileno(), 65536)
        if not text:
            break
        *lines, rest = (rest + text).split(b"\n")
        for line in lines:
            auditor.completed(line.decode().removeprefix("completed "))
    for violation in auditor.look():
        print(json.dumps({"violation": violation}), flush=True)
    print(json.dumps(auditor.summary()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
