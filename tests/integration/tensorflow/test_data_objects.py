"""What a checkpoint takes of a PyDataset, and what it names instead."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(300)]


def made(attributes: dict[str, Any]) -> Any:
    """A PyDataset with ``attributes``, and what the hook finds of it."""
    import keras

    from reshape_sidecar.hook.data_objects import DataObjects

    class Data(keras.utils.PyDataset):  # type: ignore[misc]
        pass

    dataset = Data()
    for name, value in attributes.items():
        setattr(dataset, name, value)
    return dataset, DataObjects(dataset)


def captured(
    attributes: dict[str, Any], change: Callable[[Any], Any], *, impure: bool = False
) -> dict[str, Any]:
    """Capture a PyDataset with ``attributes`` after ``change`` has had it."""
    dataset, objects = made(attributes)
    change(dataset)
    found: dict[str, Any] = objects.capture(impure=impure)
    assert objects.unkeepable(impure=impure) == found["unkeepable"]
    return found


@pytest.mark.parametrize(
    ("numbers", "impure", "unkeepable"),
    [(1 << 18, True, []), (5 << 20, False, []), (5 << 20, True, ["cache"])],
)
def test_a_large_cache_is_named_if_it_depends_on_more_than_its_keys(
    numbers: int, impure: bool, unkeepable: list[str]
) -> None:
    import numpy as np

    found = captured(
        {"cache": {}}, lambda data: data.cache.update({0: np.zeros(numbers)}), impure=impure
    )
    assert found["unkeepable"] == unkeepable
    assert bool(found["places"]) is (numbers < 1 << 20)


def test_a_large_dictionary_whose_entries_change_is_named() -> None:
    import numpy as np

    samples = {0: np.zeros(5 << 20)}
    found = captured({"samples": samples}, lambda data: data.samples[0].fill(1))
    assert found["unkeepable"] == ["samples"]


def test_values_are_restored_in_place_or_bound_as_the_dataset_changed_them() -> None:
    import numpy as np

    def attributes() -> dict[str, Any]:
        whole = np.zeros(4)
        names = ["a"]
        return {"whole": whole, "part": whole, "names": names, "all": names}

    dataset, objects = made(attributes())
    dataset.whole += 1
    dataset.part = np.full(4, 7.0)
    dataset.names.append("b")
    dataset.late = 3
    saved = json.loads(json.dumps(objects.capture()))
    fresh, others = made(attributes())
    others.restore(saved)
    assert fresh.whole.tolist() == [1] * 4, "the part that was bound later is another array"
    assert fresh.part.tolist() == [7] * 4
    assert fresh.all is fresh.names
    assert (fresh.names, fresh.late) == (["a", "b"], 3)


def test_a_checkpoint_of_an_older_hook_is_restored() -> None:
    fresh, objects = made({"count": 0, "order": [0, 1]})
    objects.restore({"attributes": {"self": {"count": 2, "order": [1, 0]}}, "generators": {}})
    assert (fresh.count, fresh.order) == (2, [1, 0])


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
