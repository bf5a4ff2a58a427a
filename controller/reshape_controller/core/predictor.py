"""How long jobs will take: the sums of the paper's section III.C, for each mechanism.

Does: adds up starts, saves, stops and the training that is left, from the snapshot alone; each
sum can be had by phase. Never: prefers a size, or looks at other jobs. State: the snapshot, and
overheads that were looked up in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core.model import JobState, LengthUnit, Mechanism
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.core.profiles import DEFAULT_WORK_S
from reshape_profiles.schema import Overhead


@dataclass(frozen=True, slots=True)
class Prediction:
    """A sum by phase, in seconds, in the order in which the phases come."""

    phases: tuple[tuple[str, float], ...]

    @property
    def total_s(self) -> float:
        return sum(seconds for _, seconds in self.phases)


class Predictor:
    """One per decision."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._now_s = snapshot.now_s
        self._book = snapshot.profiles
        self._in_place = snapshot.mechanism is not Mechanism.TERMINATE
        self._overheads: dict[str | None, Overhead] = {}

    def overhead(self, job: JobView) -> Overhead:
        """Seconds of the job's starts, saves and stops."""
        kind = job.spec.job_type
        found = self._overheads.get(kind)
        if found is None:
            found = self._overheads[kind] = self._book.overhead(kind)
        return found

    def step_s(self, job: JobView, gpu_type: str, size: int) -> float:
        """Seconds of one iteration on ``size`` GPUs of a type."""
        kind = job.spec.job_type
        if job.measured:
            return self._book.seconds_of_job(kind, job.measured, gpu_type, size)
        return self._book.seconds_per_step(kind, gpu_type, size) * self._batches(job)

    def remaining_steps(self, job: JobView) -> float:
        """Iterations left, now: the last report carried on at the speed of its size."""
        total = self.total_steps(job)
        if total is None:
            return DEFAULT_WORK_S / self.step_s(job, job.gpu_type, 1)
        left = total - job.progress.step
        if job.progress_at_s is not None and job.size > 0:
            since_s = max(0.0, self._now_s - job.progress_at_s)
            left -= since_s / self.step_s(job, job.gpu_type, job.size)
        return max(0.0, left)

    def total_steps(self, job: JobView) -> float | None:
        """Iterations of the whole job; None while nobody can know."""
        length, progress = job.spec.length, job.progress
        if length is not None and length.unit is LengthUnit.TARGET_ACCURACY:
            curve = job.curve or self._book.learned_of(job.spec.job_type).curve
            return curve.step_of(length.value) if curve is not None else None
        if progress.total_steps is not None:
            return float(progress.total_steps)
        if length is None:
            return None
        if length.unit is LengthUnit.STEPS:
            return length.value
        profile = self._book.of(job.spec.job_type)
        recorded = profile.steps_per_epoch if profile is not None else None
        per_epoch = progress.steps_per_epoch or (recorded and recorded / self._batches(job))
        return length.value * per_epoch if per_epoch else None

    def train_s(self, job: JobView, gpu_type: str, size: int) -> float:
        """Training that is left, on ``size`` GPUs of a type from now on."""
        return self.remaining_steps(job) * self.step_s(job, gpu_type, size)

    def incoming(
        self, job: JobView, gpu_type: str, size: int, release_s: float = 0.0
    ) -> Prediction:
        """A queued job that is started now, until it has left. ``release_s``: wait for GPUs that a
        running job still has."""
        cost = self.overhead(job)
        return Prediction(
            (
                ("job start", 0.0 if job.initialized else cost.job_init_s),
                ("release", release_s),
                ("process start", cost.process_init_s),
                ("training", self.train_s(job, gpu_type, size)),
                *_tail(cost),
            )
        )

    def unchanged(self, job: JobView) -> Prediction:
        """A running job at its (later) size, until it has left."""
        cost = self.overhead(job)
        before: tuple[tuple[str, float], ...] = ()
        if job.state is JobState.ADJUSTING or (job.frozen and job.trains):
            before = self._change(cost, moves=False)
        elif not job.trains:
            waits = job.state is JobState.SUBMITTED
            before = (("job start", cost.job_init_s if waits else 0.0),)
            before += (("process start", cost.process_init_s),)
        training = self.train_s(job, job.gpu_type, job.size)
        return Prediction((*before, ("training", training), *_tail(cost)))

    def reshaped(
        self, job: JobView, gpu_type: str, size: int, *, moves: bool = False
    ) -> Prediction:
        """A running job that goes on with ``size`` GPUs; ``moves``: on another host."""
        cost = self.overhead(job)
        training = self.train_s(job, gpu_type, size)
        return Prediction((*self._change(cost, moves=moves), ("training", training), *_tail(cost)))

    def reshape_s(self, job: JobView, *, moves: bool = False) -> float:
        """Seconds without training that a reshape costs the job."""
        return sum(seconds for _, seconds in self._change(self.overhead(job), moves=moves))

    def release_s(self, job: JobView) -> float:
        """Seconds from the request until the GPUs that a running job gives up are free."""
        cost = self.overhead(job)
        kept = cost.checkpoint_s + cost.process_stop_s
        return kept if self._in_place else kept + cost.job_stop_s

    def _change(self, cost: Overhead, *, moves: bool) -> tuple[tuple[str, float], ...]:
        stop = (("checkpoint", cost.checkpoint_s), ("process stop", cost.process_stop_s))
        start = (("process start", cost.process_init_s),)
        if self._in_place and not moves:
            return stop + start
        return (*stop, ("job stop", cost.job_stop_s), ("job start", cost.job_init_s), *start)

    def _batches(self, job: JobView) -> float:
        return self._book.batches(job.spec.job_type, job.spec.global_batch)


def _tail(cost: Overhead) -> tuple[tuple[str, float], ...]:
    return (
        ("last checkpoint", cost.checkpoint_s),
        ("last process stop", cost.process_stop_s),
        ("last job stop", cost.job_stop_s),
    )
