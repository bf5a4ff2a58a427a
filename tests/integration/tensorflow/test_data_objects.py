"""What a checkpoint takes of a PyDataset, and what it names instead."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(300)]


def captured(attributes: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Capture a PyDataset with ``attributes`` after ``change`` has had it."""
    import keras

    from reshape_sidecar.hook.data_objects import DataObjects

    class Data(keras.utils.PyDataset):  # type: ignore[misc]
        pass

    dataset = Data()
    for name, value in attributes.items():
        setattr(dataset, name, value)
    objects = DataObjects(dataset)
    change(dataset)
    return objects.capture()


@pytest.mark.parametrize(("numbers", "unkeepable"), [(1 << 18, []), (5 << 20, ["cache"])])
def test_cached_samples_are_named_if_a_checkpoint_would_be_large(
    numbers: int, unkeepable: list[str]
) -> None:
    import numpy as np

    found = captured({"cache": {}}, lambda data: data.cache.update({0: np.zeros(numbers)}))
    assert found["unkeepable"] == unkeepable
    assert bool(found["attributes"]) is not bool(unkeepable)


def test_a_file_that_a_dataset_opens_at_its_first_use_is_not_named() -> None:
    with tempfile.TemporaryFile() as file:
        found = captured({"file": None}, lambda data: setattr(data, "file", file))
    assert found["unkeepable"] == []


def test_an_iterator_that_a_dataset_has_read_is_named() -> None:
    makers: dict[str, Any] = {
        "counter": itertools.count(),
        "texts": iter(["a", "b"]),
        "generator": (number for number in (1, 2)),
        "rates": itertools.cycle([0.1, 0.2]),
    }
    assert captured(makers, lambda data: None)["unkeepable"] == []
    found = captured(makers, lambda data: [next(getattr(data, name)) for name in makers])
    assert found["unkeepable"] == list(makers)
