"""What one SideCar says falsely sets its own attempt apart, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from reshape_controller.core import events as ev
from reshape_controller.core.model import GpuId, HostId
from reshape_sidecar import codec
from reshape_sidecar.codec import WHOLE_MAX
from reshape_sidecar.wire import (
    Evaluation,
    GpuUse,
    Meeting,
    Observed,
    Outcome,
    OutcomeKind,
    Phase,
    TargetProgress,
)
from tests.support.http_bed import RECORD, Api, run

HUGE = 1e308


def progress(**fields: Any) -> Callable[[Observed], Observed]:
    return lambda seen: replace(seen, progress=replace(seen.progress, **fields))


def times(**fields: Any) -> Callable[[Observed], Observed]:
    return lambda seen: replace(seen, times=replace(seen.times, **fields))


def answer(
    kind: OutcomeKind, generations: int = 0, **fields: Any
) -> Callable[[Observed], Observed]:
    return lambda seen: replace(
        seen, outcome=Outcome(seen.generation + generations, kind, **fields)
    )


LIES: dict[str, Callable[[Observed], Observed]] = {
    "epoch": lambda seen: replace(seen, epoch=1_000_000),
    "largest epoch": lambda seen: replace(seen, epoch=WHOLE_MAX),
    "generation": lambda seen: replace(seen, generation=seen.generation + 1),
    "generation far ahead": lambda seen: replace(seen, generation=WHOLE_MAX),
    "stopped generation": lambda seen: replace(seen, stopped_generation=seen.generation + 1),
    "outcome of a later request": answer(OutcomeKind.STOPPING, 1),
    "refusal of a later request": answer(OutcomeKind.REFUSED, 7),
    "saved step": answer(OutcomeKind.STOPPING, saved_step=WHOLE_MAX),
    "lost steps": answer(OutcomeKind.STOPPING, lost_steps=WHOLE_MAX),
    "negative lost steps": answer(OutcomeKind.STOPPING, lost_steps=-1),
    "step": progress(step=WHOLE_MAX),
    "negative step": progress(step=-5),
    "checkpoint step": progress(checkpoint_step=WHOLE_MAX),
    "total steps": progress(total_steps=-(10**18)),
    "steps of an epoch": progress(steps_per_epoch=-1),
    "evaluation": progress(evaluations=(Evaluation("loss", -1, 0.1),)),
    "target": progress(target=TargetProgress("loss", in_a_row=WHOLE_MAX)),
    "seconds of a save": times(save_s=HUGE),
    "negative seconds": times(first_step_s=-HUGE),
    "seconds of a step": progress(seconds_per_step=HUGE, step=10),
    "negative seconds of a step": progress(seconds_per_step=-HUGE, step=10),
    "seconds apart from steps": progress(apart_s_per_step=-1.0),
    "restarts": lambda seen: replace(seen, process_restarts=WHOLE_MAX),
    "pid": lambda seen: replace(seen, pid=-1),
    "memory": lambda seen: replace(seen, gpu_use=(GpuUse("gpu-0", -1, WHOLE_MAX),)),
    "meeting": lambda seen: replace(seen, asks=Meeting(-1, -1)),
    "address": lambda seen: replace(seen, address="x" * 100_000),
}
ODD: dict[str, Callable[[Observed], Observed]] = {
    "loss": progress(loss=HUGE),
    "accuracy": progress(accuracy=-HUGE),
    "no speed": progress(seconds_per_step=5e-324, step=20),
    "value": progress(evaluations=(Evaluation("loss", 1, HUGE), Evaluation("loss", 2, -HUGE))),
    "points": progress(
        target=TargetProgress("accuracy", evaluations=((1, HUGE), (2, -HUGE), (3, HUGE)))
    ),
    "length": progress(total_steps=1),
    "ratio": lambda seen: replace(seen, gpu_use=(GpuUse("gpu-0", 1, 1, HUGE),)),
    "phase": lambda seen: replace(seen, phase=Phase.SAVING),
    "devices": lambda seen: replace(seen, devices=("gpu-0", "gpu-1", "gpu-2", "gpu-3")),
    "peers": lambda seen: replace(seen, peers=("nowhere",), address="\x00"),
}
"""Figures that may be true, whatever they are: they are taken, and harm nobody."""


async def trains(it: Api, record: dict[str, Any]) -> tuple[str, Observed]:
    """A job that trains, with a report that its silent SideCar has not sent."""
    job = (await it.post("/v1/jobs", RECORD | record)).json["id"]
    await it.reaches(job, "running")
    sidecar = it.launcher.job(job)
    async with asyncio.timeout(20):
        while sidecar.observed.phase is not Phase.RUNNING:
            await asyncio.sleep(0.01)
    assert sidecar.task is not None
    sidecar.task.cancel()
    return job, replace(sidecar.observed, sequence=sidecar.observed.sequence + 1000)


async def says(it: Api, job: str, report: Observed) -> Any:
    token = it.tokens.of(job, 1)
    return await it.ask("POST", f"/v1/sidecar/{job}/1", codec.dumps(report), token=token)


async def is_set_apart(it: Api, job: str) -> None:
    async with asyncio.timeout(20):
        while not (await it.get(f"/v1/jobs/{job}")).json["reason"].startswith("set apart: "):
            await asyncio.sleep(0.01)


async def with_room(it: Api) -> None:
    """A host on which each job of a test has a GPU of its own."""
    gpus = tuple(GpuId(f"more-{number}") for number in range(64))
    await it.context.control._loop.commit(ev.HostAdded(HostId("more"), "testing", gpus))


def test_each_false_report_is_refused_and_sets_its_attempt_apart_alone(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        await with_room(it)
        honest = (await it.post("/v1/jobs", RECORD | {"name": "honest", "optional_gpus": [2]})).json
        before = await it.reaches(honest["id"], "running")
        for number, (name, lie) in enumerate(LIES.items()):
            job, report = await trains(it, {"name": f"liar-{number}", "optional_gpus": [1]})
            refused = await says(it, job, lie(report))
            assert (refused.code, refused.json["code"]) == (409, "refused"), name
            await is_set_apart(it, job)
            over = await says(it, job, replace(report, sequence=10**15, phase=Phase.FINISHED))
            assert over.code == 200, "it is answered, so that it can end in order"
            shown = (await it.get(f"/v1/jobs/{job}")).json
            assert (shown["state"], shown["size"], shown["reachable"]) == ("running", 1, False), (
                name
            )
        it.launcher.job(job).over = True
        assert (await it.post(f"/v1/jobs/{job}/cancel")).code == 200
        await it.reaches(job, "cancelled")
        after = (await it.get(f"/v1/jobs/{honest['id']}")).json
        same = ("state", "attempt", "generation", "gpus", "steps_lost", "reachable")
        assert [after[field] for field in same] == [before[field] for field in same]
        assert after["step"] > before["step"]

    assert len(LIES) >= 20
    run(tmp_path, test)


def test_no_figure_however_odd_stops_the_daemon(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        record: dict[str, Any] = {"optional_gpus": [1, 2], "target_accuracy": 0.9}
        await with_room(it)
        for number, (name, odd) in enumerate(ODD.items()):
            job, report = await trains(it, record | {"name": f"odd-{number}", "job_type": "odd"})
            for later in range(1, 6):
                told = replace(report, sequence=report.sequence + later)
                answered = await says(it, job, odd(told))
                assert answered.code == 200, (name, answered.json)
        status = (await it.get("/v1/status")).json
        assert (status["ready"], status["reason"]) == (True, "")

    run(tmp_path, test)
