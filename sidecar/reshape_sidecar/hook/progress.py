"""The report of this process to the agent: phases with their seconds, and progress once a second.

Does: updates the newest report and hands it to the sender. Loss and accuracy are read from tensors
only if a report is due.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

from reshape_sidecar.contract import HookPhase, HookReport
from reshape_sidecar.exceptions import describe
from reshape_sidecar.hook.exactness import EXACT, Verdict
from reshape_sidecar.hook.report import PROGRESS_EVERY_S, ReportSender
from reshape_sidecar.hook.step_clock import StepClock
from reshape_sidecar.wire import (
    LEVEL_DEVICES,
    LEVEL_EVALUATIONS,
    LEVEL_PROOFS,
    LEVEL_TIMES,
    WIRE_LEVEL,
    Evaluation,
    Progress,
    Proof,
    Saves,
    TargetProgress,
)

ACCURACY_NAMES = ("accuracy", "acc")


class ProgressReporter:
    """The newest report, and the methods that change and send it."""

    def __init__(
        self,
        sender: ReportSender,
        generation: int,
        spawned_at_s: float | None,
        saves: Callable[[], Saves] | None = None,
    ) -> None:
        """``saves`` returns when this process saves; None: the agent knows no reports of level
        2."""
        self._sender = sender
        self.saves = saves
        self._lock = threading.RLock()  # a signal handler may send while this thread does
        self._report = HookReport(generation=generation, phase=HookPhase.IMPORTING)
        now_s = time.monotonic()
        # An agent older than this hook passes Unix time, which is later than now.
        self._since_s = now_s if spawned_at_s is None else min(spawned_at_s, now_s)
        self.silent = False
        """True until the release of a successor: the agent hears of its predecessor only."""
        self._sent_s = 0.0
        """Time of the newest report with loss and accuracy."""
        self.clock = StepClock()
        self.level = WIRE_LEVEL
        """Level of the reports that the agent knows."""
        self._loop_step: int | None = None
        """The newest step of a loop that nothing saves; None before its first."""
        self.verdict = Verdict(EXACT)

    def release(self, generation: int, spawned_at_s: float | None) -> None:
        """Report from now on, as the process of ``generation``.

        The phases that are over took none of the time since ``spawned_at_s``.
        """
        with self._lock:
            report = self._report
            over = {
                name: 0.0 for name in ("import_s", "build_s") if getattr(report, name) is not None
            }
            self._report = dataclasses.replace(report, generation=generation, **over)  # type: ignore[arg-type]
            self._since_s = spawned_at_s or time.monotonic()
            self.silent = False
        self._send()

    @property
    def progress(self) -> Progress:
        """Progress in the newest report."""
        return self._report.progress

    def phase(self, phase: HookPhase) -> None:
        """Enter a phase and send at once."""
        self._report = dataclasses.replace(self._report, phase=phase)
        self._send()

    def save_ended(self, seconds: float) -> None:
        """Report a save that took ``seconds``."""
        self._report = dataclasses.replace(
            self._report, phase=HookPhase.SAVED, save_s=round(seconds, 4)
        )
        self._send()

    def phase_ended(self, field: str) -> None:
        """Set ``field`` to the seconds since the last phase ended, the first time only."""
        if getattr(self._report, field) is not None:
            return
        now_s = time.monotonic()
        seconds = now_s - self._since_s
        self._since_s = now_s
        self._report = dataclasses.replace(self._report, **{field: round(seconds, 4)})  # type: ignore[arg-type]

    def update(self, **fields: Any) -> None:
        """Change fields of the progress without sending."""
        progress = dataclasses.replace(self._report.progress, **fields)
        self._report = dataclasses.replace(self._report, progress=progress)

    def due(self, now_s: float) -> bool:
        """Return whether progress is due (``now_s`` is monotonic)."""
        return now_s - self._sent_s >= PROGRESS_EVERY_S

    def report_logs(self, logs: Any) -> None:
        """Send progress with the loss and accuracy in ``logs``."""
        self._sent_s = time.monotonic()  # a report without them, as of a save, is no such progress
        if isinstance(logs, dict):
            names = [n for n in logs if n in ACCURACY_NAMES or n.endswith("_accuracy")]
            accuracy = _number(logs[names[0]]) if names else None
            self.update(loss=_number(logs.get("loss")), accuracy=accuracy)
        self._send()

    def report_target(self, target: TargetProgress) -> None:
        """Set the judgement of the target accuracy; the next report sends it."""
        self.update(target=target)

    def report_devices_used(self, devices: int | None) -> None:
        """Set how many devices this process uses; the next report sends it, if the agent knows."""
        if self.level >= LEVEL_DEVICES:
            self._report = dataclasses.replace(self._report, devices_used=devices)

    def report_evaluations(self, evaluations: tuple[Evaluation, ...]) -> None:
        """Set the newest evaluations; the next report sends them to an agent that knows them."""
        if self.level >= LEVEL_EVALUATIONS:
            self.update(evaluations=evaluations)

    def report_proof(self, proof: Proof) -> None:
        """Set what the first step shows, and send it to an agent that knows it."""
        if self.level >= LEVEL_PROOFS:
            self.update(proof=proof)
            self._send()

    def leaves(self) -> None:
        """Report that this process has saved and leaves; say nothing of what it does until then."""
        self.phase(HookPhase.SAVED)
        self.flush()
        self.silent = True

    def send(self) -> None:
        """Send the newest report now."""
        self._send()

    def set_verdict(self, verdict: Verdict) -> None:
        """Set whether the trajectory stays exact, as far as it is known now."""
        self.verdict = verdict
        self.update(trajectory=verdict.kind.value, trajectory_reason=verdict.reason)

    def request_save_after(self, step: int | None) -> None:
        """Request a save of all workers after ``step``; None withdraws the request."""
        self._report = dataclasses.replace(self._report, asks_step=step)
        self._send()

    def report_loop(self, step: int, is_current: Callable[[], bool]) -> None:
        """Report the step of a loop that nothing saves, from another thread than the loop's, unless
        ``is_current`` says that it is over."""
        with self._lock:
            if self.silent or self.saves is None or not is_current():
                return
            if step and self._loop_step is None:
                self.clock.begin(time.monotonic())
                self.phase_ended("first_step_s")
            elif self._loop_step is not None and step > self._loop_step:
                self.clock.steps_done(time.monotonic(), step - self._loop_step)
            self._loop_step = step or self._loop_step
            self._update_times()
            progress = dataclasses.replace(self._report.progress, step=step)
            report = dataclasses.replace(self._report, progress=progress, saves=self.saves())
            self._sender.send(report)

    def failed(self, error: BaseException) -> None:
        """Report the exception that ends the script, and wait until that is sent."""
        if self.saves is None:
            return
        kind, message = describe(error)
        with self._lock:
            self._report = dataclasses.replace(
                self._report, exception=kind, exception_message=message
            )
        self._send()
        self.flush()

    def flush(self) -> None:
        """Wait, for a bounded time, until the newest report is sent."""
        self._sender.flush()

    def _send(self) -> None:
        if self.silent:
            return
        step, total = self.progress.step, self.progress.total_steps
        if step is not None and total is not None and step > total:
            self.update(total_steps=step)  # the total was that of a call that is over
        self._update_times()
        with self._lock:
            saves = None if self.saves is None else self.saves()
            self._sender.send(dataclasses.replace(self._report, saves=saves))

    def _update_times(self) -> None:
        clock = self.clock
        if (step_s := clock.seconds_per_step) is None:
            return
        self.update(seconds_per_step=round(step_s, 6))
        if self.level >= LEVEL_TIMES:
            self.update(
                evaluation_s=_rounded(clock.evaluation_s),
                epoch_end_s=_rounded(clock.epoch_end_s),
                apart_s_per_step=round(clock.apart_s_per_step, 6),
            )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if abs(number) < float("inf") else None


def numbers_of(logs: Any) -> dict[str, float]:
    """Return the entries of ``logs`` that are numbers."""
    numbers = {} if not isinstance(logs, dict) else {key: _number(logs[key]) for key in logs}
    return {key: value for key, value in numbers.items() if value is not None}
