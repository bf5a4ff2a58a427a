"""Step 2: a job trains on the GPU under a daemon in pool mode, reports, and gives the GPU back."""

from __future__ import annotations

import os
import signal

from gpu.daemon import Daemon, Job
from gpu.memory import Samples
from gpu.step import MIB, Step

from reshape_gpu.values import JobView
from reshape_sidecar.gpu import FREE_MEMORY_BYTES

MEMORY_BYTES = 1 << 30
REPORT_S = 30.0


def run(step: Step) -> None:
    """Train one job from its start to its end."""
    with Samples(step.uuid) as samples, Daemon(step) as daemon:
        job = daemon.submit("trains", "--memory", str(MEMORY_BYTES))
        first = job.trains()
        step.put(start=job.start_phases(0.0))
        context = job.last("context") or {}
        samples.watch(first["pid"])
        step.check("the job sees one GPU", context.get("count") == 1, str(context.get("count")))
        right = str(context.get("uuid")).lower() == step.uuid.lower()
        step.check("it is on the GPU that was granted", right, str(context.get("uuid")))
        use = step.wait(lambda: _use(job), "a report of progress and of the GPU's memory", REPORT_S)
        step.put(reported_memory_mib=use.gpu_use[0].memory_used_bytes // MIB)
        os.kill(first["pid"], signal.SIGUSR2)
        view = job.ends()
        finished = job.last("finished") or {}
        reported = {"step": view.step, "loss": view.loss, "seconds_per_step": view.seconds_per_step}
        step.put(reported=reported, state=view.state, most_memory_mib=samples.most() // MIB)
        step.check("the job completes", view.state == "completed", view.reason)
        text = "all of its steps are reported"
        step.check(text, view.step == finished.get("step"), str(view.step))
        step.wait(lambda: daemon.gpu().state == "idle", "the GPU is idle", REPORT_S)
        gone_s = samples.gone_s(first["pid"]) or first["at_s"]
        free_s = samples.below_s(FREE_MEMORY_BYTES, gone_s)
        step.check("the GPU's memory is free once it is idle", free_s is not None)
        samples.save(step.logs / "memory.csv")


def _use(job: Job) -> JobView | None:
    view = job.view
    holds = bool(view.gpu_use) and view.gpu_use[0].memory_used_bytes >= MEMORY_BYTES
    return view if holds and view.step > 1 and view.seconds_per_step is not None else None
