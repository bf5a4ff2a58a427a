"""YAML is read strictly: what would be lost silently is an error with its line."""

from __future__ import annotations

import json

import pytest

from reshape_controller.records import RecordInvalid, from_yaml, load_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1\nb: [x, 2]", {"a": 1, "b": ["x", 2]}),
        ("", None),
        ("# only a comment", None),
        ("base: &b {x: 1}\nmore: {<<: *b, y: 2}", {"base": {"x": 1}, "more": {"x": 1, "y": 2}}),
        ('{"json": "is yaml"}', {"json": "is yaml"}),
    ],
)
def test_a_document_is_its_plain_value(text: str, value: object) -> None:
    assert load_yaml(text, source="job.yaml") == value


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("a: 1\nb: 2\na: 3", "job.yaml, line 3", "'a' appears twice"),
        ("env:\n  A: 1\n  A: 2", "job.yaml, line 3", "'A' appears twice"),
        ("a: 1\nb: c: d", "job.yaml, line 2", "mapping values are not allowed"),
        ("a: [1, 2\nb: 3", "job.yaml, line 2", "expected ',' or ']'"),
        ("a: 1\n---\nb: 2", "job.yaml, line 2", "a second document begins"),
        ("a: !!python/object/apply:os.system [x]", "job.yaml, line 1", "constructor for the tag"),
        ("a: *unknown", "job.yaml, line 1", "undefined alias"),
        ("? [1]\n: 2", "job.yaml, line 1", "a field's name is not text"),
        ("a: \x00", "job.yaml", "special characters are not allowed"),
        ("- " * 20_000, "job.yaml", "nested too deeply"),
        ("[" * 20_000, "job.yaml", "nested too deeply"),
        ('a: "\\ud800"', "job.yaml", "surrogates not allowed"),
        ("a: 2024-13-45", "job.yaml", "month must be in 1..12"),
        ("a: " + "x" * 1_048_576, "job.yaml", "bytes long, more than 1048576"),
    ],
)
def test_what_is_no_single_plain_document_is_refused_with_file_and_line(
    text: str, path: str, message: str
) -> None:
    with pytest.raises(RecordInvalid) as caught:
        load_yaml(text, source="job.yaml")
    (error,) = caught.value.errors
    assert error.path == path
    assert message in error.message
    assert error.hint


def test_values_that_yaml_makes_of_words_are_named_as_it_reads_them() -> None:
    with pytest.raises(RecordInvalid, match=r"name: True is not text.*quotation marks"):
        from_yaml("name: on\ncommand: x\noptional_gpus: [1]")


def test_a_bomb_of_aliases_costs_nothing() -> None:
    bomb = ["&a0 [x, x]", *(f"&a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]
    text = f"x: [{', '.join(bomb)}]\nname: *a59\nenv: {{A: *a59}}\noptional_gpus: *a59\n"
    with pytest.raises(RecordInvalid) as caught:
        from_yaml(text)
    assert [error.path for error in caught.value.errors][:2] == ["x", "name"]
    assert len(str(caught.value)) < 2000


def test_json_with_a_character_in_two_halves_is_the_same_record_as_yaml() -> None:
    for text in ("💥", "a💥b", "\ufeff💥", "é"):
        record = json.dumps({"name": "a", "env": {"TEXT": text}})
        assert load_yaml(record, source="job.json") == json.loads(record)
