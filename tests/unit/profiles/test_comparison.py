"""The comparison of recorded runs on other numbers of devices: each number has its tolerance."""

from __future__ import annotations

from typing import Any

from reshape_profiles.comparison import Tolerance, differences
from reshape_profiles.recorded_run import Recorded

LARGE = (1000.0, -2000.0)
SMALL = (0.001, 0.002)


def tensor(numbers: tuple[float, ...], norm: float = 1.0) -> dict[str, Any]:
    digest = str(hash((numbers, norm)))
    return {"digest": digest, "norm": norm.hex(), "numbers": [one.hex() for one in numbers]}


def run(
    losses: list[float],
    accuracies: list[float] | None = None,
    weights: list[dict[str, Any]] | None = None,
) -> Recorded:
    """A run whose steps have these values, from step 1 on."""
    accuracies = accuracies or [0.5] * len(losses)
    values = zip(losses, accuracies, strict=True)
    steps = [{"loss": loss.hex(), "accuracy": share.hex()} for loss, share in values]
    return Recorded(
        steps=tuple(enumerate(steps, start=1)),
        ends=(),
        files={},
        exit_code=0,
        stops=(),
        verdict=None,
        reason=None,
        output="",
        weights=dict(enumerate(weights or [], start=1)),
    )


def found(straight: Recorded, stopped: Recorded, tolerance: Tolerance | None) -> list[str]:
    return [difference.subject for difference in differences(straight, stopped, tolerance)]


def test_a_metric_that_the_gpus_change_leaves_the_loss_its_own_tolerance() -> None:
    straight = run([1.0, 1.0], [0.5, 0.5])
    tolerance = Tolerance.of(straight, [run([1.0, 1.0], [0.4, 0.5])])
    assert found(straight, run([1.0, 1.0], [0.35, 0.5]), tolerance) == []
    assert found(straight, run([1.0, 1.001], [0.5, 0.5]), tolerance) == ["step 2: loss"]


def test_a_deviation_of_a_later_step_excuses_no_earlier_one() -> None:
    straight = run([1.0, 1.0, 1.0])
    tolerance = Tolerance.of(straight, [run([1.0, 1.01, 1.0])])
    assert found(straight, run([1.0, 1.0, 1.015]), tolerance) == []
    assert found(straight, run([1.015, 1.0, 1.0]), tolerance) == ["step 1: loss"]


def test_a_small_tensor_is_not_measured_by_the_largest() -> None:
    straight = run([1.0], weights=[{"large": tensor(LARGE), "small": tensor(SMALL)}])
    near = run([1.0], weights=[{"large": tensor((1000.01, -2000.0)), "small": tensor(SMALL)}])
    far = run([1.0], weights=[{"large": tensor(LARGE), "small": tensor((0.00101, 0.002))}])
    tolerance = Tolerance.of(straight, [straight])
    assert found(straight, near, tolerance) == []
    (difference,) = differences(straight, far, tolerance)
    assert difference.subject == "step 1: weight small"
    assert "0.0045 off (1 of 2 tensors are off)" in difference.text


def test_a_tensor_that_holds_rounding_alone_is_as_far_off_as_without_a_stop() -> None:
    straight, other, stopped = (
        run([1.0], weights=[{"a": tensor(LARGE), "b": tensor(LARGE), "bias": tensor((noise,))}])
        for noise in (1e-9, -2e-9, -1e-9)
    )
    tolerance = Tolerance.of(straight, [other])
    assert found(straight, stopped, tolerance) == []
    assert tolerance.of_most_weights == 0.0


def test_a_tensor_with_a_turned_sign_or_another_norm_or_missing_is_off() -> None:
    straight = run([1.0], weights=[{"a": tensor(SMALL)}])
    tolerance = Tolerance.of(straight, [straight])
    for other in ({"a": tensor((0.001, -0.002))}, {"a": tensor(SMALL, 1.001)}, {}):
        stopped = run([1.0], weights=[other])
        assert found(straight, stopped, tolerance) == ["step 1: weight a"], other


def test_on_the_same_devices_the_digests_must_agree() -> None:
    straight = run([1.0], weights=[{"a": tensor(SMALL)}])
    unseen = {"a": {**tensor(SMALL), "digest": "another"}}
    assert found(straight, straight, None) == []
    assert found(straight, run([1.0], weights=[unseen]), None) == ["step 1: weight a"]
