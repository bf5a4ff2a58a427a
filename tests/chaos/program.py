"""The training program of the campaign: a loop of the session API that writes down what it does.

Arguments: steps, seconds per step, steps between two saves, and the name of an escape or ``none``.
Each step changes one number, which no other sequence of steps gives. ``LEDGER`` names the file to
which each start appends lines; it lies outside of the home, as a disk that is full must not keep a
witness from writing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

with contextlib.suppress(ImportError):
    import torch  # noqa: F401  # the fork of a zygote has it

from reshape_sidecar import session

MODULUS = (1 << 61) - 1
LINE_EVERY = 5
START = [os.environ[f"RESHAPE_{name}"] for name in ("JOB", "ATTEMPT", "GENERATION")]


def write_down(what: str, step: int, value: int) -> None:
    figures = (str(step), str(value), repr(time.monotonic()), os.environ["RESHAPE_DEVICES"])
    line = " ".join((*START, what, *figures)) + "\n"
    number = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(number, line.encode())
    os.close(number)


def main(steps: int, step_s: float, save_every: int, escape: str) -> None:
    job = session.start(total_steps=steps)
    value = 1 if job.checkpoint is None else int((job.checkpoint / "value").read_text())
    write_down("begin", job.step, value)
    if escape != "none":
        import escapes  # type: ignore[import-not-found]  # a copy lies beside this program

        gpus = os.environ["RESHAPE_DEVICES"].replace(",", "+")
        escapes.ESCAPES[escape](".".join((*START, gpus)))

    def save(folder: Path) -> None:
        (folder / "value").write_text(str(value))

    while job.step < steps:
        time.sleep(step_s)
        value = (value * 1_000_003 + job.step + 1) % MODULUS
        job.step_done()
        if job.step % LINE_EVERY == 0:
            write_down("step", job.step, value)
        leaves = job.should_stop()
        if (leaves or job.step % save_every == 0) and job.save(save):
            write_down("saved", job.step, value)
            if leaves:
                job.leave()
    job.finished(save)
    write_down("finished", job.step, value)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
