"""Two processes made the same step, or the figures say what differs and where to look."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reshape_sidecar import codec
from reshape_sidecar.proof.figures import (
    HALF_FACTOR,
    LOSS_TOLERANCE,
    LeftStep,
    OptimizerFigures,
    StepFigures,
    compare,
    of_all,
)

ADAM = OptimizerFigures(0.5, 2.0, (1.0, -2.0, 3.0), (1e-3,), reached=4)
STEP = StepFigures(
    gpus=4,
    samples=32,
    batch=99,
    form="x(8,)",
    loss=0.5013,
    optimizers=(ADAM,),
    trained=("head.bias", "head.weight"),
    resting=1,
)
NOW = replace(STEP, gpus=2)


def stepped(step: StepFigures, **fields: object) -> StepFigures:
    """The step with another figure of its optimizer."""
    return replace(step, optimizers=(replace(ADAM, **fields),))  # type: ignore[arg-type]


def test_the_same_step_agrees_and_tells_its_loss() -> None:
    found = compare(STEP, replace(NOW, loss=0.5013 * (1 + 4e-8)))
    assert found.differences == ()
    assert found.said == "loss 0.5013, 4e-08"


def test_what_one_of_them_has_not_seen_does_not_differ() -> None:
    unseen = replace(STEP, samples=0, batch=0)
    assert compare(unseen, NOW).differences == ()
    assert compare(replace(unseen, samples=32), replace(NOW, batch=98)).differences == ()
    assert "same batch" not in compare(unseen, replace(NOW, loss=0.6)).said


def test_a_loss_that_has_lost_digits_may_differ_by_them() -> None:
    now = replace(NOW, loss=0.5013 * (1 + 1e-3))
    assert compare(STEP, now).differences
    assert compare(replace(STEP, loss_rounding=2e-3), now).differences == ()


def test_another_loss_of_the_same_batch_points_to_the_loss() -> None:
    found = compare(replace(STEP, loss=0.7681), replace(NOW, loss=0.8596))
    assert found.said == "loss 0.8596 instead of 0.7681 (10.6 %), same batch"
    assert "loss" in found.hint


@pytest.mark.parametrize(
    ("now", "said", "hint"),
    [
        (replace(NOW, samples=16), "16 samples instead of 32", "data"),
        (replace(NOW, trained=("head.weight",)), "trained no more: head.bias", "freezes"),
        (replace(NOW, trained=(*NOW.trained, "body")), "trained now: body", "freezes"),
        (replace(NOW, resting=0), "0 layers are in evaluation mode instead of 1", "freezes"),
        (replace(NOW, optimizers=()), "0 optimizers stepped instead of 1", "optimizer"),
        (stepped(NOW, rates=(2e-3,)), "learning rate 0.002 instead of 0.001", "schedule"),
        (stepped(NOW, rates=(1e-3, 1e-3)), "learning rate 0.001/0.001 instead of", "schedule"),
        (stepped(NOW, reached=3), "3 weights with a gradient instead of 4", "freezes"),
        (stepped(NOW, outside=1), "trains 1 weights outside the model instead of 0", "optimizer"),
        (stepped(NOW, update=0.6), "update 0.6 instead of 0.5 (16.7 %)", "optimizer"),
        (stepped(NOW, gradient=2.1), "gradient norm 2.1 instead of 2 (4.76 %)", "loss"),
        (
            stepped(NOW, direction=(3.0, 2.0, -1.0)),
            "another gradient of the same norm (160 %)",
            "loss",
        ),
    ],
)
def test_each_figure_is_named_with_where_to_look(now: StepFigures, said: str, hint: str) -> None:
    found = compare(STEP, now)
    assert said in found.said
    assert hint in found.hint


def test_other_samples_are_named_if_something_else_differs_and_else_are_another_padding() -> None:
    other = replace(NOW, batch=98)
    assert compare(STEP, other).differences == ()
    assert compare(STEP, replace(other, loss=0.6)).said.startswith("other samples; loss 0.6")
    padded = replace(other, loss=0.6, form="x(9,)")
    assert compare(STEP, padded).said == "loss 0.6 instead of 0.5013 (16.5 %)"


def test_a_figure_that_is_not_finite_differs_from_one_that_is_and_not_from_its_like() -> None:
    lost = replace(STEP, loss=None)
    assert "no finite number instead of 0.5013" in compare(STEP, replace(NOW, loss=None)).said
    assert compare(lost, replace(lost, gpus=2)).differences == ()


def test_half_precision_may_differ_by_more() -> None:
    off = replace(NOW, loss=0.5013 * (1 + 5 * LOSS_TOLERANCE))
    assert compare(STEP, off).differences
    assert not compare(STEP, replace(off, is_half=True)).differences
    far = replace(off, loss=0.5013 * (1 + 20 * LOSS_TOLERANCE), is_half=True)
    assert HALF_FACTOR < 20
    assert compare(STEP, far).differences


def test_a_step_that_draws_is_compared_by_its_numbers_at_an_unchanged_gpu_count_alone() -> None:
    drawn = replace(STEP, draws=True)
    assert compare(drawn, replace(drawn, loss=0.6)).differences
    other = compare(drawn, replace(drawn, gpus=2, loss=0.6))
    assert other.differences == ()
    assert "random numbers" in other.said


def test_of_a_step_that_draws_samples_rates_and_trained_weights_are_compared_all_the_same() -> None:
    drawn = replace(STEP, draws=True)
    for now in (
        replace(NOW, batch=98),
        replace(NOW, samples=31),
        replace(NOW, trained=()),
        stepped(NOW, rates=(1.0,)),
    ):
        assert compare(drawn, replace(now, draws=True)).differences


def test_a_step_that_draws_may_have_another_padding() -> None:
    drawn = replace(STEP, draws=True)
    for form in ("x(9,)", ""):
        padded = replace(drawn, gpus=2, batch=98, form=form)
        assert compare(drawn, padded).differences == ()
    assert of_all([STEP, replace(STEP, form="x(9,)")]).form == ""


def test_a_loss_that_is_the_rest_of_larger_terms_may_differ_by_their_rounding() -> None:
    near = replace(STEP, loss=-3.7e-9)
    assert compare(near, replace(near, gpus=2, loss=9.3e-9)).differences == ()
    assert compare(near, replace(near, gpus=2, loss=1e-5)).differences


def test_data_that_changes_with_the_gpus_may_give_other_samples() -> None:
    varying = replace(STEP, varies=True)
    assert compare(varying, replace(varying, gpus=2, batch=98, loss=0.6)).differences == ()


def test_ranks_together_have_all_samples_the_mean_loss_and_the_root_mean_square_norm() -> None:
    one = replace(STEP, samples=3, batch=5, loss=1.0)
    other = replace(stepped(one, gradient=14.0), samples=4, batch=(1 << 62) - 2, loss=3.0)
    both = of_all([one, other])
    assert (both.samples, both.batch, both.loss) == (7, 3, 2.0)
    assert both.optimizers[0].gradient == pytest.approx(10.0)
    assert both.optimizers[0].direction == ADAM.direction


def test_a_loss_that_is_finite_on_some_ranks_alone_is_not_finite() -> None:
    assert of_all([STEP, replace(STEP, loss=None)]).loss is None


numbers = st.none() | st.floats(-1e6, 1e6)
figures = st.builds(
    StepFigures,
    gpus=st.integers(1, 8),
    samples=st.integers(0, 64),
    batch=st.integers(0, (1 << 62) - 1),
    loss=numbers,
    optimizers=st.lists(
        st.builds(OptimizerFigures, numbers, numbers, st.tuples(st.floats(-9, 9))), max_size=2
    ).map(tuple),
    trained=st.lists(st.text(max_size=9), max_size=3).map(tuple),
    is_half=st.booleans(),
    draws=st.booleans(),
    varies=st.booleans(),
)


@given(figures)
def test_every_step_agrees_with_itself_and_survives_its_file(step: StepFigures) -> None:
    assert codec.loads(LeftStep, codec.dumps(LeftStep(step))).figures == step
    assert compare(step, replace(step, gpus=step.gpus + 1)).differences == ()


@given(figures, figures)
def test_a_comparison_always_says_something(before: StepFigures, now: StepFigures) -> None:
    found = compare(before, now)
    assert found.said
    assert bool(found.differences) == bool(found.hint)
