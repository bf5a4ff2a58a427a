"""Carries out the actions that ``converge`` decides, one at a time; persists before it acts.

Does: sends requests to init, reads checkpoints, writes the claim and prepares starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from dataclasses import replace
from functools import partial

from reshape_sidecar import cgroup, checkpoints, claims, foreign, limits, step_file, takeover
from reshape_sidecar.agent import (
    converge,
    environment,
    library,
    process_exit,
    standby,
    timing,
    worker_address,
)
from reshape_sidecar.agent.coordinator_link import CoordinatorLink
from reshape_sidecar.agent.init_link import InitLink
from reshape_sidecar.agent.reads import Reads
from reshape_sidecar.agent.reporting import ready_after_s
from reshape_sidecar.agent.state import AgentState
from reshape_sidecar.contract import ENV_HASHED_GENERATION, HookPhase
from reshape_sidecar.init import values as init
from reshape_sidecar.init.values import KEEP_RUNNING_FILE
from reshape_sidecar.user import run_as
from reshape_sidecar.wire import Desired, Mode, Outcome, OutcomeKind, PhaseTimes

log = logging.getLogger("agent")


class Actions:
    """The actions of the agent on its state, its init and its checkpoints."""

    def __init__(self, state: AgentState, init_link: InitLink, link: CoordinatorLink) -> None:
        self._state = state
        self._init = init_link
        self._link = link
        self._spawn: init.Spawn | None = None
        """Request of the newest start, built once, so that a repetition is the same request."""
        self._preparation: init.Prepare | None = None
        """The newest request to prepare, built once as well."""
        self._reads = Reads(state.user, self._end_by_s)
        self._memory_kills = cgroup.oom_kills()
        self._exit: tuple[int, int, float] | None = None
        """Generation of the exit, sequence of its first report, time to end without an answer."""

    async def do(self, action: converge.Action) -> None:
        """Carry out one action other than Idle."""
        match action:
            case converge.RecordExit(training):
                await self._record_end(training)
            case converge.PersistOutcome(outcome):
                self._answer(outcome)
            case converge.PersistKillOutcome(generation):
                await self._answer_killed(generation)
            case converge.RequestSave(generation):
                if self._state.timestamps.asked_at_s is None:
                    now_s = time.monotonic()
                    self._state.timestamps = replace(self._state.timestamps, asked_at_s=now_s)
                await self._ask_init(init.SendSigterm(generation))
            case converge.WithdrawRequest(generation):
                await self._ask_init(init.WithdrawSigterm(generation))
            case converge.StopProcessTree(generation, kill_after_s, spare):
                await self._ask_init(init.Sweep(generation, kill_after_s, spare))
            case converge.ConfirmStopped(generation):
                self._confirm_stopped(generation)
            case converge.Start(generation):
                await self._start(generation)
            case converge.PrepareSuccessor(number):
                await self._prepare(number)
            case converge.AdoptSuccessor(generation, number):
                await self._start(generation, number)
            case converge.DropSuccessor(number):
                await self._ask_init(init.Drop(number))
            case converge.EndContainer():
                await self._end_container()

    def _end_by_s(self) -> float | None:
        """Return when every read of what the job wrote has to be over, if the attempt ends."""
        memory = self._state.memory
        if memory.desired is None or memory.desired.mode is not Mode.EXIT:
            return None
        return memory.learned_at_s + memory.desired.save_deadline_s

    async def _ask_init(self, request: init.Request) -> None:
        if not await self._init.ask(request):
            await self._state.wake.wait()

    async def _record_end(self, training: init.TrainingProcess) -> None:
        state = self._state
        before, self._memory_kills = self._memory_kills, cgroup.oom_kills()
        at_end = await self._at_end(training.generation)
        report = state.hook
        # Of a process whose reports an earlier agent took, its files alone say what it saved.
        has_saved = report is None or report.phase is HookPhase.SAVED
        ended = await asyncio.to_thread(
            process_exit.inspect,
            state.folder,
            training,
            at_end,
            memory_ran_out=self._memory_kills > before,
            has_saved=has_saved,
        )
        if report is not None and report.exception is not None and ended.error is not None:
            message = report.exception_message
            ended = replace(ended, exception=report.exception, exception_message=message)
        log.info("generation %s ended with exit code %s", ended.generation, ended.exit_code)
        state.timestamps = replace(state.timestamps, ended_at_s=training.ended_at_s)
        # An agent that was started again has missed reports of steps.
        known = state.memory.progress
        progress = replace(known, step=ended.step, checkpoint_step=ended.saved_step)
        state.persist(ended=ended, progress=progress)

    def _answer(self, outcome: Outcome) -> None:
        log.info(
            "generation %s: %s (saved step %s, %s steps lost)",
            outcome.generation,
            outcome.kind.value,
            outcome.saved_step,
            outcome.lost_steps,
        )
        times = self._state.memory.times
        if outcome.kind is OutcomeKind.STOPPING:
            times = self._stop_times()
        self._state.persist(outcome=outcome, times=times)

    async def _answer_killed(self, generation: int) -> None:
        state = self._state
        training = state.status().training
        of = 0 if training is None else training.generation
        at_end = await self._at_end(of)
        if generation != state.memory.generation or state.memory.answered:
            return
        step = max(at_end.step, state.memory.progress.step)
        lost = converge.lost_steps(step, at_end.saved_step)
        self._answer(Outcome(generation, OutcomeKind.STOPPING, at_end.saved_step, lost))

    async def _at_end(self, generation: int) -> process_exit.AtEnd:
        """Return the steps of the process of ``generation``: by its files, or else as reported."""
        state, memory = self._state, self._state.memory
        known = memory.progress.step
        read = partial(
            process_exit.at_end, state.spec, state.folder, generation, known, memory.own_saved_step
        )
        try:
            return await self._reads.run(read)
        except foreign.Stopped as error:
            reported = memory.progress.checkpoint_step
            log.error(
                "checkpoints are not read to the end: %s; step %s as reported", error, reported
            )
            return process_exit.AtEnd(known, reported)

    def _confirm_stopped(self, generation: int) -> None:
        state = self._state
        state.timestamps = replace(state.timestamps, swept_at_s=state.status().swept_at_s)
        state.persist(stopped_generation=generation, times=self._stop_times())

    def _stop_times(self) -> PhaseTimes:
        """Return the seconds of this stop; of the last start, if training had ended by itself."""
        state = self._state
        desired, timestamps = state.memory.desired, state.timestamps
        if timestamps.asked_at_s is None and timestamps.ended_at_s is None:
            stays = desired is not None and desired.mode is not Mode.RUN
            return state.memory.times if stays else PhaseTimes()
        return timing.stop_times(timestamps)

    async def _prepare(self, number: int) -> None:
        desired = self._state.memory.desired
        assert desired is not None
        if desired.prepare is None:
            return
        if self._preparation is None or self._preparation.number != number:
            log.info("prepares for %s", ", ".join(desired.prepare))
            like = self._spawn_request(0, replace(desired, devices=desired.prepare))
            self._preparation = init.Prepare(
                number, desired.prepare, like.command, like.folder, like.env, like.key
            )
        await self._ask_init(self._preparation)

    async def _start(self, generation: int, successor: int | None = None) -> None:
        """Start training; ``successor``: the preparation whose process goes on, if one does."""
        state = self._state
        chief = state.spec.worker == 0  # the only one of several workers that publishes
        if chief and not state.memory.claimed and not await self._claim():
            return
        folder = state.spec.checkpoint_folder
        own = await asyncio.to_thread(run_as, state.user, step_file.saved, folder)
        desired = state.memory.desired
        if desired is None or desired.generation != generation:
            return
        memory = state.memory
        prepare_s = None if successor is None else ready_after_s(state.status().prepared)
        if memory.started_generation != generation:
            state.hook = None
            state.persist(
                started_generation=generation,
                devices=desired.devices,
                process_restarts=memory.process_restarts + (memory.started_generation > 0),
                own_saved_step=own,
                progress=process_exit.progress_after(memory.progress, memory.ended),
                times=replace(memory.times, prepare_s=prepare_s),
            )
        if successor is not None:
            before = state.status().training
            hashed = () if before is None else ((ENV_HASHED_GENERATION, str(before.generation)),)
            log.info("generation %s goes on in its successor", generation)
            await self._ask_init(init.Adopt(generation, successor, hashed))
            return
        asked_at_s, now_s = memory.learned_at_s, time.monotonic()
        if state.uses_zygote and standby.is_importing(state.status(), asked_at_s, now_s):
            await self._pause()
            return
        if self._spawn is None or self._spawn.generation != generation:
            log.info("generation %s starts on %s", generation, ", ".join(desired.devices))
            self._spawn = self._spawn_request(generation, desired)
            state.address = None  # the port is taken: another start needs another one
        await self._ask_init(self._spawn)

    def _spawn_request(self, generation: int, desired: Desired) -> init.Spawn:
        state = self._state
        # Init knows it for the life of this container, so since the machine's boot.
        before = state.status().training if state.spec.worker == 0 else None
        env = environment.variables(
            state.spec,
            desired.devices,
            os.environ,
            socket=state.folder.socket,
            keep_running=state.folder.run / KEEP_RUNNING_FILE,
            now_s=time.monotonic(),
            free_port=worker_address.free_port(),
            library=library.install(state.folder.run),
            peers=desired.peers,
            meeting=state.folder.run / worker_address.MEETING_FILE,
            hashed_generation=None if before is None else before.generation,
        )
        command = environment.command(state.spec)
        pairs = tuple(sorted(env.items()))
        key = environment.zygote_key(state.spec, env) if state.uses_zygote else None
        doubt = standby.doubt(state.memory, state.status())
        return init.Spawn(generation, command, state.spec.code, pairs, key, doubt)

    async def _claim(self) -> bool:
        """Claim the checkpoints for this attempt; False if it must not train now.

        On a full disk the claim is tried again for as long as a start may take; any other failure
        makes the attempt unfit.
        """
        state, spec = self._state, self._state.spec
        folder = spec.checkpoint_folder
        try:
            message = await self._reads.run(partial(takeover.take_over, folder, spec.job))
            if message:
                log.info("%s", message)
            await self._reads.run(partial(checkpoints.claim, folder, spec.attempt, spec.job))
        except foreign.Stopped as error:
            log.error("%s: %s; this attempt ends first", folder, error)
            return False
        except checkpoints.DiskFull as error:
            if state.waits_for is None:
                log.error("%s", error)
                state.waits_for = str(error)
                state.push()
            await self._pause()
            return False
        except claims.CheckpointError as error:
            log.error("%s", error)
            state.persist(unfit=str(error))
            return False
        state.waits_for = None
        state.persist(claimed=True)
        return True

    async def _end_container(self) -> None:
        """Report the last state until it is acknowledged, refused or overdue, then end."""
        state = self._state
        now_s = time.monotonic()
        if self._exit is None or self._exit[0] != state.memory.generation:
            first = state.observe().sequence + 1
            self._exit = (state.memory.generation, first, now_s + limits.EXIT_REPORT_S)
            state.push()
        _, first, end_by_s = self._exit
        acknowledged = self._link.sequence_acknowledged >= first
        if acknowledged or self._link.unknown_attempt or now_s >= end_by_s:
            if state.memory.desired is not None and state.memory.desired.failed:
                state.note_ending(init.Ending.FAILED)
            self._init.send(init.End(limits.LEFTOVER_GRACE_S))
        await self._pause()

    async def _pause(self) -> None:
        """Wait until the state changes, at most HEARTBEAT_S."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.HEARTBEAT_S):
                await self._state.wake.wait()
