"""The API's own description (OpenAPI 3.1), from the table of routes and the types of the answers.

Does: derives schemas from the dataclasses that are rendered, so that the two agree. A test compares
the description with the routes.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib.metadata
import types
import typing
from typing import Any

from reshape_controller.access.rights import Right
from reshape_sidecar import codec

DISTRIBUTION = "reshape-gpu"


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """A method of a path."""

    method: str
    path: str
    summary: str
    right: Right
    answer: type | None = None
    """Type of the answer's JSON body; None for another body."""
    body: str = ""
    query: tuple[str, ...] = ()
    success: int = 200
    deprecated: bool = False


def version() -> str:
    """Version of the installed distribution."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"


def document(operations: tuple[Operation, ...], error: type) -> dict[str, Any]:
    """Build the OpenAPI document of ``operations``; ``error`` is the type of every error's body."""
    schemas: dict[str, Any] = {}
    failure = {"application/json": {"schema": _schema(error, schemas)}}
    paths: dict[str, Any] = {}
    for operation in operations:
        content = (
            {"application/json": {"schema": _schema(operation.answer, schemas)}}
            if operation.answer is not None
            else {"text/plain": {"schema": {"type": "string"}}}
        )
        entry: dict[str, Any] = {
            "summary": operation.summary,
            "parameters": _parameters(operation),
            "responses": {
                str(operation.success): {"description": "success", "content": content},
                "default": {"description": "an error", "content": failure},
            },
        }
        if operation.body:
            entry["requestBody"] = {
                "description": operation.body,
                "content": {"application/json": {"schema": {"type": "object"}}},
            }
        if operation.deprecated:
            entry["deprecated"] = True
        if operation.right is Right.OPEN:
            entry["security"] = []
        paths.setdefault(operation.path, {})[operation.method] = entry
    return {
        "openapi": "3.1.0",
        "info": {"title": "Reshape", "version": version(), "license": {"name": "Apache-2.0"}},
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    string = {"type": "string"}
    path = [{"name": n, "in": "path", "required": True, "schema": string} for n in names]
    return path + [{"name": n, "in": "query", "schema": string} for n in operation.query]


_SCALARS: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if isinstance(kind, typing.NewType):
        return _schema(kind.__supertype__, schemas)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema(arg, schemas) for arg in typing.get_args(kind)]}
    if origin is tuple:
        return {"type": "array", "items": _schema(typing.get_args(kind)[0], schemas)}
    if kind is type(None):
        return {"type": "null"}
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"type": "string", "enum": [member.value for member in kind]}
    if dataclasses.is_dataclass(kind):
        return _object(typing.cast(type, kind), schemas)
    return {}


def _object(kind: type, schemas: dict[str, Any]) -> dict[str, Any]:
    name = codec.tag_of(kind)
    if name not in schemas:
        schemas[name] = {}
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        schemas[name] = {
            "type": "object",
            "required": names,
            "properties": {each: _schema(hints[each], schemas) for each in names},
        }
    return {"$ref": f"#/components/schemas/{name}"}
