"""The command ``replay --live``: the same workload in virtual time and on the real controller.

Does: freeze the inputs, replay them, run them several times, and report the replay's errors. The
replay comes before the runs, and the report has every run. State: the folder.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Group, RenderableType
from rich.progress import Progress, TaskID
from rich.text import Text

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.output import Output, emit, grid, note
from reshape_controller.cli.profiles.costs import program_name
from reshape_controller.cli.replays import live_inputs, live_run, phases
from reshape_controller.cli.replays.folder import unwritable
from reshape_controller.cli.replays.inputs import replay_failed
from reshape_controller.cli.replays.live_inputs import TimeScale
from reshape_controller.cli.replays.runs import progress
from reshape_controller.http.json_text import to_json
from reshape_controller.http.timeline import SPAN_PHASES
from reshape_controller.replay.fidelity import (
    PhaseError,
    RunError,
    Spread,
    median_phases,
    phase_errors,
    run_error,
    spread,
)
from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.setup import Contender, Setup
from reshape_controller.replay.shell import Result, replay

LATE_REMEDY = (
    "more than 5 % of the steps were late: the machine was too busy, and these results are not "
    "valid; run it again with a smaller --speed-up, or with fewer other programs"
)


@dataclass(frozen=True, slots=True)
class LiveReplayReport:
    """The output of ``replay --live``, also in report.json.

    Errors are replay / live - 1; ``inputs`` has the SHA-256 of each file before the replay and the
    runs.
    """

    workload: str
    cluster: str
    policy: str
    seed: int
    costs: str
    costs_source: str
    program: str
    speed_up: float
    machine: str
    load_before: float
    inputs: dict[str, str]
    valid: bool
    makespan_error_ratio: Spread
    mean_jct_error_ratio: Spread
    job_error_ratio: Spread
    worst_job_error_ratio: Spread
    phases: list[PhaseError]
    runs: list[RunError]


def show(
    setup: Setup,
    chosen: Contender,
    seed: int,
    folder: Path,
    pace: TimeScale,
    record: str | None,
    repeats: int,
    shown: Output,
) -> None:
    """Replay, run, compare, print. Raises CliError."""
    if folder.exists() and any(folder.iterdir()):
        raise failed(Exit.USAGE, "the folder is not empty", str(folder), "give a new folder")
    load = os.getloadavg()[0]
    try:
        frozen = live_inputs.freeze(folder / "inputs", setup.scene(seed), pace, record)
        foretold = replay(frozen.scene, chosen.policy, chosen.mechanism, seed=seed, keep=True)
        (folder / "replay.json").write_text(to_json(foretold.jobs, indent=2) + "\n", "utf-8")
        runs = _runs(frozen, chosen, seed, folder, foretold, repeats)
    except ReplayError as error:
        raise replay_failed(error) from None
    except OSError as error:
        raise unwritable(error, folder) from None
    frozen.check()
    found = LiveReplayReport(
        workload=setup.name,
        cluster=setup.cluster.text,
        policy=chosen.label,
        seed=seed,
        costs=setup.costs.name,
        costs_source=setup.costs.overhead.source,
        program=program_name(record),
        speed_up=pace.speed_up,
        machine=f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        load_before=load,
        inputs=dict(frozen.hashes),
        valid=all(run.valid for run in runs),
        makespan_error_ratio=spread([run.makespan_error_ratio for run in runs]),
        mean_jct_error_ratio=spread([run.mean_jct_error_ratio for run in runs]),
        job_error_ratio=spread([run.job_error_ratio for run in runs]),
        worst_job_error_ratio=spread([run.worst_job_error_ratio for run in runs]),
        phases=median_phases(SPAN_PHASES, runs),
        runs=runs,
    )
    (folder / "report.json").write_text(to_json(found, indent=2) + "\n", "utf-8")
    emit(found, shown, lambda: _table(found))
    if not found.valid:
        raise failed(Exit.FAILED, LATE_REMEDY, str(folder))
    note(f"inputs, logs and the report are in {folder}")


def _runs(
    frozen: live_inputs.FrozenInputs,
    chosen: Contender,
    seed: int,
    folder: Path,
    foretold: Result,
    repeats: int,
) -> list[RunError]:
    expected_s = max(row.finished_s for row in foretold.jobs)
    replayed = phases.of_replay(foretold)
    found = []
    with progress() as bar:
        for number in range(1, repeats + 1):
            task = bar.add_task(f"live run {number} of {repeats}", total=len(foretold.jobs))
            done = partial(_done, bar, task)
            place = folder / f"run-{number}"
            one = live_run.run(frozen, chosen, seed, place, expected_s, done)
            by_phase = phase_errors(SPAN_PHASES, replayed, one.phases)
            found.append(run_error(foretold.jobs, one.rows, one.late_steps_ratio, by_phase))
    return found


def _done(bar: Progress, task: TaskID, count: int) -> None:
    bar.update(task, completed=count)


def _table(found: LiveReplayReport) -> RenderableType:
    head = (
        f"workload {found.workload} on {found.cluster}, {found.policy}, seed {found.seed}, "
        f"{found.speed_up:g} times as fast, costs {found.costs}; live: {found.program}"
    )
    columns = ("LIVE", "REPLAY", "ERROR", "JOBS' ERROR", "WORST JOB", "LATE STEPS")
    runs = grid("RUN", *columns, right=columns)
    for number, run in enumerate(found.runs, start=1):
        runs.add_row(
            str(number),
            f"{run.live_makespan_s:.1f} s",
            f"{run.replay_makespan_s:.1f} s",
            _percent(run.makespan_error_ratio, sign=True),
            _percent(run.job_error_ratio),
            _percent(run.worst_job_error_ratio),
            _percent(run.late_steps_ratio),
        )
    jobs = grid("JOB", *columns[:3], "RESHAPES", right=(*columns[:3], "RESHAPES"))
    for job in found.runs[0].jobs:
        jobs.add_row(
            job.job,
            f"{job.live_jct_s:.1f} s",
            f"{job.replay_jct_s:.1f} s",
            _percent(job.error_ratio, sign=True),
            f"{job.live_reshapes} / {job.replay_reshapes}",
        )
    phase_columns = ("LIVE", "REPLAY", "REPLAY LESS LIVE")
    by_phase = grid("PHASE", *phase_columns, right=phase_columns)
    for phase in found.phases:
        seconds = (f"{phase.live_s:.1f} s", f"{phase.replay_s:.1f} s", f"{phase.error_s:+.1f} s")
        by_phase.add_row(phase.phase, *seconds)
    spread_text = (
        f"makespan off by {_of(found.makespan_error_ratio, sign=True)}, "
        f"a job by {_of(found.job_error_ratio)} in the mean of a run"
    )
    return Group(
        *(Text(head, style="bold"), runs, Text("")),
        *(Text("jobs of run 1, submission to completion:"), jobs, Text("")),
        *(Text("a job in the mean, by phase (live: median of the runs):"), by_phase, Text("")),
        Text(spread_text),
    )


def _percent(value: float, *, sign: bool = False) -> str:
    return f"{100 * value:+.1f}%" if sign else f"{100 * value:.1f}%"


def _of(found: Spread, *, sign: bool = False) -> str:
    low, high = _percent(found.low, sign=sign), _percent(found.high, sign=sign)
    return f"{_percent(found.median, sign=sign)} ({low}..{high})"
