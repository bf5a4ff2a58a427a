"""The error of a replay against live runs of the same workload, by job and over several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.metrics import JobResult
from reshape_sidecar.device_truth import LATE_STEPS_RATIO_MAX


@dataclass(frozen=True, slots=True)
class JobError:
    """Completion times of a job; the error is replay / live - 1."""

    job: str
    live_jct_s: float
    replay_jct_s: float
    error_ratio: float
    live_reshapes: int
    replay_reshapes: int


@dataclass(frozen=True, slots=True)
class PhaseError:
    """Mean seconds of a job in a phase of the timeline; the error is replay less live."""

    phase: str
    live_s: float
    replay_s: float
    error_s: float


@dataclass(frozen=True, slots=True)
class RunError:
    """A live run beside the replay. ``late_steps_ratio``: late steps over all paced steps."""

    live_makespan_s: float
    replay_makespan_s: float
    makespan_error_ratio: float
    mean_jct_error_ratio: float
    late_steps_ratio: float
    jobs: tuple[JobError, ...]
    phases: tuple[PhaseError, ...]

    @property
    def valid(self) -> bool:
        """True if the machine kept the pace of its device truth."""
        return self.late_steps_ratio <= LATE_STEPS_RATIO_MAX

    @property
    def job_error_ratio(self) -> float:
        """Mean absolute error of a job."""
        return fmean(abs(job.error_ratio) for job in self.jobs)

    @property
    def worst_job_error_ratio(self) -> float:
        """Largest absolute error of a job."""
        return max(abs(job.error_ratio) for job in self.jobs)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range of a value over several runs."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Return median, least and largest value."""
    return Spread(median(values), min(values), max(values))


def phase_errors(
    order: Sequence[str], replayed: Mapping[str, float], live: Mapping[str, float]
) -> tuple[PhaseError, ...]:
    """Compare the mean seconds of a job by phase. ``order``: all phases, as a job goes on."""
    found = []
    for phase in order:
        if phase in replayed or phase in live:
            ours_s, live_s = replayed.get(phase, 0.0), live.get(phase, 0.0)
            found.append(PhaseError(phase, live_s, ours_s, ours_s - live_s))
    return tuple(found)


def median_phases(order: Sequence[str], runs: Sequence[RunError]) -> list[PhaseError]:
    """Return the median of each phase over several runs of the same replay."""
    replayed: dict[str, float] = {}
    live: dict[str, list[float]] = {}
    for run in runs:
        for one in run.phases:
            replayed[one.phase] = one.replay_s
            live.setdefault(one.phase, []).append(one.live_s)
    # A run without a phase has no second of it.
    middle = {
        phase: median([*seconds, *[0.0] * (len(runs) - len(seconds))])
        for phase, seconds in live.items()
    }
    return list(phase_errors(order, replayed, middle))


def run_error(
    replayed: Sequence[JobResult],
    live: Sequence[JobResult],
    late_steps_ratio: float,
    phases: tuple[PhaseError, ...] = (),
) -> RunError:
    """Compare job by job. Raises ReplayError if the jobs are not the same."""
    ours, theirs = _by_name(replayed), _by_name(live)
    if list(ours) != list(theirs):
        raise ReplayError("the live run and the replay have not the same jobs")
    jobs = tuple(_job_error(name, theirs[name], ours[name]) for name in ours)
    live_s, replay_s = _makespan_s(live), _makespan_s(replayed)
    live_jct_s = fmean(job.live_jct_s for job in jobs)
    return RunError(
        live_s,
        replay_s,
        replay_s / live_s - 1.0,
        fmean(job.replay_jct_s for job in jobs) / live_jct_s - 1.0,
        late_steps_ratio,
        jobs,
        phases,
    )


def _by_name(rows: Sequence[JobResult]) -> Mapping[str, JobResult]:
    return {str(row.job): row for row in sorted(rows, key=lambda row: row.job)}


def _job_error(name: str, live: JobResult, replayed: JobResult) -> JobError:
    return JobError(
        name,
        live.jct_s,
        replayed.jct_s,
        replayed.jct_s / live.jct_s - 1.0,
        live.reshape_ups + live.reshape_downs,
        replayed.reshape_ups + replayed.reshape_downs,
    )


def _makespan_s(rows: Sequence[JobResult]) -> float:
    return max(row.finished_s for row in rows) - min(row.submitted_s for row in rows)
