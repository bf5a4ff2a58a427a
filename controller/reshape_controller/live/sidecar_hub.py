"""The controller's end of the SideCars' long poll: desired state out, observed state in.

Does: answers each attempt with its newest committed desired state; posts an event for a report that
says something new, for an attempt that is silent too long, and for a report that cannot be true,
of which it takes in nothing else. It stops the controller only if several jobs agree that they
know more than the log. The workers of a job are one SideCar to the engine (``WorkerGroup``).
Everything here is rebuilt from the log and the reports at a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import NoReturn

from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.events import (
    Event,
    SideCarContradicted,
    SideCarFellSilent,
    SideCarReported,
)
from reshape_controller.core.model import JobId
from reshape_controller.core.state import State
from reshape_controller.live.pace import Pace
from reshape_controller.live.worker_group import WorkerGroup
from reshape_sidecar import codec
from reshape_sidecar.wire import WIRE_LEVEL, Desired, Observed, Phase, Progress
from reshape_sidecar.wire_levels import desired_at_level

LOG_BYTES_PER_S, LOG_BYTES_AT_ONCE = 8.0 * 1024, float(1 << 20)
"""Bytes of a job's reports that enter the log, on average and at once, for each of its workers. A
report is of one or two thousand bytes; what is more than this waits, and only the newest of it
enters the log."""
EVENT_BYTES_LEAST = 2048
"""What a shorter report of a job counts as: each one costs an append and a decision too."""
PROGRESS_EVERY_S = 10.0
"""Least time between two events of mere progress; any other change becomes an event at once."""
HOLD_MAX_S = 60.0
"""Longest time for which an answer is held back."""
STALL_S = 5.0
"""A longer pause between two checks for silence means that this process stood still: the pause does
not count as silence of the SideCars."""
SEQUENCES_PER_S = 1_000_000
"""Merged reports are numbered by the log's time, so that a restarted controller's are higher."""


class UnknownAttempt(ReshapeError):
    """No such attempt is meant to run now; its SideCar gets no desired state."""


class BehindItsJobs(ReshapeError):
    """Several jobs have desired states that this log does not hold: their GPUs may be others."""


class Contradiction(ReshapeError):
    """A report says what cannot be true, so its attempt is set apart."""


class AheadOfLog(Contradiction):
    """A report names an epoch or generation that this log does not hold.

    The store is an older copy, or the report is a lie: one attempt alone cannot show which.
    """


@dataclass(slots=True)
class _Attempt:
    group: WorkerGroup
    report_at_s: list[float]
    """By worker: steady time of its newest report or answer."""
    launching: bool = False
    """True until the first report: the engine's own deadline judges the launch, not silence."""
    observed: Observed | None = None
    """Newest report, whether or not it became an event."""
    progress_at_s: float | None = None
    """Log time of the first report with its progress."""
    event_report: Observed | None = None
    """Newest report that became an event; None after an event of silence."""
    event_at_s: float = 0.0
    """Steady time of that event."""
    silent: bool = False
    """True between an event of silence and the next report."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when held answers have to be looked at again; ``wake`` replaces it."""

    @property
    def desired(self) -> Desired:
        return self.group.desired

    def wake(self) -> None:
        """Let each held answer be looked at again."""
        self.changed.set()
        self.changed = asyncio.Event()


class SidecarHub:
    """One per daemon. ``post`` takes the events; ``monotonic_s`` is any steady clock, ``log_s`` the
    loop's, which is never behind the log whatever the machine's clock says."""

    def __init__(
        self,
        post: Callable[[Event], None],
        monotonic_s: Callable[[], float],
        log_s: Callable[[], float],
        state: Callable[[], State] = State,
    ) -> None:
        """``state``: the engine's, of which nothing is changed."""
        self._post = post
        self._state = state
        self._monotonic_s = monotonic_s
        self._log_s = log_s
        self._attempts: dict[str, _Attempt] = {}
        self._checked_at_s = monotonic_s()
        self._log_shares = Pace(LOG_BYTES_PER_S, LOG_BYTES_AT_ONCE, monotonic_s)
        self._behind: asyncio.Queue[BehindItsJobs] = asyncio.Queue()
        self._ahead: set[JobId] = set()
        """Jobs that were ahead of the log while the controller observed (R6)."""

    def set_desired(self, desired: Desired, workers: int = 1, *, launching: bool = False) -> None:
        """Answer the attempt's SideCars with ``desired`` from now on. To be called only after the
        append that holds it.

        ``workers``: number of SideCars of the attempt. ``launching``: its container is being
        started, so its silence means nothing yet.
        """
        entry = self._attempts.get(desired.job)
        if entry is None or entry.desired.attempt != desired.attempt:
            report_at_s = [self._monotonic_s()] * workers
            self._attempts[desired.job] = _Attempt(
                WorkerGroup(desired, workers), report_at_s, launching
            )
            if entry is not None:
                entry.changed.set()
            return
        if _rank(desired) >= _rank(entry.desired):
            entry.group.desired = desired
            entry.wake()

    def begin_again(self, desired: Desired, workers: int) -> None:
        """Answer new SideCars of a suspended attempt from now on, which have no memory of the
        SideCars before them; until the first report, silence means nothing."""
        self.forget(JobId(desired.job))
        self.set_desired(desired, workers, launching=True)

    def forget(self, job: JobId) -> None:
        """Drop a job that has no container any more."""
        entry = self._attempts.pop(job, None)
        if entry is not None:
            entry.changed.set()

    def jobs(self) -> tuple[JobId, ...]:
        """Jobs of which an attempt has a desired state."""
        return tuple(JobId(job) for job in self._attempts)

    async def behind(self) -> NoReturn:
        """Wait until several jobs agree that they know more than the log. Raises BehindItsJobs."""
        raise await self._behind.get()

    def observed(self, job: JobId) -> Observed | None:
        """The newest report of a job's attempt, fresher than the log's."""
        entry = self._attempts.get(job)
        return entry.observed if entry is not None else None

    def progress_at_s(self, job: JobId) -> float | None:
        """The log time of the first report with the progress of ``observed``; None without one."""
        entry = self._attempts.get(job)
        return entry.progress_at_s if entry is not None else None

    def post_last_report(self, job: JobId, attempt: int) -> None:
        """Post the newest report of an attempt that is gone, unless it became an event already:
        lost work is counted from the newest report in the log."""
        entry = self._attempts.get(job)
        if entry is None or entry.desired.attempt != attempt or entry.observed is None:
            return
        if entry.observed is not entry.event_report:
            entry.event_report = entry.observed
            self._post(SideCarReported(entry.observed))

    async def exchange(
        self, job: str, attempt: int, observed: Observed, wait_s: float, level: int = WIRE_LEVEL
    ) -> Desired | None:
        """Take a report and return its SideCar's desired state; None while there is none for this
        worker of several. ``level``: that of the fields that the SideCar knows.

        The answer is held for up to ``wait_s`` seconds while the report reflects it already. An
        attempt that is set apart is answered still, so that it can end in order. Raises
        UnknownAttempt, Contradiction, BehindItsJobs.
        """
        worker = observed.worker
        entry = self._entry(job, attempt, worker)
        entry.report_at_s[worker] = now_s = self._monotonic_s()
        try:
            check(entry.desired, observed, entry.group.report_of(worker))
        except Contradiction as lie:
            self._contradict(JobId(job), attempt, lie)
            raise
        known = self._state().jobs.get(JobId(job))
        if known is None or not known.set_apart:
            self._take(entry, observed)
        until_s = now_s + min(wait_s, HOLD_MAX_S)
        while entry.group.update_for(worker, observed, level) is None:
            left_s = until_s - self._monotonic_s()
            if left_s <= 0:
                break
            try:
                async with asyncio.timeout(left_s):
                    await entry.changed.wait()
            except TimeoutError:
                break
            entry = self._entry(job, attempt, worker)
        entry.report_at_s[worker] = self._monotonic_s()
        desired = entry.group.desired_of(worker)
        return None if desired is None else desired_at_level(desired, level)

    def check_silence(self, silent_s: float) -> None:
        """Post one event for each attempt without a report for ``silent_s`` seconds. To be called
        every second: a longer pause is taken for a stall of this process (``STALL_S``)."""
        now_s = self._monotonic_s()
        pause_s, self._checked_at_s = now_s - self._checked_at_s, now_s
        if pause_s > STALL_S:
            for entry in self._attempts.values():
                entry.report_at_s = [at_s + pause_s for at_s in entry.report_at_s]
        for job, entry in self._attempts.items():
            late = now_s - min(entry.report_at_s) > silent_s
            if not (entry.silent or entry.launching) and late:
                entry.silent = True
                entry.event_report = None
                self._post(SideCarFellSilent(JobId(job), entry.desired.attempt))

    def _entry(self, job: str, attempt: int, worker: int) -> _Attempt:
        entry = self._attempts.get(job)
        if entry is None or entry.desired.attempt != attempt:
            raise UnknownAttempt(f"attempt {attempt} of job {job} must not run now")
        if not 0 <= worker < entry.group.workers:
            raise UnknownAttempt(
                f"job {job} has {entry.group.workers} workers, not a worker {worker}"
            )
        return entry

    def _contradict(self, job: JobId, attempt: int, lie: Contradiction) -> None:
        """Have the attempt set apart; or raise BehindItsJobs if it is one of several jobs that are
        ahead of the log, before this controller has granted anything."""
        state = self._state()
        if isinstance(lie, AheadOfLog) and state.observing:
            self._ahead.add(job)
            if agree(
                self._ahead, state
            ):  # no event: the controller goes on observing until it ends
                named = ", ".join(sorted(self._ahead))
                error = BehindItsJobs(f"{lie}. {len(self._ahead)} jobs say so: {named}")
                self._behind.put_nowait(error)
                raise error
        self._post(SideCarContradicted(job, attempt, str(lie)))

    def _newest_number(self, entry: _Attempt) -> int:
        """The number of the attempt's newest report, also of one to a controller before: the log's
        time may have been set back since."""
        known = self._state().jobs.get(JobId(entry.desired.job))
        logged = known is not None and known.attempt == entry.desired.attempt
        newest = known.sequence if known is not None and logged else -1
        return newest if entry.observed is None else max(newest, entry.observed.sequence)

    def _take(self, entry: _Attempt, observed: Observed) -> None:
        group = entry.group
        if not group.take(observed.worker, observed):
            return
        if group.workers > 1:
            entry.wake()
        previous = self._newest_number(entry)
        merged = group.merged_report(max(previous + 1, int(self._log_s() * SEQUENCES_PER_S)))
        if merged is None:
            return
        if entry.observed is None or entry.observed.progress != merged.progress:
            entry.progress_at_s = self._log_s()
        entry.observed = merged
        now_s = self._monotonic_s()
        if entry.silent and group.workers > 1 and merged.phase not in _FINAL_PHASES:
            return  # a worker is silent still, or has only now reported again
        entry.silent = entry.launching = False
        last = entry.event_report
        changed = last is None or _without_progress(last) != _without_progress(merged)
        progressed = last is not None and _progress(last) != _progress(merged)
        if not changed and not (progressed and now_s - entry.event_at_s >= PROGRESS_EVERY_S):
            return
        size_bytes = max(EVENT_BYTES_LEAST, len(codec.dumps(merged)) / group.workers)
        if self._log_shares.wait_s(merged.job, size_bytes) == 0.0:
            entry.event_report, entry.event_at_s = merged, now_s
            self._post(SideCarReported(merged))


_FINAL_PHASES = (Phase.FINISHED, Phase.CRASHED, Phase.UNFIT)
"""Phases that hold for the whole attempt if a single worker reports them."""


def _rank(desired: Desired) -> tuple[int, int]:
    return desired.epoch, desired.generation


def _without_progress(observed: Observed) -> Observed:
    """The report without the parts that change all the time: two are compared by it."""
    said = observed.progress
    verdict = Progress(trajectory=said.trajectory, proof=said.proof)
    return replace(observed, sequence=0, progress=verdict, gpu_use=(), silent_s=None)


def _progress(observed: Observed) -> tuple[Progress, float | None]:
    return observed.progress, observed.silent_s


COUNT_MAX = 10**15
"""Largest count that a report may name: sums of them stay whole numbers for every reader."""
REPORT_S_MAX = 86_400.0
"""Longest phase of a start or reshape, and longest step, that a report may name."""
TEXT_MAX = 65_536
"""Most characters of one text of a report."""
TWO_VOICES = 3_600_000 * SEQUENCES_PER_S
"""A report whose number is lower than the newest by this much (an hour) is of another sender."""
_NO_COUNTS = ("sequence", "exit_code")


def agree(ahead: Collection[JobId], state: State) -> bool:
    """Return whether the jobs that are ahead of the log show that the log is an older one.

    One user's jobs may lie together, so they must be of several users; unless the log knows jobs
    of one user only, whom nobody else can be harmed by.
    """
    users = {state.jobs[job].spec.user for job in ahead if job in state.jobs}
    everyone = {job.spec.user for job in state.jobs.values()}
    return len(ahead) > 1 and (len(users) > 1 or users == everyone)


def check(desired: Desired, observed: Observed, newest: Observed | None) -> None:
    """Check a report against what the log holds. Raises Contradiction if it cannot be true.

    ``desired``: the newest desired state of its attempt. ``newest``: its newest report before.
    """
    who = f"the SideCar of job {desired.job} (attempt {desired.attempt})"
    if observed.epoch > desired.epoch or observed.generation > desired.generation:
        # Every desired state was in the log before its SideCar got it.
        raise AheadOfLog(
            f"{who} knows epoch {observed.epoch} generation {observed.generation}; this log has "
            f"only epoch {desired.epoch} generation {desired.generation}: the store is an older "
            "copy, or the report is not its SideCar's"
        )
    outcome = -1 if observed.outcome is None else observed.outcome.generation
    later = max(observed.stopped_generation, outcome)
    if later > observed.generation:
        raise Contradiction(
            f"{who} has ended generation {later}, but knows only generation {observed.generation}"
        )
    if newest is not None and observed.sequence < newest.sequence - TWO_VOICES:
        raise Contradiction(
            f"{who} numbers its reports {observed.sequence} after {newest.sequence}: two programs "
            "report with its token"
        )
    problem = _out_of_bounds(observed)
    if problem:
        raise Contradiction(f"{who} reports {problem}")


def _out_of_bounds(value: object, name: str = "") -> str:
    """Return the first number or text within a report that is out of its bounds; empty if none.
    Other numbers are finite and of 64 bits, as the codec lets no others through."""
    if isinstance(value, str):
        is_long = len(value) > TEXT_MAX
        return f"{name} of {len(value)} characters, not at most {TEXT_MAX}" if is_long else ""
    if isinstance(value, int):
        fits = 0 <= value <= COUNT_MAX or name in _NO_COUNTS
        return "" if fits else f"{name} {value}, not between 0 and {COUNT_MAX}"
    if isinstance(value, float):
        fits = 0.0 <= value <= REPORT_S_MAX or not name.endswith(("_s", "_per_step"))
        return "" if fits else f"{name} {value:g}, not between 0 and {REPORT_S_MAX:g}"
    for part in getattr(value, "__dataclass_fields__", ()):
        inner = getattr(value, part)
        if inner is getattr(type(value), part, None):
            continue  # its default, as most fields of a report are
        problem = _out_of_bounds(inner, part)
        if problem:
            return problem
    for entry in value if isinstance(value, tuple) else ():
        problem = _out_of_bounds(entry, name)
        if problem:
            return problem
    return ""
