"""A process that has saved makes one more step and leaves; the next one compares its first step."""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from reshape_sidecar.checkpoints import PublishedCheckpoint
from reshape_sidecar.contract import Manifest
from reshape_sidecar.hook.exactness import EXACT, STEPS_ONLY, UNKNOWN, Verdict
from reshape_sidecar.hook.progress import ProgressReporter
from reshape_sidecar.hook.report import ReportSender
from reshape_sidecar.hook.settings import HookSettings, ProofMode
from reshape_sidecar.hook.stop import Stop
from reshape_sidecar.proof import first_steps
from reshape_sidecar.proof.figures import StepFigures
from reshape_sidecar.proof.first_steps import FirstSteps, ProofDiffers
from reshape_sidecar.wire import Proof, ProofResult

STEP = StepFigures(gpus=4, samples=8, batch=1, loss=0.5)
OTHER = replace(STEP, gpus=2, loss=0.6)


at_exit: list[Callable[[], NoReturn]] = []
"""What a process would do at its end."""


class Left(BaseException):
    """The process has left."""


class Hand:
    """Measures what a test says."""

    def __init__(self) -> None:
        self.done: Callable[[StepFigures | None], None] = lambda figures: None
        self.ended: list[str] = []

    def begin(self, steps: FirstSteps) -> Callable[[Callable[[Any], None]], Hand]:
        def start(done: Callable[[Any], None]) -> Hand:
            self.done = done
            return self

        return start

    def batch(self, batch: Any) -> None:
        self.ended.append(f"batch {batch}")

    def step_ended(self) -> None:
        self.done(None)

    def end(self) -> None:
        self.ended.append("end")


class Process:
    """A process of a job, on some GPUs."""

    def __init__(self, folder: Path, gpus: int = 4, **settings: Any) -> None:
        self.reporter = ProgressReporter(ReportSender(None), 1, None)
        self.stop = Stop(None)
        given = HookSettings(checkpoints=folder, **settings)
        self.steps = FirstSteps(given, self.reporter, self.stop, gpus)
        self.hand = Hand()

    def goes_on_from(self, published: PublishedCheckpoint | None) -> Process:
        self.steps.goes_on_from = published
        self.steps.measured_by(self.hand.begin)
        return self

    def saves(self, published: PublishedCheckpoint) -> None:
        self.steps.measured_by(self.hand.begin)
        self.steps.leave(published, leave)

    @property
    def proof(self) -> Proof | None:
        return self.reporter.progress.proof


def leave() -> NoReturn:
    raise Left


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a process that leaves does to itself is none of the next test's."""
    before = sys.excepthook
    monkeypatch.setattr(first_steps, "silence", lambda: None)
    monkeypatch.setattr(atexit, "register", lambda call: at_exit.append(call))
    at_exit.clear()
    yield
    sys.excepthook = before
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.cancel()


@pytest.fixture
def published(tmp_path: Path) -> PublishedCheckpoint:
    folder = tmp_path / "step-0000000900-a1"
    folder.mkdir()
    return PublishedCheckpoint(folder, Manifest(900, 1, 1, 1, ()))


def left(published: PublishedCheckpoint, figures: StepFigures | None = STEP) -> None:
    """A process leaves the figures of its step beside the checkpoint."""
    old = Process(published.path.parent)
    old.saves(published)
    with pytest.raises(Left):
        old.hand.done(figures)


def test_a_process_that_has_saved_leaves_in_its_next_step(published: PublishedCheckpoint) -> None:
    old = Process(published.path.parent)
    old.saves(published)
    assert old.steps.leaving
    assert old.reporter.silent, "nothing of the step is reported"
    old.steps.batch(7)
    assert old.hand.ended == ["batch 7"]
    with pytest.raises(Left):
        old.hand.done(STEP)
    assert [path.name for path in published.path.parent.glob("*.json")] == [
        "proof-step-0000000900-a1.json"
    ]


def test_the_next_process_says_that_its_first_step_agrees(published: PublishedCheckpoint) -> None:
    left(published)
    new = Process(published.path.parent, gpus=2).goes_on_from(published)
    assert new.proof is None
    new.hand.done(replace(STEP, gpus=2))
    assert new.proof == Proof("agrees", 900, 4, 2, "loss 0.5, 0e+00")
    assert new.steps.judged(Verdict(EXACT)) == Verdict(EXACT)


def test_a_difference_makes_every_verdict_of_the_process_unknown(
    published: PublishedCheckpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    left(published)
    new = Process(published.path.parent, gpus=2).goes_on_from(published)
    new.hand.done(OTHER)
    assert new.proof is not None
    assert new.proof.result == ProofResult.DIFFERS
    assert new.reporter.progress.trajectory == UNKNOWN.value
    again = new.steps.judged(Verdict(STEPS_ONLY, "it draws"))
    assert again.kind is UNKNOWN
    assert "loss 0.6 instead of 0.5 (16.7 %)" in str(again.reason)
    assert "4 → 2 GPUs at step 900: first step differs: loss 0.6" in capsys.readouterr().err


def test_a_record_may_end_the_process_at_a_difference(published: PublishedCheckpoint) -> None:
    left(published)
    new = Process(published.path.parent, gpus=2, proof=ProofMode.STOP).goes_on_from(published)
    with pytest.raises(ProofDiffers, match=r"loss 0\.6 instead of 0\.5.*on_difference is stop"):
        new.hand.done(OTHER)
    assert new.proof is not None
    agrees = Process(published.path.parent, proof=ProofMode.STOP).goes_on_from(published)
    agrees.hand.done(STEP)


def test_without_figures_the_next_process_says_why(published: PublishedCheckpoint) -> None:
    new = Process(published.path.parent).goes_on_from(published)
    assert new.proof == Proof("none", 900, 0, 4, first_steps.KILLED)
    left(published, None)
    new = Process(published.path.parent).goes_on_from(published)
    assert new.proof == Proof("none", 900, 0, 4, first_steps.NOT_REACHED)
    (published.path.parent / "proof-step-0000000900-a1.json").write_text("{")
    new = Process(published.path.parent).goes_on_from(published)
    assert new.proof is not None
    assert "cannot be read" in new.proof.figures


def test_a_process_that_begins_from_nothing_or_after_the_end_has_nothing_to_compare(
    published: PublishedCheckpoint,
) -> None:
    left(published)
    assert Process(published.path.parent).goes_on_from(None).proof is None
    over = replace(published, manifest=replace(published.manifest, complete=True))
    assert Process(published.path.parent).goes_on_from(over).proof is None


def test_a_proof_that_is_off_costs_no_step(published: PublishedCheckpoint) -> None:
    left(published)
    off = Process(published.path.parent, proof=ProofMode.OFF)
    with pytest.raises(Left):
        off.saves(published)
    assert not off.steps.leaving
    assert off.goes_on_from(published).proof is None


@pytest.mark.parametrize(
    ("step_s", "deadline_s", "why"),
    [(12.0, None, "a step takes 12 s"), (1.0, 2.0, "before its deadline"), (0.1, 2.0, "before")],
)
def test_a_process_with_long_steps_or_near_its_deadline_leaves_at_once(
    step_s: float, deadline_s: float | None, why: str, published: PublishedCheckpoint
) -> None:
    old = Process(published.path.parent, save_deadline_s=deadline_s)
    old.reporter.clock.begin(0.0)
    old.reporter.clock.steps_done(step_s, 1)
    old.stop.asked_s = time.monotonic()
    with pytest.raises(Left):
        old.saves(published)
    new = Process(published.path.parent).goes_on_from(published)
    assert new.proof is not None
    assert why in new.proof.figures


def test_a_process_far_from_its_deadline_makes_the_step(published: PublishedCheckpoint) -> None:
    old = Process(published.path.parent, save_deadline_s=120.0)
    old.stop.asked_s = time.monotonic()
    old.saves(published)
    assert old.steps.leaving


def test_a_step_that_fails_or_takes_too_long_leaves_all_the_same(
    published: PublishedCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_steps, "LEAVE_S", 0.01)
    gone = threading.Event()

    def goes() -> NoReturn:
        gone.set()
        if threading.current_thread() is threading.main_thread():
            raise Left
        return None  # type: ignore[misc]

    old = Process(published.path.parent)
    old.steps.measured_by(old.hand.begin)
    old.steps.leave(published, goes)
    assert gone.wait(5.0)
    with pytest.raises(Left):
        sys.excepthook(ValueError, ValueError(), None)
    for error in (ValueError, SystemExit, KeyboardInterrupt):
        with pytest.raises(Left), old.steps.leaving_if_it_fails():
            raise error
    (at_end,) = at_exit
    with pytest.raises(Left):
        at_end()
    with (
        pytest.raises(ValueError, match="mine"),
        Process(published.path.parent).steps.leaving_if_it_fails(),
    ):
        raise ValueError("mine")


def test_a_step_that_reaches_no_optimizer_ends_at_the_next_boundary(
    published: PublishedCheckpoint,
) -> None:
    old = Process(published.path.parent)
    old.saves(published)
    with pytest.raises(Left):
        old.steps.boundary()
    new = Process(published.path.parent).goes_on_from(published)
    assert new.proof is not None
    assert new.proof.figures == first_steps.NOT_REACHED


def test_ranks_know_from_their_parent_since_when_a_stop_is_asked() -> None:
    stop = Stop(None)
    stop.is_asked(by_parent=False)
    assert stop.asked_s is None
    stop.is_asked(by_parent=True)
    began_s = stop.asked_s
    stop.is_asked(by_parent=True)
    assert stop.asked_s == began_s is not None
    stop.is_asked(by_parent=False)  # it was withdrawn
    assert stop.asked_s is None


def test_only_the_first_step_of_a_process_is_compared(published: PublishedCheckpoint) -> None:
    left(published)
    new = Process(published.path.parent, gpus=2).goes_on_from(None)
    new.steps.boundary()
    new.goes_on_from(published)
    assert new.proof is None, "it has made a step already"


def test_a_front_end_measures_in_the_place_of_the_session(published: PublishedCheckpoint) -> None:
    left(published)
    new = Process(published.path.parent, gpus=2).goes_on_from(published)
    session, new.hand = new.hand, Hand()
    new.steps.measured_by(new.hand.begin)
    assert session.ended == ["end"]
    new.hand.done(replace(STEP, gpus=2))
    assert new.proof is not None
    assert new.proof.result == ProofResult.AGREES


def test_figures_go_with_their_checkpoint(published: PublishedCheckpoint) -> None:
    folder = published.path.parent
    (folder / "proof-step-0000000800-a1.json").write_text("{}")
    left(published)
    assert [path.name for path in sorted(folder.glob("proof-*"))] == [
        "proof-step-0000000900-a1.json"
    ]


def test_a_name_that_no_encoding_has_is_no_error(published: PublishedCheckpoint) -> None:
    left(published, replace(STEP, trained=("poids.é", "half.\ud800")))
    new = Process(published.path.parent).goes_on_from(published)
    assert new.proof is None, "there are figures to compare with"


def test_another_rank_does_what_the_first_one_says(published: PublishedCheckpoint) -> None:
    old = Process(published.path.parent, rank=1)
    answers = iter((False, "no time"))  # whether it goes on from a checkpoint, and why it leaves
    old.steps.measured_by(old.hand.begin, lambda own: next(answers))
    with pytest.raises(Left):
        old.steps.leave(None, leave)
    assert not old.steps.leaving


def test_data_that_changes_with_the_gpus_is_known_by_the_verdict(
    published: PublishedCheckpoint,
) -> None:
    one = Process(published.path.parent)
    for verdict, varies in (
        (Verdict(EXACT, "for means"), False),
        (Verdict(STEPS_ONLY, "it draws"), False),
        (Verdict(STEPS_ONLY, "it draws; workers shuffle"), True),
        (Verdict(UNKNOWN, "workers shuffle"), False),
    ):
        one.reporter.set_verdict(verdict)
        assert one.steps.varies(lambda reason: reason == "it draws") is varies
