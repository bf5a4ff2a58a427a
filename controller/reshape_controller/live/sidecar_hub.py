"""The GPU Coordinator's end of the SideCars' long poll: desired state out, observed state in.

The workers of a job are one SideCar to everybody else; ``WorkerGroup`` makes them so.

Does: gives each attempt its newest committed desired state, passes on what is news of an observed
one, and tells when an attempt was silent for too long, or knows more than the log. Never: decides,
or shows a desired state before its append. State: per attempt the newest of both; all of it is
rebuilt at a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NoReturn

from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.events import Event, SideCarFellSilent, SideCarReported
from reshape_controller.core.model import JobId
from reshape_controller.live.worker_group import WorkerGroup
from reshape_sidecar.wire import Desired, Observed, Phase, Progress

PROGRESS_EVERY_S = 10.0
"""Mere progress enters the log so often; each change of phase, step boundary or error at once."""
HOLD_MAX_S = 60.0
"""Longest time for which an answer is held back."""
DEAF_S = 5.0
"""Between two looks for silent attempts; after a longer pause it does not count as silence."""
SEQUENCES_PER_S = 1_000_000
"""Reports of several workers are numbered by the time: a restarted controller's are higher, if its
time goes on from the log's."""


class UnknownAttempt(ReshapeError):
    """No such attempt is meant to run now; its SideCar is not told anything."""


class BehindItsJobs(ReshapeError):
    """A SideCar was told something later than this log ends with: its GPUs may be others."""


@dataclass(slots=True)
class _Attempt:
    gang: WorkerGroup
    heard_at_s: list[float]
    """By worker."""
    launching: bool = False
    """Nothing is expected of it yet; the engine's own deadline judges the launch."""
    observed: Observed | None = None
    """The newest report, whether or not it became an event."""
    passed_on: Observed | None = None
    passed_on_at_s: float = 0.0
    silent: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def desired(self) -> Desired:
        return self.gang.desired

    def wake(self) -> None:
        """Whoever waits for an answer looks again."""
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
    ) -> None:
        self._post = post
        self._monotonic_s = monotonic_s
        self._log_s = log_s
        self._attempts: dict[str, _Attempt] = {}
        self._listened_at_s = monotonic_s()
        self._behind: asyncio.Queue[BehindItsJobs] = asyncio.Queue()

    def tell(self, desired: Desired, workers: int = 1, *, launching: bool = False) -> None:
        """Make ``desired`` what its attempt is told from now on. Called after the append only.

        ``workers``: so many SideCars the attempt has. ``launching``: its container is being
        started, so its silence means nothing yet.
        """
        known = self._attempts.get(desired.job)
        if known is None or known.desired.attempt != desired.attempt:
            heard_at_s = [self._monotonic_s()] * workers
            self._attempts[desired.job] = _Attempt(
                WorkerGroup(desired, workers), heard_at_s, launching
            )
            if known is not None:
                known.changed.set()
            return
        if _rank(desired) >= _rank(known.desired):
            known.gang.desired = desired
            known.wake()

    def forget(self, job: JobId) -> None:
        """The job has no container any more."""
        gone = self._attempts.pop(job, None)
        if gone is not None:
            gone.changed.set()

    def jobs(self) -> tuple[JobId, ...]:
        """Jobs of which an attempt is told something."""
        return tuple(JobId(job) for job in self._attempts)

    async def behind(self) -> NoReturn:
        """Wait for a SideCar that knows more than the log. Raises BehindItsJobs."""
        raise await self._behind.get()

    def observed(self, job: JobId) -> Observed | None:
        """The newest report of a job's attempt, fresher than the log's."""
        known = self._attempts.get(job)
        return known.observed if known is not None else None

    def last_word(self, job: JobId, attempt: int) -> None:
        """Pass on the newest report of an attempt that is gone: the log may have an older one, and
        what was lost is counted from there."""
        known = self._attempts.get(job)
        if known is None or known.desired.attempt != attempt or known.observed is None:
            return
        if known.observed is not known.passed_on:
            known.passed_on = known.observed
            self._post(SideCarReported(known.observed))

    async def exchange(
        self, job: str, attempt: int, observed: Observed, wait_s: float
    ) -> Desired | None:
        """Take a report and answer with what its SideCar shall be; None: nothing new to one of
        several.

        The answer is held for up to ``wait_s`` seconds while it is what the SideCar has taken up
        already. Raises UnknownAttempt, BehindItsJobs.
        """
        worker = observed.worker
        known = self._known(job, attempt, worker)
        self._check_order(known.desired, observed)
        known.heard_at_s[worker] = now_s = self._monotonic_s()
        self._take(known, observed)
        until_s = now_s + min(wait_s, HOLD_MAX_S)
        while known.gang.news(worker, observed) is None:
            left_s = until_s - self._monotonic_s()
            if left_s <= 0:
                break
            try:
                async with asyncio.timeout(left_s):
                    await known.changed.wait()
            except TimeoutError:
                break
            known = self._known(job, attempt, worker)
        known.heard_at_s[worker] = self._monotonic_s()
        return known.gang.told(worker)

    def check_silence(self, silent_s: float) -> None:
        """Post an event for each attempt without a word for ``silent_s`` seconds, once. To be
        called every second: while it was not, the process was stopped, and nobody could be heard.
        """
        now_s = self._monotonic_s()
        deaf_s, self._listened_at_s = now_s - self._listened_at_s, now_s
        if deaf_s > DEAF_S:
            for known in self._attempts.values():
                known.heard_at_s = [at_s + deaf_s for at_s in known.heard_at_s]
        for job, known in self._attempts.items():
            late = now_s - min(known.heard_at_s) > silent_s
            if not (known.silent or known.launching) and late:
                known.silent = True
                known.passed_on = None
                self._post(SideCarFellSilent(JobId(job), known.desired.attempt))

    def _known(self, job: str, attempt: int, worker: int) -> _Attempt:
        known = self._attempts.get(job)
        if known is None or known.desired.attempt != attempt:
            raise UnknownAttempt(f"attempt {attempt} of job {job} must not run now")
        if not 0 <= worker < known.gang.workers:
            raise UnknownAttempt(
                f"job {job} has {known.gang.workers} workers, not a worker {worker}"
            )
        return known

    def _check_order(self, desired: Desired, observed: Observed) -> None:
        """What a SideCar was told was in the log before, so this is an older log, or another."""
        if observed.epoch <= desired.epoch and observed.generation <= desired.generation:
            return
        error = BehindItsJobs(
            f"the SideCar of job {desired.job} (attempt {desired.attempt}) knows epoch "
            f"{observed.epoch} generation {observed.generation}; this log has only epoch "
            f"{desired.epoch} generation {desired.generation}: the store is an older copy, or "
            "another controller runs this job"
        )
        self._behind.put_nowait(error)
        raise error

    def _take(self, known: _Attempt, observed: Observed) -> None:
        gang = known.gang
        if not gang.take(observed.worker, observed):
            return
        if gang.workers > 1:
            known.wake()
        before = -1 if known.observed is None else known.observed.sequence
        number = max(before + 1, int(self._log_s() * SEQUENCES_PER_S))
        folded = gang.folded(number)
        if folded is None:
            return
        observed, known.observed = folded, folded
        now_s = self._monotonic_s()
        if known.silent and gang.workers > 1 and observed.phase not in _SAID_BY_ONE:
            return  # one of them is not heard still, or has only now been
        known.silent = known.launching = False
        news = known.passed_on is None or _gist(known.passed_on) != _gist(observed)
        moved = known.passed_on is not None and known.passed_on.progress != observed.progress
        if news or (moved and now_s - known.passed_on_at_s >= PROGRESS_EVERY_S):
            known.passed_on, known.passed_on_at_s = observed, now_s
            self._post(SideCarReported(observed))


_SAID_BY_ONE = (Phase.FINISHED, Phase.CRASHED, Phase.UNFIT)


def _rank(desired: Desired) -> tuple[int, int]:
    return desired.epoch, desired.generation


def _gist(observed: Observed) -> Observed:
    """What of a report is news by itself."""
    return replace(observed, sequence=0, progress=Progress(), gpu_use=())
