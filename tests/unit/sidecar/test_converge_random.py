"""Property: in any order of events, one outcome, one process and one start per generation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from reshape_sidecar.agent import converge
from reshape_sidecar.agent.converge import (
    ConfirmStopped,
    EndContainer,
    Idle,
    PersistKillOutcome,
    PersistOutcome,
    RecordExit,
    RequestSave,
    Start,
    StopProcessTree,
    WithdrawRequest,
)
from reshape_sidecar.agent.memory import Memory, ProcessExit
from reshape_sidecar.agent.process_exit import reached_end
from reshape_sidecar.init.values import InitStatus, TrainingProcess
from reshape_sidecar.wire import Desired, Mode, OnSaveTimeout, Outcome, OutcomeKind
from tests.support.gate import examples

STEPS_MAX = 40


@dataclass
class SideCar:
    """Agent, init and training as values. ``memory`` is the disk: an agent's death loses nothing
    else, because nothing else is kept between two decisions."""

    memory: Memory = field(default_factory=Memory)
    status: InitStatus = field(default_factory=lambda: InitStatus(10, 1))
    now_s: float = 0.0
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    saved_step: int = 0
    step: int = 0

    def wants(self, mode: Mode, devices: tuple[str, ...], on_timeout: OnSaveTimeout) -> None:
        generation = self.memory.generation + 1
        wanted = Desired(1, "j", 1, generation, mode, devices if mode is Mode.RUN else ())
        wanted = replace(wanted, on_save_timeout=on_timeout, save_deadline_s=10.0)
        self.memory = replace(self.memory, desired=wanted, learned_at_s=self.now_s)

    def ends(self, code: int) -> None:
        """Training ends; with 75 its work is saved."""
        training = self.status.training
        if training is None or not training.running:
            return
        if code in (0, 75):
            self.saved_step = self.step
        ended = replace(training, running=False, exit_code=code, ended_at_s=self.now_s)
        self.status = replace(self.status, training=ended)

    def one(self, *, saving: bool) -> bool:
        """One decision and its action; False if there was nothing to do."""
        action = converge.decide(
            self.memory, self.status, saving=saving, ready=True, now_s=self.now_s
        )
        match action:
            case Idle() | EndContainer():
                return False
            case RecordExit(training):
                assert training.exit_code is not None
                self.memory = replace(self.memory, ended=self._ended(training))
                assert self.memory.ended is not None
                self.memory = replace(self.memory, finished=reached_end(self.memory.ended))
            case PersistOutcome(outcome):
                self._answer(outcome)
            case PersistKillOutcome(generation):
                lost = self.step - self.saved_step
                self._answer(Outcome(generation, OutcomeKind.STOPPING, self.saved_step, lost))
            case RequestSave(generation):
                asked = self.status.training
                assert asked is not None
                assert asked.running
                rung = replace(asked, rung=True)
                self.status = replace(self.status, rung=generation, training=rung)
            case WithdrawRequest(generation):
                self.status = replace(self.status, withdrawn=generation)
            case StopProcessTree(generation, _):
                self._sweep(generation)
            case ConfirmStopped(generation):
                running = self.status.training is not None and self.status.training.running
                assert not running
                self.memory = replace(self.memory, stopped_generation=generation)
            case Start(generation):
                self._start(generation)
        return True

    def _ended(self, training: TrainingProcess) -> ProcessExit:
        return ProcessExit(
            training.generation,
            training.exit_code or 0,
            training.rung,
            self.step,
            self.saved_step,
            complete=False,
        )

    def _answer(self, outcome: Outcome) -> None:
        assert outcome.generation not in self.outcomes, "a second outcome"
        assert outcome.generation == self.memory.generation
        self.outcomes[outcome.generation] = outcome
        self.memory = replace(self.memory, outcome=outcome)

    def _sweep(self, generation: int) -> None:
        training = self.status.training
        if training is not None and training.running:
            assert training.generation < generation
            outcome = self.memory.outcome
            assert outcome is not None
            assert outcome.kind is OutcomeKind.STOPPING, "killed without an outcome"
            self.ends(137)
        self.status = replace(self.status, swept=max(generation, self.status.swept))

    def _start(self, generation: int) -> None:
        training = self.status.training
        assert training is None or not training.running, "two processes"
        assert generation not in self.starts, "started twice"
        assert self.memory.desired is not None
        assert self.memory.stopped_generation == generation
        self.starts.append(generation)
        devices = self.memory.desired.devices
        self.memory = replace(self.memory, started_generation=generation, devices=devices)
        self.step = self.saved_step
        self.status = replace(self.status, training=TrainingProcess(generation, 50, 7, self.now_s))


DEVICES = st.sampled_from([("g0",), ("g0", "g1"), ("g0", "g1", "g2")])
EVENTS = st.one_of(
    st.tuples(
        st.just("wants"), st.sampled_from(list(Mode)), DEVICES, st.sampled_from(list(OnSaveTimeout))
    ),
    st.tuples(st.just("ends"), st.sampled_from([0, 1, 75, 137, 143])),
    st.tuples(st.just("time"), st.sampled_from([1.0, 11.0])),
    st.tuples(st.just("steps"), st.integers(1, 5)),
    st.tuples(st.just("decides"), st.integers(1, 4)),
)


@settings(max_examples=examples(400), deadline=None)
@given(events=st.lists(EVENTS, max_size=STEPS_MAX), saving=st.booleans())
def test_any_order_of_wishes_ends_and_deadlines_keeps_the_rules(
    events: list[tuple[object, ...]], saving: bool
) -> None:
    car = SideCar()
    for event in events:
        match event:
            case ("wants", Mode() as mode, tuple() as devices, OnSaveTimeout() as on_timeout):
                car.wants(mode, devices, on_timeout)
            case ("ends", int() as code):
                car.ends(code)
            case ("time", float() as seconds):
                car.now_s += seconds
            case ("steps", int() as steps):
                running = car.status.training is not None and car.status.training.running
                car.step += steps if running else 0
            case ("decides", int() as rounds):
                for _ in range(rounds):
                    car.one(saving=saving)
            case _:
                raise AssertionError(event)
    car.now_s += 20.0
    rounds = 0
    while car.one(saving=False):
        rounds += 1
        assert rounds < STEPS_MAX, "it does not come to rest"
    wanted = car.memory.desired
    if wanted is None:
        return
    assert car.memory.answered
    outcome = car.outcomes[wanted.generation]
    training = car.status.training
    running = training is not None and training.running
    if wanted.mode is not Mode.RUN and outcome.kind is OutcomeKind.STOPPING:
        assert not running
    if running and outcome.kind is OutcomeKind.STOPPING:
        assert set(car.memory.devices) == set(wanted.devices)
