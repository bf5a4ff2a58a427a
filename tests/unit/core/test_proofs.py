"""What the first step after a restart shows is noted once, and a difference holds for good."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from reshape_controller.core import events as ev
from reshape_controller.core.engine import Engine
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.limits import LOCAL
from reshape_controller.core.model import HostId, Job, JobId, JobState, Mechanism, ReshapeIf, Stage
from reshape_controller.core.proofs import WORDS_MAX, Proofs, sentence
from reshape_controller.core.record import LogRecord
from reshape_controller.core.state import State
from reshape_controller.http.figures import LogFigures
from reshape_controller.http.render import job_view
from reshape_controller.policies import make_policy
from reshape_controller.store.protocol import JobRow
from reshape_sidecar.wire import PROOF_DIFFERS, Phase, Progress, Proof, ProofResult
from tests.support.world import HOST, World

A, B = JobId("a"), JobId("b")
POLICIES = ("adaptive", "paper", "optimus", "default")
OTHER_LOSS = "loss 0.8596 instead of 0.7681 (10.6 %), same batch"
DIFFERS = f"4 → 2 GPUs at step 900: first step differs: {OTHER_LOSS}; look at the loss"
NO_RECORD = LogRecord(1, 1, "w", "test", 0.0, (), (), (), "")
KINDS = ("proved", "differs", "no-proof")


def proof(
    result: ProofResult | str, before: int = 4, now: int = 2, step: int = 900, figures: str = ""
) -> Proof:
    said = {
        ProofResult.AGREES: ("loss 0.5013, 4e-8", ""),
        ProofResult.DIFFERS: (OTHER_LOSS, "the loss"),
        ProofResult.NONE: ("the deadline was near", ""),
    }
    text, hint = said.get(ProofResult(result), ("", "")) if result in said else ("", "")
    return Proof(result, step, before, now, figures or text, hint)


AGREES = proof(ProofResult.AGREES)
OTHER = proof(ProofResult.DIFFERS)
NONE = proof(ProofResult.NONE)


def reshaped(shown: Proof | None = None, **fields: object) -> World:
    """Job ``a`` trains on two of four GPUs, after a reshape from four; it shows this."""
    found = World().boot(4)
    found.running("a", 4, 1, 2, 4, **fields)
    found.container("a").trajectory = "exact"
    found.train("a", 900)
    found.plan(("a", 2))
    if shown is not None:
        show(found, shown)
    return found


def show(found: World, shown: Proof, verdict: str = "exact") -> Job:
    """The process of job ``a`` has made its first step."""
    c = found.container("a")
    c.proof, c.trajectory = shown, verdict
    found.train("a", 1)
    return found.job("a")


def noted(found: World) -> list[tuple[str, str]]:
    return [(entry.kind, entry.text) for entry in found.history if entry.kind in KINDS]


def may_be_reshaped(found: World, size: int = 1) -> bool:
    try:
        found.plan(("a", size))
    except PlanRejected:
        return False
    return True


def test_a_result_is_a_sentence_of_the_history() -> None:
    assert noted(reshaped(AGREES)) == [
        ("proved", "4 → 2 GPUs at step 900: first step agrees (loss 0.5013, 4e-8)")
    ]
    assert noted(reshaped(OTHER)) == [("differs", DIFFERS)]
    assert noted(reshaped(NONE)) == [
        ("no-proof", "4 → 2 GPUs at step 900: no proof: the deadline was near")
    ]


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (proof(ProofResult.AGREES, 2, 2), "2 GPUs again at step 900: first step agrees"),
        (proof(ProofResult.AGREES, 1, 1), "1 GPU again at step 900: first step agrees"),
        (proof(ProofResult.NONE, 0, 1), "on 1 GPU at step 900: no proof: the deadline was near"),
        (proof("a word of a later release"), "4 → 2 GPUs at step 900: no proof: no reason"),
        (
            proof(ProofResult.NONE, figures="a\n\x20 \t b"),
            "4 → 2 GPUs at step 900: no proof: a b",
        ),
    ],
)
def test_a_sentence_says_between_which_counts_the_process_started_again(
    shown: Proof, said: str
) -> None:
    assert sentence(shown).startswith(said)


def test_the_words_of_a_process_are_one_bounded_line() -> None:
    assert len(sentence(proof(ProofResult.NONE, figures="x\n" * 9_999))) < WORDS_MAX + 100


def test_a_result_is_noted_once_however_often_it_is_reported() -> None:
    found = reshaped(AGREES)
    for _ in range(3):
        found.train("a", 1)
    assert (noted(found), found.job("a").proofs.agreed) == (noted(reshaped(AGREES)), 1)


def test_a_process_has_one_result_whatever_it_reports_later() -> None:
    found = reshaped(AGREES)
    for step in range(5):
        show(found, proof(ProofResult.DIFFERS, step=step))
    assert len(noted(found)) == 1


def test_the_same_result_of_the_next_process_counts_again() -> None:
    found = reshaped()
    show(found, proof(ProofResult.AGREES, 2, 2))
    found.crash("a")
    assert found.job("a").stage is Stage.TRAINING
    show(found, proof(ProofResult.AGREES, 2, 2))
    assert (len(noted(found)), found.job("a").proofs.agreed) == (2, 2)


def test_a_late_report_of_the_process_before_is_no_result_of_the_one_that_starts() -> None:
    found = reshaped()
    c = found.container("a")
    c.hangs = True
    found.plan(("a", 1))
    assert found.job("a").stage is Stage.STARTING
    c.phase, c.proof, c.step = Phase.STARTING, OTHER, 900  # its agent was slow
    found.report(c)
    assert noted(found) == []
    assert found.job("a").proofs == Proofs()


def test_a_process_that_fails_in_its_start_has_shown_nothing() -> None:
    found = reshaped()
    c = found.container("a")
    c.hangs = True
    found.plan(("a", 1))
    c.proof = NONE
    found.crash("a")
    assert noted(found) == []
    assert found.job("a").stage is Stage.STARTING
    c.hangs = False
    found.settle()
    show(found, proof(ProofResult.AGREES, 2, 1))
    assert [kind for kind, _ in noted(found)] == ["proved"]


@pytest.mark.parametrize("shown", [AGREES, OTHER, NONE])
def test_a_restart_of_the_daemon_notes_nothing_twice(shown: Proof) -> None:
    found = reshaped(shown)
    again = Engine(State.load(found.engine.state.dump()))
    assert again.state.jobs[A].proofs == found.job("a").proofs
    found.engine = again
    found.event(ev.ControllerStarted(2, "test", Mechanism.SIDECAR, LOCAL))
    found.report(found.container("a"))
    assert len(noted(found)) == 1


def test_a_difference_makes_the_verdict_unknown_for_good() -> None:
    found = reshaped(OTHER)
    assert found.job("a").proofs.verdict(Progress(trajectory="exact")) == ("unknown", DIFFERS)
    found.crash("a")
    show(found, proof(ProofResult.AGREES, 2, 2))
    show(found, proof(ProofResult.DIFFERS, 2, 2, 950))
    found.event(ev.HostDrained(HOST, "ann"))
    found.event(ev.HostUndrained(HOST, "ann"))
    found.wait(600)
    found.plan(("a", 4))
    show(found, proof(ProofResult.AGREES, 2, 4, 951))
    job = found.job("a")
    assert job.attempt == 2
    assert (job.proofs.difference, job.proofs.agreed) == (DIFFERS, 2)
    assert not may_be_reshaped(found)


@pytest.mark.parametrize(
    ("word", "reason", "named"),
    [
        ("exact", "for means over samples", ""),
        (None, None, ""),
        ("unknown", "its first step at 4 → 2 GPUs, step 900, differs: loss 0.9", ""),
        ("unknown", "the list L changes; its first step at 4 → 2 GPUs", "; the list L changes"),
        ("steps-only", "dropout", "; dropout"),
    ],
)
def test_what_the_process_names_stands_beside_the_difference(
    word: str | None, reason: str | None, named: str
) -> None:
    said = Progress(trajectory=word, trajectory_reason=reason)
    assert Proofs(difference=DIFFERS).verdict(said) == ("unknown", f"{DIFFERS}{named}")


@pytest.mark.parametrize(
    ("fields", "is_allowed"),
    [
        ({}, False),
        ({"names_reshape_if": True}, True),
        ({"reshape_if": ReshapeIf.STEPS_ONLY, "names_reshape_if": True}, False),
        ({"reshape_if": ReshapeIf.EXACT, "names_reshape_if": True}, False),
        ({"reshape_if": ReshapeIf.STEPS_ONLY}, False),  # it was accepted by an earlier release
    ],
)
def test_after_a_difference_a_plan_reshapes_only_what_the_record_itself_allows(
    fields: dict[str, object], is_allowed: bool
) -> None:
    found = reshaped(OTHER, **fields)
    assert may_be_reshaped(found) is is_allowed
    assert bool(found.job("a").fixed_because) is not is_allowed


def test_the_reason_names_the_difference_and_the_field() -> None:
    said = "a first step after a restart differed, and its record does not say reshape_if: any"
    assert reshaped(OTHER).job("a").fixed_because == said
    written = reshaped(OTHER, reshape_if=ReshapeIf.EXACT, names_reshape_if=True).job("a")
    assert (
        written.fixed_because == f"its trajectory is unknown ({DIFFERS}), and reshape_if is exact"
    )


def test_a_result_follows_the_first_step_and_comes_before_the_end_of_its_process() -> None:
    found = reshaped()
    found.container("a").hangs = True
    found.plan(("a", 1))
    c = found.container("a")
    c.phase, c.proof, c.step = Phase.RUNNING, AGREES, 901
    found.report(c)
    assert [kind for kind in found.kinds[-4:] if kind in ("first-step", *KINDS)] == [
        "first-step",
        "proved",
    ]
    c.hangs = True
    found.plan(("a", 2))
    c.proof = OTHER
    found.crash("a")
    kinds = [kind for kind in found.kinds if kind in ("start-failed", *KINDS)]
    assert kinds == ["proved", "differs", "start-failed"]


def test_a_reader_sees_the_difference_in_place_of_what_the_process_says_now() -> None:
    found = reshaped(OTHER)
    job = found.job("a")
    row = JobRow(job.id, "a", "ada", job.state, 1, 0.0, job)
    now = found.container("a").observed()
    newer = replace(now, sequence=now.sequence + 1)
    view = job_view(row, newer)
    assert (view.trajectory, view.trajectory_reason) == ("unknown", DIFFERS)
    assert (view.proof_result, view.first_difference) == (DIFFERS, DIFFERS)
    assert view.fixed_because == job.fixed_because


def test_each_result_is_counted_from_the_history() -> None:
    figures = LogFigures()
    for shown in (AGREES, AGREES, OTHER, NONE):
        found = reshaped(shown)
        figures.take(found.engine.state, NO_RECORD, found.history)
    text = generate_latest(figures.registry).decode()
    for result, number in (("agrees", 2), ("differs", 1), ("none", 1)):
        assert f'reshape_proofs_total{{result="{result}"}} {number}.0' in text


@pytest.mark.parametrize("shown", [AGREES, NONE, None])
def test_without_a_difference_a_job_is_reshaped_as_before(shown: Proof | None) -> None:
    assert may_be_reshaped(reshaped(shown))


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_names_a_job_with_a_difference(name: str) -> None:
    found = reshaped(OTHER)
    found.submit("b", 2)
    found.plan(("b", 2))
    found.submit("c", 2)
    policy = make_policy(name)
    assert all(target.job != A for target in policy.decide(found.engine.snapshot()).targets)
    found.finish("b")
    for _ in range(4):
        plan = policy.decide(found.engine.snapshot())
        assert all(target.job != A for target in plan.targets)
        found.apply(plan)
    assert len(found.job("a").gpus) == 2


def test_a_donor_that_differs_before_it_is_asked_keeps_its_gpus() -> None:
    found = reshaped()
    found.submit("b", 3)
    found.new_containers[B] = {"slow_init": True}
    found.plan(("b", 3), ("a", 1))
    assert found.job("a").donation is not None
    show(found, OTHER)
    found.container("b").slow_init = False
    found.settle()
    a, b = found.job("a"), found.job("b")
    assert (a.donation, a.change, len(a.gpus)) == (None, None, 2)
    assert (b.hand_over, b.stage) == (None, Stage.READY)


def test_a_difference_after_the_donor_is_asked_takes_no_gpu_back() -> None:
    found = reshaped()
    found.submit("b", 3)
    found.container("a").saves = False
    found.plan(("b", 3), ("a", 1))
    assert found.job("a").stage is Stage.SAVING
    show(found, OTHER)
    found.container("a").saves = True
    found.settle()
    assert (len(found.job("a").gpus), len(found.job("b").gpus)) == (1, 3)
    assert found.job("a").proofs.difference == DIFFERS


def test_failures_lost_hosts_and_requests_of_people_act_after_a_difference() -> None:
    found = reshaped(OTHER)
    found.crash("a")
    assert found.job("a").stage is Stage.TRAINING
    found.event(ev.HaltRequested(A, "ann"))
    assert found.job("a").state is JobState.HALTED
    found.event(ev.ResumeRequested(A, "ann"))
    found.plan(("a", 4))  # it has no process: this is a start and no reshape
    found.event(ev.HostFellSilent(HostId(HOST)))
    assert found.job("a").state is JobState.SUBMITTED
    assert found.job("a").proofs.difference == DIFFERS
    found.event(ev.CancelRequested(A, "ann"))
    assert A not in found.engine.state.jobs or found.job("a").state.terminal


def stopped(*, is_seen: bool) -> Job:
    """Job ``a`` was reshaped, and its program ends before its second step."""
    found = World().boot(4)
    found.running("a", 4, 1, 2, 4)
    found.train("a", 900)
    c = found.container("a")
    c.hangs = True
    found.plan(("a", 2))
    assert found.job("a").stage is Stage.STARTING
    c.proof = OTHER if is_seen else None
    c.exception, c.refused = PROOF_DIFFERS, True
    found.crash("a")
    return found.job("a")


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_program_that_stops_at_a_difference_is_paused_at_once(is_seen: bool) -> None:
    job = stopped(is_seen=is_seen)
    assert (job.state, job.failures, job.struck) == (JobState.HALTED, 0, ())
    assert job.reason.startswith("paused, checkpoint kept: stopped before its second step")
    assert (DIFFERS if is_seen else "2 GPUs: no such loader") in job.reason
    assert "resume it on 4 GPUs (reshape pin a 4, reshape resume a), repair" in job.reason
    assert "on_difference: report" in job.reason
    assert bool(job.proofs.difference) is is_seen


def test_a_program_that_stops_after_its_first_step_was_seen_is_paused_too() -> None:
    found = reshaped(OTHER)
    c = found.container("a")
    c.exception, c.refused = PROOF_DIFFERS, True
    found.crash("a")
    job = found.job("a")
    assert (job.state, job.failures, job.struck) == (JobState.HALTED, 0, ())
    assert (DIFFERS in job.reason, len(noted(found))) == (True, 1)


def test_a_job_that_stops_at_its_size_of_before_is_not_told_to_resume_there() -> None:
    found = World().boot(4)
    found.running("a", 4, 4)
    found.crash("a")
    show(found, proof(ProofResult.DIFFERS, 4, 4))
    c = found.container("a")
    c.exception, c.refused = PROOF_DIFFERS, True
    found.crash("a")
    assert "Now repair what differs and submit it again, or" in found.job("a").reason


def test_a_job_that_was_stopped_goes_on_at_its_size_of_before() -> None:
    found = reshaped(OTHER)
    c = found.container("a")
    c.exception, c.refused = PROOF_DIFFERS, True
    found.crash("a")
    found.event(ev.PinRequested(A, 4, "ann"))
    found.event(ev.ResumeRequested(A, "ann"))
    found.plan(("a", 4))
    assert (found.job("a").stage, len(found.job("a").gpus)) == (Stage.TRAINING, 4)
