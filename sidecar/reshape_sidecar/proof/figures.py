"""The figures of one training step, and whether two processes made the same step. Pure.

Another number of GPUs sums the same numbers in another order, so figures may differ by rounding: by
the tolerances below, which follow from the precision in use. A step that draws random numbers, or
sees the samples of one GPU together, has other numbers at another number of GPUs, as its verdict
says: of such a step only what must be equal is compared.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

LOSS_TOLERANCE = 1e-4
NORM_TOLERANCE = 1e-3
"""Of norms of gradients and of updates."""
DIRECTION_TOLERANCE = 1e-2
RATE_TOLERANCE = 1e-6
HALF_FACTOR = 10.0
"""A step in half precision, or in TF32, may differ by this many times more."""
SMALLEST = 1e-12
"""Norms below it do not differ."""
LOSS_NOISE = 1e-2
"""A loss may be a small rest of larger terms, whose rounding it has: its distance is a part of this
at least."""
NAMES_SHOWN = 3
DIGEST_BITS = 62
DATA, LOSS = "the data and its sampler", "the loss, the model and what the trainer keeps"
FREEZING, OPTIMIZER = "what freezes layers", "the optimizer and its schedule"
IN_PART = "samples, rates and trained weights compared"
DRAWN = f"its random numbers differ at another GPU count: {IN_PART}"
VARIES = f"its numbers differ at another GPU count, as its verdict says: {IN_PART}"


@dataclass(frozen=True, slots=True)
class OptimizerFigures:
    """What one optimizer did in a step."""

    update: float | None
    """Norm of the change of samples of its weights; None: not finite."""
    gradient: float | None = None
    """Norm of the gradients of all its weights; None: not finite, or not seen."""
    direction: tuple[float, ...] = ()
    """Sums with fixed signs over samples of the gradients: another direction gives others."""
    rates: tuple[float, ...] = ()
    """Learning rate of each group of weights."""
    reached: int = 0
    """Weights with a gradient."""
    outside: int = 0
    """Weights that no model holds."""


@dataclass(frozen=True, slots=True)
class StepFigures:
    """The figures of a step, of one process or of all together."""

    gpus: int
    samples: int = 0
    """0: they were not seen."""
    batch: int = 0
    """Sum of the samples' hashes, without padding: their order does not count. 0: not seen."""
    form: str = ""
    """Of a sample, without padding that is known; empty: it differs, as other padding may."""
    loss: float | None = None
    """None: none was seen, or it is not finite."""
    loss_rounding: float = 0.0
    """Relative error of the loss: what is taken from a sum of many steps has lost digits."""
    optimizers: tuple[OptimizerFigures, ...] = ()
    trained: tuple[str, ...] = ()
    """Names of the weights that are trained."""
    resting: int = 0
    """Layers in evaluation mode."""
    is_half: bool = False
    """Whether it computes in half precision or TF32."""
    draws: bool = False
    """Whether the step draws random numbers, or layers see the samples of one GPU together."""
    varies: bool = False
    """Whether the verdict names data or state that changes with the number of GPUs."""


@dataclass(frozen=True, slots=True)
class LeftStep:
    """What a process leaves beside its last checkpoint."""

    figures: StepFigures | None = None
    why: str = ""
    """Why there are none."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether two processes made the same step."""

    differences: tuple[str, ...]
    said: str
    """The figures in words."""
    hint: str = ""
    """Where to look for what differs."""


def sum_of_hashes(count: int, parts: Iterable[tuple[bytes, Iterable[bytes]]]) -> int:
    """Return the sum of the hashes of ``count`` samples, each made of a name and the sample's bytes
    in each of ``parts``."""
    rows = [hashlib.blake2b(digest_size=DIGEST_BITS // 8) for _ in range(count)]
    for name, contents in parts:
        for row, content in zip(rows, contents, strict=True):
            row.update(name)
            row.update(content)
    return sum(int.from_bytes(row.digest(), "big") for row in rows)


def of_all(ranks: Sequence[StepFigures]) -> StepFigures:
    """Return the figures of all ranks together: sums of samples, means of losses and of squared
    norms. Gradients of a data-parallel step are the same on each rank."""
    first = ranks[0]
    losses = [one.loss for one in ranks if one.loss is not None]
    whole = len(losses) in (0, len(ranks))  # else one of them is not finite
    each = zip(*(one.optimizers for one in ranks), strict=False)
    return replace(
        first,
        samples=sum(one.samples for one in ranks),
        batch=sum(one.batch for one in ranks) % (1 << DIGEST_BITS),
        form=first.form if len({one.form for one in ranks}) == 1 else "",
        loss=_mean(losses) if losses and whole else None,
        optimizers=tuple(map(_of_ranks, each)),
        is_half=any(one.is_half for one in ranks),
        draws=any(one.draws for one in ranks),
    )


def _of_ranks(ranks: Sequence[OptimizerFigures]) -> OptimizerFigures:
    directions = zip(*(one.direction for one in ranks), strict=False)
    return replace(
        ranks[0],
        gradient=_root_mean_square([one.gradient for one in ranks]),
        update=_root_mean_square([one.update for one in ranks]),
        direction=tuple(_mean(numbers) for numbers in directions),
    )


def _mean(numbers: Sequence[float]) -> float:
    return math.fsum(numbers) / len(numbers)


def _root_mean_square(norms: Sequence[float | None]) -> float | None:
    squares = [norm * norm for norm in norms if norm is not None]
    return math.sqrt(_mean(squares)) if len(squares) == len(norms) else None


def compare(before: StepFigures, now: StepFigures) -> Comparison:
    """Return what differs in the step ``now`` from the same step in the process ``before``."""
    draws = (before.draws or now.draws) and before.gpus != now.gpus
    varies = before.varies or now.varies
    found: dict[str, str] = {}
    """Each difference, and where to look for it."""
    if before.samples != now.samples and before.samples and now.samples:
        found[f"{now.samples} samples instead of {before.samples}"] = DATA
    found |= dict(_unequal(before, now))
    factor = HALF_FACTOR if before.is_half or now.is_half else 1.0
    distances = list(_distances(before, now, factor))
    if not draws and not varies:
        found |= {one.text: one.hint for one in distances if one.is_far}
    is_seen = before.batch > 0 and now.batch > 0 and before.samples == now.samples
    is_other = is_seen and before.batch != now.batch
    is_sure = before.form == now.form != ""  # else it may be another padding alone
    if is_other and is_sure and not varies and (found or draws):
        found = {"other samples": DATA, **found}
    if not found:
        alone = VARIES if varies else DRAWN if draws else None
        return Comparison((), alone or _agreement(distances))
    said = "; ".join(found)
    if is_seen and not is_other and LOSS in found.values():
        said += ", same batch"
    return Comparison(tuple(found), said, next(iter(found.values())))


@dataclass(frozen=True, slots=True)
class _Distance:
    """How far a figure is from that of the process before."""

    text: str
    is_far: bool
    """Whether it is beyond its tolerance."""
    hint: str
    short: str = ""
    """The figure itself, and the distance."""


def _unequal(before: StepFigures, now: StepFigures) -> Iterator[tuple[str, str]]:
    """Yield what must be equal on any number of GPUs and is not."""
    if lost := _names(before.trained, now.trained):
        yield f"trained no more: {lost}", FREEZING
    if added := _names(now.trained, before.trained):
        yield f"trained now: {added}", FREEZING
    if before.resting != now.resting:
        layers = f"{now.resting} layers are in evaluation mode instead of {before.resting}"
        yield layers, FREEZING
    if len(before.optimizers) != len(now.optimizers):
        steps = f"{len(now.optimizers)} optimizers stepped instead of {len(before.optimizers)}"
        yield steps, OPTIMIZER
    for one, other in zip(before.optimizers, now.optimizers, strict=False):
        far = len(one.rates) != len(other.rates) or any(
            _relative(rate, now_rate) > RATE_TOLERANCE
            for rate, now_rate in zip(one.rates, other.rates, strict=False)
        )
        if far:
            yield f"learning rate {_shown(other.rates)} instead of {_shown(one.rates)}", OPTIMIZER
        if one.outside != other.outside:
            held = f"{other.outside} weights outside the model instead of {one.outside}"
            yield f"the optimizer trains {held}", OPTIMIZER
        if one.reached != other.reached:
            yield f"{other.reached} weights with a gradient instead of {one.reached}", FREEZING


def _distances(before: StepFigures, now: StepFigures, factor: float) -> Iterator[_Distance]:
    """Yield the figures that may differ by rounding, the loss first. ``factor``: of tolerances."""
    norms = NORM_TOLERANCE * factor
    if before.loss is not None or now.loss is not None:
        rounding = max(before.loss_rounding, now.loss_rounding)
        loss = LOSS_TOLERANCE * factor + rounding
        yield _distance("loss", before.loss, now.loss, loss, LOSS, LOSS_NOISE)
    for one, other in zip(before.optimizers, now.optimizers, strict=False):
        if one.gradient is not None or other.gradient is not None:
            norm = _distance("gradient norm", one.gradient, other.gradient, norms, LOSS)
            yield norm
            turned = _turned(one.direction, other.direction)
            text = f"another gradient of the same norm ({_percent(turned)})"
            is_far = turned > DIRECTION_TOLERANCE * factor and not norm.is_far
            yield _Distance(text, is_far, LOSS)
        yield _distance("update", one.update, other.update, norms, OPTIMIZER)


def _distance(
    name: str,
    before: float | None,
    now: float | None,
    tolerance: float,
    hint: str,
    least: float = SMALLEST,
) -> _Distance:
    relative = _relative(before, now, least)
    text = f"{name} {_number(now)} instead of {_number(before)} ({_percent(relative)})"
    short = f"{name} {_number(now)}, {relative:.0e}"
    return _Distance(text, relative > tolerance, hint, short)


def _agreement(distances: Iterable[_Distance]) -> str:
    shown = [one for one in distances if one.short]
    return shown[0].short if shown else "no figure was seen"


def _relative(before: float | None, now: float | None, least: float = SMALLEST) -> float:
    """Return the difference as a part of the larger, or of ``least``; infinite if one of them is
    not finite."""
    if before == now:
        return 0.0
    if before is None or now is None:
        return math.inf
    return abs(before - now) / max(abs(before), abs(now), least)


def _turned(before: Sequence[float], now: Sequence[float]) -> float:
    if len(before) != len(now):
        return math.inf
    return math.dist(before, now) / max(math.hypot(*before), math.hypot(*now), SMALLEST)


def _names(names: Iterable[str], others: Iterable[str]) -> str:
    """Return those of ``names`` that are none of ``others``, in words."""
    found = sorted(set(names) - set(others))
    more = f" and {len(found) - NAMES_SHOWN} more" if len(found) > NAMES_SHOWN else ""
    return ", ".join(found[:NAMES_SHOWN]) + more


def _number(value: float | None) -> str:
    return "no finite number" if value is None else f"{value:.4g}"


def _percent(relative: float) -> str:
    return f"{relative:.3g}" if math.isinf(relative) else f"{100 * relative:.3g} %"


def _shown(rates: Iterable[float]) -> str:
    return "/".join(f"{rate:.4g}" for rate in rates)
