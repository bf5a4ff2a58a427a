"""The agent: drives the training process towards the desired state, and reports what it observes.

Does: connects init, the coordinator, training and the clock to the decisions of ``converge``. The
agent ends if its init does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from reshape_sidecar import gpu, limits
from reshape_sidecar.agent import (
    converge,
    process_exit,
    reporting,
    selfcheck,
    standby,
    timing,
    worker_address,
    workplace,
)
from reshape_sidecar.agent.actions import Actions
from reshape_sidecar.agent.coordinator_link import CoordinatorLink
from reshape_sidecar.agent.init_link import InitLink
from reshape_sidecar.agent.silence import Silence, signs
from reshape_sidecar.agent.spec import DeviceMode, Folder
from reshape_sidecar.agent.state import AgentState
from reshape_sidecar.agent.timing import Timestamps
from reshape_sidecar.agent.training_server import serve
from reshape_sidecar.contract import HookPhase, HookReport
from reshape_sidecar.init.values import SOCKET_NAME
from reshape_sidecar.user import User, run_as
from reshape_sidecar.wire import Desired

log = logging.getLogger("agent")


class Agent:
    """One run of the agent of one attempt."""

    def __init__(self, folder: Folder, user: User | None = None) -> None:
        self._folder = folder
        self._user = user
        """Who runs training, and whose the files are that a record names; None: this user."""
        self._state = AgentState(folder, user)
        self._link = CoordinatorLink(
            self._state.spec,
            token=folder.token,
            observe=self._state.observe_next,
            learn=self._learn,
            on_acknowledged=self._state.wake.set,
        )
        self._state.push = self._link.push

    async def run(self) -> None:
        """Serve until init ends this agent. Raises InitGone if init is gone."""
        state = self._state
        log.info("agent pid %s, start number %s", os.getpid(), state.memory.boot)
        term = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, term.set)
        init = await InitLink.open(self._folder.run / SOCKET_NAME, self._on_status)
        state.status = lambda: init.status
        await self._find_workplace()
        self._use_zygote(init)
        server = serve(self._folder.socket, self._on_report, state.observe, self._user)
        endless: list[Coroutine[Any, Any, Any]] = [
            term.wait(),
            init.listen(),
            self._converge_forever(Actions(state, init, self._link)),
            self._link.poll_forever(),
            self._link.push_forever(),
            self._watch_surroundings_forever(),
            self._watch_for_silence_forever(),
        ]
        if state.spec.workers > 1:
            self._write_save_step()
            endless.append(self._offer_address_forever())
        tasks = [asyncio.create_task(work) for work in endless]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            await self._link.push_once(limits.AGENT_END_S / 2)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            server.stop()
            init.close()

    async def _find_workplace(self) -> None:
        """Have training run where it can write, before anything runs there."""
        state = self._state
        code = Path(state.spec.code)
        work = None if state.spec.work is None else Path(state.spec.work)
        try:
            found = await asyncio.to_thread(workplace.folder_for, code, work)
        except workplace.NoWorkplace as error:
            state.fault = str(error)
            return
        if found != code:
            log.info("the code in %s cannot be written: training runs in %s", code, found)
            state.spec = replace(state.spec, code=str(found))

    def _use_zygote(self, init: InitLink) -> None:
        """Have init keep a zygote from now on, unless this attempt shall have none."""
        if init.status.zygote is None:
            return  # an init of a release without zygotes would not understand the request
        state = self._state
        request = standby.request(state.spec, self._folder, dict(os.environ), self._user)
        if isinstance(request, str):
            state.zygote_refusal = request
        else:
            state.uses_zygote = True
            init.send(request)

    def _learn(self, desired: Desired) -> bool:
        """Accept a desired state; True if it is newer than the one before."""
        state = self._state
        old = state.memory.desired
        verdict = reporting.refusal_of(state.spec, old, desired)
        if verdict is not None:
            if verdict:
                log.warning("%s", verdict)
            return False
        if old is not None and desired.generation == old.generation:
            state.persist(desired=desired)
            self._write_save_step()
            return True
        mode, size = desired.mode.value, len(desired.devices)
        log.info("generation %s: %s on %s devices", desired.generation, mode, size)
        now_s = time.monotonic()
        state.timestamps = Timestamps(now_s)
        state.persist(desired=desired, learned_at_s=now_s)
        self._write_save_step()
        return True

    def _write_save_step(self) -> None:
        """Write the step of the save barrier for training, before any report can confirm it."""
        desired = self._state.memory.desired
        if self._state.spec.workers > 1 and desired is not None:
            worker_address.write(self._folder.run, desired.meeting)

    async def _offer_address_forever(self) -> None:
        """Offer an address for the next start; a new one as soon as a start has used it."""
        state = self._state
        while True:
            if state.address is None:
                try:
                    state.address = worker_address.address(state.spec.coordinator_url)
                    state.push()
                except OSError as error:
                    log.warning("no way to the coordinator: %s", error)
            await asyncio.sleep(limits.ADDRESS_CHECK_S)

    def _on_report(self, report: HookReport) -> bool:
        """Accept a report of training; False if it is of another start."""
        state = self._state
        training = state.status().training
        if training is None or report.generation != training.generation:
            return False
        if report.phase is HookPhase.NOTICED:
            noticed = replace(
                state.memory.progress,
                trajectory=report.progress.trajectory,
                trajectory_reason=report.progress.trajectory_reason,
            )
            state.memory = replace(state.memory, progress=noticed)
            state.push()
            return True
        before, state.hook = state.hook, report
        is_expected = report.phase is not HookPhase.IMPORTING
        state.prepares_s = max(
            state.prepares_s, limits.FIRST_STEP_SEEN_S if is_expected else limits.HOOKED_RUNNING_S
        )
        if report.phase is HookPhase.SAVED and state.timestamps.saved_at_s is None:
            state.timestamps = replace(state.timestamps, saved_at_s=time.monotonic())
        step = report.progress.checkpoint_step
        if step is None:
            step = state.memory.progress.checkpoint_step
        progress = replace(report.progress, checkpoint_step=step)
        times = timing.add_reported_times(state.memory.times, report)
        # Not worth a write to the disk: training reports progress again.
        state.memory = replace(state.memory, progress=progress, times=times)
        first = state.memory.trained_generation < report.generation
        if report.first_step_s is not None and first:
            state.note_trained(report.generation)
        if (
            before is None
            or before.phase is not report.phase
            or before.asks_step != report.asks_step
            or before.progress.target != report.progress.target
        ):
            state.wake.set()
            state.push()
        return True

    def _on_status(self) -> None:
        state = self._state
        training = state.status().training
        if training is not None and training.generation == state.memory.generation:
            times = timing.add_kind(state.memory.times, training)
            if state.timestamps.spawned_at_s is None:
                state.timestamps = replace(state.timestamps, spawned_at_s=training.spawned_at_s)
                times = timing.add_start_times(times, state.timestamps)
            state.memory = replace(state.memory, times=times)
        state.wake.set()
        state.push()

    async def _watch_surroundings_forever(self) -> None:
        """Run the self-check once; then read the GPUs, if they are real."""
        state = self._state
        env = dict(os.environ) | dict(state.spec.env)
        state.fault = state.fault or await asyncio.to_thread(
            selfcheck.fault, state.spec, self._folder, env, self._user
        )
        state.checked = True
        if state.fault is not None:
            log.error("self-check: %s", state.fault)
        state.wake.set()
        state.push()
        while True:
            await self._read_saved_step()
            if state.spec.device_mode is DeviceMode.POOL:
                state.gpu_use = await asyncio.to_thread(gpu.use, state.spec.host_devices)
            await asyncio.sleep(limits.HEARTBEAT_S)

    async def _watch_for_silence_forever(self) -> None:
        """Measure for how long a start has been silent, from its request on, or a program that
        reports no steps."""
        state, heard = self._state, Silence(0, 0.0)
        while True:
            memory, status = state.memory, state.status()
            now_s = time.monotonic()
            training = status.training
            trains_unseen = state.hook is None and training is not None and training.running
            if not (trains_unseen or converge.is_under_way(memory, status)):
                state.silent_s = None
            else:
                if heard.generation != memory.generation:
                    heard = Silence(memory.generation, now_s)
                with contextlib.suppress(OSError):  # what cannot be seen now is no silence
                    logs = self._folder.logs
                    found = await asyncio.to_thread(signs, status.pid, os.getpid(), logs)
                    heard.look(found, now_s)
                    state.silent_s = heard.reported_s(now_s)
            await asyncio.sleep(limits.SILENCE_LOOK_S)

    async def _read_saved_step(self) -> None:
        """Read which step a program has saved by itself; in memory only, as its exit tells it."""
        state = self._state
        before, training = state.memory, state.status().training
        if state.spec.worker or training is None or not training.running:
            return  # what is there may be an earlier job's
        step, known = before.progress.step, before.progress.checkpoint_step
        saved = await asyncio.to_thread(
            run_as,
            state.user,
            process_exit.saved_by_itself,
            state.spec,
            step,
            before.own_saved_step,
        )
        reports = state.hook is not None and state.hook.progress.checkpoint_step is not None
        is_new = saved is not None and (saved != before.own_saved_step or saved <= step)
        if is_new and not reports and saved != known and state.memory is before:
            progress = replace(before.progress, checkpoint_step=saved)
            state.memory = replace(before, progress=progress)
            state.push()

    async def _converge_forever(self, actions: Actions) -> None:
        state = self._state
        while True:
            state.wake.clear()
            now_s = time.monotonic()
            due_s = self._notice_first_step(now_s)
            status = state.status()
            if not reporting.can_prepare(state.spec, status):
                # An order to prepare that comes all the same must not reach a GPU.
                status = replace(status, prepare_number=None)
            action = converge.decide(
                state.memory, status, saving=state.saving, ready=state.ready, now_s=now_s
            )
            if not isinstance(action, converge.Idle):
                await actions.do(action)
                continue
            dues = [moment for moment in (due_s, action.until_s) if moment is not None]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(dues) - now_s if dues else None):
                    await state.wake.wait()

    def _notice_first_step(self, now_s: float) -> float | None:
        """Count a program that does not report its first step as running after a while.

        Returns when, if that time has not come.
        """
        state = self._state
        training = state.status().training
        if training is None or not training.running:
            return None
        if state.memory.trained_generation >= training.generation:
            return None
        due_s = training.spawned_at_s + state.prepares_s
        if now_s < due_s:
            return due_s
        state.note_trained(training.generation)
        return None
