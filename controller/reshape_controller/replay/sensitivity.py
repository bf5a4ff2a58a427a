"""Setups with an assumed input 25 % lower or higher, to test the sensitivity of a result.

The controller's profiles and the world change together: the variation is another truth, not a wrong
profile (which ``--spread`` tests). Published values do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from reshape_controller.replay.setup import Setup
from reshape_profiles.schema import ASSUMED, COSTS, Profile, SpeedPoint

CHANGE = 0.25
SLOWER = ("K80", "P100")
"""The second GPU type of the paper's clusters."""


@dataclass(frozen=True, slots=True)
class Variation:
    """An assumption, the factor of its change, and the setup with it."""

    assumption: str
    factor: float
    setup: Setup


def variations(setup: Setup) -> Iterator[Variation]:
    """Yield a lower and a higher variation of every assumption."""
    for factor in (1.0 - CHANGE, 1.0 + CHANGE):
        for name, change in _SPEEDS.items():
            profiles = tuple(_with_speed(one, factor, change) for one in setup.bundle.profiles)
            bundle = replace(setup.bundle, profiles=profiles)
            yield Variation(name, factor, setup.with_bundle(bundle))
        for cost in COSTS:
            overhead = setup.costs.overhead
            changed = replace(overhead, **{cost: getattr(overhead, cost) * factor})
            costs = replace(setup.costs, overhead=changed)
            yield Variation(f"costs: {cost}", factor, replace(setup, costs=costs))
        if setup.recipe is not None and setup.recipe.targets:
            slower = tuple(_with_accuracy(one, factor) for one in setup.bundle.profiles)
            bundle = replace(setup.bundle, profiles=slower)
            yield Variation("steps until an accuracy is reached", factor, setup.with_bundle(bundle))
        spread = replace(setup, spread=setup.spread * factor)
        yield Variation("real speeds around the profiles (--spread)", factor, spread)
    if setup.recipe is not None:
        for sizes in ((1, 2, 4), (1, 2, 4, 6, 8), (2, 4, 8)):
            name = "optional numbers of GPUs: " + ", ".join(str(size) for size in sizes)
            yield Variation(name, 1.0, replace(setup, sizes=sizes))


_Change = Callable[[Profile, SpeedPoint, float], float]


def _all(profile: Profile, point: SpeedPoint, factor: float) -> float:
    return point.seconds_per_step * factor


def _loss(profile: Profile, point: SpeedPoint, factor: float) -> float:
    """Return the seconds per step with the loss of several GPUs (over ideal scaling) changed."""
    alone = next((p for p in profile.speed if p.gpus == 1 and p.gpu_type == point.gpu_type), None)
    if alone is None:
        return point.seconds_per_step
    ideal = alone.seconds_per_step / point.gpus
    return ideal + (point.seconds_per_step - ideal) * factor


def _slower(profile: Profile, point: SpeedPoint, factor: float) -> float:
    return point.seconds_per_step * (factor if point.gpu_type in SLOWER else 1.0)


_SPEEDS: dict[str, _Change] = {
    "all assumed seconds per step": _all,
    "what a step loses on several GPUs": _loss,
    "seconds per step on the slower GPU type": _slower,
}


def _with_speed(profile: Profile, factor: float, change: _Change) -> Profile:
    speed = tuple(
        replace(point, seconds_per_step=change(profile, point, factor))
        if point.source.startswith(ASSUMED)
        else point
        for point in profile.speed
    )
    return replace(profile, speed=speed)


def _with_accuracy(profile: Profile, factor: float) -> Profile:
    accuracy = tuple(
        replace(point, step=round(point.step * factor))
        if point.source.startswith(ASSUMED)
        else point
        for point in profile.accuracy
    )
    return replace(profile, accuracy=accuracy)
