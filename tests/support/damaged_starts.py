"""Starts of a real daemon over a home in which one file is damaged: ready, or one sentence.

As a command, with the name of a file for the results, it starts one for each file and each damage
(110 starts, some three minutes), and goes on after those that the file has:

    python -m tests.support.damaged_starts results.json
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.daemon_bed import PROGRAM, ROOT, SOURCES
from tests.support.damages import DAMAGES

ANSWER_S = 10.0
MEMORY_KIB_MAX = 100 << 10
FILES = (
    *("token", "secret", "tokens.json", "sessions.json", "address.json", "boot", "daemon.lock"),
    *("store.sqlite.mark", "store.sqlite", "store.sqlite.lock", "store.sqlite-wal"),
)


@dataclass(frozen=True)
class Start:
    """What a start said until it listened or ended, its exit code (None: it listens), its time, and
    the most memory that it had."""

    said: str
    code: int | None
    took_s: float
    peak_kib: int

    def fault(self, usual_kib: int) -> str:
        """Return what is wrong with it; empty if nothing is."""
        if self.took_s > ANSWER_S:
            return f"no answer in {ANSWER_S:g} s"
        if "Traceback" in self.said or "defect" in self.said:
            return f"no sentence for people: {self.said}"
        if self.code not in (None, 1) or (self.code is not None and "error:" not in self.said):
            return f"exit code {self.code}: {self.said}"
        if self.peak_kib - usual_kib > MEMORY_KIB_MAX:
            return f"{self.peak_kib - usual_kib} KiB more memory"
        return ""


def start(home: Path, within_s: float = ANSWER_S) -> Start:
    """Start a daemon, wait until it listens or ends, and end it."""
    paths = os.pathsep.join(str(ROOT / name) for name in SOURCES)
    env = {**os.environ, "PYTHONPATH": paths, "RESHAPE_HOME": str(home)}
    command = [sys.executable, "-m", PROGRAM, "up", "--port", "0", "--simulated-gpus", "1"]
    began_s = time.monotonic()
    daemon = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        said, code = _until_it_listens(daemon, began_s + within_s)
        return Start(said, code, time.monotonic() - began_s, _peak_kib(daemon.pid))
    finally:
        _end(daemon)


def damaged(whole: Path, name: str, damage: str, folder: Path) -> Start:
    """Start a daemon over a copy, in ``folder``, of a whole home with this damage."""
    home = folder / "home"
    shutil.copytree(whole, home)
    DAMAGES[damage](home / name)
    return start(home)


def _until_it_listens(daemon: subprocess.Popen[bytes], until_s: float) -> tuple[str, int | None]:
    assert daemon.stdout is not None
    said = ""
    while time.monotonic() < until_s:
        if not select.select([daemon.stdout], [], [], 0.1)[0]:
            continue
        part = os.read(daemon.stdout.fileno(), 65536).decode(errors="replace")
        said += part
        if not part:
            return said, daemon.wait(ANSWER_S)
        if "controller-started" in said:
            return said, None
    return said, None


def _peak_kib(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1])
    return 0


def _end(daemon: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        daemon.send_signal(signal.SIGTERM)
    try:
        daemon.communicate(timeout=ANSWER_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.communicate()


def main(results: Path) -> int:
    """Run what has no result yet; return 1 if one is a fault."""
    known = json.loads(results.read_text()) if results.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, "whole")
        usual_kib = start(whole).peak_kib
        for name in FILES:
            for damage in DAMAGES:
                key = f"{name} {damage}"
                if key in known:
                    continue
                with tempfile.TemporaryDirectory() as place:
                    found = damaged(whole, name, damage, Path(place))
                known[key] = found.fault(usual_kib)
                results.write_text(json.dumps(known, indent=1) + "\n")
    faults = {key: fault for key, fault in known.items() if fault}
    print(f"{len(known)} starts, {len(faults)} faults")
    for key, fault in faults.items():
        print(f"{key}: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
