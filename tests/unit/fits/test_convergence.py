"""Known curves are found again, and nonsense is refused with the reason."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reshape_controller.core import events as ev
from reshape_controller.core.knowledge import Curve
from reshape_controller.core.model import AccuracySeen, JobId, Length, LengthUnit
from reshape_controller.core.plan import Plan
from reshape_controller.fits.convergence import FitRefused, Refits, fit
from reshape_profiles import loader
from reshape_profiles.schema import AccuracyPoint, Profile
from tests.support.gate import examples
from tests.support.world import World


def on(curve: Curve, steps: list[int]) -> list[tuple[float, float]]:
    return [(k, 1.0 - 1.0 / (curve.b0 * k + curve.b1) - curve.b2) for k in steps]


STEPS = [0, 100, 200, 400, 700, 1000, 1500, 2000]


@given(
    b0=st.floats(0.0005, 0.05),
    b1=st.floats(1.2, 3.0),
    b2=st.floats(0.0, 0.15),
)
@settings(max_examples=examples(60), deadline=None)
def test_a_known_curve_predicts_the_step_of_a_target_again(b0: float, b1: float, b2: float) -> None:
    truth = Curve(b0, b1, b2)
    found = fit(on(truth, STEPS))
    target = on(truth, [3000])[0][1]
    assert found.step_of(target) == pytest.approx(3000, rel=0.1)


def test_a_known_curve_is_found_through_noise() -> None:
    truth, draw = Curve(0.004, 1.5, 0.1), random.Random(3)
    steps = list(range(0, 2000, 50))
    noisy = [(k, a + draw.gauss(0.0, 0.005)) for k, a in on(truth, steps)]
    found = fit(noisy)
    target = on(truth, [3000])[0][1]
    assert found.step_of(target) == pytest.approx(3000, rel=0.25)


def test_coefficients_are_rounded_to_nine_digits() -> None:
    found = fit(on(Curve(1 / 300, 1.5, 0.1), STEPS))
    for value in (found.b0, found.b1, found.b2):
        assert value == float(f"{value:.9g}")


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ([(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)], "too few"),
        ([(k, 0.9 - k / 100) for k in range(10)], "does not rise"),
        ([(k, 0.5) for k in range(10)], "does not rise"),
        ([(1, 0.1), (2, 0.2), (3, math.nan), (4, 0.4), (5, 0.5)], "is not a valid point"),
        ([(1, 0.1), (2, 0.2), (3, 1.2), (4, 0.4), (5, 0.5)], "outside 0 to 1"),
        ([(1, 0.1), (1, 0.2), (1, 0.3), (4, 0.4), (4, 0.5)], "different steps"),
        ([(0, 0.0), (1, 0.9), (2, 0.1), (3, 0.8), (4, 0.2), (5, 0.9)], "no learning curve fits"),
    ],
)
def test_nonsense_is_refused(points: list[tuple[float, float]], why: str) -> None:
    with pytest.raises(FitRefused, match=why):
        fit(points)


def test_an_accuracy_that_the_curve_never_reaches_has_no_step() -> None:
    curve = fit(on(Curve(0.004, 1.5, 0.1), STEPS))
    assert curve.step_of(0.95) is None


def with_points(world: World, count: int) -> None:
    truth = Curve(0.004, 1.5, 0.1)
    points = tuple(AccuracySeen(int(k), a) for k, a in on(truth, list(range(0, 100 * count, 100))))
    state = world.engine.state
    state.put_job(replace(state.jobs[JobId("job")], accuracies=points))


def test_a_running_job_is_fitted_from_its_fifth_point_on_and_again_for_each_new_one() -> None:
    world, refits = World().boot(2), Refits()
    world.submit("job", 1, length=Length(LengthUnit.TARGET_ACCURACY, 0.85))
    with_points(world, 4)
    assert refits.due(world.engine.state) == ()
    with_points(world, 5)
    (event,) = refits.due(world.engine.state)
    assert event.job == "job"
    assert refits.due(world.engine.state) == ()
    world.engine.apply(Plan(), world.now_s)
    world.event(event)
    assert world.engine.wants_plan()
    curve = world.job("job").curve
    assert curve is not None
    assert curve.step_of(0.85) == pytest.approx((1 / 0.05 - 1.5) / 0.004, rel=0.05)
    with_points(world, 6)
    assert len(refits.due(world.engine.state)) == 1


def test_a_refused_fit_of_a_job_is_named_once() -> None:
    world, refits = World().boot(2), Refits()
    world.submit("job", 1, length=Length(LengthUnit.TARGET_ACCURACY, 0.85))
    state = world.engine.state
    for count in (4, 5, 6):
        falls = tuple(AccuracySeen(100 * k, 0.9 - 0.1 * k) for k in range(count))
        state.put_job(replace(state.jobs[JobId("job")], accuracies=falls))
        assert refits.due(state) == ()
        reason = "the accuracy does not rise, so no curve can be fitted"
        assert refits.refusals() == ([(JobId("job"), reason)] if count == 5 else [])


def test_the_points_of_a_profile_give_the_curve_of_its_type_once_a_job_needs_it() -> None:
    world, refits = World().boot(2), Refits()
    points = tuple(AccuracyPoint(int(k), a) for k, a in on(Curve(0.004, 1.5, 0.1), STEPS))
    world.event(ev.ProfileRecorded(Profile("typed", accuracy=points)))
    assert refits.due(world.engine.state) == ()
    target = Length(LengthUnit.TARGET_ACCURACY, 0.85)
    world.submit("job", 1, length=target, job_type="typed")
    (event,) = refits.due(world.engine.state)
    assert (event.job, event.job_type) == (None, "typed")
    world.event(event)
    assert world.engine.state.profiles.learned_of("typed").curve == event.curve
    assert refits.due(world.engine.state) == ()


def test_a_curve_survives_the_log() -> None:
    world, refits = World().boot(2), Refits()
    world.submit("job", 1, length=Length(LengthUnit.TARGET_ACCURACY, 0.85))
    with_points(world, 8)
    for event in refits.due(world.engine.state):
        world.event(event)
    parts = world.engine.state.dump()
    assert type(world.engine.state).load(parts).jobs[JobId("job")] == world.job("job")


def test_table_five_with_a_plausible_rest_gives_a_curve() -> None:
    """The paper prints four points, too few for a curve; the other bundled ones are assumed."""
    profile = loader.bundled().of("resnet18-b64-imagenet")
    assert profile is not None
    with pytest.raises(FitRefused, match="too few"):
        fit([(p.step, p.accuracy) for p in profile.accuracy if p.source == "paper, Table V"])
    curve = fit([(p.step, p.accuracy) for p in profile.accuracy])
    assert curve.step_of(0.6) == pytest.approx(20019, rel=0.1)


def test_scipy_is_imported_only_when_something_is_fitted() -> None:
    """A daemon starts without it."""
    code = (
        "import sys, reshape_controller.fits.convergence;"
        "print([name for name in ('scipy', 'numpy') if name in sys.modules])"
    )
    root = Path(__file__).resolve().parents[3]
    paths = [str(root / name) for name in ("controller", "sidecar", "launcher", "profiles")]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("profile", loader.bundled().profiles, ids=lambda p: p.job_type)
def test_every_bundled_profile_has_points_enough_for_a_curve(profile: Profile) -> None:
    points = [(p.step, p.accuracy) for p in profile.accuracy]
    curve = fit(points)
    last = profile.accuracy[-1]
    assert curve.step_of(last.accuracy) == pytest.approx(last.step, rel=0.1)
