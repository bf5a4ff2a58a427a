"""Step 4: does a GPU that is named after a fork count, and how fast is a start by a fork?

The first part runs without Reshape: a process imports PyTorch, forks, and the child names the GPU.
In the second a job crashes and starts again in its living container, once with a zygote and once
without: the zygote of a container is there as long as the container is. In the third the GPU goes
from job to job as in step 3, where each container is new and its zygote has to import first.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

from gpu import handover
from gpu.daemon import Daemon
from gpu.memory import Samples
from gpu.step import DRIVER, Step, StepFailed

FORK_S = 60.0
CRASHES = 3
CRASHES_STAND_IN = 1
HAND_OVERS = 2
READY_S = 20.0
"""How long a zygote may take to be ready."""
MODES = {"cold": "off", "zygote": "auto"}


def run(step: Step) -> None:
    """Run the parts; a first one that breaks does not keep the others from running."""
    try:
        _forks(step)
    except StepFailed as error:
        step.check("the forks run", False, str(error))
    with Samples(step.uuid) as samples, Daemon(step) as daemon:
        rows = {mode: _crashes(step, daemon, samples, mode) for mode in MODES}
        _put_kinds(step, rows["zygote"])
        repeats = HAND_OVERS if step.is_real else 1
        handover.measure(step, daemon, samples, "auto", repeats, "standby_auto_")


def _put_kinds(step: Step, rows: list[dict[str, Any]]) -> None:
    """Write how the processes were started that may be forks, and why some were not."""
    kinds = sorted({str(row["how"]) for row in rows})
    step.put(start_with_standby_auto=", ".join(kinds))
    reasons = {str(row["fallback"]) for row in rows if row["how"] == "cold"}
    step.put(why_not_faster="; ".join(sorted(reasons)) or None)


def _forks(step: Step) -> None:
    """Name the GPU, or none, after the fork; ask the driver and PyTorch which they see."""
    driver = os.environ.get(DRIVER, "libcuda.so.1")
    hidden = json.loads(step.run("forks.py", "", step.uuid, driver, limit_s=FORK_S))
    step.put(gpu_named_after_the_fork=_flat(hidden))
    named = json.loads(step.run("forks.py", step.uuid, "", driver, limit_s=FORK_S))
    step.put(gpu_hidden_after_the_fork=_flat(named))
    sees, hides = hidden["child"], named["child"]
    seen = str(sees.get("torch_uuid")).lower() == step.uuid.lower()
    if "uuids" in sees:
        seen = seen and [str(uuid).lower() for uuid in sees["uuids"]] == [step.uuid.lower()]
    step.check("a GPU that is named after the fork is seen", seen, str(sees))
    text = "a GPU that is hidden after the fork is not seen"
    step.check(text, hides.get("uuids") == [] or "torch_error" in hides, str(hides))
    opened = hidden["driver_files_after_import"] + named["driver_files_after_import"]
    step.check("the import opens no file of the driver", not opened, ", ".join(opened))
    begun = hidden["cuda_begun_by_import"] or named["cuda_begun_by_import"]
    step.check("the import makes no CUDA call", not begun)


def _flat(found: dict[str, Any]) -> dict[str, Any]:
    return {**{k: v for k, v in found.items() if k != "child"}, **found["child"]}


def _crashes(step: Step, daemon: Daemon, samples: Samples, mode: str) -> list[dict[str, Any]]:
    """Crash a job some times, and return the seconds of each start that followed."""
    job = daemon.submit(mode, retries=20, handover={"standby": MODES[mode], "overlap": "off"})
    rows: list[dict[str, Any]] = []
    mark = job.trains()
    _wait_for_zygote(step, daemon, job.id)
    for _ in range(CRASHES if step.is_real else CRASHES_STAND_IN):
        samples.watch(mark["pid"])
        asked_s = time.monotonic()
        os.kill(mark["pid"], signal.SIGUSR1)
        mark = job.trains(asked_s)
        crash, begin = job.last("crash", asked_s), job.last("begin", asked_s)
        gone_s = samples.gone_s(crash["pid"]) if crash else None
        began_s = begin["began_s"] if begin else None
        view = job.view
        rows.append(
            {
                "how": view.times.how and str(view.times.how),
                "fallback": view.times.fallback or (view.standby.reason if view.standby else None),
                "stop_s": _between(crash["at_s"] if crash else None, gone_s),
                "begin_s": _between(gone_s, began_s),
                **job.start_phases(asked_s),
                "whole_s": _between(crash["at_s"] if crash else None, mark["at_s"]),
            }
        )
        shown = [{k: v for k, v in row.items() if k != "fallback"} for row in rows]
        step.put(**{f"standby_{MODES[mode]}": shown})
    job.ask("cancel")
    job.ends()
    return rows


def _wait_for_zygote(step: Step, daemon: Daemon, job: str) -> None:
    """Wait while the job's zygote imports."""
    end_s = time.monotonic() + min(READY_S, step.left_s)
    while time.monotonic() < end_s:
        view = daemon.client.get(job)
        if view.standby is None or str(view.standby.state) != "starting":
            return
        time.sleep(0.1)


def _between(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else round(end_s - start_s, 4)
