"""Carries out commands after their append: launches, desired states, release checks, removals.

Does: turns each command into an idempotent effect, and the end of each effect into an event;
watches the containers, because their end is an event too. ``carry_out`` does not wait. After a
restart the engine names the commands whose effects are outstanding again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import structlog

from reshape_controller.core import events as ev
from reshape_controller.core import gang
from reshape_controller.core.attempts import is_given_up, save_deadline_s
from reshape_controller.core.commands import CheckRelease, Command, Launch, Remove, SetDesired
from reshape_controller.core.engine import Engine
from reshape_controller.core.model import (
    DeadlineKind,
    FieldError,
    GpuId,
    HostId,
    Job,
    JobId,
    JobSpec,
    Spans,
    Stage,
)
from reshape_controller.core.state import State
from reshape_controller.live.container_ends import answering, end_of
from reshape_controller.live.launching import LaunchSettings, launch_spec
from reshape_controller.live.own_faults import OwnFaults
from reshape_controller.live.sidecar_hub import SidecarHub
from reshape_controller.live.tokens import Tokens
from reshape_launcher.spec import (
    ContainerStatus,
    HostShare,
    Launcher,
    LaunchError,
    LaunchSpec,
    ReleaseCheck,
)

REASON_CHARS_MAX = 2_000
"""Most characters of a container's reason that are taken in."""
WATCH_EVERY_S = 1.0
"""Pause between two checks of the containers, and of silent SideCars."""
WATCH_AGAIN_S = 0.1
"""The same while a container ends in time whose GPUs a job waits for."""
RELEASE_POLL_S = 0.1
"""Pause between two checks of a release."""
RELEASE_AGAIN_S = 1.0
"""Pause after a check that failed."""
RELEASE_ROUND_S = 5.0
"""Time for which a release is checked before ``ReleaseNotEmpty`` is posted."""

log = structlog.get_logger("reshape.effects")


class Action(StrEnum):
    """Kind of an effect that takes time."""

    LAUNCH = "launch"
    CHECK_RELEASE = "check-release"
    REMOVE = "remove"
    MEND = "mend"


@dataclass(frozen=True, slots=True)
class EffectKey:
    """Identity of an effect: a repeated command does not start it twice."""

    action: Action
    job: str
    attempt: int
    generation: int = 0
    """Of a release check; 0 otherwise."""
    gpus: tuple[GpuId, ...] = ()
    """Of a release check; empty otherwise."""
    hosts: tuple[str, ...] = ()
    """Of a removal that is limited to hosts of a gang; empty otherwise."""


class Effects:
    """One per daemon. ``post`` gives events to the loop."""

    def __init__(
        self,
        launcher: Launcher,
        hub: SidecarHub,
        tokens: Tokens,
        settings: LaunchSettings,
        post: Callable[[ev.Event], None],
    ) -> None:
        self._launcher = launcher
        self._hub = hub
        self._tokens = tokens
        self._settings = settings
        self._post = post
        self._own_faults = OwnFaults(post)
        self._tasks: dict[EffectKey, asyncio.Task[None]] = {}
        self._attempts: set[tuple[str, int]] = set()
        """Job and attempt of each container that was launched; only these can be missing."""
        self._troubles: dict[tuple[str, int], str] = {}
        """Why a container has not come up yet, by job and attempt, as of the newest check."""

    def refusals(self, spec: JobSpec) -> tuple[FieldError, ...]:
        """Why the launcher can launch no job of this record, field by field; empty if it can."""
        job = Job(JobId(spec.name), spec, 0, 0.0)
        trial = launch_spec(self._settings, job, HostId("any"), (), epoch=0, save_s=0.0)
        refusals = self._launcher.refusals(trial)
        if spec.span is not Spans.NEVER:
            no_gang = self._launcher.no_gang()
            refusals += () if no_gang is None else (no_gang,)
        return tuple(FieldError(r.field, r.what, r.remedy) for r in refusals)

    def carry_out(self, engine: Engine, commands: tuple[Command, ...]) -> None:
        """Begin to carry out what was committed. Returns at once."""
        for command in commands:
            match command:
                case SetDesired(desired):
                    known = engine.state.jobs.get(JobId(desired.job))
                    desired = replace(desired, failed=known is not None and is_given_up(known))
                    if known is not None and known.suspended:
                        self._hub.begin_again(desired, known.spec.workers)
                    else:
                        self._hub.set_desired(desired, _workers(engine.state, desired.job))
                    if EffectKey(Action.LAUNCH, desired.job, desired.attempt) not in self._tasks:
                        self._attempts.add((desired.job, desired.attempt))
                case Launch(epoch, job_id, attempt, host_id):
                    job = engine.state.jobs.get(job_id)
                    if job is None or job.attempt != attempt:
                        continue
                    newest = engine.desired(job_id)
                    if newest is not None:
                        self._hub.set_desired(newest, job.spec.workers, launching=True)
                    spec = self._spec(engine.state, job, host_id, epoch)
                    key = EffectKey(Action.LAUNCH, job_id, attempt)
                    self._begin(key, self._launch(spec, job.only_host))
                case CheckRelease():
                    gpu = engine.state.gpus.get(command.gpus[0])
                    host = "" if gpu is None else gpu.host
                    self._begin(_release_key(command), self._check_release(command, host))
                case Remove(_, job_id, attempt, grace_s):
                    job = engine.state.jobs.get(job_id)
                    is_newest = job is not None and job.attempt == attempt
                    hosts = answering(engine.state, job) if job is not None and is_newest else ()
                    self._begin_removal(
                        _end(job_id, attempt, "its container was removed"), grace_s, hosts
                    )
        for job_id in self._hub.jobs():
            job = engine.state.jobs.get(job_id)
            if job is None or job.stage is Stage.NONE:
                self._hub.forget(job_id)

    def _spec(self, state: State, job: Job, host: HostId, epoch: int) -> LaunchSpec:
        """Describe the launch of the job's newest attempt on a host."""
        save_s, shown = save_deadline_s(state, job), _shown(state, host)
        spec = launch_spec(self._settings, job, host, shown, epoch, save_s)
        shares = gang.shares_of(job.hosts)
        return replace(
            spec, shares=tuple(HostShare(s.host, s.workers, _shown(state, s.host)) for s in shares)
        )

    async def watch(self, engine: Callable[[], Engine]) -> None:
        """Watch containers and SideCars until cancelled; neither watch waits for the other."""
        await asyncio.gather(self._watch_containers(engine), self._watch_silence(engine))

    async def _watch_containers(self, engine: Callable[[], Engine]) -> None:
        trouble = ""
        while True:
            try:
                expected = frozenset(self._attempts)
                statuses = tuple(map(_readable, await self._launcher.containers()))
                self._post_ends(expected, statuses, engine().state)
                self._post_suspensions(statuses, engine().state)
                self._begin_mends(statuses, engine().state)
                self._troubles = {
                    (s.job, s.attempt): s.reason
                    for s in statuses
                    if s.reason and s.running and not s.suspended  # the engine has that reason
                }
                trouble = ""
            except Exception as error:
                if repr(error) != trouble and isinstance(error, OSError):
                    what = "nothing is concluded, and no job fails for it"
                    log.warning("containers-not-seen", error=repr(error), consequence=what)
                elif repr(error) != trouble:
                    log.exception("watch-failed")
                trouble = repr(error)
            await asyncio.sleep(watch_pause_s(engine().state))

    async def _watch_silence(self, engine: Callable[[], Engine]) -> None:
        while True:
            self._hub.check_silence(engine().state.limits.silent_s)
            await asyncio.sleep(WATCH_EVERY_S)

    async def stop(self) -> None:
        """Cancel the effects under way; the next start repeats them. No container is touched."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def own_fault(self) -> str:
        """The fault of this machine that effects wait for now; empty if there is none."""
        return self._own_faults.problem

    def log_folder(self, job: Job) -> Path | None:
        """Folder with the log files of the job's newest attempt; None if this machine has none."""
        path = self._launcher.log_path(job.id, job.attempt)
        return Path(path) if path is not None else None

    def trouble(self, job: Job) -> str:
        """Why the container of the job's newest attempt has not come up yet; empty if no reason is
        known."""
        return self._troubles.get((job.id, job.attempt), "")

    def _begin(self, key: EffectKey, effect: Coroutine[Any, Any, None]) -> None:
        """Start an effect unless it is under way."""
        if key in self._tasks:
            effect.close()
            return
        task = asyncio.create_task(effect)
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._on_done(key, done))

    def _on_done(self, key: EffectKey, task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled() and task.exception() is not None:
            log.error("effect-failed", effect=str(key), error=repr(task.exception()))

    async def _launch(self, spec: LaunchSpec, only_host: HostId | None) -> None:
        """Launch a container, after a check of which host reaches the job's files.

        ``only_host``: the single host that reaches them, as the engine knows it.
        """
        job, attempt = JobId(spec.job), spec.attempt
        try:
            files = await self._launcher.one_host(spec)
            if files is not None:
                host = HostId(files.host)
                if host != only_host or spec.hosts != (host,):
                    self._post(ev.FilesFound(job, attempt, host, files.reason))
                if spec.hosts != (host,):
                    return
            elif only_host is not None:
                self._post(ev.FilesFound(job, attempt, None))
            token = self._tokens.of(spec.job, attempt)
            await self._own_faults.ride_out(
                f"launch of {job}",
                lambda: self._launcher.launch(spec, token),
                lambda: not self._is_removed(job, attempt),
            )
            self._attempts.add((spec.job, attempt))
        except LaunchError as error:
            self._post(ev.LaunchFailed(job, attempt, str(error), error.retryable))
        except Exception as error:
            log.exception("launch-failed", job=spec.job, attempt=attempt)
            self._post(ev.LaunchFailed(job, attempt, f"the launcher failed: {error!r}"))

    def _begin_mends(self, statuses: tuple[ContainerStatus, ...], state: State) -> None:
        """Have the launcher write the torn files of living containers again."""
        for status in statuses:
            job = state.jobs.get(JobId(status.job))
            if not status.torn or job is None or job.attempt != status.attempt or job.host is None:
                continue
            if EffectKey(Action.LAUNCH, job.id, job.attempt) not in self._tasks:
                spec = self._spec(state, job, job.host, state.epoch)
                key = EffectKey(Action.MEND, job.id, job.attempt)
                self._begin(key, self._mend(spec, status.torn))

    async def _mend(self, spec: LaunchSpec, torn: str) -> None:
        try:
            await self._launcher.launch(spec, self._tokens.of(spec.job, spec.attempt))
            log.warning("launch-file-mended", job=spec.job, attempt=spec.attempt, torn=torn)
        except LaunchError as error:  # the next look tries again
            log.warning("launch-file-torn", job=spec.job, torn=torn, error=str(error))

    def _begin_removal(
        self, end: ContainerStatus, grace_s: float, hosts: tuple[str, ...] = ()
    ) -> None:
        """Begin to remove an attempt, of a gang on ``hosts`` only; ``end`` is posted afterwards."""
        key = EffectKey(Action.REMOVE, end.job, end.attempt, hosts=hosts)
        self._begin(key, self._remove(end, grace_s, hosts))

    async def _remove(self, end: ContainerStatus, grace_s: float, hosts: tuple[str, ...]) -> None:
        launch = self._tasks.get(EffectKey(Action.LAUNCH, end.job, end.attempt))
        if launch is not None:  # a container that it starts after the removal would stay
            await asyncio.wait((launch,))
        await self._launcher.remove(end.job, end.attempt, grace_s, hosts)
        self._post_end(end)

    def _is_removed(self, job: str, attempt: int) -> bool:
        """Whether the attempt is being removed."""
        return any(
            (key.action, key.job, key.attempt) == (Action.REMOVE, job, attempt)
            for key in self._tasks
        )

    async def _check_release(self, check: CheckRelease, host: str) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + RELEASE_ROUND_S
        logged = ""
        while True:
            pause_s = RELEASE_POLL_S
            try:
                found = await self._own_faults.ride_out(
                    f"check of a release of {check.job}",
                    lambda: self._launcher.check_release(
                        check.job, check.attempt, check.generation, tuple(check.gpus), host
                    ),
                )
            except Exception as error:
                if repr(error) != logged:
                    log.warning("release-check-failed", job=check.job, error=repr(error))
                logged, pause_s = repr(error), RELEASE_AGAIN_S
                found = ReleaseCheck(False, f"the check failed: {error!r}")
            if found.empty:
                self._post(
                    ev.ReleaseVerified(check.job, check.attempt, check.generation, check.gpus)
                )
                return
            if loop.time() >= until_s:
                break
            await asyncio.sleep(pause_s)
        self._tasks.pop(_release_key(check), None)  # the engine answers with the same check
        self._post(
            ev.ReleaseNotEmpty(check.job, check.attempt, check.generation, check.gpus, found.reason)
        )

    def _post_ends(
        self,
        expected: frozenset[tuple[str, int]],
        statuses: tuple[ContainerStatus, ...],
        state: State,
    ) -> None:
        """Post the end of each container that was ``expected`` before ``statuses`` were read.

        Where something of it may run, that is removed first (``container_ends``). Containers of
        earlier attempts are removed too.
        """
        listed: dict[tuple[str, int], list[ContainerStatus]] = {}
        for status in statuses:
            listed.setdefault((status.job, status.attempt), []).append(status)
        newest = {(str(j.id), j.attempt): j for j in state.jobs.values() if j.stage != Stage.NONE}
        self._attempts -= expected - newest.keys()
        grace_s = state.limits.kill_after_s
        for old in statuses:
            found = state.jobs.get(JobId(old.job))
            if old.running and found is not None and old.attempt < found.attempt:
                end = _end(found.id, old.attempt, "a later attempt replaced it")
                self._begin_removal(end, grace_s)
        for key, job in newest.items():
            if key not in expected or (job.hosts and self._is_removed(*key)):
                continue
            ended = end_of(state, job, listed.get(key, ()))
            if ended is None or key not in self._attempts:
                continue
            if ended.is_whole:
                self._post_end(ended.status)
            else:
                self._begin_removal(ended.status, grace_s, answering(state, job))

    def _post_suspensions(self, statuses: tuple[ContainerStatus, ...], state: State) -> None:
        """Post each container that another controller suspended, or lets start again."""
        for status in statuses:
            job = state.jobs.get(JobId(status.job))
            if job is None or job.attempt != status.attempt or job.stage is Stage.NONE:
                continue
            if not status.running or status.suspended == job.suspended:
                continue
            if status.suspended:
                self._hub.post_last_report(job.id, job.attempt)
                self._post(ev.ContainerSuspended(job.id, job.attempt, status.suspended))
            else:
                self._post(ev.ContainerAdmitted(job.id, job.attempt))

    def _post_end(self, end: ContainerStatus) -> None:
        job, attempt = JobId(end.job), end.attempt
        self._attempts.discard((job, attempt))
        if end.lasting:  # the engine ignores it if the job came up or ended meanwhile
            self._post(ev.LaunchFailed(job, attempt, end.reason, retryable=False))
        self._hub.post_last_report(job, attempt)
        seen, code, reason = self._hub.observed(job), end.exit_code, end.reason
        if code is None and seen is not None and seen.attempt == attempt and seen.ending:
            # Its pod is gone, and with it the exit code that init has told of before.
            code, reason = 0, "it ended in order, as after a deletion or an eviction"
        self._post(ev.ContainerGone(job, attempt, code, reason, end.unscheduled))


def _readable(status: ContainerStatus) -> ContainerStatus:
    """Return a status whose reason is as long and as whole as people need: a program of the job may
    have written it."""
    reason = status.reason[:REASON_CHARS_MAX].encode(errors="replace").decode()
    return status if reason == status.reason else replace(status, reason=reason)


def _end(job: JobId, attempt: int, reason: str) -> ContainerStatus:
    """Return the end of a container that is removed for a reason."""
    return ContainerStatus(job, attempt, False, reason=reason)


def _shown(state: State, host: HostId) -> tuple[GpuId, ...]:
    """Return the GPUs that a host shows now."""
    return tuple(gpu.id for gpu in state.gpus_of_host(host) if not gpu.unseen)


def _release_key(check: CheckRelease) -> EffectKey:
    return EffectKey(
        Action.CHECK_RELEASE, check.job, check.attempt, check.generation, tuple(check.gpus)
    )


def _workers(state: State, job: str) -> int:
    """Number of workers of a job; 1 for a job that is not there any more."""
    entry = state.jobs.get(JobId(job))
    return 1 if entry is None else entry.spec.workers


def watch_pause_s(state: State) -> float:
    """Return the pause until the next look at the containers."""
    hurry = any(_is_waited_for(state, job) for job in state.jobs.values())
    return WATCH_AGAIN_S if hurry else WATCH_EVERY_S


def _is_waited_for(state: State, job: Job) -> bool:
    """Whether a job waits for GPUs of this one, whose container ends and still has time to."""
    in_time = job.deadline is not None and job.deadline.kind is DeadlineKind.END
    if job.stage is not Stage.ENDING or not in_time:
        return False
    promised = any(state.gpus[gpu].promised_to is not None for gpu in job.gpus)
    return promised or job.hand_over is not None
