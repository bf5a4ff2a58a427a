"""The SideCar's decision: one action from the desired state, init's status and the memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reshape_sidecar import limits
from reshape_sidecar.agent import converge
from reshape_sidecar.agent.converge import (
    Action,
    AdoptSuccessor,
    ConfirmStopped,
    DropSuccessor,
    EndContainer,
    Idle,
    PersistKillOutcome,
    PersistOutcome,
    PrepareSuccessor,
    RecordExit,
    RequestSave,
    Start,
    StopProcessTree,
    WithdrawRequest,
)
from reshape_sidecar.agent.memory import Memory, ProcessExit
from reshape_sidecar.init.values import InitStatus, SuccessorProcess, TrainingProcess
from reshape_sidecar.wire import (
    Desired,
    Mode,
    OnSaveTimeout,
    Outcome,
    OutcomeKind,
    Phase,
    PrepareStage,
)

LEARNED_AT_S = 100.0
STOPPING, REFUSED = OutcomeKind.STOPPING, OutcomeKind.REFUSED
FOUR, TWO = ("g0", "g1", "g2", "g3"), ("g0", "g1")


def desired(generation: int, mode: Mode = Mode.RUN, devices: tuple[str, ...] = FOUR) -> Desired:
    return Desired(1, "j", 1, generation, mode, devices, save_deadline_s=10.0, kill_after_s=3.0)


def training(generation: int = 2, **fields: object) -> TrainingProcess:
    return replace(TrainingProcess(generation, 50, 7, 1.0), **fields)  # type: ignore[arg-type]


def status(process: TrainingProcess | None = None, **fields: object) -> InitStatus:
    return replace(InitStatus(10, 1, process), **fields)  # type: ignore[arg-type]


def trains(wanted: Desired, **fields: object) -> Memory:
    """Training of generation 2 was started on four devices and ``wanted`` was learned since."""
    memory = Memory(
        desired=wanted,
        learned_at_s=LEARNED_AT_S,
        outcome=Outcome(2, STOPPING),
        stopped_generation=2,
        devices=FOUR,
        started_generation=2,
        trained_generation=2,
        claimed=True,
    )
    return replace(memory, **fields)  # type: ignore[arg-type]


def decide(
    memory: Memory,
    seen: InitStatus,
    *,
    now_s: float = LEARNED_AT_S + 1,
    saving: bool = False,
    ready: bool = True,
) -> Action:
    return converge.decide(memory, seen, saving=saving, ready=ready, now_s=now_s)


def ended(**fields: object) -> ProcessExit:
    known = ProcessExit(2, 75, asked=True, step=40, saved_step=40, complete=False)
    return replace(known, **fields)  # type: ignore[arg-type]


LEFT = status(training(running=False, exit_code=75, rung=True), rung=3)


@pytest.mark.parametrize("code", [1, 137, 134])
def test_a_process_that_left_after_its_save_goes_on_after_a_refusal_and_is_no_crash(
    code: int,
) -> None:
    """It was asked, the request was withdrawn, and it ended in its last step."""
    seen = status(training(running=False, exit_code=code, rung=True), rung=3, withdrawn=3)
    refused = Outcome(3, REFUSED)
    crashed = trains(desired(3), outcome=refused, ended=ended(exit_code=code))
    saved = replace(crashed, ended=ended(exit_code=code, left_saved=True))
    assert converge.phase(crashed, seen, checked=True) is Phase.CRASHED
    assert converge.phase(saved, seen, checked=True) is not Phase.CRASHED
    assert decide(saved, seen) == StopProcessTree(3, 3.0)
    assert decide(replace(saved, stopped_generation=3), seen) == Start(3)


@pytest.mark.parametrize("code", [1, 137, 134])
def test_a_process_that_ends_in_its_last_step_is_answered_without_a_lost_step(code: int) -> None:
    memory = trains(desired(3, devices=TWO), ended=ended(exit_code=code, left_saved=True))
    seen = status(training(running=False, exit_code=code, rung=True), rung=3)
    assert decide(memory, seen) == PersistOutcome(Outcome(3, STOPPING, 40, 0))
    assert converge.phase(memory, seen, checked=True) is Phase.STOPPING


def test_without_a_desired_state_nothing_is_done() -> None:
    assert decide(Memory(), status()) == Idle()


def test_a_first_generation_without_devices_is_answered_and_confirmed() -> None:
    memory = Memory(desired=desired(1, Mode.SAVE_AND_STOP, ()))
    assert decide(memory, status()) == PersistOutcome(Outcome(1, STOPPING))
    memory = replace(memory, outcome=Outcome(1, STOPPING))
    assert decide(memory, status()) == StopProcessTree(1, 3.0)
    assert decide(memory, status(swept=1)) == ConfirmStopped(1)
    memory = replace(memory, stopped_generation=1)
    assert decide(memory, status(swept=1)) == Idle()


def test_training_starts_only_when_the_self_check_has_passed() -> None:
    memory = Memory(desired=desired(2), outcome=Outcome(2, STOPPING), stopped_generation=2)
    assert decide(memory, status(swept=2), ready=False) == Idle()
    assert decide(memory, status(swept=2)) == Start(2)


def test_what_runs_as_desired_is_left_alone() -> None:
    assert decide(trains(desired(2)), status(training())) == Idle()


def test_another_set_of_devices_means_one_sigterm_then_waiting_for_the_deadline() -> None:
    memory = trains(desired(3, devices=TWO))
    assert decide(memory, status(training())) == RequestSave(3)
    assert decide(memory, status(training(rung=True), rung=3)) == Idle(LEARNED_AT_S + 10)


def test_the_same_devices_in_another_order_are_the_same() -> None:
    memory = trains(desired(3, devices=FOUR[::-1]))
    assert decide(memory, status(training())) == PersistOutcome(Outcome(3, REFUSED))


def test_a_second_request_while_the_first_sigterm_is_out_sends_no_second_one() -> None:
    memory = trains(desired(4, Mode.SAVE_AND_STOP, ()))
    assert decide(memory, status(training(rung=True), rung=3)) == Idle(LEARNED_AT_S + 10)


def test_after_a_withdrawal_the_next_request_sends_a_sigterm_again() -> None:
    memory = trains(desired(5, Mode.SAVE_AND_STOP, ()))
    assert decide(memory, status(training(rung=True), rung=3, withdrawn=4)) == RequestSave(5)


def test_a_process_that_left_is_judged_before_anything_else() -> None:
    memory = trains(desired(3, devices=TWO))
    assert isinstance(decide(memory, LEFT), RecordExit)


def test_a_saved_process_is_stopping_with_nothing_lost_then_its_tree_ends_then_it_restarts() -> (
    None
):
    memory = trains(desired(3, devices=TWO), ended=ended())
    assert decide(memory, LEFT) == PersistOutcome(Outcome(3, STOPPING, 40))
    memory = replace(memory, outcome=Outcome(3, STOPPING, 40))
    assert decide(memory, LEFT) == StopProcessTree(3, 3.0)
    swept = replace(LEFT, swept=3)
    assert decide(memory, swept) == ConfirmStopped(3)
    memory = replace(memory, stopped_generation=3)
    assert decide(memory, swept) == Start(3)
    memory = replace(memory, started_generation=3, devices=TWO)
    assert decide(memory, swept) == Start(3), "init did not hear it: it is asked again"
    assert decide(memory, replace(swept, training=training(3))) == Idle()


def test_a_crash_while_saving_is_stopping_with_lost_steps() -> None:
    memory = trains(desired(3, devices=TWO), ended=ended(exit_code=9, saved_step=30))
    assert decide(memory, LEFT) == PersistOutcome(Outcome(3, STOPPING, 30, 10))


def test_lost_steps_are_counted_in_one_outcome_only() -> None:
    memory = trains(
        desired(4, devices=TWO),
        ended=ended(exit_code=9, saved_step=30),
        outcome=Outcome(3, STOPPING, 30, 10),
    )
    assert decide(memory, LEFT) == PersistOutcome(Outcome(4, STOPPING, 30, 0))


def test_a_checkpoint_that_says_complete_is_passed_on_and_nothing_starts_again() -> None:
    memory = trains(desired(3, devices=TWO), ended=ended(complete=True), finished=True)
    assert decide(memory, LEFT) == PersistOutcome(Outcome(3, STOPPING, 40, complete=True))
    memory = replace(memory, outcome=Outcome(3, STOPPING, 40), stopped_generation=3)
    assert decide(memory, replace(LEFT, swept=3)) == Idle()


@pytest.mark.parametrize(
    ("on_timeout", "action"),
    [
        (OnSaveTimeout.REFUSE, PersistOutcome(Outcome(3, REFUSED))),
        (OnSaveTimeout.KILL, PersistKillOutcome(3)),
    ],
)
def test_the_deadline_refuses_or_kills_as_the_record_says(
    on_timeout: OnSaveTimeout, action: Action
) -> None:
    wanted = replace(desired(3, devices=TWO), on_save_timeout=on_timeout)
    seen = status(training(rung=True), rung=3)
    assert decide(trains(wanted), seen, now_s=LEARNED_AT_S + 9.9) == Idle(LEARNED_AT_S + 10)
    assert decide(trains(wanted), seen, now_s=LEARNED_AT_S + 10) == action


def test_after_a_refusal_the_sigterm_is_taken_back_once() -> None:
    memory = trains(desired(3, devices=TWO), outcome=Outcome(3, REFUSED))
    assert decide(memory, status(training(rung=True), rung=3)) == WithdrawRequest(3)
    assert decide(memory, status(training(rung=True), rung=3, withdrawn=3)) == Idle()


def test_what_was_decided_to_be_killed_is_killed_at_once() -> None:
    memory = trains(desired(3, devices=TWO), outcome=Outcome(3, STOPPING, 30, 10))
    assert decide(memory, status(training(rung=True), rung=3)) == StopProcessTree(3, 0.0)


def test_a_withdrawal_after_the_outcome_cannot_keep_the_process() -> None:
    memory = trains(desired(4), outcome=Outcome(3, STOPPING, 30, 10))
    assert decide(memory, status(training(rung=True), rung=3)) == StopProcessTree(3, 0.0)


def test_a_withdrawal_waits_for_a_save_that_has_begun() -> None:
    memory = trains(desired(4))
    seen = status(training(rung=True), rung=3)
    assert decide(memory, seen, saving=True) == Idle(LEARNED_AT_S + 10)
    assert decide(memory, seen) == PersistOutcome(Outcome(4, REFUSED))


def test_a_process_that_left_after_its_refusal_goes_on_where_it_was() -> None:
    memory = trains(desired(4), outcome=Outcome(4, REFUSED), ended=ended())
    seen = replace(LEFT, withdrawn=4)
    assert decide(memory, seen) == StopProcessTree(4, 3.0)
    memory = replace(memory, stopped_generation=4)
    assert decide(memory, replace(seen, swept=4)) == Start(4)


def test_a_process_that_left_after_its_refusal_does_not_get_the_refused_devices() -> None:
    memory = trains(desired(3, devices=TWO), outcome=Outcome(3, REFUSED), ended=ended())
    assert decide(memory, replace(LEFT, withdrawn=3, swept=3)) == Idle()


def test_exit_ends_the_container_once_everything_is_stopped() -> None:
    memory = trains(desired(3, Mode.EXIT, ()), ended=ended(), outcome=Outcome(3, STOPPING, 40))
    assert decide(memory, replace(LEFT, swept=3)) == ConfirmStopped(3)
    memory = replace(memory, stopped_generation=3)
    assert decide(memory, replace(LEFT, swept=3)) == EndContainer()


def test_an_unfit_attempt_does_not_start_and_can_still_exit() -> None:
    memory = trains(desired(3), stopped_generation=3, outcome=Outcome(3, STOPPING), unfit="fenced")
    assert decide(memory, status(swept=3)) == Idle()
    memory = replace(memory, desired=desired(3, Mode.EXIT, ()))
    assert decide(memory, status(swept=3), ready=False) == EndContainer()


def test_what_a_crashed_process_left_behind_is_ended() -> None:
    memory = trains(desired(2), ended=ended(exit_code=1, asked=False))
    seen = status(training(running=False, exit_code=1), swept=2)
    assert decide(memory, seen) == StopProcessTree(3, limits.LEFTOVER_GRACE_S)
    assert decide(memory, replace(seen, swept=3)) == Idle()


def test_while_the_container_ends_nothing_is_started_or_asked() -> None:
    memory = trains(desired(3, devices=TWO))
    assert decide(memory, status(training(), ending=True)) == Idle()


CRASHED = status(training(running=False, exit_code=1))


@pytest.mark.parametrize(
    ("memory", "seen", "expected"),
    [
        (Memory(), status(), Phase.INITIALIZED),
        (Memory(unfit="no script"), status(), Phase.UNFIT),
        (trains(desired(2), trained_generation=0), status(training()), Phase.STARTING),
        (trains(desired(2)), status(training()), Phase.RUNNING),
        (trains(desired(3, devices=TWO)), status(training(), rung=3), Phase.SAVING),
        (trains(desired(3), outcome=Outcome(3, REFUSED)), status(training()), Phase.RUNNING),
        (trains(desired(3), outcome=Outcome(3, STOPPING)), status(training()), Phase.STOPPING),
        (trains(desired(2)), CRASHED, Phase.STOPPING),
        (trains(desired(2), ended=ended(exit_code=1)), CRASHED, Phase.CRASHED),
        (trains(desired(2), ended=ended(), finished=True), CRASHED, Phase.FINISHED),
        (
            trains(desired(3, Mode.SAVE_AND_STOP, ()), ended=ended(), outcome=Outcome(3, STOPPING)),
            LEFT,
            Phase.STOPPING,
        ),
        (
            trains(
                desired(3, Mode.SAVE_AND_STOP, ()),
                ended=ended(),
                outcome=Outcome(3, STOPPING),
                stopped_generation=3,
            ),
            LEFT,
            Phase.INITIALIZED,
        ),
        (
            trains(desired(3), ended=ended(exit_code=1), outcome=Outcome(3, REFUSED)),
            CRASHED,
            Phase.CRASHED,
        ),
    ],
)
def test_the_phase_says_what_is(memory: Memory, seen: InitStatus, expected: Phase) -> None:
    assert converge.phase(memory, seen, checked=True) is expected


def test_before_the_self_check_the_phase_is_initializing() -> None:
    assert converge.phase(Memory(), status(), checked=False) is Phase.INITIALIZING
    assert converge.phase(trains(desired(2)), status(training()), checked=False) is Phase.RUNNING


def successor(devices: tuple[str, ...] = TWO, **fields: Any) -> SuccessorProcess:
    known = SuccessorProcess(4, devices, 70, 9, 50.0, PrepareStage.READY)
    return replace(known, **fields)


def preparing(wanted: Desired, devices: tuple[str, ...] | None) -> Desired:
    return replace(wanted, prepare=devices)


STOPPED = {"outcome": Outcome(3, STOPPING), "ended": ended(), "stopped_generation": 3}
"""Training of generation 2 has saved and left for generation 3."""


def test_while_training_runs_a_successor_is_prepared_once() -> None:
    memory = trains(preparing(desired(2), TWO))
    assert decide(memory, status(training(), prepare_number=3)) == PrepareSuccessor(4)
    there = status(training(), prepare_number=4, prepared=successor())
    assert decide(memory, there) == Idle()
    failed = successor(stage=PrepareStage.FAILED, running=False)
    assert decide(memory, replace(there, prepared=failed)) == Idle(), "it is not tried again"


def test_an_init_that_cannot_prepare_is_not_asked_to() -> None:
    assert decide(trains(preparing(desired(2), TWO)), status(training())) == Idle()


@pytest.mark.parametrize("now", [None, ("g0",)])
def test_a_successor_that_is_not_what_to_prepare_is_dropped(now: tuple[str, ...] | None) -> None:
    memory = trains(preparing(desired(2), now))
    there = status(training(), prepare_number=4, prepared=successor())
    assert decide(memory, there) == DropSuccessor(4)


def test_a_request_for_its_devices_leaves_the_successor_until_it_is_adopted() -> None:
    memory = trains(desired(3, devices=TWO))
    there = status(training(), prepare_number=4, prepared=successor())
    assert decide(memory, there) == RequestSave(3)
    gone = replace(LEFT, prepare_number=4, prepared=successor())
    memory = replace(memory, outcome=Outcome(3, STOPPING), ended=ended())
    assert decide(memory, gone) == StopProcessTree(3, 3.0, spare=4)
    memory = replace(memory, **STOPPED)  # type: ignore[arg-type]
    assert decide(memory, replace(gone, swept=3)) == AdoptSuccessor(3, 4)


@pytest.mark.parametrize(
    "other",
    [desired(3, devices=("g0",)), desired(3, devices=FOUR[:3]), desired(3, Mode.EXIT, TWO)],
)
def test_a_successor_for_another_generation_is_dropped_and_spared_by_no_sweep(
    other: Desired,
) -> None:
    memory = replace(trains(other), **STOPPED)  # type: ignore[arg-type]
    gone = replace(LEFT, prepare_number=4, prepared=successor(), swept=3)
    assert decide(memory, gone) == DropSuccessor(4)
    assert converge._fitting(other, gone) is None


@pytest.mark.parametrize("fields", [{"running": False}, {"stage": PrepareStage.FAILED}])
def test_a_successor_that_failed_is_not_adopted_and_the_start_is_cold(
    fields: dict[str, Any],
) -> None:
    memory = replace(trains(desired(3, devices=TWO)), **STOPPED)  # type: ignore[arg-type]
    gone = replace(LEFT, prepare_number=4, prepared=successor(**fields), swept=3)
    assert decide(memory, gone) == DropSuccessor(4)
    assert decide(memory, replace(gone, prepared=None)) == Start(3)


def test_an_adopted_successor_is_the_training_process_and_is_not_adopted_twice() -> None:
    memory = replace(trains(desired(3, devices=TWO)), **STOPPED)  # type: ignore[arg-type]
    memory = replace(memory, started_generation=3, devices=TWO)
    assert decide(memory, status(training(3), swept=3, prepare_number=4)) == Idle()
