"""The text of a module, edited where its syntax tree says.

Does: finds the text of a node, and puts other text there or after it; all else stays as it is,
comments and line breaks included. Never: parses twice, or writes a file. State: the edits to make.
"""

from __future__ import annotations

import ast
from typing import NoReturn


class Refused(Exception):
    """Something that is not translated. The text says where, what, and the remedy."""


class Source:
    """One module. ``name`` is what an error calls it."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.tree = ast.parse(text, name)
        self._bytes = text.encode()  # the columns of a node count bytes
        self._lines = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._edits: list[tuple[int, int, str]] = []

    def of(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        return self._bytes[self._start(node) : self._end(node)].decode()

    def put(self, node: ast.expr | ast.stmt, text: str) -> None:
        """``text`` instead of a node."""
        self._edits.append((self._start(node), self._end(node), text))

    def put_comma_after(self, node: ast.expr, text: str) -> None:
        """``text`` instead of the comma that follows a node."""
        at = self._bytes.index(b",", self._end(node))
        self._edits.append((at, at + 1, text))

    def put_decorator(self, decorator: ast.expr, text: str) -> None:
        """``text`` (whole lines, or none) instead of the lines of a decorator."""
        assert decorator.end_lineno is not None
        start, end = self._lines[decorator.lineno - 1], self._lines[decorator.end_lineno]
        self._edits.append((start, end, text))

    def put_name(self, function: ast.FunctionDef, name: str) -> None:
        """Another name for a function."""
        at = self._start(function) + len("def ")
        self._edits.append((at, at + len(function.name.encode()), name))

    def add_after(self, node: ast.stmt, text: str) -> None:
        """``text`` (whole lines) below the last line of a statement."""
        assert node.end_lineno is not None
        at = self._lines[node.end_lineno]
        self._edits.append((at, at, text))

    def result(self) -> str:
        """The edited text. Edits at one place stand in the order in which they were made."""
        parts, at = [], 0
        for start, end, text in sorted(self._edits, key=lambda edit: edit[0]):
            assert start >= at, f"{self.name}: two edits of one place"
            parts += [self._bytes[at:start].decode(), text]
            at = end
        return "".join([*parts, self._bytes[at:].decode()])

    def refuse(self, node: ast.AST, what: str, remedy: str) -> NoReturn:
        """Raise Refused for what stands at a node."""
        raise Refused(f"{self.name}:{getattr(node, 'lineno', 1)}: {what}; {remedy}")

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset


def named(node: ast.expr) -> str:
    """The last name of a decorator or base: ``dataclass`` of ``dataclasses.dataclass(...)``."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def names_in(node: ast.AST | None) -> set[str]:
    """Every name in a node, those behind a dot as well."""
    walked = ast.walk(node) if node is not None else ()
    found = (inner for inner in walked if isinstance(inner, (ast.Name, ast.Attribute)))
    return {inner.id if isinstance(inner, ast.Name) else inner.attr for inner in found}


def may_be_none(node: ast.AST) -> bool:
    """Whether an annotation has None in it."""
    constants = (inner for inner in ast.walk(node) if isinstance(inner, ast.Constant))
    return "Optional" in names_in(node) or any(inner.value is None for inner in constants)


def methods(cls: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """The methods of a class, by name."""
    return {node.name: node for node in cls.body if isinstance(node, ast.FunctionDef)}
