"""The JSON Schema of a job record, for editors, the API description and docs/jobs.md. Pure."""

from __future__ import annotations

from typing import Any

from reshape_controller.records.aliases import ALIASES
from reshape_controller.records.fields import RecordFields
from reshape_controller.records.rules import LENGTHS

CHOICES = {
    "batch": "Batch",
    "framework": "Framework",
    "on_save_timeout": "OnSaveTimeout",
    "on_difference": "OnDifference",
    "on_max_run": "OnMaxRun",
    "placement": "Placement",
    "processes": "Processes",
    "proof": "ProofUse",
    "reshape_if": "ReshapeIf",
    "span": "Spans",
}
"""The class of each field with a choice of texts."""


def record_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12). Of the rules over several fields it has that of lengths only."""
    schema = RecordFields.model_json_schema(mode="validation")
    properties: dict[str, Any] = schema["properties"]
    resources = schema.pop("$defs", {})
    properties["resources"] = {**properties["resources"], **_own(resources["Resources"])}
    properties["resources"].pop("anyOf", None)
    properties["handover"] = {**properties["handover"], **_own(resources["Handover"])}
    properties["handover"].pop("anyOf", None)
    shortcuts = properties["handover"]["properties"]
    for name in shortcuts:
        shortcuts[name] = _choice(shortcuts[name], resources["Shortcut"])
    for name, choices in CHOICES.items():
        properties[name] = _choice(properties[name], resources[choices])
    for name, entry in properties.items():
        _tidy(entry)
        for inner in entry.get("properties", {}).values():
            _tidy(inner)
        if name in ALIASES:
            entry["x-aliases"] = list(ALIASES[name])
    _allow_text(properties["command"])
    _allow_text(properties["resources"]["properties"]["memory"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Reshape job record",
        "type": "object",
        "properties": properties,
        "required": ["name", "optional_gpus"],
        "anyOf": [{"required": ["command"]}, {"required": ["image"]}],
        "not": {
            "anyOf": [
                {"required": [one, other]}
                for number, one in enumerate(LENGTHS)
                for other in LENGTHS[number + 1 :]
            ]
        },
        "additionalProperties": False,
    }


def _own(definition: dict[str, Any]) -> dict[str, Any]:
    keys = ("type", "properties", "additionalProperties")
    return {key: definition[key] for key in keys}


def _choice(entry: dict[str, Any], definition: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "type": "string", "enum": definition["enum"], "anyOf": None}


def _tidy(entry: dict[str, Any]) -> None:
    """Remove titles, and the null that only means "not given"."""
    entry.pop("title", None)
    if entry.get("default", ...) is None:
        del entry["default"]
    options = entry.pop("anyOf", None) or []
    for option in options:
        if option != {"type": "null"}:
            entry.update(option)


def _allow_text(entry: dict[str, Any]) -> None:
    whole = ("type", "items", "minItems", "maxItems", "minimum", "maximum")
    other = {key: entry.pop(key) for key in whole if key in entry}
    entry["anyOf"] = [other, {"type": "string"}]
