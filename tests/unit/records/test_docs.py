"""docs/jobs.md says what the code does: its tables and its examples are tested."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from reshape_controller.core.model import JobSpec
from reshape_controller.records import from_json, from_yaml, load_yaml, parse_record, record_schema
from reshape_controller.records.aliases import ALIASES, ASSIGNED
from reshape_controller.records.array import members
from reshape_controller.records.fields import NESTED, RecordFields
from reshape_controller.records.tables import aliases_table, fields_table
from reshape_sidecar.contract import RESERVED_PREFIXES

DOCUMENT = Path(__file__).parents[3] / "docs" / "jobs.md"
SMALLEST = {"name": "a", "command": ["true"], "optional_gpus": [1, 2, 4]}


def section(name: str) -> str:
    found = re.search(
        rf"<!-- {name}: begin;[^>]*-->\n(.*?)\n?<!-- {name}: end -->",
        DOCUMENT.read_text(),
        re.DOTALL,
    )
    assert found is not None, f"docs/jobs.md has no section {name}"
    return found[1]


@pytest.mark.parametrize(("name", "table"), [("fields", fields_table), ("aliases", aliases_table)])
def test_the_tables_in_the_document_are_those_of_the_schema(name: str, table: object) -> None:
    assert callable(table)
    assert section(name) == table(), f"docs/jobs.md, section {name}: put this in\n{table()}"


def test_every_field_of_a_job_can_be_written_and_has_rule_and_example() -> None:
    properties = record_schema()["properties"]
    assert list(properties) == list(RecordFields.model_fields)
    for name, model in NESTED.items():
        assert list(properties[name]["properties"]) == list(model.model_fields)
    for name, entry in properties.items():
        assert entry["description"], name
        assert entry["examples"], name
    from_token = {"uid"}
    assert not from_token & set(properties), "no record chooses the user of its processes"
    from_script = {"processes_reason"}
    of_record = {"names_reshape_if"}
    spec_fields = set(JobSpec.__dataclass_fields__) - from_token - from_script - of_record
    renamed = {"length": "epochs", "memory_bytes": "resources", "cpus": "resources"}
    renamed |= {"shared_memory_bytes": "shared_memory_gb"}
    renamed |= {"standby": "handover", "overlap": "handover"}
    assert {renamed.get(field, field) for field in spec_fields} <= set(properties)


def test_every_example_of_the_schema_is_accepted() -> None:
    for name, entry in record_schema()["properties"].items():
        value = entry["examples"][0]
        record = {**SMALLEST, name: value}
        if name == "command":
            record["epochs"] = 1
        if name in ("metric", "epochs_in_a_row"):
            record["target_accuracy"] = 0.9
        if name in ("code", "checkpoints", "dataset") and not str(value).startswith("/"):
            continue  # needs the record's folder: tested below with the document's examples
        assert isinstance(parse_record(record), JobSpec), name


def test_every_default_of_the_schema_is_that_of_a_job() -> None:
    spec = parse_record(SMALLEST)
    for name, entry in record_schema()["properties"].items():
        if "default" in entry:
            assert str(getattr(spec, name)) == str(entry["default"]), name


def test_the_examples_in_the_document_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    for folder in (tmp_path, tmp_path / "code"):
        (folder / "train.py").touch()
    blocks = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(blocks) == 3
    smallest, full = (from_yaml(block, folder=tmp_path) for block in blocks[:2])
    assert smallest.code == str(tmp_path)
    assert full.code == str(tmp_path / "code")
    assert full.memory_bytes == 8 * 1024**3
    insert = re.search(r"VALUES \('submit', '(.*)'\);", DOCUMENT.read_text())
    assert insert is not None
    assert from_json(insert[1]).name == "mnist"
    array = load_yaml(blocks[2], source="jobs.md")
    assert isinstance(array, dict)
    specs = [parse_record(member, folder=tmp_path) for member in members(array)]
    assert [spec.name for spec in specs] == ["lr-0", "lr-1", "lr-2", "lr-3"]
    assert specs[-1].command == ("python", "train.py", "--lr", "0.01")


def test_the_document_names_every_reserved_prefix_and_every_assigned_column() -> None:
    text = DOCUMENT.read_text()
    for name in (*RESERVED_PREFIXES, *ASSIGNED):
        assert f"`{name}`" in text, name


def test_every_spelling_of_the_paper_is_understood() -> None:
    values = {name: entry["examples"][0] for name, entry in record_schema()["properties"].items()}
    for field, spellings in ALIASES.items():
        plain = parse_record({**SMALLEST, field: values[field]})
        for spelling in spellings:
            for form in (spelling, spelling.lower(), spelling.replace(" ", "_"), spelling.upper()):
                record = {**SMALLEST, form: values[field]}
                if field == "optional_gpus":
                    del record["optional_gpus"]
                assert parse_record(record) == plain, form


def test_the_schema_is_plain_json_and_agrees_on_what_is_required() -> None:
    schema = record_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert schema["required"] == ["name", "optional_gpus"]
    assert schema["additionalProperties"] is False
    assert "$ref" not in json.dumps(schema)
    assert "title" not in json.dumps(schema["properties"])
    assert yaml.safe_load(yaml.safe_dump(schema)) == schema
