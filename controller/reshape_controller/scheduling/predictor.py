"""How long jobs will take: the sums of the paper's section III.C, for each mechanism.

Does: adds up starts, saves, stops and the training that is left, from the snapshot alone; each
sum can be had by phase. Never: prefers a size, or looks at other jobs. State: what it made of a
job is kept on the job's view, and holds until the job or what is known of its type changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core.job_estimate import JobEstimate, QueuedWork
from reshape_controller.core.model import JobState, LengthUnit, Mechanism
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.core.profile_book import DEFAULT_WORK_S, Answers, total_steps
from reshape_profiles.schema import Overhead

NOTHING = Answers()
"""Of what was not looked at yet."""
ALIKE_MAX = 1000
"""Paces of jobs that have not begun that are kept for others that are alike."""


def to_ms(seconds: float) -> int:
    """Whole milliseconds, of two that are as near the even one: as ``round`` has it, which is
    several times slower where this is compiled."""
    exact = seconds * 1000.0
    if exact < 0.0:
        return round(exact)
    whole = int(exact)
    rest = exact - whole
    return whole + 1 if rest > 0.5 or (rest == 0.5 and whole % 2) else whole


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
        self._estimates = snapshot.estimates
        self._in_place = snapshot.mechanism is not Mechanism.TERMINATE

    def answers(self, job: JobView) -> Answers:
        """What was answered about a job's type so far."""
        return self._book.answers(job.spec.job_type)

    def estimate(self, job: JobView) -> JobEstimate:
        """What is kept of a job."""
        estimate = job.estimate
        if estimate is not None and estimate.book is self._book:
            return estimate
        return self._look_again(job)

    def _look_again(self, job: JobView) -> JobEstimate:
        """Whether what is kept still holds, with another book."""
        book, kind, estimate = self._book, job.spec.job_type, job.estimate
        if estimate is None:
            estimate = self._new(job)
            object.__setattr__(job, "estimate", estimate)  # a cache on a frozen value
        answers = book.answers(kind)
        if estimate.answers is answers:
            estimate.book = book
        elif estimate.answers.tables is answers.tables:
            estimate.costs_are(book, answers, book.overhead(kind))
        else:
            self._begin(job, estimate, answers)
        return estimate

    def _new(self, job: JobView) -> JobEstimate:
        """A pace for a view that has none: that of a job that is alike, if there is one."""
        if job.size or job.initialized or job.host is not None or _has_begun(job):
            return JobEstimate(self._book, NOTHING)
        spec = job.spec
        key = (spec.job_type, spec.length, spec.global_batch, spec.optional_gpus, job.sizes)
        known = self._estimates.get(key)
        if known is None:
            if len(self._estimates) >= ALIKE_MAX:
                self._estimates.clear()
            known = self._estimates[key] = JobEstimate(self._book, NOTHING)
        return known

    def _begin(self, job: JobView, estimate: JobEstimate, answers: Answers) -> None:
        """Nothing is known of the job yet, or nothing holds any more."""
        estimate.begin(self._book, answers, self._book.overhead(job.spec.job_type))
        total = self.total_steps(job)
        if total is None:
            estimate.left = DEFAULT_WORK_S / self.step_s(job, job.gpu_type, 1)
            return
        estimate.left = total - job.progress.step
        if job.progress_at_s is not None and job.size > 0:
            estimate.trains, estimate.since_s = True, job.progress_at_s
            estimate.step_s = self.step_s(job, job.gpu_type, job.size)
            estimate.until_s = estimate.since_s + estimate.left * estimate.step_s
            estimate.own = _is_own(job)

    def step_s(self, job: JobView, gpu_type: str, size: int) -> float:
        """Seconds of one iteration on ``size`` GPUs of a type."""
        kind = job.spec.job_type
        if job.measured:
            return self._book.seconds_of_job(kind, job.measured, gpu_type, size)
        return self._book.seconds_per_step(kind, gpu_type, size) * self._batches(job)

    def speeds_s(self, job: JobView, gpu_type: str) -> dict[int, float]:
        """Seconds of one iteration at each of the job's sizes."""
        known = self.estimate(job).speeds_s
        found = known.get(gpu_type)
        if found is None:
            kind, sizes = job.spec.job_type, job.spec.optional_gpus
            found = self._book.speeds_of_job(kind, job.measured, gpu_type, sizes)
            batches = 1.0 if job.measured else self._batches(job)
            if batches != 1.0:
                found = {size: seconds * batches for size, seconds in found.items()}
            known[gpu_type] = found
        return found

    def remaining_steps(self, job: JobView) -> float:
        """Iterations left, now: the last report carried on at the speed of its size."""
        estimate = self.estimate(job)
        if not estimate.trains:
            return max(0.0, estimate.left)
        return max(0.0, estimate.left - max(0.0, self._now_s - estimate.since_s) / estimate.step_s)

    def total_steps(self, job: JobView) -> float | None:
        """Iterations of the whole job; None while nobody can know."""
        return total_steps(self._book, job.spec, job.progress, job.curve)

    def train_s(self, job: JobView, gpu_type: str, size: int) -> float:
        """Training that is left, on ``size`` GPUs of a type from now on."""
        return self.remaining_steps(job) * self.step_s(job, gpu_type, size)

    def incoming(
        self, job: JobView, gpu_type: str, size: int, release_s: float = 0.0
    ) -> Prediction:
        """A queued job that is started now, until it has left. ``release_s``: wait for GPUs that a
        running job still has."""
        cost = self.estimate(job).cost
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
        cost = self.estimate(job).cost
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
        cost = self.estimate(job).cost
        training = self.train_s(job, gpu_type, size)
        return Prediction((*self._change(cost, moves=moves), ("training", training), *_tail(cost)))

    def incoming_s(self, job: JobView, gpu_type: str, size: int, release_s: float = 0.0) -> float:
        """The total of ``incoming``; its training is kept for jobs that do not train."""
        estimate = self.estimate(job)
        cost = estimate.cost
        fixed_s = cost.process_init_s + release_s + estimate.tail_s
        if not job.initialized:
            fixed_s += cost.job_init_s
        if estimate.trains:
            return fixed_s + self.train_s(job, gpu_type, size)
        train_s = estimate.incoming_s.get((gpu_type, size))
        if train_s is None:
            train_s = self.train_s(job, gpu_type, size)
            estimate.incoming_s[gpu_type, size] = train_s
        return fixed_s + train_s

    def ending(self, job: JobView) -> tuple[int, bool]:
        """When a running job will have left (``unchanged``), in whole milliseconds: the moment, if
        it trains, and True; else from whenever it is asked, until it does."""
        estimate = self.estimate(job)
        if not estimate.trains:
            return to_ms(self.unchanged(job).total_s), False
        after_s = estimate.tail_s
        if job.frozen:
            after_s += self.reshape_s(job)
        if estimate.until_s > self._now_s:
            return to_ms(estimate.until_s + after_s), True
        return to_ms(after_s), False

    def waiting(self, job: JobView, gpu_types: tuple[str, ...]) -> QueuedWork:
        """A queued job that has sizes, for the list schedule."""
        estimate = self.estimate(job)
        known = estimate.waiting
        if known is not None and estimate.gpu_types is gpu_types:
            return known
        if known is None or estimate.gpu_types != gpu_types:
            size = job.sizes[0]
            takes = tuple([to_ms(self.incoming_s(job, kind, size)) for kind in gpu_types])
            known = estimate.waiting = QueuedWork(size, takes, size * min(takes))
        estimate.gpu_types = gpu_types
        return known

    def reshaped_to_s(
        self, job: JobView, gpu_type: str, *, moves: bool = False
    ) -> dict[int, float]:
        """The total of ``reshaped`` for each of the job's sizes."""
        fixed_s = self.reshape_s(job, moves=moves) + self.estimate(job).tail_s
        steps = self.remaining_steps(job)
        speeds_s = self.speeds_s(job, gpu_type)
        return {size: fixed_s + steps * speeds_s[size] for size in job.sizes}

    def reshape_s(self, job: JobView, *, moves: bool = False) -> float:
        """Seconds without training that a reshape costs the job."""
        estimate = self.estimate(job)
        if self._in_place and not moves:
            return estimate.stay_s
        return estimate.stay_s + estimate.cost.job_stop_s + estimate.cost.job_init_s

    def release_s(self, job: JobView) -> float:
        """Seconds from the request until the GPUs that a running job gives up are free."""
        return self.released_s(self.estimate(job).cost)

    def released_s(self, cost: Overhead) -> float:
        """The same for a job whose type costs this."""
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


def _has_begun(job: JobView) -> bool:
    """Whether its own reports say something about what is left. Asked for each queued job."""
    seen = job.progress
    told = seen.step or seen.total_steps is not None or seen.steps_per_epoch is not None
    return bool(told or job.measured or job.curve is not None)


def _is_own(job: JobView) -> bool:
    """Whether when it will have trained follows from its own reports: its speed was measured at its
    size, and its length is not to be learned from others."""
    length = job.spec.length
    if length is not None and length.unit is LengthUnit.TARGET_ACCURACY and job.curve is None:
        return False
    return (job.size, job.gpu_type) in [(seen.gpus, seen.gpu_type) for seen in job.measured]


def _tail(cost: Overhead) -> tuple[tuple[str, float], ...]:
    return (
        ("last checkpoint", cost.checkpoint_s),
        ("last process stop", cost.process_stop_s),
        ("last job stop", cost.job_stop_s),
    )
