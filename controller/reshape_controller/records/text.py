"""Records as text: YAML files and JSON bodies, to plain values.

Does: a safe loader that refuses what would be lost silently (duplicate fields, second documents,
not-a-number). Never: makes an object of a type that the text names. State: none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from typing import Any, NoReturn

import yaml

from reshape_controller.core.model import FieldError
from reshape_controller.records.errors import RecordInvalid, shown
from reshape_controller.records.limits import RECORD_BYTES_MAX


def load_yaml(text: str, *, source: str) -> object:
    """The value of one YAML document. ``source`` names the file in errors.

    Raises RecordInvalid, with the line where there is one.
    """
    _bounded(text, source)
    try:
        return _proper(yaml.load(text, Loader=_Loader), text)
    except yaml.MarkedYAMLError as error:
        raise _invalid(source, error) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = "is nested too deeply" if isinstance(error, RecursionError) else _line(error)
        raise RecordInvalid(
            (FieldError(source, f"is not YAML: {problem}", "see docs/jobs.md for an example"),)
        ) from None


def load_json(text: str) -> object:
    """The value of a JSON text. Raises RecordInvalid."""
    _bounded(text, "")
    try:
        return _proper(json.loads(text, object_pairs_hook=_object, parse_constant=_constant), text)
    except RecursionError:
        problem = "is nested too deeply"
    except ValueError as error:
        problem = f"is not JSON: {_line(error)}"
    raise RecordInvalid((FieldError("", problem, "write one JSON object"),)) from None


def _proper(value: object, text: str) -> object:
    """``value``, unless an escape in it stands for half of a character, which no store takes."""
    if _HALF.search(text):
        json.dumps(value, ensure_ascii=False, default=str).encode()  # UnicodeEncodeError
    return value


_HALF = re.compile(r"\\(u|U0000)d[89a-f]", re.IGNORECASE)


class _Loader(yaml.SafeLoader):
    """Safe, and strict about duplicate keys. JSON is YAML but for one thing: it writes a character
    beyond the first 65,536 as two halves."""

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        value = super().construct_scalar(node)
        if isinstance(value, str) and not value.isascii():
            value = value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(
                    None, None, "a field's name is not text", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{shown(key)} is there twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _invalid(source: str, error: yaml.MarkedYAMLError) -> RecordInvalid:
    mark = error.problem_mark or error.context_mark
    where = f"{source}, line {mark.line + 1}" if mark is not None else source
    problem = error.problem or error.context or "cannot be read"
    if "expected a single document" in f"{error.context} {problem}":
        return RecordInvalid(
            (FieldError(where, "a second document begins", "give each job its own file"),)
        )
    return RecordInvalid((FieldError(where, problem, "correct the YAML at this line"),))


def _bounded(text: str, source: str) -> None:
    size = len(text.encode(errors="replace"))
    if size > RECORD_BYTES_MAX:
        raise RecordInvalid(
            (
                FieldError(
                    source, f"is {size} bytes long, more than {RECORD_BYTES_MAX}", "shorten it"
                ),
            )
        )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{shown(key)} is there twice")
        found[key] = value
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
