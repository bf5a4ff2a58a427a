"""The tables of docs/jobs.md, from the schema; a test keeps the two in step. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from reshape_controller.records.schema import record_schema


def fields_table() -> str:
    """Markdown: every field with its rule, default and example."""
    lines = ["| field | type | default | rule | example |", "|---|---|---|---|---|"]
    for name, entry in _fields(record_schema()["properties"]):
        default = f"`{_text(entry['default'])}`" if entry.get("default") not in (None, "") else ""
        lines.append(
            f"| `{name}` | {_type(entry)} | {default} | {entry['description']}{_bounds(entry)} "
            f"| `{_text(entry['examples'][0])}` |"
        )
    return "\n".join(lines)


def aliases_table() -> str:
    """Markdown: the paper's spellings of each field."""
    lines = ["| field | also |", "|---|---|"]
    for name, entry in record_schema()["properties"].items():
        if "x-aliases" in entry:
            lines.append(f"| `{name}` | {', '.join(f'`{each}`' for each in entry['x-aliases'])} |")
    return "\n".join(lines)


def _fields(properties: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, entry in properties.items():
        yield name, entry
        for inner, inner_entry in entry.get("properties", {}).items():
            yield f"{name}.{inner}", inner_entry


def _type(entry: Mapping[str, Any]) -> str:
    if "anyOf" in entry:
        return " or ".join(_type(option) for option in entry["anyOf"])
    kind = entry["type"]
    if kind == "array":
        return f"list of {_PLURALS[entry['items']['type']]}"
    return _NAMES[kind]


_NAMES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "object": "mapping",
    "boolean": "true or false",
}
_PLURALS = {"string": "texts", "integer": "whole numbers"}


def _bounds(entry: Mapping[str, Any]) -> str:
    low, high = entry.get("minimum"), entry.get("maximum")
    if low is None or high is None:
        return ""
    return f"; {low:,} to {high:,}".replace(",", " ").replace(".0", "")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
