"""Measurement of the costs of starts, saves and stops, on a job that shrinks and grows repeatedly.

Does: run a program under a daemon of its own, let short jobs take half of its GPUs repeatedly, and
read from the history how long each phase took for the coordinator, including messages and the wait
for the end of a step.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.replays.own_daemon import POLL_S, is_over, jobs_of, own_daemon
from reshape_gpu import requests
from reshape_gpu.client import Client
from reshape_gpu.values import ENDED, EventView, JobView
from reshape_launcher.spec import SIMULATED_TYPE
from reshape_profiles import loader
from reshape_profiles.schema import Overhead, Profile, SpeedPoint

GPUS = 4
JOB_TYPE = "measured"
SHORT_STEPS = 20
LONG_STEPS = 10_000_000
STEP_S = {2: 0.021, 4: 0.02}
"""Seconds per step by number of GPUs; short, so that a wait for a step's end is small."""
ROUND_MAX_S = 300.0
"""Time limit of a round. Then: the measurement fails."""
PHASES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "job_init_s": (("launched",), "initialized"),
    "process_init_s": (("granted", "stopped"), "first-step"),
    "checkpoint_s": (("shrink-asked", "grow-asked"), "stopping"),
    "process_stop_s": (("stopping",), "stopped"),
    "job_stop_s": (("completed",), "container-gone"),
}
"""The history entries between which each cost lies."""


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """All samples in seconds, by the name of their cost."""

    samples: dict[str, tuple[float, ...]]

    def overhead(self, source: str) -> Overhead:
        """Return the medians."""
        return Overhead(**{n: round(median(v), 3) for n, v in self.samples.items()}, source=source)


def measure(
    record: dict[str, Any], rounds: int, folder: Path, say: Callable[[str], None]
) -> MeasuredCosts:
    """Measure ``record`` (a job record without sizes and length). Raises CliError."""
    truth, profiles = folder / "device-truth.json", folder / "profiles.json"
    truth.write_text(json.dumps({"seconds_per_step": {JOB_TYPE: STEP_S}}), encoding="utf-8")
    speed = tuple(SpeedPoint(SIMULATED_TYPE, size, seconds) for size, seconds in STEP_S.items())
    profiles.write_text(loader.write((Profile(JOB_TYPE, speed=speed),)), encoding="utf-8")
    words = ["--simulated-gpus", str(GPUS), "--device-truth", str(truth)]
    words += ["--profiles", str(profiles), "--preset", "paper"]
    with own_daemon(folder, words) as client:
        long = _submit(client, record, "long", (2, GPUS), LONG_STEPS)
        _until(client, lambda jobs: _trains(jobs["long"]), "it trains")
        for number in range(rounds):
            name = f"short-{number}"
            _submit(client, record, name, (2,), SHORT_STEPS)
            _until(client, lambda jobs, name=name: is_over(jobs[name]), f"{name} ends")  # type: ignore[misc]
            _until(client, lambda jobs: _trains(jobs["long"]), "it has all GPUs again")
            say(f"round {number + 1} of {rounds}")
        ids = [long.id, *(job.id for job in jobs_of(client).values() if job.id != long.id)]
        histories = [client.ask(requests.history(key)).events for key in ids]
    return samples_of(histories)


def samples_of(histories: Sequence[Sequence[EventView]]) -> MeasuredCosts:
    """Return the samples of all phases. Raises CliError if a phase is missing."""
    found: dict[str, tuple[float, ...]] = {}
    for name, (begins, end) in PHASES.items():
        values = [s for events in histories for s in _spans(events, begins, end)]
        if not values:
            what = f"{name} was not measured: the job never shrank or never ended"
            raise failed(
                Exit.FAILED, what, "its history", "give a job record whose script saves and ends"
            )
        found[name] = tuple(round(value, 4) for value in values)
    return MeasuredCosts(found)


def _spans(events: Sequence[EventView], begins: tuple[str, ...], end: str) -> list[float]:
    """Return the seconds from the last of ``begins`` to each ``end``."""
    found, begin_s = [], None
    for event in events:
        if event.kind in begins:
            begin_s = event.at_s
        elif event.kind == end and begin_s is not None:
            found.append(event.at_s - begin_s)
            begin_s = None
    return found


def _trains(job: JobView) -> bool:
    return job.stage == "training" and job.size == GPUS


def _submit(
    client: Client, record: dict[str, Any], name: str, sizes: tuple[int, ...], steps: int
) -> JobView:
    own = {"name": name, "optional_gpus": list(sizes), "steps": steps, "job_type": JOB_TYPE}
    own["may_restart"] = True  # a measured job has nothing to lose
    return client.ask(requests.submit({**record, **own}))


def _until(client: Client, holds: Callable[[dict[str, JobView]], bool], what: str) -> None:
    end_s = time.monotonic() + ROUND_MAX_S
    while True:
        jobs = jobs_of(client)
        for job in jobs.values():
            if job.state in ENDED and (job.state != "completed" or job.name == "long"):
                reason = f"{job.name} is {job.state}: {job.reason}"
                raise failed(Exit.FAILED, reason, job.log_folder or job.id, "see its log")
        if holds(jobs):
            return
        if time.monotonic() > end_s:
            raise failed(
                Exit.FAILED, f"timed out after {ROUND_MAX_S:.0f} s; expected that {what}", "the run"
            )
        time.sleep(POLL_S)
