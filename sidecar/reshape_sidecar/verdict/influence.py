"""Which names of a script steer its training, and which are only printed, logged or saved.

Does: follows the text of the script and of modules beside it. A name steers training if what it
holds can reach a call that is no output, a test around one, a return value that a library reads, or
an option of an optimizer. Names are told apart by their spelling alone, attributes (with a dot
before them here) from others, so the answer is careful: a name that is used for both counts as
steering, and so does one that the text never sets.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator

from reshape_sidecar.hook.script_code import CLOCK, tree_of

OUTPUTS = frozenset(
    {
        *("print", "log", "log_dict", "log_metrics", "info", "debug", "warning", "error", "write"),
        *(
            "writerow",
            "writerows",
            "writeheader",
            "writelines",
            "flush",
            "add_scalar",
            "add_scalars",
            "add_histogram",
            "dump",
        ),
        *("save", "savefig", "plot", "set_postfix", "set_description", "metrics", "all_reduce"),
        *("reduce", "barrier", "makedirs", "mkdir", "savez", "savetxt", "exception", "row"),
    }
)
"""Calls that change no training; those by which ranks share a value among them."""
SAVES = frozenset(
    {"save", "save_file", "save_model", "save_pretrained", "save_checkpoint", "copyfile"}
)
"""Calls that write what a script may go on from: which ones are made matters."""
LOADS = frozenset({"load", "load_file", "load_model", "load_checkpoint"})
"""Calls by which a script goes on from what it has written."""
COLLECTS = frozenset(
    {"append", "extend", "add", "update", "insert", "appendleft", "clear", "pop", "setdefault"}
)
"""Calls that put their arguments into their object."""
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
PROPERTIES = ("property", "cached_property", ".cached_property")
METHODS = frozenset({"sum", "mean", "max", "min", "count", "item", "size"})
"""Methods of tensors that scripts also take as names of attributes."""
EVENTS = (
    *("on_", "validation_", "test_", "setup", "teardown"),
    *("__init__", "__len__", "__repr__", "__str__"),
)
"""Beginnings of names of methods that a library calls without a look at what they return."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def steers(name: str, files: Iterable[str]) -> bool:
    """Return whether the value of a name may reach training, by the text of ``files``.

    ``name``: of an attribute with a dot before it.
    """
    found = _of_files(tuple(sorted(files)))
    return found is None or name not in found.bound or name in found.steering


def is_output(statement: ast.stmt) -> bool:
    """Return whether a statement is a call that changes no training."""
    return isinstance(statement, ast.Expr) and _name_of_call(statement.value) in OUTPUTS


def decides_saves(name: str, files: Iterable[str]) -> bool:
    """Return whether the value of a name may decide what the script of ``files`` saves."""
    found = _of_files(tuple(sorted(files)))
    return found is not None and name in found.saving


def tells_time(name: str, files: Iterable[str]) -> bool:
    """Return whether the code of ``files`` sets a name to what a clock says."""
    found = _of_files(tuple(sorted(files)))
    return found is not None and name in found.clocks


@functools.lru_cache(maxsize=4)
def _of_files(files: tuple[str, ...]) -> _Flow | None:
    """Return the flow between the names of all files; None if one cannot be read."""
    trees = [tree for tree in map(tree_of, files) if tree is not None]
    return _Flow(trees) if len(trees) == len(files) else None


class _Flow:
    """From which names a name is made, and which names training reads."""

    def __init__(self, trees: list[ast.Module]) -> None:
        self._sources: dict[str, set[str]] = defaultdict(set)
        self._sinks = {*OPTIONS, *(f".{name}" for name in OPTIONS)}
        self._saves: set[str] = set()
        self._functions: dict[str, list[Function]] = defaultdict(list)
        nodes = [node for tree in trees for node in ast.walk(tree)]
        self._meters = _meters(nodes)
        self.clocks = frozenset(name for tree in trees for name in from_a_clock(tree))
        for node in nodes:
            if isinstance(node, Function):
                self._functions[node.name].append(node)
        self._called = {_name_of_call(node) for node in nodes if isinstance(node, ast.Call)}
        self._called |= {
            node.name for node in nodes if isinstance(node, Function) and _is_read(node)
        }
        self._set_somewhere = {
            node.attr if isinstance(node, ast.Attribute) else node.id
            for node in nodes
            if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store)
        } - METHODS
        for node in nodes:
            if isinstance(node, ast.Call):
                self._pass_arguments(node)
        for tree in trees:
            self._follow(tree.body, set(), "")
        self.bound = frozenset(self._sources)
        if not LOADS.isdisjoint(self._called):
            self._sinks |= self._saves
        self.steering = self._reaching(self._sinks)
        self.saving = self._reaching(self._saves)

    def _reaching(self, sinks: set[str]) -> frozenset[str]:
        found, waiting = set(sinks), list(sinks)
        while waiting:
            for source in self._sources.get(waiting.pop(), ()):
                if source not in found:
                    found.add(source)
                    waiting.append(source)
        return frozenset(found)

    def _follow(self, statements: list[ast.stmt], tests: set[str], function: str) -> None:
        """Follow statements that run if ``tests`` say so, in ``function``."""
        for statement in statements:
            if isinstance(statement, Function) and statement.name == "__getattr__":
                continue  # an attribute that it looks up is told by its own name
            if isinstance(statement, Function):
                self._follow(statement.body, set(), statement.name)
            elif isinstance(statement, ast.ClassDef):
                self._follow(statement.body, set(), "")
            elif isinstance(statement, ast.If | ast.While):
                self._follow_all(statement, tests | self._names(statement.test), function)
            elif isinstance(statement, ast.For | ast.AsyncFor):
                self._set(statement.target, self._names(statement.iter))
                self._follow_all(statement, tests | self._names(statement.iter), function)
            elif isinstance(statement, ast.With | ast.AsyncWith):
                for item in statement.items:
                    if _name_of_call(item.context_expr) != "open":
                        self._sinks |= self._names(item.context_expr)
                self._follow_all(statement, tests, function)
            elif isinstance(statement, ast.Try):
                self._follow_all(statement, tests, function)
                for handler in statement.handlers:
                    self._follow(handler.body, tests, function)
            else:
                self._follow_simple(statement, tests, function)

    def _follow_all(self, statement: ast.stmt, tests: set[str], function: str) -> None:
        for part in ("body", "orelse", "finalbody"):
            self._follow(getattr(statement, part, []), tests, function)

    def _follow_simple(self, statement: ast.stmt, tests: set[str], function: str) -> None:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                self._set(target, self._names(statement.value) | tests)
        elif isinstance(statement, ast.AugAssign | ast.AnnAssign):
            value = self._names(statement.value) if statement.value is not None else set()
            self._set(statement.target, value | tests)
        elif isinstance(statement, ast.Return):
            self._returns(statement.value, tests, function)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Yield):
            self._returns(statement.value.value, tests, function)
        elif isinstance(statement, ast.Expr):
            self._evaluated(statement.value, tests)
        elif isinstance(statement, ast.Break | ast.Continue | ast.Raise | ast.Assert | ast.Delete):
            self._sinks |= tests | self._names(statement)

    def _returns(self, value: ast.expr | None, tests: set[str], function: str) -> None:
        names = (self._names(value) if value is not None else set()) | tests
        self._sources[function] |= names
        if function not in self._called and not function.startswith(EVENTS):
            self._sinks |= names

    def _evaluated(self, value: ast.expr, tests: set[str]) -> None:
        name = _name_of_call(value)
        if name in SAVES:
            self._saves |= tests
            return
        if name in OUTPUTS or isinstance(value, ast.Constant):
            return
        owner = _collecting(value) if name in COLLECTS else None
        if name == "at" and isinstance(value, ast.Call) and value.args:  # np.add.at(counts, …)
            owner = value.args[0]
        if isinstance(value, ast.Call) and not self._meters.isdisjoint(_targets(value.func)):
            owner = value.func
        if owner is not None and isinstance(value, ast.Call):
            given = [*value.args, *(keyword.value for keyword in value.keywords)]
            sources = {one for argument in given for one in self._names(argument)}
            self._set(owner, sources | tests)
            return
        if name in self._functions:
            return  # the script's own: its arguments are followed into it
        self._sinks |= self._names(value) | tests

    def _pass_arguments(self, call: ast.Call) -> None:
        for function in self._functions.get(_name_of_call(call) or "", ()):
            given = function.args
            names = [argument.arg for argument in given.args]
            names = names[1:] if names[:1] == ["self"] else names
            others = given.vararg.arg if given.vararg is not None else ""
            for number, argument in enumerate(call.args):
                parameter = names[number] if number < len(names) else others
                self._sources[parameter] |= self._names(argument)
            known = {*names, *(argument.arg for argument in given.kwonlyargs)}
            others = given.kwarg.arg if given.kwarg is not None else ""
            for keyword in call.keywords:
                parameter = keyword.arg if keyword.arg in known else others
                self._sources[parameter or ""] |= self._names(keyword.value)

    def _set(self, target: ast.expr, sources: set[str]) -> None:
        for one in _targets(target):
            self._sources[one] |= sources

    def _names(self, node: ast.AST) -> set[str]:
        """Return the names that an expression reads; no names of functions of libraries."""
        calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
        methods = {
            id(one)
            for one in calls
            if (isinstance(one, ast.Attribute) and not self._is_own(one.attr))
            or (isinstance(one, ast.Name) and hasattr(builtins, one.id))
        }
        read = [
            one
            for one in ast.walk(node)
            if isinstance(one, ast.Name | ast.Attribute) and id(one) not in methods
        ]
        names = {one.id for one in read if isinstance(one, ast.Name)}
        attributes = {one.attr for one in read if isinstance(one, ast.Attribute)}
        functions = attributes & self._functions.keys()
        return (names | functions | {f".{name}" for name in attributes}) - {"self"}

    def _is_own(self, name: str) -> bool:
        """Return whether a call by ``name`` is one of the script's functions, or may be."""
        return name in self._functions or name in self._set_somewhere


def from_a_clock(code: ast.AST) -> set[str]:
    """Return the names that code sets to what a clock says: they mean nothing later."""
    found: set[str] = set()
    for node in ast.walk(code):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
            asks = any(_asks_a_clock(one) for one in ast.walk(node.value))
            if asks or not found.isdisjoint(_roots(node.value)):
                found |= set(_stored(node))
    return found


def _asks_a_clock(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return getattr(node.func, "attr", getattr(node.func, "id", None)) in CLOCK


def _stored(node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> Iterator[str]:
    for target in node.targets if isinstance(node, ast.Assign) else (node.target,):
        yield from _targets(target)


def _meters(nodes: list[ast.AST]) -> frozenset[str]:
    """Return the names of metrics of torchmetrics: a call of one alone only counts in it."""
    imported = {
        (one.asname or one.name).partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for one in node.names
        if (getattr(node, "module", None) or one.name).partition(".")[0] == "torchmetrics"
    }
    return frozenset(
        target
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and not imported.isdisjoint(_roots(node.value.func))
        for one in node.targets
        for target in _targets(one)
    )


def _roots(node: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _is_read(function: Function) -> bool:
    """Return whether a function is read as an attribute."""
    names = (_targets(one) for one in function.decorator_list if isinstance(one, ast.expr))
    return any(name in PROPERTIES for each in names for name in each)


def _name_of_call(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def _collecting(value: ast.expr) -> ast.expr | None:
    """Return the object whose method a call is."""
    is_method = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
    return value.func.value if is_method else None  # type: ignore[attr-defined]


def _targets(target: ast.expr) -> Iterator[str]:
    """Yield the names that an assignment to ``target`` changes."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Attribute):
        yield f".{target.attr}"
    elif isinstance(target, ast.Subscript):
        yield from _targets(target.value)
        if isinstance(target.slice, ast.Constant) and target.slice.value in OPTIONS:
            yield str(target.slice.value)
    elif isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from _targets(one)
    elif isinstance(target, ast.Starred):
        yield from _targets(target.value)
