"""A job of this run: trains the network on one GPU, saves on request, and goes on.

    python gpu_job.py [--memory BYTES] [--child PROGRAM ARGUMENT...]

Does: marks the end of each phase of its start and of its saves. SIGUSR1 crashes it after a step, as
an error of its own would; SIGUSR2 has it complete. ``--child`` starts a process that does what it
can to outlive it.
"""

from __future__ import annotations

import time

BEGAN_S = time.monotonic()

import argparse  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from device import STAND_IN, TORCH, Gpu, mark  # noqa: E402

from reshape_sidecar import session  # noqa: E402

CRASH = 3
FOREVER = 10**9
MARK_EVERY_S = 0.2


def start_child(words: list[str]) -> None:
    """Start a process of another session, without this job's environment, and forget it."""
    kept = ("PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", STAND_IN, TORCH)
    env = {name: os.environ[name] for name in kept if name in os.environ}
    if os.fork() == 0:  # its parent ends, so that the child is nobody's
        subprocess.Popen(
            [sys.executable, *words], env=env, stdin=subprocess.DEVNULL, start_new_session=True
        )
        os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--child", nargs=argparse.REMAINDER, default=[])
    options = parser.parse_args()
    asked: list[int] = []
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda received, _: asked.append(received))
    mark("begin", began_s=BEGAN_S)
    if os.environ.get(TORCH) != "off":
        import torch
    else:
        torch = None
    mark("import")
    gpu = Gpu(torch)
    gpu.take(options.memory)
    mark("context", uuid=gpu.uuid, count=gpu.count)
    from network import Training

    training = Training(gpu)
    gpu.synchronize()
    mark("build")
    job = session.start(total_steps=FOREVER)
    if job.checkpoint is not None:
        training.load(job.checkpoint)
    mark("restore", step=job.step)
    if options.child:
        start_child(options.child)

    def save(folder: Path) -> None:
        mark("save-begin", step=job.step)
        training.save(folder)
        mark("save-end", step=job.step)

    marked_s = 0.0
    first = job.step + 1
    last = job.total_steps or FOREVER
    while job.step < last:
        loss = training.step()
        now_s = time.monotonic()
        if job.step + 1 == first or now_s - marked_s > MARK_EVERY_S:
            mark("first-step" if job.step + 1 == first else "step", step=job.step + 1)
            marked_s = now_s
        if signal.SIGUSR1 in asked:
            mark("crash", step=job.step + 1)
            os._exit(CRASH)
        job.step_done(save, loss=loss)
        if signal.SIGUSR2 in asked:
            break
    job.finished(save)
    mark("finished", step=job.step)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
