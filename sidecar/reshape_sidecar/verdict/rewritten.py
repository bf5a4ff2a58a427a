"""Files that a script goes on from, and that each start writes again, by the text of the script.

A script that saves its first weights as the best ones before training, and replaces them by better
ones, loses the best of them at a restart: the file is the first one's again, and no checkpoint
holds it. The same goes for a file in a folder that each start makes anew.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import Enum, auto

from reshape_sidecar.hook.script_code import tree_of
from reshape_sidecar.verdict.syntax import Function, around_of

PATH_FIRST = frozenset({"save_pretrained", "save_model", "save_checkpoint", "remove", "unlink"})
"""Calls that write or remove the file that is their first argument."""
PATH_SECOND = frozenset({"save", "save_file", "copy", "copyfile", "copy2", "replace", "rename"})
OF_PATH = frozenset({"write_text", "write_bytes", "unlink", "touch"})
"""Methods of a path that write or remove it."""
LOADS = frozenset({"load", "load_file", "from_pretrained", "read_text", "read_bytes", "loadtxt"})
FRESH = frozenset({"TemporaryDirectory", "mkdtemp", "mkstemp", "uuid4", "getpid", "token_hex"})
"""Calls whose folder or name is another one at each start."""
TRAINS = frozenset({"batches", "epochs"})
"""Calls of a job over which training loops."""
BEGINS = frozenset({"train", "fit"})
"""Calls of a Trainer that train."""
DEPTH_MAX = 4


def reasons(files: Iterable[str]) -> Iterator[str]:
    """Yield which such files the code of ``files`` has."""
    for path in sorted(paths(files)):
        yield (
            f"{path} is a file that each start writes anew, that training replaces at times and the"
            " script reads: write it before training only if it is not there"
        )


def paths(files: Iterable[str]) -> frozenset[str]:
    """Return how the code of ``files`` writes the paths of such files."""
    return _paths(tuple(sorted(files)))


@functools.lru_cache(maxsize=1)
def _paths(files: tuple[str, ...]) -> frozenset[str]:
    trees = [tree for tree in map(tree_of, files) if tree is not None]
    return frozenset(_Text(trees).found())


class Moment(Enum):
    """When code runs."""

    BEFORE = auto()
    """Before training, at each start."""
    WITHIN = auto()
    AFTER = auto()


class _Text:
    def __init__(self, trees: list[ast.Module]) -> None:
        self._around = around_of(trees)
        self._calls = [node for node in self._around if isinstance(node, ast.Call)]
        self._by_name: dict[str, list[ast.Call]] = defaultdict(list)
        self._functions: dict[str, list[ast.AST]] = defaultdict(list)
        for node in self._around:
            if isinstance(node, ast.Call):
                self._by_name[_last(node.func)].append(node)
            elif isinstance(node, Function):
                self._functions[node.name].append(node)
        self._training: dict[str, bool] = {}
        """Whether calls by a name train."""
        self._values: dict[str, list[ast.expr]] = {}
        """What each name is set to."""
        for node in self._around:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._values.setdefault(_last(target), []).append(node.value)
            elif isinstance(node, ast.withitem) and node.optional_vars is not None:
                self._values.setdefault(_last(node.optional_vars), []).append(node.context_expr)

    def found(self) -> Iterator[str]:
        """Yield the paths that are written before training and while it goes on, and read: within
        training, or after it if training writes them at times alone."""
        first, at_times, always = set[str](), set[str](), set[str]()
        within, after = set[str](), set[str]()
        writes = [(call, path) for call in self._calls if (path := _written(call)) is not None]
        for call, path in writes:
            for moment, is_certain in self._moments(call, 0):
                if moment is Moment.BEFORE and is_certain:
                    first |= self._keys(path)
                elif moment is Moment.WITHIN:
                    (always if is_certain else at_times).update(self._keys(path))
                    first |= self._keys(path) if self._is_fresh(path, 0) else set()
        for call in self._calls:
            for path in _read(call):
                for moment, _ in self._moments(call, 0):
                    (after if moment is Moment.AFTER else within).update(self._keys(path))
        lost = first & ((at_times & (within | after)) | (always & within))
        for _, path in writes:
            if not self._keys(path).isdisjoint(lost):
                yield ast.unparse(path)

    def _keys(self, path: ast.expr) -> set[str]:
        """Return by what an expression of a path is known again: its last name or text."""
        keys = {_last(path)}
        for value in self._values.get(_last(path), ()):
            keys.add(_last(value))
        return keys

    def _is_fresh(self, path: ast.expr, depth: int) -> bool:
        """Return whether a path lies in a folder that each start makes."""
        names = {_last(one) for one in ast.walk(path) if isinstance(one, ast.Name | ast.Attribute)}
        if not FRESH.isdisjoint(name.removeprefix(".") for name in names):
            return True
        values = [value for name in names for value in self._values.get(name, ())]
        return depth < DEPTH_MAX and any(self._is_fresh(one, depth + 1) for one in values)

    def _moments(self, node: ast.AST, depth: int) -> Iterator[tuple[Moment, bool]]:
        """Yield when code runs, and whether it runs each time."""
        is_certain, inner = True, node
        while (outer := self._around.get(inner)) is not None:
            if isinstance(outer, ast.If) and inner in [*outer.body, *outer.orelse]:
                is_certain &= _asks_rank(outer.test)
            if isinstance(outer, ast.For | ast.While) and _mentions(_header(outer), TRAINS):
                yield Moment.WITHIN, is_certain
                return
            if isinstance(outer, Function):
                if self._begins_behind(outer, node):
                    yield Moment.BEFORE, is_certain
                    return
                if any(map(self._trains, map(_last, _calls_in(outer)))):
                    yield Moment.AFTER, is_certain
                    return
                callers = self._callers(outer)
                if not callers:  # a library calls it while it trains
                    yield Moment.WITHIN, is_certain
                for caller in callers if depth < DEPTH_MAX else ():
                    for moment, one in self._moments(caller, depth + 1):
                        yield moment, is_certain and one
                return
            inner = outer
        yield (Moment.BEFORE if self._begins_behind(inner, node) else Moment.AFTER), is_certain

    def _callers(self, function: Function | ast.AST) -> list[ast.Call]:
        """Return the calls of a function of the script; of ``__call__``, those of its objects."""
        name = getattr(function, "name", "")
        names = {name, f".{name}"}
        around = self._around.get(function)
        if name in ("__call__", "__init__") and isinstance(around, ast.ClassDef):
            made = {
                target
                for target, values in self._values.items()
                for value in values
                if isinstance(value, ast.Call) and _last(value.func).strip(".") == around.name
            }
            names = made if name == "__call__" else {around.name, f".{around.name}"}
        return [call for one in names for call in self._by_name[one]]

    def _begins_behind(self, code: ast.AST, node: ast.AST) -> bool:
        """Return whether training begins in ``code`` behind ``node``, which is in it."""
        end = node.end_lineno or 0  # type: ignore[attr-defined]
        return any(one.lineno > end and self._trains(_last(one)) for one in _calls_in(code))

    def _trains(self, name: str) -> bool:
        """Return whether calls by a name train, or call functions of the script that do."""
        if name not in self._training:
            self._training[name] = name.startswith(".") and name[1:] in TRAINS | BEGINS
            self._training[name] |= any(
                self._trains(_last(one))
                for body in self._functions[name.removeprefix(".")]
                for one in _calls_in(body)
            )
        return self._training[name]


def _written(call: ast.Call) -> ast.expr | None:
    """Return the path of the file that a call writes or removes."""
    name = _last(call.func).removeprefix(".")
    given = {one.arg: one.value for one in call.keywords}
    if name == "open" and isinstance(call.func, ast.Name) and call.args:
        mode = call.args[1] if len(call.args) > 1 else given.get("mode")
        text = getattr(mode, "value", "r") if mode is not None else "r"
        return call.args[0] if "w" in str(text) else None
    if name in OF_PATH and isinstance(call.func, ast.Attribute) and not call.args[1:]:
        return call.func.value
    if name in PATH_FIRST:
        return call.args[0] if call.args else None
    if name in PATH_SECOND:
        is_first = _last(call.func) == ".save" and _root(call.func) in ("np", "numpy")
        place = 0 if is_first else 1
        return call.args[place] if len(call.args) > place else given.get("f")
    return None


def _read(call: ast.Call) -> Iterator[ast.expr]:
    """Yield the path that a call reads."""
    name = _last(call.func).removeprefix(".")
    if name in ("read_text", "read_bytes") and isinstance(call.func, ast.Attribute):
        yield call.func.value
    elif call.args and (name in LOADS or (name == "open" and _written(call) is None)):
        yield call.args[0]


def _calls_in(code: ast.AST) -> list[ast.expr]:
    """Return what the calls within code call."""
    return [one.func for one in ast.walk(code) if isinstance(one, ast.Call)]


def _asks_rank(test: ast.expr) -> bool:
    """Return whether a test asks which process this is: one of them runs what it guards."""
    names = (
        _last(one).lower() for one in ast.walk(test) if isinstance(one, ast.Name | ast.Attribute)
    )
    return any("rank" in name or "is_main" in name for name in names)


def _header(loop: ast.For | ast.While) -> ast.expr:
    return loop.iter if isinstance(loop, ast.For) else loop.test


def _mentions(code: ast.AST, names: frozenset[str]) -> bool:
    return any(isinstance(one, ast.Attribute) and one.attr in names for one in ast.walk(code))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return getattr(node, "id", "")


def _last(node: ast.expr) -> str:
    """Return the last name in an expression, or its last text, as the name of a file."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f".{node.attr}"
    texts = [one for one in ast.walk(node) if isinstance(one, ast.Constant)]
    found = [one.value for one in texts if isinstance(one.value, str) and one.value]
    return found[-1] if found else ast.unparse(node)
