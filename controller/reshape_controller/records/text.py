"""Records as text: YAML files and JSON bodies, to plain values.

Does: refuses texts of which something would be lost silently (duplicate fields, second documents,
not-a-number), and makes plain values only.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from reshape_controller.core.model import FieldError
from reshape_controller.records.errors import RecordInvalid, shown
from reshape_controller.records.limits import RECORD_BYTES_MAX
from reshape_gpu import strict_yaml
from reshape_gpu.strict_yaml import SECOND_DOCUMENT, NotYaml


def load_yaml(text: str, *, source: str) -> object:
    """Load one YAML document; ``source`` names the file in errors. Raises RecordInvalid, with the
    line if it is known."""
    _bounded(text, source)
    try:
        return _proper(strict_yaml.load(text), text)
    except NotYaml as error:
        raise _invalid(source, error) from None
    except ValueError as error:
        raise _invalid(source, NotYaml(strict_yaml.line(error))) from None


def load_json(text: str) -> object:
    """Load a JSON text. Raises RecordInvalid."""
    _bounded(text, "")
    try:
        return _proper(json.loads(text, object_pairs_hook=_object, parse_constant=_constant), text)
    except RecursionError:
        problem = "is nested too deeply"
    except ValueError as error:
        problem = f"is not JSON: {strict_yaml.line(error)}"
    raise RecordInvalid((FieldError("", problem, "write one JSON object"),)) from None


def _proper(value: object, text: str) -> object:
    """Return ``value``; raise UnicodeEncodeError if an escape in the text stands for half of a
    character, which no store takes."""
    if _HALF.search(text):
        json.dumps(value, ensure_ascii=False, default=str).encode()
    return value


_HALF = re.compile(r"\\(u|U0000)d[89a-f]", re.IGNORECASE)


def _invalid(source: str, error: NotYaml) -> RecordInvalid:
    where, problem = source, error.problem
    remedy = "correct the YAML at this line"
    if error.line is None:
        problem, remedy = f"is not YAML: {problem}", "see docs/jobs.md for an example"
    else:
        where = f"{source}, line {error.line}"
    if error.problem == SECOND_DOCUMENT:
        remedy = "give each job its own file"
    return RecordInvalid((FieldError(where, problem, remedy),))


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
    entries: dict[str, Any] = {}
    for key, value in pairs:
        if key in entries:
            raise ValueError(f"{shown(key)} appears twice")
        entries[key] = value
    return entries


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
