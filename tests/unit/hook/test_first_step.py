"""The figures of a step of a TensorFlow program, of stand-ins for its tensors and variables."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reshape_sidecar.hook import first_step
from reshape_sidecar.hook.exactness import OF_LAYERS, STEPS_ONLY, Verdict
from reshape_sidecar.hook.first_step import FitStep, TrainingStep, digest_of, samples_of
from reshape_sidecar.hook.progress import ProgressReporter
from reshape_sidecar.hook.report import ReportSender
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.hook.stop import Stop
from reshape_sidecar.proof.figures import StepFigures
from reshape_sidecar.proof.first_steps import FirstSteps

X: Any = np.arange(12.0, dtype="float32").reshape(6, 2)
Y: Any = np.arange(6)


class Variable:
    """A variable of one device, with the array that it holds."""

    def __init__(self, value: Any, name: str = "kernel") -> None:
        self.value, self.path, self.name = np.asarray(value), name, name
        self.trainable = True

    @property
    def shape(self) -> Any:
        return self.value.shape

    def numpy(self) -> Any:
        return self.value


class Model:
    """A model of two weights; its train function moves them, and adds to the sums of the loss."""

    def __init__(self) -> None:
        self.weights = [Variable(np.ones((3, 2)), "net_4/dense_1/kernel"), Variable(np.ones(2))]
        self.frozen = Variable(np.ones(2), "frozen")
        self.optimizer = SimpleNamespace(learning_rate=0.1)
        self._loss_tracker = SimpleNamespace(total=Variable(1e3), count=Variable(640.0))
        self.train_function: Any = self._train
        self.steps_per_execution = 1

    def _train(self, iterator: Any) -> None:
        for weight in self.trainable_variables:
            weight.value = weight.value + 0.5
        self._loss_tracker.total.value = self._loss_tracker.total.value + 8.0
        self._loss_tracker.count.value = self._loss_tracker.count.value + 16.0

    @property
    def trainable_variables(self) -> list[Variable]:
        return self.weights

    @property
    def variables(self) -> list[Variable]:
        return [self.weights[0], self.frozen, self.weights[1]]


@pytest.fixture(autouse=True)
def tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the module asks TensorFlow for."""

    def flatten(value: Any) -> list[Any]:
        return (
            [leaf for part in value for leaf in flatten(part)] if type(value) is list else [value]
        )

    stand_in: Any = SimpleNamespace(nest=SimpleNamespace(flatten=flatten))
    monkeypatch.setitem(sys.modules, "tensorflow", stand_in)
    monkeypatch.setattr(first_step, "_rounds_products", lambda: False)
    monkeypatch.setattr(first_step, "is_readable", lambda iterator: False)


def steps(verdict: Verdict | None = None) -> FirstSteps:
    reporter = ProgressReporter(ReportSender(None), 1, None)
    if verdict is not None:
        reporter.set_verdict(verdict)
    return FirstSteps(HookSettings(), reporter, Stop(None), 2)


def of_devices(*parts: Any) -> Any:
    return SimpleNamespace(values=parts)


def test_a_batch_has_the_same_digest_however_devices_share_it() -> None:
    whole = digest_of([X, Y])
    assert whole[1] == 6
    assert digest_of([of_devices(X[:3], X[3:]), of_devices(Y[:3], Y[3:])]) == whole
    assert digest_of([of_devices(X, X[:0]), of_devices(Y, Y[:0])]) == whole
    assert digest_of([X, Y[::-1]]) != whole
    assert digest_of([np.array([b"one", b"two"], dtype=object)])[1] == 2
    assert digest_of(["no tensor"]) == (0, 0)


def test_of_a_large_sample_and_a_large_weight_some_numbers_are_looked_at() -> None:
    large: Any = np.zeros((2, 50 * first_step.SAMPLES), "uint8")
    other = large.copy()
    other[1, 50] = 1
    assert digest_of([large]) != digest_of([other])
    assert len(samples_of(Variable(np.zeros((40, first_step.SAMPLES))))) == first_step.SAMPLES


def test_the_figures_of_a_fit_are_those_of_its_step_alone() -> None:
    model, found = Model(), list[StepFigures | None]()
    train = model.train_function
    measure = FitStep(found.append, model, steps(Verdict(STEPS_ONLY, OF_LAYERS[1])))
    measure.begin()
    model.train_function("the iterator")
    assert model.train_function == train, "its own function again"
    measure.step_ended()
    measure.step_ended()
    [figures] = found
    assert figures is not None
    assert (figures.loss, figures.samples, figures.gpus) == (0.5, 16, 2)
    assert 1e-7 < figures.loss_rounding < 1e-4
    assert figures.trained == ("kernel (2)", "net/dense/kernel (0)")
    [optimizer] = figures.optimizers
    assert optimizer.update == pytest.approx(0.5 * 8**0.5)
    assert (optimizer.rates, optimizer.reached) == ((0.1,), 2)
    assert (figures.draws, figures.varies) == (True, False)


def test_a_step_that_was_not_made_has_no_figures() -> None:
    model, found = Model(), list[StepFigures | None]()

    def ends(iterator: Any) -> None:
        raise StopIteration

    model.train_function = ends
    measure = FitStep(found.append, model, steps())
    measure.begin()
    with pytest.raises(StopIteration):
        model.train_function("the iterator")
    measure.step_ended()
    assert found == [None]


def test_data_that_depends_on_the_devices_varies_and_a_body_may_tell_no_loss() -> None:
    model, found = Model(), list[StepFigures | None]()
    verdict = Verdict(STEPS_ONLY, "a batch of 9 samples does not divide by 2 devices")
    measure = TrainingStep(found.append, [model], [], steps(verdict))
    measure.batch([X, Y])
    model._train(None)
    measure.step_ended()
    [figures] = found
    assert figures is not None
    assert (figures.draws, figures.varies) == (False, True)
    assert (figures.loss, figures.samples, figures.batch) == (None, *digest_of([X, Y])[::-1])
