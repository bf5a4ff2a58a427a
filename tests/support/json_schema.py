"""As much of JSON Schema as our own schemas use, so that documents can be held against them.

Stricter than the standard in one thing: a property that a schema with properties does not name is
wrong, unless it says ``additionalProperties``. A keyword that is not known here is an error.
"""

from __future__ import annotations

from typing import Any

KNOWN = {
    "$ref", "$schema", "$defs", "title", "description", "type", "enum", "const", "anyOf", "items",
    "properties", "required", "additionalProperties", "minimum", "minItems", "maxItems",
}  # fmt: skip
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


def problems(value: Any, schema: Any, root: Any, where: str = "$") -> list[str]:
    """What is wrong with ``value``; ``root`` is the document that ``$ref`` points into."""
    if "$ref" in schema:
        target = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return problems(value, target, root, where)
    unknown = set(schema) - KNOWN
    assert not unknown, f"{where}: the schema says {unknown}, which is not checked here"
    if "anyOf" in schema:
        tries = [problems(value, option, root, where) for option in schema["anyOf"]]
        return [] if [] in tries else min(tries, key=len)
    found = []
    if "const" in schema and value != schema["const"]:
        found.append(f"{where}: {value!r} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r} is none of {schema['enum']}")
    kind = schema.get("type")
    if kind is not None and not _is(value, kind):
        return [*found, f"{where}: {value!r} is no {kind}"]
    if isinstance(value, dict):
        found += _object(value, schema, root, where)
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            found.append(f"{where}: has {len(value)} items")
        for number, item in enumerate(value):
            found += problems(item, schema.get("items", {}), root, f"{where}[{number}]")
    if "minimum" in schema and isinstance(value, (int, float)) and value < schema["minimum"]:
        found.append(f"{where}: {value} is less than {schema['minimum']}")
    return found


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, TYPES[kind])


def _object(value: dict[str, Any], schema: Any, root: Any, where: str) -> list[str]:
    found = [
        f"{where}: {name} is missing" for name in schema.get("required", ()) if name not in value
    ]
    properties = schema.get("properties", {})
    for name, inner in value.items():
        if name in properties:
            found += problems(inner, properties[name], root, f"{where}.{name}")
        elif isinstance(schema.get("additionalProperties"), dict):
            found += problems(inner, schema["additionalProperties"], root, f"{where}.{name}")
        elif properties and not schema.get("additionalProperties", False):
            found.append(f"{where}: {name} is not in the schema")
    return found
