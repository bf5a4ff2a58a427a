"""The requests that people make of the daemon: the only way in for the HTTP layer and the inbox.

Does: checks a request against the engine's state, posts it as an event, and returns after the
append that holds it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from reshape_controller.core import events as ev
from reshape_controller.core import growth
from reshape_controller.core.errors import (
    ReshapeError,
    UnknownGpu,
    UnknownHost,
    UnknownJob,
)
from reshape_controller.core.limits import BATCH_BYTES_MAX
from reshape_controller.core.model import (
    FieldError,
    Gpu,
    GpuId,
    GpuState,
    HostId,
    Job,
    JobId,
    JobSpec,
    JobState,
    Service,
)
from reshape_controller.core.service import served_until
from reshape_controller.core.snapshot_builder import is_queued
from reshape_controller.live import user_bounds
from reshape_controller.live.admission import Admission, Refused, job_id, size_to_pin
from reshape_controller.live.expectation import Expectation, Expectations
from reshape_controller.live.loop import Loop, Stopped
from reshape_controller.live.trial_process import TrialRuns
from reshape_controller.store.protocol import Store
from reshape_gpu.values import Trial
from reshape_profiles.schema import Profile
from reshape_sidecar import codec
from reshape_sidecar.wire import Observed

__all__ = ["Conflict", "Control", "NotReady", "Refused"]

COMMIT_WAIT_S = 30.0
"""A request is answered ``NotReady`` when its append takes longer; it may still happen."""
POLICY_ERROR_CHARS_MAX = 500
"""Most characters of a policy's error that are shown."""
WAITS_SHOWN = 5
"""Number of jobs that ``waits_for`` names."""


class Conflict(ReshapeError):
    """The request does not fit the state that a job or GPU is in."""

    def __init__(self, message: str, *, already_done: bool = False, look: str = "get") -> None:
        """``already_done``: the request asks for the state that is there. ``look``: the command
        that shows the state."""
        super().__init__(message)
        self.already_done = already_done
        self.hint = f"reshape {look} shows its state"


class NotReady(ReshapeError):
    """The store takes nothing now. The text says whether the request may still be carried out."""


class Control:
    """One per daemon."""

    def __init__(
        self,
        loop: Loop,
        admission: Admission,
        log_folder: Callable[[Job], Path | None],
        observed: Callable[[JobId], Observed | None],
        trouble: Callable[[Job], str],
        faults: Callable[[], tuple[str, ...]] = lambda: (),
    ) -> None:
        self._loop = loop
        self._admission = admission
        self._log_folder = log_folder
        self._observed = observed
        self._trouble = trouble
        self._faults = faults
        self._keyed = asyncio.Lock()
        """Held while a submission with a key looks for an earlier one."""
        self._expectations = Expectations()
        self._trials = TrialRuns()
        self._log_shares = user_bounds.LogShares()

    @property
    def store(self) -> Store:
        """The projections, for reading."""
        return self._loop.store

    async def submit(self, spec: JobSpec, key: str = "") -> JobId:
        """Accept a job; it is in the log when this returns.

        ``key``: a repeat with the same key and record is the same job; empty: each call is a job of
        its own. Raises Refused, NotReady, TooMuch; Conflict for another record under the
        key.
        """
        if not key:
            return await self._enter(job_id(spec.name, secrets.token_hex(16)), spec)
        job = job_id(spec.name, f"key {spec.user} {key}")
        async with self._keyed:  # a repeat may come before the first is in the log
            known = await self.store.job(job)
            if known is None or known.id != job:
                return await self._enter(job, spec)
        if known.job is None or known.job.spec != spec:
            what = f"another record was submitted under the key {key!r}: it is {job}"
            raise Conflict(f"{what}; use a new key for each job")
        return job

    async def _enter(self, job: JobId, spec: JobSpec) -> JobId:
        self._require_room((spec,))
        self._admission.admit(spec)
        event = ev.JobSubmitted(job, spec)
        await self._commit(event, on_settled=lambda: self._admission.entered(spec))
        return job

    def _require_room(self, specs: Sequence[JobSpec]) -> None:
        """Raise Refused if a user would have too much, and TooMuch if too much came of late."""
        errors = user_bounds.refusals(specs, self._loop.engine.state.jobs.values())
        if errors:
            raise Refused(errors)
        self._log_shares.take(specs)

    async def submit_all(self, specs: Sequence[JobSpec]) -> tuple[JobId, ...]:
        """Accept all jobs of an array, or none; they are in the log when this returns. Raises
        Refused, NotReady, TooMuch."""
        self._require_room(specs)
        admitted: list[JobSpec] = []

        def settled() -> None:
            for spec in admitted:
                self._admission.entered(spec)

        try:
            for spec in specs:
                self._admission.admit(spec)
                admitted.append(spec)
            jobs = [job_id(spec.name, secrets.token_hex(16)) for spec in specs]
            events = [ev.JobSubmitted(job, spec) for job, spec in zip(jobs, specs, strict=True)]
            size_bytes = sum(len(codec.dumps(event).encode()) for event in events)
            if size_bytes > BATCH_BYTES_MAX:
                what = f"its members have {size_bytes} bytes, more than {BATCH_BYTES_MAX}"
                raise Refused((FieldError("array", what, "submit it in parts"),))
        except Refused:
            settled()
            raise
        await self._commit(*events, on_settled=settled)
        return tuple(jobs)

    async def try_out(self, identity: str, spec: JobSpec, now_s: float) -> Trial:
        """Say what would happen if the job were submitted now; nothing changes. Raises Refused,
        TooManyTrials, TrialFailed."""
        self._admission.admit(spec)
        self._admission.entered(spec)
        state, policy = self._loop.engine.state, self._loop.settings.policy
        return await self._trials.run(identity, state, policy, spec, now_s)

    async def cancel(self, key: str, user: str) -> JobId:
        """Cancel a job by id or name. Raises UnknownJob, Conflict, NotReady."""
        job = await self._live(key, "cancelled", user)
        await self._commit(ev.CancelRequested(job.id, user))
        return job.id

    async def halt(self, key: str, user: str) -> JobId:
        """Pause a job: save, then release its GPUs. Raises UnknownJob, Conflict, NotReady."""
        job = await self._live(key, "paused", user)
        await self._commit(ev.HaltRequested(job.id, user))
        return job.id

    async def resume(self, key: str, user: str) -> JobId:
        """Resume a paused job: queue it again. Raises UnknownJob, Conflict, NotReady."""
        job = await self._live(key, "resumed", user)
        halting = job.halt_wanted or JobState.HALTED in (job.state, job.after_end)
        if not halting:
            raise Conflict(f"{job.id} is {job.state.value}, not paused; nothing to resume")
        await self._commit(ev.ResumeRequested(job.id, user))
        return job.id

    async def pin(self, key: str, size: object, user: str) -> JobId:
        """Keep a job to one of its sizes; None: all of them again. Raises UnknownJob, Conflict,
        Refused, NotReady."""
        job = await self._live(key, "pinned", user)
        await self._commit(ev.PinRequested(job.id, size_to_pin(job, size), user))
        return job.id

    async def drain(self, host: str, user: str) -> None:
        """Empty a host; nothing starts there. Raises UnknownHost, NotReady."""
        await self._commit(ev.HostDrained(self._host(host), user))

    async def undrain(self, host: str, user: str) -> None:
        """Let jobs start on a host again. Raises UnknownHost, NotReady."""
        await self._commit(ev.HostUndrained(self._host(host), user))

    async def clear(self, gpu: str, user: str) -> None:
        """Give a quarantined GPU back, on an operator's word that it is empty. Raises UnknownGpu,
        Conflict, NotReady."""
        known = self._loop.engine.state.gpus.get(GpuId(gpu))
        if known is None:
            raise UnknownGpu(f"unknown GPU {gpu!r}")
        if known.state is not GpuState.QUARANTINED:
            text = f"GPU {gpu} is {known.state.value}, not quarantined; nothing to clear"
            raise Conflict(text, look="gpus")
        await self._commit(ev.GpuCleared(known.id, user))

    async def record(self, profiles: tuple[Profile, ...]) -> tuple[str, ...]:
        """Record profiles of job types, for all later predictions, and return the job types whose
        profile is new or different. Raises NotReady.

        A profile that is recorded already stays, with the speeds learned beside it.
        """
        book = self._loop.engine.state.profiles
        changed = [profile for profile in profiles if book.of(profile.job_type) != profile]
        commits = [self._commit(ev.ProfileRecorded(profile)) for profile in changed]
        for result in await asyncio.gather(*commits, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        return tuple(profile.job_type for profile in changed)

    def log_folder(self, job: Job) -> Path | None:
        """Folder with training.log and the SideCar's own logs; None if it cannot be read here."""
        return self._log_folder(job)

    def observed(self, job: JobId) -> Observed | None:
        """The newest report of the job's SideCar, fresher than the projections; None if none."""
        return self._observed(job)

    def trouble(self, job: Job) -> str:
        """Why the job's container does not come up; empty if no reason is known."""
        return self._trouble(job)

    def why_not_larger(self, job: JobId) -> str:
        """Why a job that trains has not more GPUs; empty if it has its largest number."""
        state = self._loop.engine.state
        known = state.jobs.get(job)
        return growth.why_not_larger(state, known) if known is not None else ""

    def expectation(self, job: JobId) -> Expectation:
        """The job's place in the queue, and when it is predicted to start and end."""
        return self._expectations.of(job, self._loop.engine, self._loop.journal.seq)

    def holders(self) -> tuple[tuple[Gpu, str, Job | None], ...]:
        """Each GPU of the inventory, its type, and the job that holds it."""
        state = self._loop.engine.state
        return tuple(
            (
                gpu,
                state.hosts[gpu.host].gpu_type,
                state.jobs.get(gpu.owner) if gpu.owner is not None else None,
            )
            for gpu in state.gpus.values()
        )

    def live_job(self, job: JobId) -> Job | None:
        """The job as the engine has it; None once it is over and forgotten."""
        return self._loop.engine.state.jobs.get(job)

    def live_jobs(self) -> tuple[Job, ...]:
        """Each job that has not ended, by submission."""
        return tuple(self._loop.engine.state.jobs.values())

    def unreachable(self) -> int:
        """Number of jobs whose SideCar is silent."""
        return sum(not job.reachable for job in self._loop.engine.state.jobs.values())

    def served(self, job: JobId, now_s: float) -> tuple[Service, ...] | None:
        """The attained service of a job up to now; None if it has no GPUs."""
        state = self._loop.engine.state
        known = state.jobs.get(job)
        if known is None or not known.gpus or known.serves_since_s is None:
            return None
        return served_until(known, now_s, state.gpus, state.hosts)

    def late(self) -> int:
        """Number of jobs that do something for too long."""
        jobs = self._loop.engine.state.jobs.values()
        return sum(bool(job.late) and job.stage.has_gpus for job in jobs)

    def shown_seq(self) -> int:
        """Number of the newest record that the tables show."""
        return self._loop.journal.shown_seq()

    def store_lag_s(self) -> float:
        """Seconds for which the store has not taken the newest record or its rows."""
        return self._loop.journal.lag_s()

    def since_snapshot(self) -> int:
        """Number of records of the log that a start would have to read."""
        return self._loop.journal.since_snapshot()

    async def state(self) -> tuple[str, ...]:
        """The engine's present state, without the environments of job records."""
        return await asyncio.to_thread(self._loop.engine.state.still().dump, with_env=False)

    def ready(self) -> tuple[bool, str]:
        """Whether requests are accepted now, and the reason if not."""
        problem = self._loop.problem or self._loop.journal.problem
        return not problem, problem

    def policy_problem(self) -> str:
        """Which policy fails, since when and how; empty if it does not fail."""
        failure = self._loop.planner.failure
        if failure is None:
            return ""
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(failure.since_s))
        return (
            f"the policy {failure.policy} fails since {since} ({failure.in_a_row} times in a row), "
            f"so it starts no job: {failure.text[:POLICY_ERROR_CHARS_MAX]}"
        )

    def policy_problem_of(self, job: Job) -> str:
        """The same for a job that the policy would have to start; empty for any other."""
        return self.policy_problem() if is_queued(job) else ""

    def waits_for(self, *, with_names: bool = True) -> str:
        """What the controller waits for before it grants GPUs or carries out its effects; empty if
        nothing. Requests are accepted meanwhile. ``with_names``: whether it says of which jobs."""
        waits, faults = list(filter(None, (self.policy_problem(),))), self._faults()
        jobs = self._loop.engine.state.unanswered
        if jobs:
            shown = ", ".join(jobs[:WAITS_SHOWN])
            more = f" and {len(jobs) - WAITS_SHOWN} more" if len(jobs) > WAITS_SHOWN else ""
            silent_s = self._loop.engine.state.limits.silent_s
            whose = f"{shown}{more}" if with_names else f"jobs ({len(jobs)})"
            what = f"the SideCars of {whose} (no GPU is granted until each has answered"
            waits.append(f"{what} or been silent for {silent_s:g} s)")
        if faults and not with_names:
            faults = ("a fault of the daemon's machine, which an operator sees",)
        return "; ".join((*waits, *faults))

    def position(self) -> tuple[int, int]:
        """Epoch of this controller, and seq of the newest record."""
        return self._loop.journal.epoch, self._loop.journal.seq

    async def _live(self, key: str, what: str, user: str) -> Job:
        """The job with this id or name, one of ``user`` first, which has not ended. Raises
        UnknownJob, Conflict."""
        jobs = self._loop.engine.state.jobs
        job = jobs.get(JobId(key))
        if job is None:
            by_name = [job for job in jobs.values() if job.spec.name == key]
            own = [job for job in by_name if job.spec.user == user]
            job = next(reversed(own or by_name), None)
        if job is not None and not job.state.terminal:
            return job
        row = await self.store.job(key, user)
        if row is None:
            raise UnknownJob(f"unknown job {key!r}; `reshape get` lists the jobs")
        text = f"{row.id} is {row.state.value} and cannot be {what}"
        raise Conflict(text, already_done=row.state.value == what)

    def _host(self, host: str) -> HostId:
        if host not in self._loop.engine.state.hosts:
            known = ", ".join(self._loop.engine.state.hosts) or "none"
            raise UnknownHost(f"unknown host {host!r} (known: {known})")
        return HostId(host)

    async def _commit(
        self, *events: ev.Event, on_settled: Callable[[], None] | None = None
    ) -> None:
        """Post events and wait until they are in the log and readable. Raises NotReady.

        ``on_settled`` is called once they are in the log or cannot get there any more; this
        may be after NotReady was raised.
        """
        if self._loop.journal.problem:
            if on_settled is not None:
                on_settled()
            raise NotReady(f"nothing was accepted; {self._loop.journal.problem}")
        posted = asyncio.ensure_future(self._loop.commit(*events))
        if on_settled is not None:
            posted.add_done_callback(lambda _: on_settled())
        try:
            async with asyncio.timeout(COMMIT_WAIT_S):
                readable = await asyncio.shield(posted)
        except Stopped as error:
            raise NotReady(f"{error}; check with `reshape get`, then try again") from error
        except TimeoutError:
            why = self.ready()[1].partition("; remedy: ")[0] or "the store is slow"
            raise NotReady(
                f"the store did not take the request within {COMMIT_WAIT_S:.0f} s ({why}); "
                "it may still accept it: check with `reshape get` before you try again"
            ) from None
        if not readable:
            raise NotReady(
                "the request is in the log, but the store cannot show it now: "
                "check with `reshape get` later, and do not repeat the request"
            )
