"""Arrays: the records that one record stands for."""

from __future__ import annotations

from typing import Any

import pytest

from reshape_controller.core.knowledge import ARRAY_TYPE
from reshape_controller.records import RecordInvalid, parse_record
from reshape_controller.records.array import MEMBERS_MAX, members

RECORD = {
    "name": "lr",
    "command": ["python", "train.py", "--lr={lr}", "{other}"],
    "optional_gpus": [1],
    "framework": "other",
    "code": "/",
}


def test_each_combination_is_a_record_with_its_values() -> None:
    record = {**RECORD, "env": {"A": "1"}, "array": {"lr": [0.1, 1e-5], "layers": [2, "x"]}}
    found = members(record)
    assert [each["name"] for each in found] == ["lr-0", "lr-1", "lr-2", "lr-3"]
    assert found[1]["env"] == {"A": "1", "lr": "0.1", "layers": "x"}
    assert found[2]["command"] == ["python", "train.py", "--lr=1e-05", "{other}"]
    assert all("array" not in each for each in found)
    spec = parse_record({**found[3], "command": "true"})
    assert dict(spec.env) == {"A": "1", "lr": "1e-05", "layers": "x"}


def test_each_member_has_a_checkpoint_folder_of_its_own() -> None:
    found = members({**RECORD, "checkpoints": "/data/{lr}", "array": {"lr": [1, 2]}})
    assert [each["checkpoints"] for each in found] == ["/data/1", "/data/2"]


@pytest.mark.parametrize(
    ("array", "path"),
    [
        (None, "array"),
        ([], "array"),
        ({}, "array"),
        ({"a b": [1]}, "array"),
        ({1: [1]}, "array"),
        ({"lr": []}, "array.lr"),
        ({"lr": 0.1}, "array.lr"),
        ({"lr": [None]}, "array.lr"),
        ({"lr": [[1]]}, "array.lr"),
        ({"lr": [1] * (MEMBERS_MAX + 1)}, "array"),
        ({"a": [1] * 1000, "b": [1] * 1000, "c": [1] * 1000}, "array"),
    ],
)
def test_an_array_that_is_none_is_refused_with_its_place(array: Any, path: str) -> None:
    with pytest.raises(RecordInvalid) as refused:
        members({**RECORD, "array": array})
    (error,) = refused.value.errors
    assert error.path == path
    assert error.hint


def test_members_that_are_alike_share_a_job_type_unless_the_record_names_one() -> None:
    seeds = members({**RECORD, "command": "python train.py", "array": {"seed": [1, 2, 3]}})
    (kind,) = {each["job_type"] for each in seeds}
    assert str(kind).startswith(ARRAY_TYPE)
    again = members({**RECORD, "command": "python train.py", "array": {"other": [7]}})
    assert again[0]["job_type"] == kind
    rates = members({**RECORD, "array": {"lr": [0.1, 0.2]}})
    assert len({each["job_type"] for each in rates} | {kind}) == 3
    other = {**RECORD, "command": "python train.py", "optional_gpus": [2], "array": {"seed": [1]}}
    assert members(other)[0]["job_type"] != kind
    named = members({**RECORD, "Job type": "resnet", "array": {"lr": [1]}})
    assert parse_record({**named[0], "command": "true"}).job_type == "resnet"
