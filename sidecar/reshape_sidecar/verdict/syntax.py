"""The names in a script's text: what assignments set, what calls call, what code looks up.

A name of an attribute has a dot before it.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from reshape_sidecar.hook.script_code import CLOCK

Function = ast.FunctionDef | ast.AsyncFunctionDef
OPTIONS = frozenset(
    {
        "lr",
        "momentum",
        "betas",
        "weight_decay",
        "grad",
        "data",
        "requires_grad",
        "param_groups",
        "p",
    }
)
"""Names of what optimizers and layers read."""

STARTS = ("Thread", "Process")
"""Ends of the names of classes that run a function beside training."""


def targets(target: ast.expr) -> Iterator[str]:
    """Yield the names that an assignment to ``target`` changes."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Attribute):
        yield f".{target.attr}"
    elif isinstance(target, ast.Subscript):
        yield from targets(target.value)
        if isinstance(target.slice, ast.Constant) and target.slice.value in OPTIONS:
            yield str(target.slice.value)
    elif isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from targets(one)
    elif isinstance(target, ast.Starred):
        yield from targets(target.value)


def from_a_clock(code: ast.AST) -> set[str]:
    """Return the names that code sets to what a clock says: they mean nothing later."""
    found: set[str] = set()
    for target, value in assignments(ast.walk(code)):
        asks = any(_asks_a_clock(one) for one in ast.walk(value))
        if asks or not found.isdisjoint(roots(value)):
            found |= set(targets(target))
    return found


def assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target with its value; of tuples of the same length, each part with its own."""
    for node in nodes:
        if not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) or node.value is None:
            continue
        value = node.value
        for target in node.targets if isinstance(node, ast.Assign) else (node.target,):
            if (
                isinstance(target, ast.Tuple)
                and isinstance(value, ast.Tuple)
                and len(target.elts) == len(value.elts)
            ):
                yield from zip(target.elts, value.elts, strict=True)
            else:
                yield target, value


def _asks_a_clock(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return getattr(node.func, "attr", getattr(node.func, "id", None)) in CLOCK


def roots(node: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def called(node: ast.AST) -> str:
    """Return the name of what a call calls; empty: it is no call, or calls what has no name."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", None) or getattr(node.func, "id", None) or ""


def looked_up(node: ast.AST) -> str | None:
    """Return the name of the attribute that code looks up by its name as a text."""
    key: ast.AST | None = None
    if isinstance(node, ast.Call) and len(node.args) > 1 and called(node) == "getattr":
        key = node.args[1]
    elif isinstance(node, ast.Subscript):
        owner = node.value
        is_space = getattr(owner, "attr", None) == "__dict__" or called(owner) == "vars"
        key = node.slice if is_space else None
    value = getattr(key, "value", None) if isinstance(key, ast.Constant) else None
    return value if isinstance(value, str) else None


def around_of(trees: Iterable[ast.AST]) -> dict[ast.AST, ast.AST]:
    """Return each node below ``trees``, from the outside in, with the node around it."""
    return {
        child: node
        for tree in trees
        for node in ast.walk(tree)
        for child in ast.iter_child_nodes(node)
    }


def with_scopes(tree: ast.Module) -> ast.Module:
    """Return a copy of a file's code in which each variable of a function has a name of its own:
    ``name@line``, with the line at which the function begins."""
    return _Scopes().visit(copy.deepcopy(tree))  # type: ignore[no-any-return]


class _Scopes(ast.NodeTransformer):
    def __init__(self) -> None:
        self._scopes: list[tuple[int, set[str]]] = []
        """Line and variables of each function around a node, from the outside in."""

    def _named(self, name: str) -> str:
        for line, own in reversed(self._scopes):
            if name in own:
                return f"{name}@{line}"
        return name

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Go into a function; what it is given by default is of the code around it."""
        node.args.defaults = [self.visit(one) for one in node.args.defaults]
        node.args.kw_defaults = [one and self.visit(one) for one in node.args.kw_defaults]
        node.decorator_list = [self.visit(one) for one in node.decorator_list]
        self._scopes.append((first_line(node), _variables(node)))
        for one in ast.walk(node.args):
            if isinstance(one, ast.arg):
                one.arg = self._named(one.arg)
        node.body = [self.visit(one) for one in node.body]
        self._scopes.pop()
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """As ``visit_FunctionDef``."""
        return self.visit_FunctionDef(node)  # type: ignore[arg-type]

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Give a variable its own name."""
        node.id = self._named(node.id)
        return node

    def visit_MatchAs(self, node: ast.MatchAs) -> ast.AST:
        """Give a captured variable its own name."""
        node.name = node.name and self._named(node.name)
        return self.generic_visit(node)


def first_line(function: Function) -> int:
    """Return the line at which a function begins, as its code object tells it."""
    return min([function.lineno, *(one.lineno for one in function.decorator_list)])


def _variables(function: Function) -> set[str]:
    """Return the variables of a function alone, but for ``self``."""
    found, others = set[str](), {"self", "cls"}
    waiting: list[ast.AST] = [function.args, *function.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Global | ast.Nonlocal):
            others |= set(node.names)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.MatchAs) and node.name is not None:
            found.add(node.name)
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return found - others


def run_elsewhere(trees: list[ast.Module]) -> frozenset[str]:
    """Return the functions that threads and processes of the script run, and only they."""
    callers: dict[str, set[str]] = defaultdict(set)
    defined: Counter[str] = Counter()
    begun: Counter[str] = Counter()
    waiting: list[tuple[ast.AST, str]] = [(tree, "") for tree in trees]
    while waiting:
        node, function = waiting.pop()
        inner = node.name if isinstance(node, Function) else function
        waiting += [(one, inner) for one in ast.iter_child_nodes(node)]
        if isinstance(node, Function):
            defined[node.name] += 1
        elif isinstance(node, ast.ClassDef):
            bases = {base for one in node.bases for base in targets(one)}
            begun["run"] += any(base.endswith(STARTS) for base in bases)
        elif isinstance(node, ast.Call):
            callers[called(node)].add(function)
            started = [key.value for key in node.keywords if key.arg == "target"]
            if called(node).endswith(STARTS):
                begun.update(
                    {
                        one.lstrip(".").partition("@")[0]
                        for target in started
                        for one in targets(target)
                    }
                )
    found = {name for name in begun if defined[name] <= begun[name]}
    more = set(found)
    while more:
        more = {name for name, by in callers.items() if by <= found and name not in found}
        found |= more
    return frozenset(found)
