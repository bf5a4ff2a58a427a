"""Names that each step sets before it reads them, by the text of a script: no state of training.

A layer leaves a loss or its features in an attribute, or a hook in a dictionary, and the step reads
them after the forward pass. So it never reads those of the step before. The answer is careful: a
name counts only if ``forward`` or a hook of a module sets it at each call, and each function that
reads it has called that module for certain before, and calls none of it afterwards.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from reshape_sidecar.hook.script_code import tree_of
from reshape_sidecar.verdict import influence
from reshape_sidecar.verdict.syntax import around_of, called, looked_up

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
HOOKS = frozenset({"register_forward_hook", "register_forward_pre_hook"})
WRAPS = frozenset({"DDP", "DistributedDataParallel", "compile", "prepare"})
"""Calls whose result runs the module that they get."""
OF_MODULE = frozenset({"modules", "named_modules", "children", "named_children"})
UNCERTAIN = (ast.If, ast.While, ast.Try, ast.Match, ast.IfExp, ast.BoolOp, ast.comprehension)
DEPTH_MAX = 4
"""Most calls between functions of the script that are followed back."""


def is_set_first(name: str, files: Iterable[str]) -> bool:
    """Return whether each step sets a name before it reads it, by the text of ``files``.

    ``name``: as ``influence.steers`` takes it; variables of any function count.
    """
    return _is_set_first(name.partition("@")[0], tuple(sorted(files)))


@functools.lru_cache(maxsize=256)
def _is_set_first(name: str, files: tuple[str, ...]) -> bool:
    text = _text_of(files)
    return text is not None and bool(name) and _Name(name, text).is_set_first()


@functools.lru_cache(maxsize=1)
def _text_of(files: tuple[str, ...]) -> _Text | None:
    trees = [tree for tree in map(tree_of, files) if tree is not None]
    return _Text(trees) if len(trees) == len(files) else None


class _Text:
    """The nodes of some files, each with what is around it."""

    def __init__(self, trees: list[ast.Module]) -> None:
        self.around = around_of(trees)
        self.nodes = list(self.around)
        self.functions = {node.name for node in self.nodes if isinstance(node, ast.FunctionDef)}
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.calls_in: dict[ast.AST, list[ast.Call]] = defaultdict(list)
        """Calls of each function, but for those of the script's own functions."""
        self.calls_of: dict[str, list[ast.Call]] = defaultdict(list)
        """Calls by what they call."""
        for call in self.calls:
            self.calls_of[called(call)].append(call)
            if called(call) not in self.functions:
                self.calls_in[self.function(call)].append(call)
        self.attributes = {
            node.attr for node in self.nodes
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }  # fmt: skip
        """Names of attributes that the script sets: a call of another one runs no module."""
        self.names: dict[str, str] = {}
        """Other names of a module in parallel: ``net`` of ``net = DDP(model)``."""
        assigned = (node for node in self.nodes if isinstance(node, ast.Assign))
        for node in assigned:
            value = node.value
            if isinstance(value, ast.Call) and called(value) in WRAPS and value.args:
                self.names[ast.unparse(node.targets[0])] = ast.unparse(value.args[0])

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what is around a node, from the inside out."""
        while (outer := self.around.get(node)) is not None:
            yield outer
            node = outer

    def function(self, node: ast.AST) -> ast.AST:
        """Return the innermost function around a node, or its module."""
        found = (one for one in self.above(node) if isinstance(one, Function | ast.Module))
        return next(found, node)

    def is_certain(self, node: ast.AST, until: ast.AST) -> bool:
        """Return whether code runs whenever that in ``until``, which is around it, does."""
        for outer in self.above(node):
            if outer is until:
                return True
            if isinstance(outer, UNCERTAIN):
                return False
            if isinstance(outer, ast.For) and any(
                isinstance(one, ast.Break | ast.Continue) for one in ast.walk(outer)
            ):
                return False
        return False

    def whole(self, node: ast.AST, within: ast.AST) -> str:
        """Return the text of an object; of a part that a loop takes, that of what it goes over."""
        if isinstance(node, ast.Name):
            for outer in self.above(node):
                for target, values in _loops_of(outer):
                    if node.id in {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}:
                        return self.whole(_owner(values), within)
                if outer is within:
                    break
        text = ast.unparse(node)
        root, dot, rest = text.partition(".")
        return self.names.get(text) or self.names.get(root, root) + dot + rest


def _loops_of(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.For):
        yield node.target, node.iter
    for one in getattr(node, "generators", ()):
        yield one.target, one.iter


def _owner(values: ast.expr) -> ast.expr:
    """Return the module whose parts an expression goes over."""
    if isinstance(values, ast.Call) and isinstance(values.func, ast.Attribute):
        return values.func.value if values.func.attr in OF_MODULE else values
    if isinstance(values, ast.Call) and called(values) in ("enumerate", "reversed") and values.args:
        return _owner(values.args[0])
    return values


def _functions_named(value: ast.expr) -> set[str]:
    """Return the name of a function that a call is given, also in ``partial``."""
    found = {getattr(value, "id", ""), getattr(value, "attr", "")}
    if isinstance(value, ast.Call) and called(value) == "partial" and value.args:
        found |= _functions_named(value.args[0])
    return found - {""}


def _makers(value: ast.expr) -> set[str]:
    """Return the name of the function that makes what a call is given."""
    return {called(value)} - {""} if isinstance(value, ast.Call) else set()


def _sets_by_text(node: ast.AST) -> str | None:
    """Return the name of the attribute that code sets by its name as a text."""
    if not isinstance(node, ast.Call) or called(node) not in ("setattr", "delattr"):
        return None
    key = node.args[1] if len(node.args) > 1 else None
    return str(key.value) if isinstance(key, ast.Constant) else None


def _place(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _end(node: ast.AST) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0  # type: ignore[attr-defined]


@dataclass
class _Name:
    """One attribute or variable, and where the text sets and reads it."""

    name: str
    text: _Text
    modules: set[str] = field(default_factory=set)
    """Of a variable that hooks set: the modules that have the hooks."""

    def is_set_first(self) -> bool:
        """Return whether nothing reads what an earlier step has left."""
        setters: list[ast.AST] = []
        reads: list[ast.AST] = []
        for node in self.text.nodes:
            if looked_up(node) == self.name.removeprefix("."):
                if not isinstance(node, ast.Call):
                    return False
                reads.append(node)
            if _sets_by_text(node) == self.name.removeprefix("."):
                return False
            if not self._is_it(node):
                continue
            function = self.text.function(node)
            if (statement := self._setting(node)) is not None:
                if self._is_first_value(function, statement):
                    continue
                if not self._sets_always(function, statement):
                    return False
                setters.append(statement)
            elif not isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]
                return False
            elif not self._is_output(node):
                reads.append(node)
        return bool(setters) and all(self._is_after(one, setters) for one in reads)

    def _is_it(self, node: ast.AST) -> bool:
        if self.name.startswith("."):
            return isinstance(node, ast.Attribute) and f".{node.attr}" == self.name
        return isinstance(node, ast.Name) and node.id == self.name

    def _setting(self, node: ast.AST) -> ast.AST | None:
        """Return the statement or call that sets the name, or an item of it, at this node."""
        around = self.text.around[node]
        if isinstance(around, ast.Assign) and node in around.targets:
            return around
        if isinstance(around, ast.AnnAssign) and node is around.target:
            return around
        if isinstance(around, ast.Subscript) and isinstance(around.ctx, ast.Store):
            outer = self.text.around[around]
            return outer if isinstance(outer, ast.Assign) else None
        if isinstance(around, ast.Attribute) and around.attr == "__setitem__":
            return self.text.around[around]
        return None

    def _is_first_value(self, function: ast.AST, statement: ast.AST) -> bool:
        """Return whether a statement only makes the value that is there before training."""
        name = getattr(function, "name", "")
        in_loop = any(isinstance(one, ast.For | ast.While) for one in self.text.above(statement))
        is_hook = bool(self._hooked(function))
        return not in_loop and not is_hook and name != "forward" and (
            name in ("__init__", "main", "") and not isinstance(function, ast.Lambda)
        )  # fmt: skip

    def _sets_always(self, function: ast.AST, statement: ast.AST) -> bool:
        """Return whether each forward pass of a module sets the name here, and reads it not."""
        hooked = self._hooked(function)
        if getattr(function, "name", "") != "forward" and not hooked:
            return False
        self.modules |= hooked
        value = getattr(statement, "value", None)
        reads = value is not None and any(self._is_it(one) for one in ast.walk(value))
        return not reads and self.text.is_certain(statement, function)

    def _hooked(self, function: ast.AST) -> set[str]:
        """Return the modules that have a function as their hook."""
        name = getattr(function, "name", None)
        return {
            self.text.whole(call.func.value, self.text.function(call))
            for hook in HOOKS
            for call in self.text.calls_of[hook]
            if isinstance(call.func, ast.Attribute) and call.args
            and (call.args[0] is function or name in _functions_named(call.args[0])
                 or getattr(self.text.function(function), "name", "") in _makers(call.args[0]))
        }  # fmt: skip

    def _is_output(self, node: ast.AST) -> bool:
        statement = next((one for one in self.text.above(node) if isinstance(one, ast.stmt)), None)
        return statement is not None and influence.is_output(statement)

    def _is_after(self, node: ast.AST, setters: list[ast.AST]) -> bool:
        """Return whether the modules that set the name have run before the code at ``node``."""
        function = self.text.function(node)
        for setter in setters:
            if self.text.function(setter) is function and _end(setter) <= _place(node):
                return True
        return all(self._runs_before(owner, node, 0) for owner in self._owners(node, function))

    def _runs_before(self, owner: str, node: ast.AST, depth: int) -> bool:
        """Return whether ``owner`` has run before ``node``, or before all calls of its function."""
        function = self.text.function(node)
        if self._has_run(owner, node, function):
            return True
        name = getattr(function, "name", "")
        calls = self.text.calls_of[name]
        return (
            bool(name and calls)
            and depth < DEPTH_MAX
            and all(
                self._runs_before(self._as_given(owner, function, call), call, depth + 1)
                for call in calls
            )
        )

    def _as_given(self, owner: str, function: ast.AST, call: ast.Call) -> str:
        """Return how the caller of a function names what the function calls ``owner``."""
        root, dot, rest = owner.partition(".")
        names = [one.arg for one in function.args.args]  # type: ignore[attr-defined]
        given = {one.arg: one.value for one in call.keywords}
        if names[:1] == ["self"] and isinstance(call.func, ast.Attribute):
            given["self"], names = call.func.value, names[1:]
        given |= dict(zip(names, call.args, strict=False))
        if root not in given:
            return owner
        return self.text.whole(given[root], self.text.function(call)) + dot + rest

    def _owners(self, node: ast.AST, function: ast.AST) -> set[str]:
        """Return the texts of the modules whose forward pass sets the name."""
        if self.modules:
            return self.modules
        holder = node.args[0] if isinstance(node, ast.Call) else getattr(node, "value", None)
        return {"" if holder is None else self.text.whole(holder, function)}

    def _has_run(self, owner: str, node: ast.AST, function: ast.AST) -> bool:
        """Return whether a function has called the module ``owner``, or what holds it, for certain
        before ``node``; or modules in it before, and none afterwards."""
        within = {function, *self.text.above(node)}
        parts_before, parts_after = False, False
        for call in self.text.calls_in[function]:
            runs = self.text.whole(call.func, function).removesuffix(".forward")
            is_before = _end(call) <= _place(node)
            until = next(one for one in self.text.above(call) if one in within)
            is_certain = is_before and self.text.is_certain(call, until)
            is_whole = owner == runs or (
                owner.startswith((f"{runs}.", f"{runs}[")) and runs != "self"
            )
            if is_whole and is_certain:
                return True
            if runs.startswith(f"{owner}.") and runs[len(owner) + 1 :] in self.text.attributes:
                parts_before |= is_certain
                parts_after |= not is_certain
        return parts_before and not parts_after
