"""Step 6: how much memory a second process on the same GPU takes.

PyTorch takes memory as it needs it. Each of two processes opens a context, then trains a step of
the small ResNet; the GPU's memory is read after each of the four.
"""

from __future__ import annotations

import time
from typing import Any

from gpu.memory import used
from gpu.step import MIB, Dialogue, Step

WAIT_S = 40.0
SETTLE_S = 0.5


def run(step: Step) -> None:
    """Measure, and say what each process took."""
    base = used(step.uuid)
    readings: dict[str, int] = {"before_mib": base // MIB}
    with Dialogue(step, "first", "hold.py", "--train") as first:
        _read(step, first, readings, "first_context_mib")
        with Dialogue(step, "second", "hold.py", "--train") as second:
            _read(step, second, readings, "second_context_mib")
            for name, process in (("first", first), ("second", second)):
                process.go_on()
                _read(step, process, readings, f"{name}_trained_mib")
            step.put(by_process=_by_process(step, (first.process.pid, second.process.pid)))
    takes = {
        "first_context_mib": readings["first_context_mib"] - readings["before_mib"],
        "second_context_mib": readings["second_context_mib"] - readings["first_context_mib"],
        "first_step_mib": readings["first_trained_mib"] - readings["second_context_mib"],
        "second_step_mib": readings["second_trained_mib"] - readings["first_trained_mib"],
    }
    step.put(takes=takes)
    both = readings["second_context_mib"]
    step.check("two processes train on the GPU at once", readings["second_trained_mib"] >= both)


def _read(step: Step, process: Dialogue, readings: dict[str, int], name: str) -> None:
    """Wait for the process's next word, then read what the GPU holds."""
    process.hear(WAIT_S)
    time.sleep(SETTLE_S)
    readings[name] = used(step.uuid) // MIB
    step.put(readings=dict(readings))


def _by_process(step: Step, pids: tuple[int, ...]) -> dict[str, Any]:
    """Return the memory of each process as NVML says it; a container may hide it."""
    import pynvml

    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(step.uuid)
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    # An older driver lacks the function: pynvml then raises what is no NVMLError.
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as error:
        return {"not said": str(error).partition(" and ")[0]}
    named = {process.pid: process.usedGpuMemory for process in found}
    return {
        "processes": len(named),
        **{f"of_{n}_mib": (named.get(pid) or 0) // MIB for n, pid in enumerate(pids, 1)},
    }
