"""Speeds, costs and lengths by job type: recorded profiles, and what running jobs taught.

Does: returns the seconds of a step, a start or a save of a job, and its number of iterations, from
the best source: the job's own measurements, what its type learned, the recorded profile, a default.
Each user has one voice about a type: what counts is the median, so that no user's false word
moves it beyond what another says. A change gives a new book; the engine's state holds the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median_low
from typing import Any

from reshape_controller.core.fast_replace import replace
from reshape_controller.core.knowledge import (
    INIT_FIELDS,
    Curve,
    Learned,
    Measured,
    Voice,
    as_before,
    at_size,
)
from reshape_controller.core.model import JobSpec, LengthUnit
from reshape_controller.core.recorded_speeds import RecordedSpeeds, same_gpu, speeds_of_profile
from reshape_profiles.schema import DEFAULT_TYPE, Overhead, Profile
from reshape_sidecar.wire import Progress, StartKind

DEFAULT_WORK_S = 3600.0
"""Training left, on one GPU, of a job whose length is not known; the same until it is known."""
VOICES_MAX = 32
"""Users that have a voice about a job type: those whose jobs taught last."""
DEFAULT_OVERHEAD = Overhead(3.0, 6.0, 1.0, 1.0, 1.0, "assumed: a local launcher and a small model")


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
    """What predictions use, by job type."""
    voices: dict[str, dict[str, Learned]] = field(default_factory=dict)
    """What each user's jobs taught, by job type and user; who taught last is last."""
    answered: dict[str, Answers] = field(default_factory=dict, repr=False, compare=False)

    def with_profile(self, profile: Profile) -> ProfileBook:
        """Return a book in which ``profile`` replaces the profile of its type. The learned values
        of the type are dropped, because they were learned beside the earlier profile."""
        learned = {name: known for name, known in self.learned.items() if name != profile.job_type}
        voices = {name: known for name, known in self.voices.items() if name != profile.job_type}
        return ProfileBook({**self.profiles, profile.job_type: profile}, learned, voices)

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
            same = (learned.speed, learned.curve) == (old.speed, old.curve)
            same = same and learned.total_steps == old.total_steps
            speeds = (before.seconds, before.tables) if same else ()
            answers[job_type] = Answers(before.recorded, *speeds)
        return ProfileBook(self.profiles, known, self.voices, answers)

    def voice(self, job_type: str | None, user: str) -> Learned:
        """Return what a user's jobs taught about a type; empty if nothing. The first user to speak
        takes over what earlier releases learned."""
        voices = self.voices.get(job_type or DEFAULT_TYPE)
        if voices is None:
            return self.learned_of(job_type)
        return voices.get(user) or Learned(job_type or DEFAULT_TYPE)

    def with_voice(self, user: str, taught: Learned) -> ProfileBook:
        """Return a book in which a user's jobs taught this; predictions use the median of all."""
        job_type = taught.job_type
        others = {who: each for who, each in self.voices.get(job_type, {}).items() if who != user}
        kept = dict([*others.items(), (user, taught)][-VOICES_MAX:])
        learned = taught if len(kept) == 1 else self._agreed(taught, tuple(kept.values()))
        book = self.with_learned(replace(learned, curve=self.learned_of(job_type).curve))
        book.voices = {**self.voices, job_type: kept}
        return book

    def _agreed(self, newest: Learned, voices: tuple[Learned, ...]) -> Learned:
        """Return the medians of what several users' jobs taught. Of an even number of users, what
        is recorded or assumed is one more voice."""
        kind, speed = newest.job_type, self.learned_of(newest.job_type).speed
        heard = [each.heard or each.speed for each in voices if each.heard or each.speed]
        measured = [*speed, *chain.from_iterable(heard)] if heard else []
        agreed: list[Measured] = []
        for gpu_type, gpus, hosts in {(m.gpu_type, m.gpus, m.hosts): None for m in measured}:
            said = [self._taught_s(kind, each, gpu_type, gpus, hosts) for each in heard]
            step_s = _middle(said, self._recorded(kind, gpu_type).on(gpus, hosts))
            assert step_s is not None
            here = [one for each in heard if (one := at_size(each, gpu_type, gpus, hosts))]
            count, is_median = sum(one.count for one in here), all(one.is_median for one in here)
            agreed.append(Measured(gpu_type, gpus, step_s, count, hosts, is_median))
        base = self._base_overhead(kind)
        costs: dict[str, Any] = {
            name: _middle(_each(voices, name), getattr(base, name)) for name in _COSTS
        }
        slower_s = _or(costs["process_init_s"], base.process_init_s)
        for name in (INIT_FIELDS[StartKind.ZYGOTE], INIT_FIELDS[StartKind.SUCCESSOR]):
            costs[name] = _middle(_each(voices, name), slower_s)
            slower_s = _or(costs[name], slower_s)
        for name in ("prepare_s", "total_steps"):
            costs[name] = _middle(_each(voices, name), None)
        news = tuple(agreed)
        speed = speed if as_before(speed, news) else news
        return replace(newest, speed=speed, heard=news, **costs)

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
            speeds = self.learned_of(job_type).speed
            step_s = self._taught_s(job_type, speeds, gpu_type, gpus, hosts)
            seconds[gpu_type, gpus, hosts] = step_s
        return step_s

    def voice_seconds_per_step(
        self, voice: Learned, gpu_type: str, gpus: int, hosts: int = 1
    ) -> float:
        """Return the same by what one user's jobs taught alone."""
        if voice.speed is self.learned_of(voice.job_type).speed:
            return self.seconds_per_step(voice.job_type, gpu_type, gpus, hosts)
        return self._taught_s(voice.job_type, voice.speed, gpu_type, gpus, hosts)

    def _taught_s(
        self,
        job_type: str | None,
        speeds: tuple[Measured, ...],
        gpu_type: str,
        gpus: int,
        hosts: int,
    ) -> float:
        """Return the recorded seconds of a step, corrected by learned ``speeds``."""
        step_s = self._recorded(job_type, gpu_type).on(gpus, hosts)
        if not speeds:
            return step_s
        here = at_size(speeds, gpu_type, gpus, hosts)
        like = [here] if here else self._like(job_type, speeds, gpu_type, hosts)
        return step_s * self._correction(job_type, like)

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
        known = self.learned_of(job_type)
        how = self.voice_overhead(known)
        found = {StartKind.COLD: how}
        for kind in (StartKind.ZYGOTE, StartKind.SUCCESSOR):
            seconds = getattr(known, INIT_FIELDS[kind])
            how = found[kind] = how if seconds is None else replace(how, process_init_s=seconds)
        return found

    def voice_overhead(self, voice: Learned) -> Overhead:
        """Return the seconds of a cold start, a save and a stop by what ``voice`` says."""
        base = self._base_overhead(voice.job_type)
        said: dict[str, Any] = {
            name: _or(getattr(voice, name), getattr(base, name)) for name in _COSTS
        }
        return replace(base, **said)

    def _base_overhead(self, job_type: str) -> Overhead:
        """Return what is recorded of a type, else of all types, else assumed."""
        profile, default = self.of(job_type), self.of(None)
        base = profile.overhead if profile is not None else None
        if base is None:
            base = default.overhead if default is not None else None
        return base or DEFAULT_OVERHEAD

    def rows(self) -> tuple[Profile | Learned | Voice, ...]:
        """Return all profiles and learned values, for a dump."""
        voices = [
            Voice(user, taught) for each in self.voices.values() for user, taught in each.items()
        ]
        return (*self.profiles.values(), *self.learned.values(), *voices)

    @staticmethod
    def from_rows(rows: Iterable[Profile | Learned | Voice]) -> ProfileBook:
        """Return the book of dumped ``rows``."""
        book = ProfileBook()
        for row in rows:
            if isinstance(row, Profile):
                book.profiles[row.job_type] = row
            elif isinstance(row, Voice):
                book.voices.setdefault(row.taught.job_type, {})[row.user] = row.taught
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


_COSTS = ("job_init_s", "process_init_s", "checkpoint_s", "process_stop_s", "job_stop_s")
"""Costs of a type that a profile records, by their names in ``Overhead`` and in ``Learned``."""


def _each(voices: Iterable[Learned], name: str) -> list[float | None]:
    return [getattr(voice, name) for voice in voices]


def _middle(said: Sequence[float | None], assumed: float | None) -> float | None:
    """Return the median of what was said; of an even number with what is assumed, if anything is;
    None if nothing was said."""
    values = [each for each in said if each is not None]
    if not values:
        return None
    if len(values) % 2 == 0 and assumed is not None:
        values.append(assumed)
    return median_low(values)


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
