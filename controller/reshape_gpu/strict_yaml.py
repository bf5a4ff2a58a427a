"""YAML as this project reads it, wherever it comes from.

Does: the safe loader, but a name that is there twice is an error: one of its values would be lost
without a word. Never: makes an object of a type that the text names. State: none.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

SECOND_DOCUMENT = "a second document begins"


class NotYaml(ValueError):
    """A text that cannot be taken: what is wrong, and in which line, if that is known."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem if line is None else f"line {line}: {problem}")
        self.problem = problem
        self.line = line


def load(text: str) -> object:
    """The value of one document. Raises NotYaml."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "cannot be read"
        if "expected a single document" in f"{error.context} {problem}":
            problem = SECOND_DOCUMENT
        raise NotYaml(problem, None if mark is None else mark.line + 1) from None
    except RecursionError:
        raise NotYaml("is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise NotYaml(line(error)) from None


def line(error: Exception) -> str:
    """Return the text of an error as one short line."""
    return " ".join(str(error).split())[:200]


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
                    None, None, f"{key!r:.60} appears twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)
