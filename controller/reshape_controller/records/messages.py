"""Problems that pydantic finds, in our words: value, problem, remedy. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import ErrorDetails

from reshape_controller.core.model import FieldError
from reshape_controller.records.aliases import suggestion
from reshape_controller.records.errors import shown
from reshape_controller.records.fields import NESTED, RecordFields

_Text = Callable[[Mapping[str, Any]], str]

_MESSAGES: Mapping[str, _Text] = {
    "int_type": lambda c: "is not a whole number",
    "int_from_float": lambda c: "is not a whole number",
    "int_parsing_size": lambda c: "is too large",
    "float_type": lambda c: "is not a number",
    "finite_number": lambda c: "is not a finite number",
    "string_type": lambda c: "is not text",
    "string_unicode": lambda c: "is not valid text",
    "bool_type": lambda c: "is not true or false",
    "list_type": lambda c: "is not a list",
    "dict_type": lambda c: "is not a mapping",
    "model_type": lambda c: "is not a mapping",
    "enum": lambda c: f"must be one of {str(c['expected']).replace(' or ', ', ')}",
    "greater_than": lambda c: f"must be more than {_number(c['gt'])}",
    "greater_than_equal": lambda c: f"must be at least {_number(c['ge'])}",
    "less_than_equal": lambda c: f"must be at most {_number(c['le'])}",
    "string_too_long": lambda c: f"is longer than {c['max_length']} characters",
    "string_too_short": lambda c: "is empty",
    "too_long": lambda c: f"has more than {c['max_length']} entries",
    "too_short": lambda c: "is empty",
    "string_pattern_mismatch": lambda c: "has characters that are not allowed",
}
_HINTS = {
    "name": "use lower-case letters, digits and -, beginning and ending with a letter or digit",
    "optional_gpus": "write a list of whole numbers such as [1, 2, 4]",
    "command": 'write a text or a list of texts such as ["python", "train.py"]',
    "env": 'write NAME: "value"; numbers and true or false need quotation marks',
    "resources": "write a mapping such as {cpus: 4, memory: 8Gi}",
    "resources.memory": "write a number of bytes or a text such as 8Gi",
    "handover": "write a mapping such as {standby: auto, overlap: off}",
    "handover.standby": "write auto or off",
    "handover.overlap": "write auto or off",
    "job_type": "use letters, digits, -, _ and .",
    "proof": "write auto or off",
    "on_difference": "write report or stop",
    "may_restart": "write true or false, without quotation marks",
    "image": "give a name without spaces",
}


def field_error(detail: ErrorDetails) -> FieldError:
    """Translate a problem that pydantic found."""
    path = path_of(detail["loc"])
    kind, context = detail["type"], detail.get("ctx", {})
    value = shown(detail["input"])
    if kind == "extra_forbidden":
        top = str(detail["loc"][0])
        hint = suggestion(str(detail["loc"][-1]), tuple(NESTED[top].model_fields))
        return FieldError(path, f"is not a field of {top}", hint)
    if "hint" in context:
        return FieldError(path, f"{value} {detail['msg']}", str(context["hint"]))
    text = _MESSAGES.get(kind)
    message = text(context) if text is not None else f"is refused: {detail['msg']}"
    return FieldError(path, f"{value} {message}", _hint(detail))


def path_of(loc: tuple[int | str, ...]) -> str:
    """A field's path as users write it: ``env.HOME``, ``optional_gpus[1]``."""
    if loc[-1:] == ("[key]",):  # pydantic's way to say that a key is wrong
        return f"{path_of(loc[:-2])}.{loc[-2]}"
    path = ""
    for step in loc:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else step
    return path if len(path) <= 120 else f"{path[:117]}..."


def _number(bound: float) -> str:
    return str(int(bound)) if float(bound).is_integer() else str(bound)


def _hint(detail: ErrorDetails) -> str:
    names = [step for step in detail["loc"] if isinstance(step, str)]
    value = detail["input"]
    if names[0] == "name" and isinstance(value, str):
        better = _as_name(value)
        if better and better != value:
            return f"for example {better}"
    if names[0] == "optional_gpus" and len(detail["loc"]) == 1 and type(value) is int:
        return f"write [{value}]"
    if detail["type"] == "string_too_long" and names[0] in ("command", "env"):
        return "let the program read it from a file"
    if detail["type"] == "string_type" and isinstance(value, (bool, int, float)):
        return f'a text: put it in quotation marks, "{value}"'
    for depth in (2, 1):
        hint = _HINTS.get(".".join(names[:depth]))
        if hint is not None:
            return hint
    examples = _example(names)
    return f"for example {examples}" if examples else ""


def _as_name(text: str) -> str:
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in text[:63].lower())
    return name.strip("-")


def _example(names: list[str]) -> str:
    model = NESTED.get(names[0], RecordFields)
    field = model.model_fields.get(names[-1])
    return str(field.examples[0]) if field is not None and field.examples else ""
