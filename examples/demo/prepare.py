"""Prepares `make demo`: shows a first picture at once, then installs everything.

    python3 examples/demo/prepare.py

Makes the environments by `make`, and shows after each few seconds how far that is. With the small
one (`make setup-controller`) it replays the case study, while the large one (`make setup`, with
TensorFlow) is still to come. An environment that is there already is used as it is. At last it
imports TensorFlow once, so that the first preset does not pay for a cold file cache. Needs the
standard library alone. Exits with the code of the step that failed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
OUT = ROOT / "out" / "demo-setup"
SOURCES = ("controller", "sidecar", "launcher", "profiles")
EVERY_S = {True: 0.5, False: 5.0}
"""Seconds between two looks at an installation, on a terminal and elsewhere."""
TAIL_LINES = 15


class Failed(Exception):
    """A step ended with ``code``."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def main() -> int:
    """Prepare everything; the exit code."""
    begin_s = time.monotonic()
    os.chdir(ROOT)
    try:
        ready = is_ready("setup")
        if not ready:
            install("setup-controller", ".venv-controller", "requirements-controller.lock")
        first_look(".venv" if ready else ".venv-controller")
        print(f"\n(the first picture came after {time.monotonic() - begin_s:.0f} s)\n", flush=True)
        if not ready:
            install("setup", ".venv", "requirements.lock")
            print(f"everything is there after {time.monotonic() - begin_s:.0f} s\n", flush=True)
        import_tensorflow()
    except Failed as error:
        return error.code
    except KeyboardInterrupt:
        print("\nstopped; `make demo` goes on from here", file=sys.stderr)
        return 130
    return 0


def is_ready(target: str) -> bool:
    """Whether make has nothing to do for a target."""
    return subprocess.run(["make", "-q", target], capture_output=True, check=False).returncode == 0


def first_look(environment: str) -> None:
    """Replay the case study in an environment. Raises Failed."""
    path = ":".join(str(ROOT / name) for name in SOURCES)
    command = [ROOT / environment / "bin" / "python", HERE / "first_look.py"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=False)
    if done.returncode != 0:
        raise Failed(done.returncode)


def import_tensorflow() -> None:
    """Import TensorFlow once: its files are in the file cache then. Raises Failed."""
    command = [str(ROOT / ".venv" / "bin" / "python"), "-c", "import tensorflow"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr, end="", file=sys.stderr)
        raise Failed(done.returncode)


def install(target: str, environment: str, lock: str) -> None:
    """Let make prepare an environment, and show how far it is. Raises Failed."""
    OUT.mkdir(parents=True, exist_ok=True)
    log, pip_log = OUT / f"{target}.log", OUT / f"{target}.pip.log"
    pip_log.unlink(missing_ok=True)
    wanted = len(re.findall(r"^[\w.-]+==", (ROOT / lock).read_text(), re.MULTILINE))
    print(f"installing {wanted} packages into {environment} (make {target})", flush=True)
    begin_s, terminal = time.monotonic(), sys.stdout.isatty()
    with log.open("w") as output:
        process = subprocess.Popen(
            ["make", target],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PIP_LOG": str(pip_log)},
        )
        try:
            while (code := _code(process, EVERY_S[terminal])) is None:
                far = _waits(log) or _how_far(pip_log, environment, wanted)
                text = f"{time.monotonic() - begin_s:4.0f} s  {far}"
                if terminal:  # one line, written over; a longer one could not be
                    columns = shutil.get_terminal_size().columns
                    print(f"\r\x1b[K  {text}"[: columns + 3], end="", flush=True)
                else:
                    print(f"  {text}", flush=True)
        finally:
            process.terminate()
            process.wait()
    print("\r\x1b[K" if terminal else "", end="")
    if code != 0:
        tail = log.read_text().splitlines()[-TAIL_LINES:]
        print(f"make {target} failed; the end of {log}:", *tail, sep="\n  ", file=sys.stderr)
        raise Failed(code)
    print(f"  {time.monotonic() - begin_s:4.0f} s  installed", flush=True)


def _code(process: subprocess.Popen[bytes], wait_s: float) -> int | None:
    try:
        return process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None


def _waits(log: Path) -> str:
    """Return that make waits for another checkout, and for which; empty if it does not."""
    newest = log.read_text(errors="replace").splitlines()[-1:]
    return "".join(line.partition(": ")[2] for line in newest if ": waits " in line)


def _how_far(pip_log: Path, environment: str, wanted: int) -> str:
    """Return pip's progress: by its log while it downloads, by its files while it installs."""
    try:
        text = pip_log.read_text(errors="replace")
    except FileNotFoundError:
        return "makes the environment"
    order = re.search(r"Installing collected packages: (.+)", text)
    if order is not None:
        files = (ROOT / environment).glob("lib/*/site-packages/*.dist-info")
        there = {_name(path.name.partition("-")[0]) for path in files}
        left = [name for name in order[1].split(", ") if _name(name) not in there]
        now = left[0] if left else "bytecode of the last"
        return f"{wanted - len(left)} of {wanted} packages installed, now {now}"
    found = re.findall(r"(?:Downloading|Using cached) (?:\S*/)?([\w.]+)-\S+ \((.+?)\)", text)
    if not found:
        return "looks for packages"
    name, size = found[-1]
    return f"{len(found)} of {wanted} packages downloaded, the newest is {name} ({size})"


def _name(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


if __name__ == "__main__":
    sys.exit(main())
