"""Three kinds of start: each is learned by itself, and predictions use the one that is promised."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.knowledge import Learned
from reshape_controller.core.learning import COST_WEIGHT
from reshape_controller.core.model import JobId, Stage
from reshape_controller.core.profile_book import DEFAULT_OVERHEAD, ProfileBook
from reshape_controller.core.record import HistoryEntry
from reshape_controller.core.starts import StartCount, counted, offered, promised
from reshape_controller.core.state import State
from reshape_controller.scheduling.predictor import Predictor
from reshape_profiles.schema import Profile, SpeedPoint
from reshape_sidecar import codec
from reshape_sidecar.wire import PhaseTimes, Standby, StandbyState, StartKind
from tests.support.container import Knobs
from tests.support.world import World

KIND = Profile("kind", speed=(SpeedPoint("V100", 1, 4.0), SpeedPoint("V100", 2, 2.0)))
READY = Standby(StandbyState.READY)
COLD_S = DEFAULT_OVERHEAD.process_init_s


def world(**knobs: object) -> World:
    """A job of a type with a profile, training on one GPU of sixteen."""
    found = World().boot(16)
    found.event(ev.ProfileRecorded(KIND))
    found.new_containers[JobId("job")] = Knobs(**knobs)  # type: ignore[typeddict-item]
    found.running("job", 1, 1, 2, 4, 8, 16, job_type="kind")
    return found


def reshape(found: World, size: int, times: PhaseTimes) -> HistoryEntry:
    """Reshape the job, whose start takes these times; return the entry of its cost."""
    found.container("job").times = replace(times, save_s=0.1)
    found.plan(("job", size))
    assert found.job("job").stage is Stage.TRAINING
    return found.entries("reshape-cost")[-1]


def init_s(found: World) -> dict[StartKind, float]:
    costs = found.engine.state.profiles.overheads("kind")
    return {how: cost.process_init_s for how, cost in costs.items()}


def test_each_kind_of_start_is_learned_by_itself() -> None:
    found = world()
    for size, how, seconds in (
        (2, StartKind.ZYGOTE, 1.0),
        (4, StartKind.SUCCESSOR, 0.2),
        (8, None, 3.0),
    ):
        reshape(found, size, PhaseTimes(first_step_s=seconds, how=how))
    cold_s = COLD_S + COST_WEIGHT * (3.0 - COLD_S)
    assert init_s(found) == {
        StartKind.COLD: pytest.approx(cold_s),
        StartKind.ZYGOTE: 1.0,
        StartKind.SUCCESSOR: 0.2,
    }
    reshape(found, 16, PhaseTimes(import_s=0.5, position_s=1.5, how=StartKind.ZYGOTE))
    assert init_s(found)[StartKind.ZYGOTE] == pytest.approx(1.0 + COST_WEIGHT * 1.0)
    assert State.load(found.engine.state.dump()).profiles == found.engine.state.profiles


def test_each_phase_of_a_start_is_predicted_by_what_such_starts_took_before() -> None:
    found = world(standby=READY, can_prepare=True)
    times = PhaseTimes(restore_s=0.2, first_step_s=0.1, prepare_s=4.0, how=StartKind.SUCCESSOR)
    first = reshape(found, 2, times)
    second = reshape(found, 4, replace(times, restore_s=0.4, prepare_s=5.0))
    third = reshape(found, 8, times)
    shown: list[list[tuple[float | None, float]]] = [
        [
            (cost.predicted_s, cost.measured_s)
            for name in ("prepare", "restore", "first step")
            for cost in entry.costs
            if cost.phase == name
        ]
        for entry in (first, second, third)
    ]
    assert shown[0] == [(None, 4.0), (None, 0.2), (None, 0.1)]
    assert shown[1] == [(4.0, 5.0), (0.2, 0.4), (0.1, 0.1)]
    assert [seconds for pair in shown[2] for seconds in pair] == pytest.approx(
        [4.0 + COST_WEIGHT, 4.0, 0.2 + 0.2 * COST_WEIGHT, 0.2, 0.1, 0.1]
    )
    assert State.load(found.engine.state.dump()).profiles == found.engine.state.profiles
    cold = reshape(found, 16, PhaseTimes(import_s=3.0, how=StartKind.COLD, fallback="killed"))
    (found_import,) = [cost for cost in cold.costs if cost.phase == "import"]
    assert found_import.predicted_s is None, "a successor imports nothing in the pause"


def test_a_sidecar_that_does_not_say_how_it_started_teaches_no_phase() -> None:
    found = world()
    entry = reshape(found, 2, PhaseTimes(first_step_s=1.0))
    assert [cost.phase for cost in entry.costs if cost.phase == "first step"] == []
    assert found.engine.state.profiles.learned_of("kind").start_phases == ()


def test_a_kind_that_was_not_learned_takes_as_long_as_the_next_slower_one() -> None:
    book = ProfileBook().with_learned(Learned("kind", zygote_init_s=1.0))
    assert book.overhead("kind", StartKind.SUCCESSOR).process_init_s == 1.0
    assert book.overhead("other", StartKind.ZYGOTE) == book.overhead("other")
    assert book.overhead("kind").process_init_s == COLD_S


def test_what_the_release_before_learned_is_of_cold_starts() -> None:
    stored = '{"job_type":"kind","process_init_s":9.0,"type":"Learned"}'
    book = ProfileBook.from_rows([codec.loads(Learned, stored)])
    assert {cost.process_init_s for cost in book.overheads("kind").values()} == {9.0}
    assert codec.dumps(book.learned_of("kind")) == stored


@pytest.mark.parametrize(("standby", "how"), [(READY, StartKind.ZYGOTE), (None, StartKind.COLD)])
def test_a_first_start_is_promised_no_successor(standby: Standby | None, how: StartKind) -> None:
    found = World().boot(4)
    knobs = Knobs(can_prepare=True)
    found.new_containers[JobId("job")] = knobs | {"standby": standby} if standby else knobs
    found.submit("job", 1)
    found.auto = False
    found.plan(("job", 1))
    found.settle_until("job", Stage.STARTING)
    assert promised(found.job("job")) is how


@pytest.mark.parametrize(
    ("standby", "can_prepare", "how"),
    [
        (None, False, StartKind.COLD),
        (None, True, StartKind.SUCCESSOR),
        (Standby(StandbyState.STARTING), False, StartKind.COLD),
        (Standby(StandbyState.OFF, "a thread"), False, StartKind.COLD),
        (READY, False, StartKind.ZYGOTE),
        (READY, True, StartKind.SUCCESSOR),
    ],
)
def test_a_job_is_promised_what_its_sidecar_offers(
    standby: Standby | None, can_prepare: bool, how: StartKind
) -> None:
    found = world(standby=standby, can_prepare=can_prepare)
    assert offered(found.job("job").observed) is how
    (view,) = found.engine.snapshot().running
    assert view.start is how


def test_a_new_offer_is_seen_by_policies_although_the_job_trains_as_expected() -> None:
    found = world()
    for standby in (READY, None, Standby(StandbyState.STARTING), READY):
        container = found.container("job")
        container.standby = standby
        found.train("job", 0)
        (view,) = found.engine.snapshot().running
        fresh = State.load(found.engine.state.dump()).snapshot()
        assert (view,) == fresh.running
        assert view.start is (StartKind.ZYGOTE if standby == READY else StartKind.COLD)


def test_a_reshape_in_place_is_weighed_with_the_promised_start_and_a_move_with_a_cold_one() -> None:
    found = world(standby=READY, can_prepare=True)
    before = Predictor(found.engine.snapshot()).reshape_s(found.engine.snapshot().running[0])
    reshape(found, 4, PhaseTimes(first_step_s=0.5, how=StartKind.SUCCESSOR))
    snapshot = found.engine.snapshot()
    (view,), predictor = snapshot.running, Predictor(snapshot)
    cost = snapshot.profiles.overhead("kind")
    assert predictor.reshape_s(view) == pytest.approx(cost.checkpoint_s + cost.process_stop_s + 0.5)
    assert predictor.reshape_s(view) < before
    restart_s = cost.checkpoint_s + cost.process_stop_s + COLD_S
    restart_s += cost.job_stop_s + cost.job_init_s
    assert predictor.reshape_s(view, moves=True) == pytest.approx(restart_s)
    for moves in (False, True):
        phases = dict(predictor.reshaped(view, "V100", 2, moves=moves).phases)
        assert phases["process start"] == (COLD_S if moves else 0.5)


def test_the_history_says_how_a_start_was_made_beside_what_was_promised() -> None:
    found = world(standby=READY)
    reshape(found, 2, PhaseTimes(first_step_s=1.0, how=StartKind.ZYGOTE))
    times = PhaseTimes(first_step_s=6.5, how=StartKind.COLD, fallback="its zygote ended")
    entry = reshape(found, 4, times)
    start = next(cost for cost in entry.costs if cost.phase == "process start")
    assert (start.predicted_s, start.measured_s) == (1.0, 6.5)
    assert (start.how, start.fallback) == (StartKind.COLD, "its zygote ended")
    text = "process start 6.5 s, predicted 1.0 s, cold (its zygote ended)"
    assert text in entry.text
    assert init_s(found)[StartKind.ZYGOTE] == 1.0, "a cold start teaches nothing of another kind"


def test_starts_are_counted_by_kind_and_by_whether_they_fell_back() -> None:
    found = world(standby=READY)
    reshape(found, 2, PhaseTimes(first_step_s=1.0, how=StartKind.ZYGOTE))
    reshape(found, 4, PhaseTimes(first_step_s=6.5, how=StartKind.COLD, fallback="a thread"))
    reshape(found, 8, PhaseTimes(first_step_s=6.5))
    assert counted(found.history) == (
        StartCount(StartKind.ZYGOTE, fell_back=False),
        StartCount(StartKind.COLD, fell_back=True),
    )
