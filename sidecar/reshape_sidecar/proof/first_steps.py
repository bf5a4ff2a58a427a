"""The first step of a process, and the step in which it leaves: measured, left and compared.

Does: lets a process that has saved for a stop make one more step and leave in it; writes the
figures of that step beside the checkpoint; compares them with those of the next process's first
step. Never: keeps a process longer than its request to stop allows, or anything of the step but
figures: what its code prints is dropped. Standard library only: a front end measures.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

from reshape_sidecar import codec, foreign
from reshape_sidecar.checkpoints import PublishedCheckpoint
from reshape_sidecar.hook.exactness import STEPS_ONLY, UNKNOWN, Verdict
from reshape_sidecar.hook.log import complain
from reshape_sidecar.hook.progress import ProgressReporter
from reshape_sidecar.hook.settings import HookSettings, ProofMode
from reshape_sidecar.hook.stop import Stop
from reshape_sidecar.proof.figures import Comparison, LeftStep, StepFigures, compare
from reshape_sidecar.wire import FIRST_STEP, Proof, ProofResult

STEP_MAX_S = 10.0
"""A process whose steps take longer leaves at once."""
STEPS_BEFORE_DEADLINE = 3
"""A process leaves at once if its request to stop gives no more than so many steps."""
LEAVE_STEPS, LEAVE_S = 2.0, 1.0
"""The step in which a process leaves may take so many usual steps and so many seconds."""
FILE_BYTES_MAX = 16 << 20
EPOCH_ENDED = "an epoch ended with the save"
KILLED = "the process before made no step after its save"
NOT_REACHED = "the step after the save reached no optimizer"
T = TypeVar("T")


class ProofDiffers(RuntimeError):
    """The first step after a restart differs, and the record says ``on_difference: stop``."""


class Measure(Protocol):
    """Takes the figures of the step that is made now."""

    def batch(self, batch: Any) -> None:
        """Take a micro-batch of this process."""

    def step_ended(self) -> None:
        """Stand behind the step: the figures are what there is by now."""

    def end(self) -> None:
        """Measure no more."""


Begin = Callable[[Callable[[StepFigures | None], None]], Measure]
"""Begins to measure; calls its argument with the figures of all ranks, None if there are none."""


def alone(value: T) -> T:
    """Return ``value``: a single process agrees with itself."""
    return value


class FirstSteps:
    """The first step of this process, and the one in which it leaves."""

    def __init__(
        self, settings: HookSettings, reporter: ProgressReporter, stop: Stop, gpus: int
    ) -> None:
        self._settings, self._reporter, self._stop = settings, reporter, stop
        self.gpus = gpus
        """GPUs of this process's job."""
        self._begin: Callable[[FirstSteps], Begin] | None = None
        self._agree: Callable[[Any], Any] = alone
        self._no_step: Callable[[], str] = str
        self._measure: Measure | None = None
        self.goes_on_from: PublishedCheckpoint | None = None
        """The checkpoint at this process's begin."""
        self._leave: Callable[[], NoReturn] | None = None
        self._is_made = False
        """Whether this process has made a step."""
        self._told: Proof | None = None
        self.difference: str | None = None
        """What differs in the first step; None: nothing, or it is not made yet."""

    @property
    def leaving(self) -> bool:
        """Whether this process has saved for a stop, and makes a step of which nothing is kept."""
        return self._leave is not None

    def batch(self, batch: Any) -> None:
        """Take a micro-batch of the step that is measured, if one is."""
        if self._measure is not None:
            self._measure.batch(batch)

    def boundary(self) -> None:
        """Stand between two steps; a process that leaves does so now."""
        self._is_made = True
        measure, self._measure = self._measure, None
        if measure is not None:
            measure.step_ended()
        if self._leave is not None:
            self._leave()

    def leave_here(self) -> None:
        """Leave now if this process only makes a step before it leaves: that step is over."""
        if self.leaving:
            self.boundary()

    @contextlib.contextmanager
    def leaving_if_it_fails(self) -> Iterator[None]:
        """Leave if what is done here fails in the step in which this process leaves: everything is
        saved."""
        try:
            yield
        except BaseException:  # also an exit of the script's own
            if self._leave is not None:
                self._leave()
            raise

    def measured_by(
        self,
        begin: Callable[[FirstSteps], Begin],
        agree: Callable[[Any], Any] = alone,
        why_not: Callable[[], str] = str,
    ) -> None:
        """Let ``begin`` measure from now on. If this process goes on from a checkpoint and has made
        no step, the step that comes is compared with the one that the process before has made.

        agree: returns the value of the first rank on every rank. why_not: returns why no step can
        follow the save, the same on every rank; empty if one can.
        """
        self._begin, self._agree, self._no_step = begin, agree, why_not
        if self._is_made or self._settings.proof is ProofMode.OFF:
            return
        published = self.goes_on_from
        if not agree(published is not None and not published.manifest.complete):
            return
        if self._measure is not None:
            self._measure.end()  # that of a front end comes after that of the session
        left, step = agree((None, 0) if published is None else _read(published))
        if left.figures is None:
            self._report(ProofResult.NONE, step, 0, left.why or KILLED)
            return
        before: StepFigures = left.figures
        self._measure = begin(self)(lambda now: self._compare(step, before, now))

    def leave(self, published: PublishedCheckpoint | None, leave: Callable[[], NoReturn]) -> None:
        """Let this process, which has saved, make one more step and leave in it by ``leave``; or
        leave now."""
        if self._begin is None or self._settings.proof is ProofMode.OFF:
            leave()
        if why_not := self._no_step() or self._agree(self._why_not()):
            self._write(published, LeftStep(None, why_not))
            leave()
        self._reporter.leaves()
        silence()
        self._leave = leave
        self._leave_by_force(leave)

        def done(figures: StepFigures | None) -> None:
            left = LeftStep(figures, "" if figures is not None else NOT_REACHED)
            self._write(published, left)
            leave()

        if self._measure is not None:
            self._measure.end()
        self._measure = self._begin(self)(done)

    def _leave_by_force(self, leave: Callable[[], NoReturn]) -> None:
        """Leave also if the step takes too long, or fails."""
        limit_s = LEAVE_S + LEAVE_STEPS * (self._reporter.clock.seconds_per_step or 0.0)
        timer = threading.Timer(limit_s, leave)
        timer.daemon = True
        timer.start()
        sys.excepthook = lambda *_: leave()
        atexit.register(leave)  # the script may end by itself

    def _why_not(self) -> str:
        """Return why this process leaves without a further step; empty if it makes one."""
        step_s = self._reporter.clock.seconds_per_step or 0.0
        if step_s > STEP_MAX_S:
            return f"a step takes {step_s:.0f} s, and at most {STEP_MAX_S:.0f} s are waited for one"
        asked_s, deadline_s = self._stop.asked_s, self._settings.save_deadline_s
        if asked_s is None or deadline_s is None:
            return ""
        left_s = asked_s + deadline_s - time.monotonic()
        near = left_s < STEPS_BEFORE_DEADLINE * max(step_s, LEAVE_S)
        return f"the save ended {max(0.0, left_s):.0f} s before its deadline" if near else ""

    def _compare(self, step: int, before: StepFigures, now: StepFigures | None) -> None:
        self._measure, self._is_made = None, True
        if now is None:
            self._report(ProofResult.NONE, step, before.gpus, "its first step reached no optimizer")
            return
        found = compare(before, now)
        if not found.differences:
            self._report(ProofResult.AGREES, step, before.gpus, found.said)
            return
        sentence = _sentence(step, before.gpus, self.gpus, found)
        self.difference = sentence
        self._reporter.set_verdict(self.judged(self._reporter.verdict))
        self._report(ProofResult.DIFFERS, step, before.gpus, found.said, found.hint)
        if self._settings.proof is ProofMode.STOP:
            self._reporter.flush()
            raise ProofDiffers(f"{sentence}. on_difference is stop: nothing is trained further")

    def judged(self, verdict: Verdict) -> Verdict:
        """Return ``verdict`` with what the first step has shown."""
        if self.difference is None:
            return verdict
        return verdict.worse(self.difference, UNKNOWN)

    def varies(self, is_of_step: Callable[[str], bool]) -> bool:
        """Return whether the verdict names more than what a step draws or sees of one GPU: data
        that changes with the number of GPUs, say. ``is_of_step`` knows its reasons."""
        is_named = self._reporter.verdict.kind is STEPS_ONLY
        return is_named and not all(map(is_of_step, self._reasons()))

    def draws(self, is_of_step: Callable[[str], bool]) -> bool:
        """Return whether the verdict names what a step draws or sees of one GPU."""
        return any(map(is_of_step, self._reasons()))

    def _reasons(self) -> list[str]:
        return (self._reporter.verdict.reason or "").split("; ")

    def _report(
        self, result: ProofResult, step: int, before: int, figures: str, hint: str = ""
    ) -> None:
        proof = Proof(result.value, step, before, self.gpus, figures, hint)
        if proof == self._told:
            return
        self._told = proof
        self._reporter.report_proof(proof)
        if self._settings.chief:
            complain(said(proof))

    def _write(self, published: PublishedCheckpoint | None, left: LeftStep) -> None:
        """Write beside a checkpoint, whole or not at all; remove what is left of others. A full
        disk is no error."""
        if published is None or not self._settings.chief:
            return
        path = _path_of(published.path)
        with contextlib.suppress(OSError):
            for other in path.parent.glob("proof-step-*.json"):
                if not (path.parent / other.stem.removeprefix("proof-")).exists():
                    other.unlink(missing_ok=True)
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            temporary.write_bytes(codec.dumps(left).encode(errors="replace"))
            os.replace(temporary, path)


def silence() -> None:
    """Let nothing more of what this process prints come into its log."""
    with contextlib.suppress(Exception):  # a stream may be closed, or one of the script's own
        sys.stdout.flush()
        sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def said(proof: Proof) -> str:
    """Return a proof as a sentence."""
    figures = proof.figures
    if proof.result == ProofResult.NONE:
        return f"no proof at step {proof.step}: {figures}"
    gpus = f"{proof.before} → {proof.now} GPUs at step {proof.step}"
    if proof.result == ProofResult.AGREES:
        return f"{gpus}: first step agrees ({figures})"
    return f"{gpus}: first step differs: {figures}; look at {proof.hint}"


def _sentence(step: int, before: int, now: int, found: Comparison) -> str:
    """Return a difference as one reason of a verdict; semicolons part reasons."""
    shown = found.said.replace("; ", ", ")
    return f"{FIRST_STEP}{before} → {now} GPUs, step {step}, differs: {shown}"


def _path_of(checkpoint: Path) -> Path:
    """Return the file with the figures of the step after a checkpoint."""
    return checkpoint.parent / f"proof-{checkpoint.name}.json"


def _read(published: PublishedCheckpoint) -> tuple[LeftStep, int]:
    """Return what the process before has left beside its checkpoint, and the checkpoint's step."""
    step = published.manifest.step
    try:
        text = foreign.read(_path_of(published.path), FILE_BYTES_MAX, follow=False)
        return codec.loads(LeftStep, text), step
    except FileNotFoundError:
        return LeftStep(None, KILLED), step
    except (OSError, codec.CodecError) as error:
        return LeftStep(None, f"its figures cannot be read: {error}"), step
