"""What one user's jobs say of a job type, and of their saves, misleads nobody else's jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.attempts import save_deadline_s
from reshape_controller.core.knowledge import Learned, Measured, measure
from reshape_controller.core.limits import LOCAL
from reshape_controller.core.model import Stage
from reshape_controller.core.profile_book import (
    DEFAULT_OVERHEAD,
    VOICES_MAX,
    ProfileBook,
)
from reshape_controller.core.recorded_speeds import default_curve
from reshape_controller.core.state import State
from reshape_profiles.schema import Profile, SpeedPoint
from reshape_sidecar.wire import PhaseTimes, Progress, StartKind
from tests.support.world import World

RECORDED = Profile("kind", speed=(SpeedPoint("V100", 1, 4.0), SpeedPoint("V100", 2, 2.0)))


def reports(found: World, name: str, *speeds: float, times: PhaseTimes | None = None) -> None:
    """The SideCar of a job says for each speed that one more step is done."""
    c = found.container(name)
    for seconds in speeds:
        c.step, c.sequence = c.step + 1, c.sequence + 1
        seen, progress = c.observed(), Progress(step=c.step, seconds_per_step=seconds)
        found.event(ev.SideCarReported(replace(seen, progress=progress, times=times or seen.times)))


def two_users(profile: Profile | None = RECORDED) -> World:
    """A job of each of two users trains on two GPUs."""
    found = World().boot(8)
    if profile is not None:
        found.event(ev.ProfileRecorded(profile))
    for name in ("liar", "honest"):
        found.running(name, 2, 1, 2, 4, job_type="kind", user=name)
    return found


def believed_s(found: World, size: int) -> float:
    return found.engine.state.profiles.seconds_per_step("kind", "V100", size)


@pytest.mark.parametrize("lie", [1e-6, 80_000.0])
@pytest.mark.parametrize("liar_first", [True, False])
def test_a_false_speed_moves_a_type_no_further_than_another_users_word(
    lie: float, liar_first: bool
) -> None:
    found = two_users()
    for name in ("liar", "honest") if liar_first else ("honest", "liar"):
        reports(found, name, *[lie if name == "liar" else 2.4] * 200)
    assert 2.0 <= believed_s(found, 2) <= 2.4
    assert 4.0 <= believed_s(found, 1) <= 4.8


def test_a_false_speed_at_a_size_that_no_other_has_does_not_mislead_either() -> None:
    found = two_users(None)
    reports(found, "honest", *[0.5] * 30)
    found.finish("liar")
    found.running("liar-4", 4, 1, 2, 4, job_type="kind", user="liar")
    reports(found, "liar-4", *[50_000.0] * 30)
    honest_s = 0.5 * default_curve(4) / default_curve(2)
    assert believed_s(found, 4) <= max(honest_s, default_curve(4)) * 1.01


def test_a_job_does_not_straggle_by_what_another_user_says_of_its_type() -> None:
    found = two_users()
    reports(found, "liar", *[1e-6] * 200)
    reports(found, "honest", *[2.1] * 20)
    assert not found.job("honest").straggling
    assert found.job("honest").measured[0].seconds_per_step == pytest.approx(2.1, abs=0.05)
    assert 2.0 <= believed_s(found, 2) <= 2.1


def test_of_three_users_the_median_counts_and_a_user_has_one_voice_for_all_jobs() -> None:
    book = ProfileBook()
    for user, seconds in (("a", 1.0), ("b", 1.2), ("liar", 1e-6), ("liar", 1e-6), ("liar", 1e-6)):
        voice = book.voice("kind", user)
        heard = measure(voice.heard, "V100", 1, seconds, prior_s=None, weight=0.5)
        costs: dict[str, Any] = {
            "process_init_s": seconds,
            "checkpoint_s": seconds,
            "prepare_s": seconds,
        }
        book = book.with_voice(user, replace(voice, speed=heard, heard=heard, **costs))
    assert book.seconds_per_step("kind", "V100", 1) == 1.0
    learned = book.learned_of("kind")
    assert (learned.process_init_s, learned.checkpoint_s, learned.prepare_s) == (1.0, 1.0, 1.0)
    loaded = ProfileBook.from_rows(book.rows())
    assert (loaded.learned, loaded.voices) == (book.learned, book.voices)


def test_of_two_users_what_is_assumed_is_the_third_voice_of_costs() -> None:
    honest = Learned("kind", process_init_s=9.0, zygote_init_s=2.0, process_stop_s=2.0)
    liar = Learned("kind", process_init_s=80_000.0, zygote_init_s=80_000.0, process_stop_s=0.0)
    book = ProfileBook().with_voice("honest", honest).with_voice("liar", liar)
    assert book.overhead("kind").process_init_s == 9.0
    assert book.overhead("kind").process_stop_s == DEFAULT_OVERHEAD.process_stop_s
    assert book.overhead("kind", StartKind.ZYGOTE).process_init_s == 9.0


def test_one_user_alone_teaches_a_type_as_before_and_keeps_what_was_learned_before() -> None:
    before = Learned("kind", heard=(Measured("V100", 1, 3.0),), speed=(Measured("V100", 1, 3.0),))
    book = ProfileBook().with_learned(before)
    assert book.voice("kind", "a") == before
    book = book.with_voice("a", replace(before, process_init_s=7.0))
    assert book.learned_of("kind") == replace(before, process_init_s=7.0)
    assert book.voice("kind", "b") == Learned("kind")


def test_the_users_who_taught_last_have_a_voice() -> None:
    book = ProfileBook()
    for number in range(VOICES_MAX + 3):
        book = book.with_voice(f"user-{number}", Learned("kind", process_init_s=float(number)))
    assert next(iter(book.voices["kind"])) == "user-3"
    assert len(book.voices["kind"]) == VOICES_MAX


def test_a_log_of_an_earlier_release_learns_from_all_alike() -> None:
    found = World(limits=replace(LOCAL, word_rules=0)).boot(8)
    found.running("job", 2, 1, 2, job_type="kind", user="a")
    reports(found, "job", *[0.5] * 4, times=PhaseTimes(save_s=1000.0))
    profiles = found.engine.state.profiles
    assert profiles.voices == {}
    assert profiles.learned_of("kind").speed
    assert found.job("job").longest_save_s == 1000.0


def test_voices_are_in_the_snapshot_of_a_log() -> None:
    found = two_users()
    for name in ("liar", "honest"):
        reports(found, name, *[1.5] * 4)
    loaded = State.load(found.engine.state.dump())
    assert loaded.profiles.voices == found.engine.state.profiles.voices
    assert loaded.profiles.voices["kind"].keys() == {"liar", "honest"}


def test_a_length_that_siblings_taught_is_predicted_anew_at_the_same_speed() -> None:
    speed = (Measured("V100", 1, 1.0),)
    book = ProfileBook().with_learned(Learned("array-1", speed=speed, total_steps=10.0))
    before = book.answers("array-1").tables
    book = book.with_learned(Learned("array-1", speed=speed, total_steps=90.0))
    assert book.answers("array-1").tables is not before


def test_a_save_deadline_follows_saves_that_the_controller_saw_not_figures_of_a_report() -> None:
    found = World().boot(4)
    found.running("liar", 4, 2, 4, user="liar")
    reports(found, "liar", 1.0, 1.0, times=PhaseTimes(save_s=86_400.0))
    assert save_deadline_s(found.engine.state, found.job("liar")) == LOCAL.save_min_s
    found.container("liar").saves = False
    found.submit("newcomer", 2)
    found.plan(("liar", 2), ("newcomer", 2))
    assert found.job("liar").stage is Stage.SAVING
    found.wait(50.0)
    reports(found, "liar", 1.0, times=PhaseTimes(save_s=86_400.0))
    assert save_deadline_s(found.engine.state, found.job("liar")) == 3 * 50.0
