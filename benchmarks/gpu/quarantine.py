"""Step 5: memory that stays in use keeps the GPU from the next job.

First a child of a job does what it can to outlive it (a session of its own, no variable of the
job). Then a program that is none of Reshape's holds memory when the job leaves: the GPU must be
quarantined, granted to no job, and go to the next one after the operator's word.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from gpu.daemon import Daemon, living
from gpu.memory import Samples, used
from gpu.step import MIB, PROGRAMS, RUN, Dialogue, Step

from reshape_sidecar.gpu import FREE_MEMORY_BYTES

MEMORY_BYTES = 1 << 30
SETTLED = ("idle", "quarantined")
RELEASE_S = 60.0
"""More than the 30 s after which a release that is not verified ends in quarantine."""


def run(step: Step) -> None:
    """Run both parts on one daemon."""
    with Samples(step.uuid) as samples, Daemon(step) as daemon:
        _child(step, daemon, samples)
        _other_program(step, daemon, samples)
        samples.save(step.logs / "memory.csv")


def _child(step: Step, daemon: Daemon, samples: Samples) -> None:
    name = f"child-of-{os.environ[RUN]}"
    held_bytes = str(MEMORY_BYTES)
    child = ("--child", str(PROGRAMS / "hold.py"), "--memory", held_bytes, "--alone", name)
    job = daemon.submit("parent", "--memory", held_bytes, *child)
    job.trains()
    pids = step.wait(lambda: living(name), "the child runs", RELEASE_S)
    alone = samples.base_bytes + MEMORY_BYTES
    both = alone + MEMORY_BYTES
    step.wait(lambda: used(step.uuid) > both, "job and child hold memory", RELEASE_S)
    step.put(child_and_job_hold_mib=used(step.uuid) // MIB)
    asked_s = time.monotonic()
    job.ask("cancel")
    state = step.wait(
        lambda: (s := daemon.gpu().state) in SETTLED and s, "the release is decided", RELEASE_S
    )
    alive = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    held = used(step.uuid)
    took_s = round(time.monotonic() - asked_s, 3)
    ended = "survived" if alive else "was ended with the container"
    step.put(child={"the child": ended, "gpu": state, "decided_s": took_s, "held_mib": held // MIB})
    safe = state == "quarantined" or (not alive and held <= FREE_MEMORY_BYTES)
    step.check("a GPU with a surviving child is not idle", safe, f"{state}, {held // MIB} MiB")
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if state == "quarantined":
        step.wait(lambda: used(step.uuid) < alone, "the child's memory is free", RELEASE_S)
        daemon.clear()
        step.wait(lambda: daemon.gpu().state == "idle", "the GPU is idle once cleared", RELEASE_S)


def _other_program(step: Step, daemon: Daemon, samples: Samples) -> None:
    job = daemon.submit("leaves", "--memory", str(MEMORY_BYTES))
    job.trains()
    with Dialogue(step, "other", "hold.py", "--memory", str(MEMORY_BYTES)) as other:
        other.hear(RELEASE_S)
        following = daemon.submit("waits", "--memory", str(MEMORY_BYTES))
        asked_s = time.monotonic()
        job.ask("cancel")
        states: list[str] = []

        def decided() -> bool:
            gpu = daemon.gpu()
            if not states or states[-1] != gpu.state:
                states.append(gpu.state)
            return gpu.state in SETTLED or gpu.owner == following.id

        step.wait(decided, "the release is decided", RELEASE_S)
        gpu = daemon.gpu()
        found = {"gpu": " ".join(states), "decided_s": round(time.monotonic() - asked_s, 3)}
        step.put(other_program={**found, "reason": gpu.reason})
        step.check("the GPU is quarantined", gpu.state == "quarantined", gpu.state)
        time.sleep(1.0)
        waits = following.last("begin") is None and daemon.gpu().owner != following.id
        step.check("it is not granted to the job that waits", waits)
    cleared_s = time.monotonic()
    step.wait(
        lambda: samples.below_s(FREE_MEMORY_BYTES, cleared_s), "the memory is free", RELEASE_S
    )
    daemon.clear()
    mark = following.trains(cleared_s)
    step.put(word_to_first_step_s=round(mark["at_s"] - cleared_s, 3))
    step.check("after the operator's word the job that waits trains", True)
    following.ask("cancel")
    following.ends()
