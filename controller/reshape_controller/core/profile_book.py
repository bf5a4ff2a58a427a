"""Speeds, costs and lengths by job type: recorded profiles, and what running jobs taught.

Does: returns the seconds of a step, a start or a save of a job, and its number of iterations, from
the best source: the job's own measurements, what its type learned, the recorded profile, a default.
Of GPUs and sizes without a recorded speed it takes the slowest recorded GPU type and the default
curve. A change gives a new book; the engine's state holds the newest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from reshape_controller.core.fast_replace import replace
from reshape_controller.core.knowledge import INIT_FIELDS, Curve, Learned, Measured, at_size
from reshape_controller.core.model import JobSpec, LengthUnit
from reshape_profiles.schema import DEFAULT_TYPE, Overhead, Profile
from reshape_sidecar.wire import Progress, StartKind

DEFAULT_SECONDS_PER_STEP = 1.0
"""One step on one GPU of a job without any recorded or measured speed."""
DEFAULT_WORK_S = 3600.0
"""Training left, on one GPU, of a job whose length is not known; the same until it is known."""
DEFAULT_OVERHEAD = Overhead(3.0, 6.0, 1.0, 1.0, 1.0, "assumed: a local launcher and a small model")
_CURVE = (0.86928, 0.13072, 0.02288)


def default_curve(gpus: int) -> float:
    """Return the time of a step on ``gpus`` GPUs relative to one GPU: a/n + b + c(n - 1).

    The constants give the figures in the paper's introduction, 1.7 times the speed on two GPUs and
    2.4 on four. Beyond six GPUs a step takes longer again.
    """
    split, fixed, exchange = _CURVE
    return split / gpus + fixed + exchange * (gpus - 1)


def curve_on(gpus: int, hosts: int) -> float:
    """Return the same for GPUs of several hosts: each further host is assumed to take half as long
    as each further GPU, a/n + b + c(n - 1) + (c/2)(h - 1)."""
    return default_curve(gpus) + _CURVE[2] / 2 * (hosts - 1)


def same_gpu(recorded: str, actual: str) -> bool:
    """Whether a profile's GPU type is a host's: the same name, or one part of the host's
    (``V100`` of ``tesla-v100-sxm2-16gb``), in upper or lower case."""
    recorded, actual = recorded.lower(), actual.lower()
    return recorded == actual or recorded in actual.split("-")


@dataclass(slots=True)
class RecordedSpeeds:
    """Seconds of a step of one job type on one GPU type, from its profile. Sizes between and beyond
    the recorded sizes follow the default curve."""

    known: bool
    """True if the profile has a speed on these GPUs."""
    seconds: dict[int, float]
    """Seconds of a step by number of GPUs: recorded, or cached by ``on``."""
    over_curve: list[tuple[int, float]]
    """Recorded seconds over the default curve's, by number of GPUs, ascending."""
    spanning: dict[tuple[int, int], float] = field(default_factory=dict)
    """Seconds of a step by number of GPUs and of several hosts: recorded, or cached by ``on``."""
    host_s: float | None = None
    """What each further host adds to a step, from the sizes that are recorded on one host and on
    several; None: there is none, so that it is assumed."""

    def on(self, gpus: int, hosts: int = 1) -> float:
        """Return the seconds of a step on ``gpus`` GPUs of ``hosts`` hosts."""
        if hosts > 1:
            return self._on_several(gpus, hosts)
        step_s = self.seconds.get(gpus)
        if step_s is None:
            step_s = default_curve(gpus) * _interpolate(self.over_curve, gpus)
            self.seconds[gpus] = step_s
        return step_s

    def _on_several(self, gpus: int, hosts: int) -> float:
        step_s = self.spanning.get((gpus, hosts))
        if step_s is None:
            if self.host_s is None:
                step_s = curve_on(gpus, hosts) * _interpolate(self.over_curve, gpus)
            else:
                step_s = self.on(gpus) + self.host_s * (hosts - 1)
            self.spanning[gpus, hosts] = step_s
        return step_s


def speeds_of_profile(profile: Profile | None, gpu_type: str) -> RecordedSpeeds:
    """Return a profile's speeds on GPUs of a type. If it has none on these, return its speeds on
    the slowest recorded GPU type."""
    if profile is None or not profile.speed:
        return RecordedSpeeds(known=False, seconds={}, over_curve=[(1, DEFAULT_SECONDS_PER_STEP)])
    points = [point for point in profile.speed if same_gpu(point.gpu_type, gpu_type)]
    known = bool(points)
    if not known:
        _, slowest = max(
            (p.seconds_per_step / curve_on(p.gpus, p.hosts), p.gpu_type) for p in profile.speed
        )
        points = [point for point in profile.speed if point.gpu_type == slowest]
    seconds = {point.gpus: point.seconds_per_step for point in points if point.hosts == 1}
    spanning = {(p.gpus, p.hosts): p.seconds_per_step for p in points if p.hosts > 1}
    over_curve = sorted((size, step_s / default_curve(size)) for size, step_s in seconds.items())
    if not over_curve:
        fewest = dict(sorted(spanning, reverse=True))
        over_curve = sorted(
            (size, spanning[size, hosts] / curve_on(size, hosts)) for size, hosts in fewest.items()
        )
    return RecordedSpeeds(known, seconds, over_curve, spanning, _host_s(seconds, spanning))


def _host_s(seconds: dict[int, float], spanning: dict[tuple[int, int], float]) -> float | None:
    """Return the mean of what a further host adds at the sizes that are recorded on one host and
    on several, at least 0; None without such a size."""
    found = [
        (step_s - seconds[size]) / (hosts - 1)
        for (size, hosts), step_s in spanning.items()
        if size in seconds
    ]
    return max(0.0, sum(found) / len(found)) if found else None


def _interpolate(points: list[tuple[int, float]], x: int) -> float:
    """Return the value at ``x`` on straight lines through ``points`` (ascending); beyond the first
    and the last point the value stays the same."""
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1]


@dataclass(slots=True, eq=False)
class Answers:
    """Cached answers of a book about one job type. New knowledge of the type brings a new object,
    so a cache of derived figures can see by identity that these still hold."""

    recorded: dict[str, RecordedSpeeds] = field(default_factory=dict)
    """Recorded speeds by GPU type."""
    seconds: dict[tuple[str, int, int], float] = field(default_factory=dict)
    """Seconds of a step by GPU type, size and number of hosts."""
    tables: dict[tuple[str, tuple[int, ...], int], dict[int, float]] = field(default_factory=dict)
    """Seconds of a step by size, for each GPU type, tuple of sizes and number of hosts. It is the
    same dictionary as before if only costs were learned since."""
    overheads: dict[StartKind, Overhead] | None = None
    """Seconds of starts, saves and stops, by the kind of a process's start; None until first used.
    """


@dataclass(slots=True)
class ProfileBook:
    """Answers questions about job types from their profiles and learned values.

    Both never change: new knowledge makes a new book. A book remembers its answers.
    """

    profiles: dict[str, Profile] = field(default_factory=dict)
    learned: dict[str, Learned] = field(default_factory=dict)
    answered: dict[str, Answers] = field(default_factory=dict, repr=False, compare=False)

    def with_profile(self, profile: Profile) -> ProfileBook:
        """Return a book in which ``profile`` replaces the profile of its type. The learned values
        of the type are dropped, because they were learned beside the earlier profile."""
        learned = {name: known for name, known in self.learned.items() if name != profile.job_type}
        return ProfileBook({**self.profiles, profile.job_type: profile}, learned)

    def with_learned(self, learned: Learned) -> ProfileBook:
        """Return a book with these learned values of a type. Cached answers that they do not change
        stay."""
        job_type, known = learned.job_type, {**self.learned, learned.job_type: learned}
        answers = dict(self.answered)
        before = answers.pop(job_type, None)
        old = self.learned_of(job_type)
        if before is not None and replace(old, heard=learned.heard) == learned:
            answers[job_type] = before
        elif before is not None:
            same = learned.speed == old.speed and learned.curve == old.curve
            speeds = (before.seconds, before.tables) if same else ()
            answers[job_type] = Answers(before.recorded, *speeds)
        return ProfileBook(self.profiles, known, answers)

    def answers(self, job_type: str | None) -> Answers:
        """Return the cached answers about a type; empty if there are none yet."""
        answers = self.answered.get(job_type or DEFAULT_TYPE)
        if answers is None:
            answers = self.answered[job_type or DEFAULT_TYPE] = Answers()
        return answers

    def of(self, job_type: str | None) -> Profile | None:
        """Return the recorded profile of a type; None if there is none."""
        return self.profiles.get(job_type or DEFAULT_TYPE)

    def learned_of(self, job_type: str | None) -> Learned:
        """Return the learned values of a type; empty if there are none."""
        name = job_type or DEFAULT_TYPE
        return self.learned.get(name) or Learned(name)

    def knows_speed(self, job_type: str | None, gpu_type: str) -> bool:
        """Whether the type's profile has a speed on these GPUs."""
        return self._recorded(job_type, gpu_type).known

    def knows_hosts(self, job_type: str | None, gpu_type: str, gpus: int, hosts: int) -> bool:
        """Whether what several hosts cost at this size is recorded or learned, not assumed."""
        profile, learned = self.of(job_type), self.learned_of(job_type).speed
        if any(each.hosts > 1 and each.gpu_type == gpu_type for each in learned):
            return True
        if not self.knows_speed(job_type, gpu_type) or profile is None:
            return False
        here = [p for p in profile.speed if (p.gpus, p.hosts) == (gpus, hosts)]
        exact = any(same_gpu(point.gpu_type, gpu_type) for point in here)
        return exact or self._recorded(job_type, gpu_type).host_s is not None

    def batches(self, job_type: str | None, global_batch: int | None) -> float:
        """Return a job's batch over its profile's; 1 if either is not known.

        A step is assumed to take longer, and an epoch to have fewer steps, in proportion.
        """
        profile = self.of(job_type)
        if profile is None or profile.global_batch is None or global_batch is None:
            return 1.0
        return global_batch / profile.global_batch

    def seconds_per_step(
        self, job_type: str | None, gpu_type: str, gpus: int, hosts: int = 1
    ) -> float:
        """Return the seconds of one step of a job of the type on GPUs of so many hosts, without its
        own measurements."""
        seconds = self.answers(job_type).seconds
        step_s = seconds.get((gpu_type, gpus, hosts))
        if step_s is None:
            step_s = self._recorded(job_type, gpu_type).on(gpus, hosts)
            speeds = self.learned_of(job_type).speed
            if speeds:
                here = at_size(speeds, gpu_type, gpus, hosts)
                step_s *= self._correction(
                    job_type,
                    [here] if here else self._like(job_type, speeds, gpu_type, hosts),
                )
            seconds[gpu_type, gpus, hosts] = step_s
        return step_s

    def _correction(self, job_type: str | None, learned: list[Measured]) -> float:
        """Return the mean of learned over recorded time of a step; 1 if nothing is learned."""
        ratios = [
            entry.seconds_per_step
            / self._recorded(job_type, entry.gpu_type).on(entry.gpus, entry.hosts)
            for entry in learned
        ]
        return sum(ratios) / len(ratios) if ratios else 1.0

    def _recorded(self, job_type: str | None, gpu_type: str) -> RecordedSpeeds:
        cache = self.answers(job_type).recorded
        speeds = cache.get(gpu_type)
        if speeds is None:
            speeds = cache[gpu_type] = speeds_of_profile(self.of(job_type), gpu_type)
        return speeds

    def seconds_of_job(
        self,
        job_type: str | None,
        measured: tuple[Measured, ...],
        gpu_type: str,
        gpus: int,
        hosts: int = 1,
        global_batch: int | None = None,
    ) -> float:
        """Return the seconds of one step of a job on GPUs of so many hosts; its own measurements
        come first. ``global_batch``: counts where no measurement is of any use."""
        for entry in measured:
            if entry.gpus == gpus and entry.gpu_type == gpu_type and entry.hosts == hosts:
                return entry.seconds_per_step
        believed_s = self.seconds_per_step(job_type, gpu_type, gpus, hosts)
        if not measured:
            return believed_s
        return self._ratio(job_type, measured, gpu_type, hosts, global_batch) * believed_s

    def speeds_of_job(
        self,
        job_type: str | None,
        measured: tuple[Measured, ...],
        gpu_type: str,
        sizes: tuple[int, ...],
        hosts: int = 1,
        global_batch: int | None = None,
    ) -> dict[int, float]:
        """Return the same at each of ``sizes``. The caller must not change the dictionary."""
        answers = self.answers(job_type)
        table = answers.tables.get((gpu_type, sizes, hosts))
        if table is None:
            table = {size: self.seconds_per_step(job_type, gpu_type, size, hosts) for size in sizes}
            answers.tables[gpu_type, sizes, hosts] = table
        if not measured:
            return table
        ratio = self._ratio(job_type, measured, gpu_type, hosts, global_batch)
        speeds = {size: ratio * step_s for size, step_s in table.items()}
        for entry in measured:
            if entry.gpu_type == gpu_type and entry.gpus in speeds and entry.hosts == hosts:
                speeds[entry.gpus] = entry.seconds_per_step
        return speeds

    def _ratio(
        self,
        job_type: str | None,
        measured: tuple[Measured, ...],
        gpu_type: str,
        hosts: int,
        global_batch: int | None,
    ) -> float:
        """Return measured over believed time of a step, for sizes without a measurement."""
        found = self._like(job_type, measured, gpu_type, hosts)
        if not found:
            return self.batches(job_type, global_batch)
        ratios = [
            entry.seconds_per_step
            / self.seconds_per_step(job_type, entry.gpu_type, entry.gpus, entry.hosts)
            for entry in found
        ]
        return sum(ratios) / len(ratios)

    def _like(
        self, job_type: str | None, measured: tuple[Measured, ...], gpu_type: str, hosts: int
    ) -> list[Measured]:
        """Return the measurements that correct a speed on so many hosts: those on these GPUs, or on
        all if there are none on these.

        A gang corrects no speed on one host that is recorded, for the time that it loses between
        hosts would count twice. A speed on several hosts is corrected by gangs on as many, or else
        by other gangs, or else by jobs on one host.
        """
        found = [entry for entry in measured if entry.hosts == hosts]
        if not found and hosts > 1:
            found = [entry for entry in measured if entry.hosts > 1] or list(measured)
        elif not found and not self.knows_speed(job_type, gpu_type):
            found = list(measured)
        return [entry for entry in found if entry.gpu_type == gpu_type] or found

    def overhead(self, job_type: str | None, how: StartKind = StartKind.COLD) -> Overhead:
        """Return the seconds of starts, saves and stops of a job of the type, whose processes start
        as ``how``."""
        return self.overheads(job_type)[how]

    def overheads(self, job_type: str | None) -> dict[StartKind, Overhead]:
        """Return the same for each kind of start; one that was not learned yet takes as long as the
        next slower one. The caller must not change the dictionary."""
        answers = self.answers(job_type)
        if answers.overheads is None:
            answers.overheads = self._overheads(job_type)
        return answers.overheads

    def _overheads(self, job_type: str | None) -> dict[StartKind, Overhead]:
        known, how = self.learned_of(job_type), self._cold_overhead(job_type)
        found = {StartKind.COLD: how}
        for kind in (StartKind.ZYGOTE, StartKind.SUCCESSOR):
            seconds = getattr(known, INIT_FIELDS[kind])
            how = found[kind] = how if seconds is None else replace(how, process_init_s=seconds)
        return found

    def _cold_overhead(self, job_type: str | None) -> Overhead:
        profile, default = self.of(job_type), self.of(None)
        base = profile.overhead if profile is not None else None
        if base is None:
            base = default.overhead if default is not None else None
        base = base or DEFAULT_OVERHEAD
        known = self.learned_of(job_type)
        return replace(
            base,
            job_init_s=_or(known.job_init_s, base.job_init_s),
            process_init_s=_or(known.process_init_s, base.process_init_s),
            checkpoint_s=_or(known.checkpoint_s, base.checkpoint_s),
            process_stop_s=_or(known.process_stop_s, base.process_stop_s),
            job_stop_s=_or(known.job_stop_s, base.job_stop_s),
        )

    def rows(self) -> tuple[Profile | Learned, ...]:
        """Return all profiles and learned values, for a dump."""
        return (*self.profiles.values(), *self.learned.values())

    @staticmethod
    def from_rows(rows: Iterable[Profile | Learned]) -> ProfileBook:
        """Return the book of dumped ``rows``."""
        book = ProfileBook()
        for row in rows:
            if isinstance(row, Profile):
                book.profiles[row.job_type] = row
            else:
                book.learned[row.job_type] = row
        return book


def total_steps(
    book: ProfileBook, spec: JobSpec, progress: Progress, curve: Curve | None
) -> float | None:
    """Return the iterations of the whole job; None if no source gives its length.

    ``curve``: the job's own accuracy curve, if it has one.
    """
    length = spec.length
    if length is not None and length.unit is LengthUnit.TARGET_ACCURACY:
        return _steps_to_target(
            length.value, spec, progress, curve or book.learned_of(spec.job_type).curve
        )
    if progress.total_steps is not None:
        return float(progress.total_steps)
    if length is None:
        return book.learned_of(spec.job_type).total_steps
    if length.unit is LengthUnit.STEPS:
        return length.value
    profile = book.of(spec.job_type)
    recorded = profile.steps_per_epoch if profile is not None else None
    batches = book.batches(spec.job_type, spec.global_batch)
    per_epoch = progress.steps_per_epoch or (recorded and recorded / batches)
    if per_epoch:
        return length.value * per_epoch
    return book.learned_of(spec.job_type).total_steps


def _steps_to_target(
    accuracy: float, spec: JobSpec, progress: Progress, curve: Curve | None
) -> float | None:
    """Return the iterations up to the evaluation at which ``accuracy`` is reached.

    They are at most those that the script asks for, if it has reported how many these are.
    """
    asked = None if progress.total_steps is None else float(progress.total_steps)
    steps = curve.step_of(accuracy) if curve is not None else None
    if steps is None:
        return asked
    steps += (spec.epochs_in_a_row - 1) * (progress.steps_per_epoch or 0)
    return steps if asked is None else min(steps, asked)


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
