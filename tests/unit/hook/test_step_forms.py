"""The training step of a Keras model is found in the forms of Keras 3.15 and 3.16."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from reshape_sidecar.hook.building import Step, traceable
from reshape_sidecar.hook.exactness import step_graphs


class Function:
    """A function of TensorFlow, as far as it is looked at."""

    def __init__(self, *graphs: str) -> None:
        self.__name__ = "traced"
        self._graphs = graphs

    def __call__(self, *_: Any) -> None:
        raise AssertionError("no step is made")

    def _list_all_concrete_functions(self) -> list[Any]:
        return [SimpleNamespace(graph=graph) for graph in self._graphs]

    def get_concrete_function(self, *_: Any) -> None: ...


def converted(step: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step, assigned=())
    def wrapper(data: Any) -> Any:
        return step(data)

    return wrapper


def of_iterator(step: Function, batch: Function) -> Callable[..., Any]:
    """Keras 3.15: an execution of one step reads the iterator inside of TensorFlow."""
    multi_step_on_iterator, one_step_on_data = step, converted(batch)

    def function(iterator: Any) -> Any:
        if iterator:
            return multi_step_on_iterator(iterator)
        return one_step_on_data(iterator)

    return function


def of_batch(step: Function, batch: Function) -> Callable[..., Any]:
    """Keras 3.16: it reads the iterator before."""
    multi_step_on_iterator, one_step_on_data = step, converted(batch)

    def function(iterator: Any) -> Any:
        if iterator.one:
            return one_step_on_data(iterator.get_next_as_optional())
        return multi_step_on_iterator(iterator)

    return function


def model(function: Any, steps_per_execution: int = 1) -> Any:
    return SimpleNamespace(
        train_function=function,
        make_train_function=lambda: None,
        steps_per_execution=steps_per_execution,
    )


@pytest.mark.parametrize(
    ("form", "steps", "takes_batch"),
    [(of_iterator, 1, False), (of_iterator, 4, False), (of_batch, 1, True), (of_batch, 4, False)],
)
def test_the_step_that_training_runs_is_the_one_that_is_traced(
    form: Callable[..., Any], steps: int, takes_batch: bool
) -> None:
    step, batch = Function(), Function()
    found = traceable(model(form(step, batch), steps))
    assert found == Step(batch if takes_batch else step, takes_batch)


def test_the_graphs_are_those_of_the_step_and_not_of_its_parts() -> None:
    assert list(step_graphs(model(of_iterator(Function("step"), Function("part"))))) == ["step"]
    assert list(step_graphs(model(of_batch(Function(), Function("batch"))))) == ["batch"]


@pytest.mark.parametrize("function", [None, Function("whole"), lambda iterator: None])
def test_a_step_of_another_form_is_one_function_or_none(function: Any) -> None:
    found = traceable(model(function))
    assert found == (Step(function, False) if isinstance(function, Function) else None)
    graphs = ["whole"] if isinstance(function, Function) else []
    assert list(step_graphs(model(function))) == graphs
