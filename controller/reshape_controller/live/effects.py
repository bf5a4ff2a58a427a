"""Carries out commands after their append: launches, desired states, release checks, removals.

Does: turns each command into an idempotent effect and each effect's end into an event; watches
the containers, because their end is an event too. Never: decides, or waits within ``carry_out``.
State: the effects under way; after a restart the engine names them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import structlog

from reshape_controller.core import events as ev
from reshape_controller.core.attempts import save_deadline_s
from reshape_controller.core.commands import CheckRelease, Command, Launch, Remove, SetDesired
from reshape_controller.core.engine import Engine
from reshape_controller.core.model import FieldError, HostId, Job, JobId, JobSpec, Stage
from reshape_controller.core.state import State
from reshape_controller.live.launching import LaunchSettings, launch_spec
from reshape_controller.live.sidecar_hub import SidecarHub
from reshape_controller.live.tokens import Tokens
from reshape_launcher.spec import (
    ContainerStatus,
    Launcher,
    LaunchError,
    LaunchSpec,
    ReleaseCheck,
)

WATCH_EVERY_S = 1.0
"""Pause between two looks at the containers and at silent SideCars."""
RELEASE_POLL_S = 0.1
RELEASE_ROUND_S = 5.0
"""A release is looked at so long before ``ReleaseNotEmpty`` says that it still is not empty."""

log = structlog.get_logger("reshape.executor")


class Effects:
    """One per daemon. ``post`` gives events to the loop."""

    def __init__(
        self,
        launcher: Launcher,
        link: SidecarHub,
        tokens: Tokens,
        settings: LaunchSettings,
        post: Callable[[ev.Event], None],
    ) -> None:
        self._launcher = launcher
        self._link = link
        self._tokens = tokens
        self._settings = settings
        self._post = post
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._there: set[tuple[str, int]] = set()
        """Attempts whose container was launched; only these can be missed."""
        self._troubles: dict[tuple[str, int], str] = {}
        """Why a container that is to come up has not yet, as of the newest look."""

    def refusals(self, spec: JobSpec) -> tuple[FieldError, ...]:
        """Why the launcher could never launch a job of this record, field by field."""
        job = Job(JobId(spec.name), spec, 0, 0.0)
        wanted = launch_spec(self._settings, job, HostId("any"), (), epoch=0, save_s=0.0)
        refused = self._launcher.refusals(wanted)
        return tuple(FieldError(one.field, one.what, one.remedy) for one in refused)

    def carry_out(self, engine: Engine, commands: tuple[Command, ...]) -> None:
        """Begin to carry out what was committed. Returns at once."""
        for command in commands:
            match command:
                case SetDesired(desired):
                    self._link.tell(desired, _workers(engine.state, desired.job))
                    if ("launch", desired.job, desired.attempt) not in self._tasks:
                        self._there.add((desired.job, desired.attempt))
                case Launch(epoch, job_id, attempt, host_id):
                    job = engine.state.jobs.get(job_id)
                    if job is None or job.attempt != attempt:
                        continue
                    desired_now = engine.desired(job_id)
                    if desired_now is not None:
                        self._link.tell(desired_now, job.spec.workers, launching=True)
                    save_s = save_deadline_s(engine.state, job)
                    there = engine.state.gpus_of_host(host_id)
                    shown = tuple(gpu.id for gpu in there if not gpu.unseen)
                    spec = launch_spec(self._settings, job, host_id, shown, epoch, save_s)
                    self._begin(("launch", job_id, attempt), self._launch(spec, job.only_host))
                case CheckRelease():
                    self._begin(command, self._check_release(command))
                case Remove(_, job_id, attempt, grace_s):
                    self._begin_removal(job_id, attempt, grace_s, "its container was removed")
        for job_id in self._link.jobs():
            job = engine.state.jobs.get(job_id)
            if job is None or job.stage is Stage.NONE:
                self._link.forget(job_id)

    async def watch(self, engine: Callable[[], Engine]) -> None:
        """Look after containers and SideCars until cancelled; neither waits for the other."""
        await asyncio.gather(self._watch_containers(engine), self._watch_silence(engine))

    async def _watch_containers(self, engine: Callable[[], Engine]) -> None:
        trouble = ""
        while True:
            try:
                there = frozenset(self._there)
                statuses = await self._launcher.containers()
                self._look_at(there, statuses, engine().state)
                self._troubles = {(s.job, s.attempt): s.reason for s in statuses if s.running}
                trouble = ""
            except Exception as error:
                if repr(error) != trouble:
                    log.exception("watch-failed")
                trouble = repr(error)
            await asyncio.sleep(WATCH_EVERY_S)

    async def _watch_silence(self, engine: Callable[[], Engine]) -> None:
        while True:
            self._link.check_silence(engine().state.limits.silent_s)
            await asyncio.sleep(WATCH_EVERY_S)

    async def stop(self) -> None:
        """Give up the effects under way; a start repeats them. No container is touched."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def log_folder(self, job: Job) -> Path | None:
        """Folder with the log files of the job's newest attempt, if this machine can read it."""
        path = self._launcher.log_path(job.id, job.attempt)
        return Path(path) if path is not None else None

    def trouble(self, job: Job) -> str:
        """Why the container of the job's newest attempt has not come up yet; nothing if it has, or
        if it simply takes its time."""
        return self._troubles.get((job.id, job.attempt), "")

    def _begin(self, key: object, effect: Coroutine[Any, Any, None]) -> None:
        """Start an effect unless the same one is under way."""
        if key in self._tasks:
            effect.close()
            return
        task = asyncio.create_task(effect)
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._ended(key, done))

    def _ended(self, key: object, task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled() and task.exception() is not None:
            log.error("effect-failed", effect=str(key), error=repr(task.exception()))

    async def _launch(self, spec: LaunchSpec, only_host: HostId | None) -> None:
        """``only_host``: what is known so far of where the job's files are."""
        job, attempt = JobId(spec.job), spec.attempt
        try:
            found = await self._launcher.one_host(spec)
            if found is not None:
                host = HostId(found.host)
                if host != only_host or host != spec.host:
                    self._post(ev.FilesFound(job, attempt, host, found.reason))
                if host != spec.host:
                    return
            elif only_host is not None:
                self._post(ev.FilesFound(job, attempt, None))
            await self._launcher.launch(spec, self._tokens.of(spec.job, attempt))
            self._there.add((spec.job, attempt))
        except LaunchError as error:
            self._post(ev.LaunchFailed(job, attempt, str(error), error.retryable))
        except Exception as error:
            log.exception("launch-failed", job=spec.job, attempt=attempt)
            self._post(ev.LaunchFailed(job, attempt, f"the launcher failed: {error!r}"))

    def _begin_removal(self, job: JobId, attempt: int, grace_s: float, reason: str) -> None:
        effect = self._remove(job, attempt, grace_s, reason)
        self._begin(("remove", job, attempt), effect)

    async def _remove(self, job: JobId, attempt: int, grace_s: float, reason: str) -> None:
        launch = self._tasks.get(("launch", job, attempt))
        if launch is not None:  # what it starts after the removal would never end
            await asyncio.wait((launch,))
        await self._launcher.remove(job, attempt, grace_s)
        self._gone(job, attempt, None, reason)

    async def _check_release(self, check: CheckRelease) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + RELEASE_ROUND_S
        while True:
            try:
                found = await self._launcher.check_release(
                    check.job, check.attempt, check.generation, tuple(check.gpus)
                )
            except Exception as error:
                log.warning("release-check-failed", job=check.job, error=repr(error))
                found = ReleaseCheck(False, f"the check failed: {error!r}")
            if found.empty:
                self._post(
                    ev.ReleaseVerified(check.job, check.attempt, check.generation, check.gpus)
                )
                return
            if loop.time() >= until_s:
                break
            await asyncio.sleep(RELEASE_POLL_S)
        self._tasks.pop(check, None)  # what this event brings about is the same check again
        self._post(
            ev.ReleaseNotEmpty(check.job, check.attempt, check.generation, check.gpus, found.reason)
        )

    def _look_at(
        self,
        there: frozenset[tuple[str, int]],
        statuses: tuple[ContainerStatus, ...],
        state: State,
    ) -> None:
        """Post the end of containers that were ``there`` before ``statuses`` were asked for.

        One that is not listed at all may be there all the same (its folder is lost): it is removed
        first.
        """
        seen = {(status.job, status.attempt): status for status in statuses}
        missable = {(str(j.id), j.attempt): j for j in state.jobs.values() if j.stage != Stage.NONE}
        self._there -= there - missable.keys()
        grace_s = state.limits.kill_after_s
        for old in statuses:
            found = state.jobs.get(JobId(old.job))
            if old.running and found is not None and old.attempt < found.attempt:
                self._begin_removal(found.id, old.attempt, grace_s, "a later attempt replaced it")
        for key, job in missable.items():
            if key not in there:
                continue
            status = seen.get(key)
            if status is None:
                self._begin_removal(job.id, job.attempt, grace_s, "its container does not exist")
            elif not status.running:
                self._container_gone(job.id, status)

    def _container_gone(self, job: JobId, status: ContainerStatus) -> None:
        attempt, reason = status.attempt, status.reason
        if (job, attempt) in self._there:
            if status.lasting:  # of no consequence to a job that came up or was ended meanwhile
                self._post(ev.LaunchFailed(job, attempt, reason, retryable=False))
            self._gone(job, attempt, status.exit_code, reason)

    def _gone(self, job: JobId, attempt: int, exit_code: int | None, reason: str) -> None:
        self._there.discard((job, attempt))
        self._link.last_word(job, attempt)
        self._post(ev.ContainerGone(job, attempt, exit_code, reason))


def _workers(state: State, job: str) -> int:
    known = state.jobs.get(JobId(job))
    return 1 if known is None else known.spec.workers
