"""What the first steps of a job's processes have shown, each beside the same step of the process
before.

Does: has each result as a sentence, and keeps the first difference for good: the process after the
next reshape is compared with one that is already wrong, and may agree with it. Pure values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reshape_controller.core.phrases import gpus
from reshape_sidecar.wire import (
    FIRST_STEP,
    Observed,
    Phase,
    Progress,
    Proof,
    ProofResult,
    Trajectory,
)

WORDS_MAX = 500
"""Most characters of the figures and of the hint: a training process writes them."""
PROCESS_RUNS = (Phase.RUNNING, Phase.SAVING, Phase.CRASHED, Phase.FINISHED)
"""Phases in which the process of the newest start has run; before them, what is reported may be of
the process before."""
ENTRIES = {
    ProofResult.AGREES: "proved",
    ProofResult.DIFFERS: "differs",
    ProofResult.NONE: "no-proof",
}
"""Kind of the entry in the history, by the result."""


@dataclass(frozen=True, slots=True)
class Proofs:
    """The results of a job's first steps."""

    agreed: int = 0
    """Number of processes whose first step agreed."""
    unproved: int = 0
    """Number of processes that went on from a checkpoint without a proof."""
    difference: str = ""
    """The first difference; empty if there was none."""
    newest: str = ""
    """The newest result; empty if there was none."""
    is_noted: bool = False
    """Whether the result of the process of the newest start is among these."""

    def begun(self) -> Proofs:
        """Return what is known as another process starts, whose first step has a result too."""
        return replace(self, is_noted=False)

    def with_result(self, proof: Proof) -> Proofs:
        """Return what is known with the result of the newest start."""
        said, kind = sentence(proof), kind_of(proof)
        return replace(
            self,
            agreed=self.agreed + (kind is ProofResult.AGREES),
            unproved=self.unproved + (kind is ProofResult.NONE),
            difference=self.difference or (said if kind is ProofResult.DIFFERS else ""),
            newest=said,
            is_noted=True,
        )

    def verdict(self, progress: Progress) -> tuple[str | None, str | None]:
        """Return the verdict on the job's trajectory and its reason. After a difference the word of
        its process (``progress``) no longer counts; state that the process names may be the cause.
        """
        word, reason = progress.trajectory, progress.trajectory_reason
        if not self.difference:
            return word, reason
        named = [] if word == Trajectory.EXACT or not reason else reason.split("; ")
        named = [each for each in named if not each.startswith(FIRST_STEP)]
        return Trajectory.UNKNOWN.value, "; ".join([self.difference, *named])


def kind_of(proof: Proof) -> ProofResult:
    """Return the result of a comparison; a word of a later release counts as none."""
    words = {one.value: one for one in ProofResult}
    return words.get(proof.result, ProofResult.NONE)


def sentence(proof: Proof) -> str:
    """Return a result in words: ``4 → 2 GPUs at step 900: first step agrees (loss 0.5, 4e-8)``."""
    where = f"{_change(proof)} at step {proof.step}"
    figures, hint = _line(proof.figures), _line(proof.hint)
    match kind_of(proof):
        case ProofResult.AGREES:
            return f"{where}: first step agrees" + (f" ({figures})" if figures else "")
        case ProofResult.DIFFERS:
            look = f"; look at {hint}" if hint else ""
            return f"{where}: first step differs: {figures or 'no figures'}{look}"
        case ProofResult.NONE:
            return f"{where}: no proof: {figures or 'no reason is known'}"


def _change(proof: Proof) -> str:
    """Return between which numbers of GPUs a process started again."""
    if proof.before == proof.now:
        return f"{gpus(proof.now)} again"
    return f"{proof.before} → {gpus(proof.now)}" if proof.before else f"on {gpus(proof.now)}"


def _line(text: str) -> str:
    """Return a text of a training process as one bounded line."""
    return " ".join(text.split())[:WORDS_MAX]


def is_of_newest_start(report: Observed, generation: int) -> bool:
    """Return whether a report of a job that starts has the result of the process of ``generation``.
    One that ended in its start has said at most that there is no proof: it has shown nothing."""
    if report.generation != generation or report.phase not in PROCESS_RUNS:
        return False
    proof = report.progress.proof
    has_shown = proof is not None and kind_of(proof) is not ProofResult.NONE
    return has_shown or report.phase is not Phase.CRASHED
