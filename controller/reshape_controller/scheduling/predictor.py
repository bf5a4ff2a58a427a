"""How long jobs will take: the sums of the paper's section III.C, for each mechanism.

Does: adds up starts, saves, stops and the remaining training of one job, as a sum by phase or as a
total. Everything comes from the snapshot. Figures that do not change with time are cached in a
``JobEstimate``, which holds until the job's view or the profile of its type changes.
"""

from __future__ import annotations

from math import inf

from reshape_controller.core.job_estimate import (
    NO_ANSWERS,
    Estimates,
    GangWork,
    JobEstimate,
    QueuedWork,
    SmallerSize,
)
from reshape_controller.core.knowledge import at_size
from reshape_controller.core.model import JobState, LengthUnit, Mechanism, Spans
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.core.profile_book import DEFAULT_WORK_S, Answers, total_steps
from reshape_controller.scheduling.gang_room import GangRoom
from reshape_controller.scheduling.prediction import DonorTimes, Prediction
from reshape_profiles.schema import Overhead

SHARED_ESTIMATES_MAX = 1000
"""The most estimates that are cached for queued jobs to share; at more, the cache is emptied."""
MaxSizes = tuple[tuple[str, int], ...]
"""GPU types, each with the GPUs of its largest host."""
ROUNDING_MS = 6
"""How far a sum of whole milliseconds may lie from the exact one; bounds give way by so much."""


def hosts_of(job: JobView) -> int:
    """Return the number of hosts that a job is on; 1 for a job without a host."""
    return len(job.shares) or 1


def to_ms(seconds: float) -> int:
    """Round to whole milliseconds, halves to even."""
    return round(seconds * 1000.0)


class Predictor:
    """Predicts the times of single jobs for one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Make one for each decision. It uses the estimates of the snapshot's index, or else
        estimates of its own."""
        self._now_s = snapshot.now_s
        self.book = snapshot.profiles
        """The snapshot's profile book."""
        index = snapshot.index
        estimates = index.estimates(snapshot) if index is not None else Estimates()
        self._by_job, self._shared = estimates.by_job, estimates.shared
        self._best_steps_s: dict[tuple[object, ...], float] = {}
        self._in_place = snapshot.mechanism is not Mechanism.TERMINATE

    def estimate(self, job: JobView) -> JobEstimate:
        """Return the job's estimate, computed again if the profile book has changed."""
        estimate = self._by_job.get(job.id)
        if estimate is None:
            estimate = self._by_job[job.id] = self._shared_or_new(job)
        elif estimate.book is self.book:
            return estimate
        return self._revalidate(job, estimate)

    def _revalidate(self, job: JobView, estimate: JobEstimate) -> JobEstimate:
        """Check the job's estimate against the book, and renew the parts that no longer hold."""
        book, kind = self.book, job.spec.job_type
        answers = book.answers(kind)
        if estimate.answers is answers:
            estimate.book = book
        elif estimate.answers.tables is answers.tables:
            estimate.set_costs(book, answers, kind, job.start)
        else:
            self._reset(job, estimate, answers)
        return estimate

    def _shared_or_new(self, job: JobView) -> JobEstimate:
        """Return an estimate for a job without one. Jobs that have not begun and agree in all on
        which a prediction depends share one estimate."""
        if job.size or job.initialized or job.host is not None or _has_own_progress(job):
            return JobEstimate(self.book, NO_ANSWERS)
        spec, shared = job.spec, self._shared
        workers = 1 if spec.span is Spans.NEVER else spec.workers
        length, batch = spec.length, spec.global_batch
        key = (spec.job_type, length, batch, spec.optional_gpus, job.sizes, workers)
        estimate = shared.get(key)
        if estimate is None:
            if len(shared) >= SHARED_ESTIMATES_MAX:
                shared.clear()
            estimate = shared[key] = JobEstimate(self.book, NO_ANSWERS)
        return estimate

    def _reset(self, job: JobView, estimate: JobEstimate, answers: Answers) -> None:
        """Compute an estimate that is new or void."""
        estimate.reset(self.book, answers, job.spec.job_type, job.start)
        total = self.total_steps(job)
        if total is None:
            estimate.remaining_steps = DEFAULT_WORK_S / self.step_s(job, job.gpu_type, 1)
            return
        estimate.remaining_steps = total - job.progress.step
        if job.progress_at_s is not None and job.size > 0:
            estimate.trains, estimate.reported_at_s = True, job.progress_at_s
            estimate.step_s = self.step_s(job, job.gpu_type, job.size, hosts_of(job))
            train_s = estimate.remaining_steps * estimate.step_s
            estimate.train_end_s = estimate.reported_at_s + train_s
            estimate.own_end = _has_own_end(job)

    def step_s(self, job: JobView, gpu_type: str, size: int, hosts: int = 1) -> float:
        """Return the seconds of one iteration on ``size`` GPUs of a type, on so many hosts."""
        kind = job.spec.job_type
        if job.measured:
            batch = job.spec.global_batch
            return self.book.seconds_of_job(kind, job.measured, gpu_type, size, hosts, batch)
        return self.book.seconds_per_step(kind, gpu_type, size, hosts) * self._batches(job)

    def step_times_s(self, job: JobView, gpu_type: str, hosts: int = 1) -> dict[int, float]:
        """Return the same by size, for all of the job's optional sizes."""
        return self._step_times_s(job, self.estimate(job), gpu_type, hosts)

    def _step_times_s(
        self, job: JobView, estimate: JobEstimate, gpu_type: str, hosts: int
    ) -> dict[int, float]:
        times = estimate.step_times_s.get((gpu_type, hosts))
        if times is None:
            spec, measured = job.spec, job.measured
            kind, sizes, batch = spec.job_type, spec.optional_gpus, spec.global_batch
            times = self.book.speeds_of_job(kind, measured, gpu_type, sizes, hosts, batch)
            batches = 1.0 if measured else self._batches(job)
            if batches != 1.0:
                times = {size: seconds * batches for size, seconds in times.items()}
            estimate.step_times_s[gpu_type, hosts] = times
        return times

    def remaining_steps(self, job: JobView) -> float:
        """Return the iterations that are left now: the last report, extrapolated at the speed of
        the job's present size."""
        return self._remaining_steps(self.estimate(job))

    def _remaining_steps(self, estimate: JobEstimate) -> float:
        steps = estimate.remaining_steps
        if estimate.trains and self._now_s > estimate.reported_at_s:
            steps -= (self._now_s - estimate.reported_at_s) / estimate.step_s
        return steps if steps > 0.0 else 0.0

    def total_steps(self, job: JobView) -> float | None:
        """Return the iterations of the whole job; None while its length cannot be predicted."""
        return total_steps(self.book, job.spec, job.progress, job.curve)

    def lost_steps(self, job: JobView) -> float:
        """Return the iterations that a stop now would lose: those since the last checkpoint of a
        job that does not save, extrapolated like the remaining ones; 0 for a job that saves."""
        if not job.loses or job.progress_at_s is None:
            return 0.0
        since_s = max(0.0, self._now_s - job.progress_at_s)
        done = job.progress.step + since_s / self._present_step_s(job)
        return max(0.0, done - (job.progress.checkpoint_step or 0))

    def _present_step_s(self, job: JobView) -> float:
        return self.step_s(job, job.gpu_type, job.size, hosts_of(job))

    def train_s(self, job: JobView, gpu_type: str, size: int, hosts: int = 1) -> float:
        """Return the seconds of training left if the job has ``size`` GPUs of a type, on so many
        hosts, from now."""
        return self.remaining_steps(job) * self.step_s(job, gpu_type, size, hosts)

    def incoming(
        self, job: JobView, gpu_type: str, size: int, release_s: float = 0.0, hosts: int = 1
    ) -> Prediction:
        """Predict a queued job that starts now on so many hosts, until it has left. ``release_s``:
        seconds until running jobs have released the GPUs."""
        cost = self.estimate(job).cost
        return Prediction(
            (
                ("job start", 0.0 if job.initialized else cost.job_init_s),
                ("release", release_s),
                ("process start", cost.process_init_s),
                ("training", self.train_s(job, gpu_type, size, hosts)),
                *_exit_phases(cost),
            )
        )

    def unchanged(self, job: JobView) -> Prediction:
        """Predict a running job that keeps its size, until it has left. While a reshape is under
        way, that is the later size."""
        estimate = self.estimate(job)
        cost = estimate.cost
        before: tuple[tuple[str, float], ...] = ()
        if job.state is JobState.ADJUSTING or (job.frozen and job.trains):
            before = self._reshape_phases(estimate, moves=False)
        elif not job.trains:
            waits = job.state is JobState.SUBMITTED
            before = (("job start", cost.job_init_s if waits else 0.0),)
            before += (("process start", cost.process_init_s),)
        training = self.train_s(job, job.gpu_type, job.size, hosts_of(job))
        return Prediction((*before, ("training", training), *_exit_phases(cost)))

    def unchanged_s(self, job: JobView) -> float:
        """Return the total of ``unchanged``; that of a job that trains, and is not being reshaped,
        without the parts."""
        estimate = self.estimate(job)
        if not estimate.trains or job.frozen or job.state is JobState.ADJUSTING:
            return self.unchanged(job).total_s
        cost, train_s = estimate.cost, self._remaining_steps(estimate) * estimate.step_s
        return sum([train_s, cost.checkpoint_s, cost.process_stop_s, cost.job_stop_s])

    def reshaped(
        self,
        job: JobView,
        gpu_type: str,
        size: int,
        *,
        moves: bool = False,
        hosts: int | None = None,
    ) -> Prediction:
        """Predict a running job that is reshaped to ``size`` GPUs now, until it has left;
        ``moves``: to other hosts; ``hosts``: their number, if it is not that of its present ones.
        """
        estimate = self.estimate(job)
        step_s = self.step_s(job, gpu_type, size, hosts or hosts_of(job))
        training = self.remaining_steps(job) * step_s
        again: tuple[tuple[str, float], ...] = ()
        if job.loses:
            lost_s = self.lost_steps(job) * step_s
            again = (("repeated steps", lost_s),)
        return Prediction(
            (
                *self._reshape_phases(estimate, moves=moves),
                *again,
                ("training", training),
                *_exit_phases(estimate.cost),
            )
        )

    def incoming_s(
        self, job: JobView, gpu_type: str, size: int, release_s: float = 0.0, hosts: int = 1
    ) -> float:
        """Return the total of ``incoming``; the training time of a job that does not train is
        cached."""
        return self._incoming_s(job, self.estimate(job), gpu_type, size, release_s, hosts)

    def _incoming_s(
        self,
        job: JobView,
        estimate: JobEstimate,
        gpu_type: str,
        size: int,
        release_s: float,
        hosts: int,
    ) -> float:
        cost = estimate.cost
        fixed_s = cost.process_init_s + release_s + estimate.exit_s
        if not job.initialized:
            fixed_s += cost.job_init_s
        train_s = None if estimate.trains else estimate.train_times_s.get((gpu_type, size, hosts))
        if train_s is None:
            train_s = self._remaining_steps(estimate) * self.step_s(job, gpu_type, size, hosts)
            if not estimate.trains:
                estimate.train_times_s[gpu_type, size, hosts] = train_s
        return fixed_s + train_s

    def end_of(self, job: JobView) -> tuple[int, bool]:
        """Return when a running job that keeps its size will have left, and whether that is a
        point in time.

        True: Unix milliseconds, which stay right while the job trains. False: milliseconds from
        now, whenever now is, because the job does not train yet or should have trained by now.
        """
        estimate = self.estimate(job)
        if not estimate.trains:
            return to_ms(self.unchanged(job).total_s), False
        after_s = estimate.exit_s
        if job.frozen:
            after_s += self._reshape_s(estimate, moves=False)
        if estimate.train_end_s > self._now_s:
            return to_ms(estimate.train_end_s + after_s), True
        return to_ms(after_s), False

    def queued_work(
        self, job: JobView, gpu_types: tuple[str, ...], room: GangRoom | None = None
    ) -> QueuedWork:
        """Return a queued job as the list schedule counts it. The job has at least one size.
        ``room``: of a job that may be on several hosts, the usable ones."""
        estimate = self._by_job.get(job.id)
        if estimate is None or estimate.book is not self.book:
            estimate = self.estimate(job)
        return self.work_of(estimate, job, gpu_types, room)

    def work_of(
        self,
        estimate: JobEstimate,
        job: JobView,
        gpu_types: tuple[str, ...],
        room: GangRoom | None = None,
    ) -> QueuedWork:
        """Return the same for a job that has this estimate, or had it while it was queued: the
        job's own may be another one by now."""
        if estimate.book is not self.book:
            self._revalidate(job, estimate)
        if room is not None:
            return self._gang_work(estimate, job, gpu_types, room)
        work = estimate.queued_work
        if work is not None and estimate.gpu_types is gpu_types:
            return work
        if work is None or estimate.gpu_types != gpu_types:
            size = job.sizes[0]
            durations = tuple(
                [to_ms(self._incoming_s(job, estimate, name, size, 0.0, 1)) for name in gpu_types]
            )
            work = estimate.queued_work = QueuedWork(size, durations, size * min(durations))
        estimate.gpu_types = gpu_types
        return work

    def _gang_work(
        self, estimate: JobEstimate, job: JobView, gpu_types: tuple[str, ...], room: GangRoom
    ) -> QueuedWork:
        work = estimate.gang_work
        if work is not None and estimate.gang_room == room:
            return work
        size, workers = job.sizes[0], job.spec.workers
        each = size // workers
        alone: list[int] = []
        apart: list[int] = []
        for number, name in enumerate(gpu_types):
            hosts = room.fewest_hosts(number, workers, each)
            on_several = max(2, hosts) if hosts else 1
            apart.append(to_ms(self._incoming_s(job, estimate, name, size, 0.0, on_several)))
            on_one = 1 if size <= room.gpus[number][0] else on_several
            alone.append(to_ms(self._incoming_s(job, estimate, name, size, 0.0, on_one)))
        gang = GangWork(workers, each, tuple(apart))
        work = QueuedWork(size, tuple(alone), size * min(*alone, *apart), gang)
        estimate.gang_work, estimate.gang_room = work, room
        return work

    def reshaped_by_size_s(
        self, job: JobView, gpu_type: str, *, moves: bool = False, hosts: int | None = None
    ) -> dict[int, float]:
        """Return the total of ``reshaped`` by size, for all sizes that the job may have."""
        estimate = self.estimate(job)
        fixed_s = self._reshape_s(estimate, moves=moves) + estimate.exit_s
        steps = self._steps_after_reshape(job, estimate)
        step_times_s = self._step_times_s(job, estimate, gpu_type, hosts or hosts_of(job))
        return {size: fixed_s + steps * step_times_s[size] for size in job.sizes}

    def _steps_after_reshape(self, job: JobView, estimate: JobEstimate) -> float:
        """The iterations left if the job is reshaped now."""
        steps = self._remaining_steps(estimate)
        return steps + self.lost_steps(job) if job.loses else steps

    def donor_times(self, job: JobView) -> DonorTimes:
        """Return the times of a running job that gives GPUs."""
        estimate = self.estimate(job)
        smaller = estimate.smaller
        if smaller is None:
            smaller = estimate.smaller = self._smaller_sizes(job, estimate)
        reshape_s = self._reshape_s(estimate, moves=False)
        steps, fixed_s = self._steps_after_reshape(job, estimate), reshape_s + estimate.exit_s
        return DonorTimes(smaller, steps, fixed_s, self.release_cost_s(estimate.cost), reshape_s)

    def _smaller_sizes(self, job: JobView, estimate: JobEstimate) -> list[SmallerSize]:
        times_s, now = self._step_times_s(job, estimate, job.gpu_type, hosts_of(job)), job.size
        step_s = times_s.get(now, 0.0)
        return [
            SmallerSize(
                size, now - size, times_s[size], 1.0 - step_s / times_s[size], ((job.id, size),)
            )
            for size in job.sizes
            if size < now
        ]

    def lent_end_ms(self, job: JobView, keeps: int, end_ms: int, newcomer_end_ms: int) -> int:
        """Return when a donor will have left that gets its GPUs back once its newcomer has ended:
        it loses two reshapes, and the newcomer's stay at its smaller size. ``end_ms``: when it
        would have left otherwise. All times are from now."""
        parts = {size.keeps: size.lost_part for size in self.donor_times(job).smaller}
        return end_ms + lent_loss_ms(to_ms(self.reshape_s(job)), parts[keeps], newcomer_end_ms)

    def best_s(self, job: JobView, largest: MaxSizes, room: GangRoom | None = None) -> float:
        """Return the seconds that a queued job needs alone, at the size and on the GPU type that
        suit it best; infinite if no host can hold it. ``largest``: the GPUs of the largest host of
        each type; ``room``: of a job that may be on several hosts, the usable ones."""
        estimate = self._by_job.get(job.id)
        if estimate is None or estimate.book is not self.book:
            estimate = self.estimate(job)
        is_same = estimate.best_among is largest or estimate.best_among == largest
        if not is_same or estimate.best_room != room:
            estimate.best_among, estimate.best_room = largest, room
            estimate.best_step_s = self._best_step_s(job, estimate, largest)
            if room is not None:
                apart_s = self._best_gang_step_s(job, estimate, room)
                estimate.best_step_s = min(estimate.best_step_s, apart_s)
        cost = estimate.cost
        fixed_s = cost.process_init_s + estimate.exit_s
        if not job.initialized:
            fixed_s += cost.job_init_s
        return fixed_s + estimate.remaining_steps * estimate.best_step_s

    def _best_step_s(self, job: JobView, estimate: JobEstimate, largest: MaxSizes) -> float:
        """Seconds of the job's shortest iteration; the same for jobs of a type without their own
        measurements."""
        key = (job.spec.job_type, job.spec.global_batch, job.spec.optional_gpus, job.sizes)
        best_s = None if job.measured else self._best_steps_s.get(key)
        if best_s is None:
            best_s = inf
            for gpu_type, most in largest:
                times_s = self._step_times_s(job, estimate, gpu_type, 1)
                best_s = min([best_s, *(times_s[size] for size in job.sizes if size <= most)])
            if not job.measured:
                self._best_steps_s[key] = best_s
        return best_s

    def _best_gang_step_s(self, job: JobView, estimate: JobEstimate, room: GangRoom) -> float:
        """Seconds of the shortest iteration at a size for which no host of the type is large
        enough, on the fewest hosts."""
        workers, found = job.spec.workers, [inf]
        for number, gpu_type in enumerate(room.types):
            most = room.gpus[number][0]
            for size in [size for size in job.sizes if size > most]:
                hosts = room.fewest_hosts(number, workers, size // workers)
                if hosts:
                    found.append(self._step_times_s(job, estimate, gpu_type, hosts)[size])
        return min(found)

    def reshape_s(self, job: JobView, *, moves: bool = False) -> float:
        """Return the seconds without training that a reshape costs the job."""
        return self._reshape_s(self.estimate(job), moves=moves)

    def _reshape_s(self, estimate: JobEstimate, *, moves: bool) -> float:
        if self._in_place and not moves:
            return estimate.in_place_s
        return estimate.restart_s

    def release_s(self, job: JobView) -> float:
        """Return the seconds from a request until a running job has released GPUs."""
        return self.release_cost_s(self.estimate(job).cost)

    def release_cost_s(self, cost: Overhead) -> float:
        """Return the same for a job type with these costs."""
        save_s = cost.checkpoint_s + cost.process_stop_s
        return save_s if self._in_place else save_s + cost.job_stop_s

    def _reshape_phases(
        self, estimate: JobEstimate, *, moves: bool
    ) -> tuple[tuple[str, float], ...]:
        """The phases of a reshape before training goes on."""
        cost = estimate.cost
        stop = (("checkpoint", cost.checkpoint_s), ("process stop", cost.process_stop_s))
        if self._in_place and not moves:
            return (*stop, ("process start", cost.process_init_s))
        start = (("process start", estimate.cold_init_s),)
        return (*stop, ("job stop", cost.job_stop_s), ("job start", cost.job_init_s), *start)

    def _batches(self, job: JobView) -> float:
        return self.book.batches(job.spec.job_type, job.spec.global_batch)


def lent_loss_ms(reshape_ms: int, lost_part: float, newcomer_end_ms: int) -> int:
    """Return what a donor loses that gets its GPUs back once its newcomer has ended. ``lost_part``:
    the part of its steps that it does not do meanwhile."""
    stay_ms = newcomer_end_ms - reshape_ms
    return 2 * reshape_ms + (round(stay_ms * lost_part) if stay_ms > 0 else 0)


def _has_own_progress(job: JobView) -> bool:
    """Whether the job's own reports say anything about its remaining training."""
    progress = job.progress
    reported = (
        progress.step or progress.total_steps is not None or progress.steps_per_epoch is not None
    )
    return bool(reported or job.measured or job.curve is not None)


def _has_own_end(job: JobView) -> bool:
    """Whether the end of training follows from the job's own reports: its speed was measured at
    its size, and its length does not depend on other jobs."""
    length = job.spec.length
    if length is not None and length.unit is LengthUnit.TARGET_ACCURACY and job.curve is None:
        return False
    return at_size(job.measured, job.gpu_type, job.size, hosts_of(job)) is not None


def _exit_phases(cost: Overhead) -> tuple[tuple[str, float], ...]:
    """The phases after the end of training."""
    return (
        ("last checkpoint", cost.checkpoint_s),
        ("last process stop", cost.process_stop_s),
        ("last job stop", cost.job_stop_s),
    )
