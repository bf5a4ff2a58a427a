"""What the controller knows of speeds and costs: recorded profiles, and what was learned live.

Does: answers how long a step, a start or a save of a job takes, from the best that is known: the
job's own measurements, what its type learned, the recorded profile, a stated default. Never:
changed in place: a change gives a new book. State: the engine's state holds the newest one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from reshape_controller.core.knowledge import Curve, Learned, Measured
from reshape_controller.core.model import JobSpec, LengthUnit
from reshape_profiles.schema import DEFAULT_TYPE, Overhead, Profile
from reshape_sidecar.wire import Progress

DEFAULT_SECONDS_PER_STEP = 1.0
"""One step on one GPU of a job of which nothing is known."""

_CURVE = (0.86928, 0.13072, 0.02288)


def default_curve(gpus: int) -> float:
    """Time of a step on ``gpus`` GPUs relative to one: a/n + b + c(n - 1), longer again beyond six.

    The constants give the paper's introduction: 1.7 times the speed on two GPUs, 2.4 on four.
    """
    split, fixed, exchange = _CURVE
    return split / gpus + fixed + exchange * (gpus - 1)


def same_gpu(recorded: str, found: str) -> bool:
    """Whether a profile's GPU type is that of a host: the same name, or one part of it
    (``V100`` of ``tesla-v100-sxm2-16gb``), in any case."""
    recorded, found = recorded.lower(), found.lower()
    return recorded == found or recorded in found.split("-")


@dataclass(slots=True)
class Recorded:
    """Seconds of a step of a type on GPUs of one type, as recorded; between and beyond what was,
    by the default curve."""

    known: bool
    """Whether something was recorded on these GPUs."""
    seconds: dict[int, float]
    """By number of GPUs; those that were asked for are added."""
    over_curve: list[tuple[int, float]]
    """Recorded over default, by number of GPUs, ascending."""

    def on(self, gpus: int) -> float:
        """Seconds of a step on so many GPUs."""
        found = self.seconds.get(gpus)
        if found is None:
            found = self.seconds[gpus] = default_curve(gpus) * _between(self.over_curve, gpus)
        return found


def recorded(profile: Profile | None, gpu_type: str) -> Recorded:
    """What a profile says of GPUs of a type. Without figures of these it is as slow as on the
    slowest type that has some."""
    if profile is None or not profile.speed:
        return Recorded(known=False, seconds={}, over_curve=[(1, DEFAULT_SECONDS_PER_STEP)])
    points = [point for point in profile.speed if same_gpu(point.gpu_type, gpu_type)]
    known = bool(points)
    if not known:
        _, slowest = max(
            (p.seconds_per_step / default_curve(p.gpus), p.gpu_type) for p in profile.speed
        )
        points = [point for point in profile.speed if point.gpu_type == slowest]
    seconds = {point.gpus: point.seconds_per_step for point in points}
    over_curve = sorted((size, step_s / default_curve(size)) for size, step_s in seconds.items())
    return Recorded(known, seconds, over_curve)


def _between(points: list[tuple[int, float]], x: int) -> float:
    """Straight lines through ``points`` (ascending), level beyond the first and the last."""
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1]


DEFAULT_WORK_S = 3600.0
"""Training left, on one GPU, of a job whose length is not known. It stays so until it is."""
DEFAULT_OVERHEAD = Overhead(3.0, 6.0, 1.0, 1.0, 1.0, "assumed: a local launcher and a small model")


@dataclass(slots=True, eq=False)
class Answers:
    """What a book has answered about a type. As soon as something else is known of the type there
    is another one, so who keeps what follows from it can see that it still holds."""

    recorded: dict[str, Recorded] = field(default_factory=dict)
    """By GPU type."""
    seconds: dict[tuple[str, int], float] = field(default_factory=dict)
    tables: dict[tuple[str, tuple[int, ...]], dict[int, float]] = field(default_factory=dict)
    """The same dictionary as before, where only costs were learned since."""
    overhead: Overhead | None = None


@dataclass(frozen=True, slots=True)
class ProfileBook:
    """Profiles and learned values by job type. Immutable but for a cache of its own answers."""

    profiles: dict[str, Profile] = field(default_factory=dict)
    learned: dict[str, Learned] = field(default_factory=dict)
    answered: dict[str, Answers] = field(default_factory=dict, repr=False, compare=False)

    def with_profile(self, profile: Profile) -> ProfileBook:
        """A book in which ``profile`` replaces what was recorded of its type. What was learned of
        the type is dropped: it was learned beside other figures."""
        learned = {kind: known for kind, known in self.learned.items() if kind != profile.job_type}
        return ProfileBook({**self.profiles, profile.job_type: profile}, learned)

    def with_learned(self, learned: Learned) -> ProfileBook:
        """A book with what is now known of a type. Answers that this does not change are kept."""
        kind, known = learned.job_type, {**self.learned, learned.job_type: learned}
        answers = dict(self.answered)
        before = answers.pop(kind, None)
        old = self.learned_of(kind)
        if before is not None and replace(old, heard=learned.heard) == learned:
            answers[kind] = before
        elif before is not None:
            same = learned.speed == old.speed and learned.curve == old.curve
            kept = (before.seconds, before.tables) if same else ()
            answers[kind] = Answers(before.recorded, *kept)
        return ProfileBook(self.profiles, known, answers)

    def answers(self, job_type: str | None) -> Answers:
        """What was answered about a type so far."""
        found = self.answered.get(job_type or DEFAULT_TYPE)
        if found is None:
            found = self.answered[job_type or DEFAULT_TYPE] = Answers()
        return found

    def of(self, job_type: str | None) -> Profile | None:
        """The recorded profile of a type."""
        return self.profiles.get(job_type or DEFAULT_TYPE)

    def learned_of(self, job_type: str | None) -> Learned:
        """What was learned of a type; empty if nothing was."""
        kind = job_type or DEFAULT_TYPE
        return self.learned.get(kind) or Learned(kind)

    def knows_speed(self, job_type: str | None, gpu_type: str) -> bool:
        """Whether a speed was recorded for the type on these GPUs."""
        return self._recorded(job_type, gpu_type).known

    def batches(self, job_type: str | None, global_batch: int | None) -> float:
        """A record's batch over its profile's: a step takes so much longer, and an epoch has so
        many fewer steps (assumed to be in proportion)."""
        profile = self.of(job_type)
        if profile is None or profile.global_batch is None or global_batch is None:
            return 1.0
        return global_batch / profile.global_batch

    def seconds_per_step(self, job_type: str | None, gpu_type: str, gpus: int) -> float:
        """Seconds of one step of a job of the type, as far as is known without the job itself."""
        seconds = self.answers(job_type).seconds
        found = seconds.get((gpu_type, gpus))
        if found is None:
            found = self._recorded(job_type, gpu_type).on(gpus)
            known = self.learned_of(job_type).speed
            if known:
                correct = _corrections(
                    known, gpu_type, lambda t, n: self._recorded(job_type, t).on(n)
                )
                found *= correct.get(gpus, correct[0])
            seconds[gpu_type, gpus] = found
        return found

    def _recorded(self, job_type: str | None, gpu_type: str) -> Recorded:
        known = self.answers(job_type).recorded
        found = known.get(gpu_type)
        if found is None:
            found = known[gpu_type] = recorded(self.of(job_type), gpu_type)
        return found

    def seconds_of_job(
        self, job_type: str | None, measured: tuple[Measured, ...], gpu_type: str, gpus: int
    ) -> float:
        """Seconds of one step of a job, with its own measurements."""
        for seen in measured:
            if seen.gpus == gpus and seen.gpu_type == gpu_type:
                return seen.seconds_per_step
        believed_s = self.seconds_per_step(job_type, gpu_type, gpus)
        if not measured:
            return believed_s
        return self._ratio(job_type, measured, gpu_type) * believed_s

    def speeds_of_job(
        self,
        job_type: str | None,
        measured: tuple[Measured, ...],
        gpu_type: str,
        sizes: tuple[int, ...],
    ) -> dict[int, float]:
        """Seconds of one step of a job at each of ``sizes``, with its own measurements."""
        answers = self.answers(job_type)
        table = answers.tables.get((gpu_type, sizes))
        if table is None:
            table = {size: self.seconds_per_step(job_type, gpu_type, size) for size in sizes}
            answers.tables[gpu_type, sizes] = table
        if not measured:
            return table
        ratio = self._ratio(job_type, measured, gpu_type)
        found = {size: ratio * step_s for size, step_s in table.items()}
        for seen in measured:
            if seen.gpu_type == gpu_type and seen.gpus in found:
                found[seen.gpus] = seen.seconds_per_step
        return found

    def _ratio(self, job_type: str | None, measured: tuple[Measured, ...], gpu_type: str) -> float:
        """Measured over believed time of a step, where nothing was measured (``_corrections``)."""
        if len(measured) == 1:  # as most are
            one = measured[0]
            believed_s = self.seconds_per_step(job_type, one.gpu_type, one.gpus)
            return one.seconds_per_step / believed_s
        found = _corrections(measured, gpu_type, lambda t, n: self.seconds_per_step(job_type, t, n))
        return found[0]

    def overhead(self, job_type: str | None) -> Overhead:
        """Seconds of starts, saves and stops of a job of the type."""
        answers = self.answers(job_type)
        if answers.overhead is None:
            answers.overhead = self._overhead(job_type)
        return answers.overhead

    def _overhead(self, job_type: str | None) -> Overhead:
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
        """Everything in it, for a dump."""
        return (*self.profiles.values(), *self.learned.values())

    @staticmethod
    def from_rows(rows: Iterable[Profile | Learned]) -> ProfileBook:
        """The book that was dumped."""
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
    """Iterations of the whole job; None while nobody can know. ``curve``: its own, if any."""
    length = spec.length
    if length is not None and length.unit is LengthUnit.TARGET_ACCURACY:
        curve = curve or book.learned_of(spec.job_type).curve
        return curve.step_of(length.value) if curve is not None else None
    if progress.total_steps is not None:
        return float(progress.total_steps)
    if length is None:
        return None
    if length.unit is LengthUnit.STEPS:
        return length.value
    profile = book.of(spec.job_type)
    recorded = profile.steps_per_epoch if profile is not None else None
    batches = book.batches(spec.job_type, spec.global_batch)
    per_epoch = progress.steps_per_epoch or (recorded and recorded / batches)
    return length.value * per_epoch if per_epoch else None


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _corrections(
    measured: tuple[Measured, ...], gpu_type: str, believed: Callable[[str, int], float]
) -> dict[int, float]:
    """Measured over believed time of a step, by size, on GPUs of a type. Under 0 is the mean, for
    sizes without a measurement: of these GPUs, or of all where these have none."""
    found = {
        entry.gpus: entry.seconds_per_step / believed(gpu_type, entry.gpus)
        for entry in measured
        if entry.gpu_type == gpu_type
    }
    if found:
        found[0] = sum(found.values()) / len(found)
        return found
    ratios = [e.seconds_per_step / believed(e.gpu_type, e.gpus) for e in measured]
    return {0: sum(ratios) / len(ratios) if ratios else 1.0}
