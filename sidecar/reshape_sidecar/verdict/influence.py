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

from reshape_sidecar.hook.script_code import tree_of
from reshape_sidecar.verdict.syntax import (
    OPTIONS,
    Function,
    assignments,
    called,
    from_a_clock,
    looked_up,
    roots,
    run_elsewhere,
    targets,
    with_scopes,
)

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
PUTS = frozenset(
    {
        *("append", "extend", "add", "update", "insert", "appendleft", "__setitem__"),
        *("put", "put_nowait", "send", "send_bytes", "sendall"),
    }
)
"""Calls that put their arguments into their object, and return nothing."""
COLLECTS = PUTS | {"clear", "pop", "setdefault"}
"""Calls that change what their object holds."""
TRAINS = frozenset({"step", "backward", "load_state_dict"})
"""Calls that train, whatever becomes of their results; those that end in an underline do too."""
PARTS = frozenset(
    {
        *("parameters", "named_parameters", "buffers", "named_buffers", "modules", "children"),
        *("named_modules", "named_children", "values", "items", "state_dict", "zip", "enumerate"),
        *("list", "tuple", "reversed", "iter", "next", "chain", "detach", "view", "flatten"),
    }
)
"""Calls that return the objects which their own object or their arguments hold."""
RANKS = frozenset({"get_world_size", "world_size", "WORLD_SIZE", "num_processes", "device_count"})
"""What code asks for the number of processes or GPUs."""
PROPERTIES = ("property", "cached_property", ".cached_property")
METHODS = frozenset({"sum", "mean", "max", "min", "count", "item", "size"})
"""Methods of tensors that scripts also take as names of attributes."""
ASKS = frozenset({"empty", "full", "qsize", "is_alive", "poll", "fileno", "locked"})
"""Methods that say how far another thread or process is, and give nothing that it makes."""
EVENTS = (
    *("on_", "validation_", "test_", "setup", "teardown"),
    *("__init__", "__len__", "__repr__", "__str__"),
)
"""Beginnings of names of methods that a library calls without a look at what they return."""
SKIPS = "on_train_batch_start"
"""A method of theirs whose result ends an epoch."""


def steers(name: str, files: Iterable[str]) -> bool:
    """Return whether the value of a name may reach training, by the text of ``files``.

    ``name``: of an attribute with a dot before it; of a variable of a function with ``@`` and the
    line at which that begins, of a variable of a module with ``@0``, else of any.
    """
    found = _of_files(tuple(sorted(files)))
    if found is None:
        return True
    names = found.names(name)
    return not names or not found.steering.isdisjoint(names)


def is_set(name: str, files: Iterable[str]) -> bool:
    """Return whether the text of ``files`` sets a name."""
    found = _of_files(tuple(sorted(files)))
    return found is not None and bool(found.names(name))


def is_output(statement: ast.stmt) -> bool:
    """Return whether a statement is a call that changes no training."""
    return isinstance(statement, ast.Expr) and called(statement.value) in OUTPUTS


def decides_saves(name: str, files: Iterable[str]) -> bool:
    """Return whether the value of a name may decide what the script of ``files`` saves."""
    found = _of_files(tuple(sorted(files)))
    return found is not None and not found.saving.isdisjoint(found.names(name))


def follows_ranks(name: str, files: Iterable[str]) -> bool:
    """Return whether the code of ``files`` makes the value of a name from the number of GPUs."""
    found = _of_files(tuple(sorted(files)))
    return found is not None and not found.of_ranks.isdisjoint(found.names(name))


def feeds(path: list[str], files: Iterable[str]) -> bool:
    """Return whether training may receive what a channel gives, by the text of ``files``.

    ``path``: the names in the path to it; the last one counts that the text sets.
    """
    given = tuple(sorted(files))
    found = _of_files(given)
    known = [found.names(one) for one in path] if found is not None else []
    channel = next((frozenset(names) for names in reversed(known) if names), None)
    received = None if channel is None else _of_files(given, channel)
    return received is None or channel is None or not channel.isdisjoint(received.steering)


def tells_time(name: str, files: Iterable[str]) -> bool:
    """Return whether the code of ``files`` sets a name to what a clock says."""
    found = _of_files(tuple(sorted(files)))
    return found is not None and not found.clocks.isdisjoint(found.names(name))


@functools.lru_cache(maxsize=16)
def _of_files(files: tuple[str, ...], channel: frozenset[str] = frozenset()) -> _Flow | None:
    """Return the flow between the names of all files; None if one cannot be read.

    ``channel``: names from which only what comes out of it counts, and not what is put into it.
    """
    trees = [tree for tree in map(tree_of, files) if tree is not None]
    return _Flow([*map(with_scopes, trees)], channel) if len(trees) == len(files) else None


class _Flow:
    """From which names a name is made, and which names training reads."""

    def __init__(self, trees: list[ast.Module], channel: frozenset[str]) -> None:
        self._channel = channel
        self._elsewhere = run_elsewhere(trees) if channel else frozenset[str]()
        """Functions that other threads and processes run, which alone change no training."""
        self._sources: dict[str, set[str]] = defaultdict(set)
        self._sinks = {*OPTIONS, *(f".{name}" for name in OPTIONS)}
        self._saves: set[str] = set()
        self._functions: dict[str, list[Function]] = defaultdict(list)
        self._made: dict[str, list[Function]] = defaultdict(list)
        """What a call of a class runs, by its name."""
        nodes = [node for tree in trees for node in ast.walk(tree)]
        self._meters = _meters(nodes)
        self.clocks = frozenset(name for tree in trees for name in from_a_clock(tree))
        for node in nodes:
            if isinstance(node, Function):
                self._functions[node.name].append(node)
            elif isinstance(node, ast.ClassDef):
                own = (one for one in node.body if isinstance(one, Function))
                self._made[node.name] += [one for one in own if one.name == "__init__"]
        self._called = {called(node) for node in nodes if isinstance(node, ast.Call)}
        self._called |= {
            node.name for node in nodes if isinstance(node, Function) and _is_read(node)
        }
        self._set_somewhere = {
            node.attr if isinstance(node, ast.Attribute) else node.id
            for node in nodes
            if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store)
        } - METHODS
        self._given: list[tuple[str, set[str]]] = []
        """Parameters of functions, with the names in what they are given."""
        self._aliases: list[tuple[str, set[str]]] = []
        """Names of objects that the objects of other names may hold."""
        self._mutated: set[str] = set()
        """Names whose object is changed in place."""
        for node in nodes:
            if isinstance(node, ast.Call):
                self._pass_arguments(node)
            elif isinstance(node, ast.NamedExpr):
                self._set(node.target, self._names(node.value))
        for parameter, names in self._given:
            self._sources[parameter] |= names
        for tree in trees:
            self._follow(tree.body, set(), "")
        for name, owners in self._aliases:
            for owner in owners if name in self._mutated else ():
                self._sources[owner].add(name)
        self.bound = frozenset(self._sources)
        if not LOADS.isdisjoint(self._called):
            self._sinks |= self._saves
        self.steering = self._reaching(self._sinks)
        self.saving = self._reaching(self._saves)
        self.of_ranks = self._made_from_ranks(nodes)

    def names(self, name: str) -> set[str]:
        """Return the names that the text sets, and that a name of a look may be."""
        plain, at, line = name.partition("@")
        known = {one for one in self.bound if one.partition("@")[0] == plain}
        exact = {plain if line == "0" else name} & known
        return exact if at and exact else known

    def _reaching(self, sinks: set[str]) -> frozenset[str]:
        found, waiting = set(sinks), list(sinks)
        while waiting:
            for source in self._sources.get(waiting.pop(), ()):
                if source not in found:
                    found.add(source)
                    waiting.append(source)
        return frozenset(found)

    def _made_from_ranks(self, nodes: list[ast.AST]) -> frozenset[str]:
        asking = (pair for pair in assignments(nodes) if any(map(_asks_ranks, ast.walk(pair[1]))))
        found = {name for target, _ in asking for name in targets(target)}
        pairs = [(set(targets(target)), self._names(value)) for target, value in assignments(nodes)]
        pairs += [({name}, given) for name, given in self._given]
        known = -1
        while known < len(found):
            known = len(found)
            for names, sources in pairs:
                found |= set() if found.isdisjoint(sources) else names
        return frozenset(found)

    def _follow(self, statements: list[ast.stmt], tests: set[str], function: str) -> None:
        """Follow statements that run if ``tests`` say so, in ``function``."""
        for statement in statements:
            if isinstance(statement, Function):
                if statement.name != "__getattr__":  # what it looks up is told by its own name
                    self._take_defaults(statement.args)
                    before = set(self._sinks)
                    self._follow(statement.body, set(), statement.name)
                    self._sinks = before if statement.name in self._elsewhere else self._sinks
            elif isinstance(statement, ast.ClassDef):
                self._follow(statement.body, set(), "")
            elif isinstance(statement, ast.If | ast.While):
                self._call(statement.test, tests)
                self._follow_all(statement, tests | self._names(statement.test), function)
            elif isinstance(statement, ast.Match):
                self._follow_cases(statement, tests, function)
            elif isinstance(statement, ast.For | ast.AsyncFor):
                self._call(statement.iter, tests)
                self._set(statement.target, self._names(statement.iter))
                self._alias(statement.target, statement.iter)
                self._follow_all(statement, tests | self._names(statement.iter), function)
            elif isinstance(statement, ast.With | ast.AsyncWith):
                for item in statement.items:
                    if called(item.context_expr) != "open":
                        self._sinks |= self._names(item.context_expr)
                self._follow_all(statement, tests, function)
            elif isinstance(statement, ast.Try | ast.TryStar):
                self._follow_all(statement, tests, function)
                for handler in statement.handlers:
                    self._follow(handler.body, tests, function)
            else:
                self._call(statement, tests)
                self._follow_simple(statement, tests, function)

    def _follow_all(self, statement: ast.stmt, tests: set[str], function: str) -> None:
        for part in ("body", "orelse", "finalbody"):
            self._follow(getattr(statement, part, []), tests, function)

    def _follow_cases(self, statement: ast.Match, tests: set[str], function: str) -> None:
        self._call(statement.subject, tests)
        asked = tests | self._names(statement.subject)
        for case in statement.cases:
            guard = self._names(case.guard) if case.guard is not None else set()
            for pattern in ast.walk(case.pattern):
                if (name := getattr(pattern, "name", getattr(pattern, "rest", None))) is not None:
                    self._sources[name] |= asked
            self._follow(case.body, asked | guard | self._names(case.pattern), function)

    def _follow_simple(self, statement: ast.stmt, tests: set[str], function: str) -> None:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                self._set(target, self._names(statement.value) | tests)
                self._alias(target, statement.value)
        elif isinstance(statement, ast.AugAssign | ast.AnnAssign):
            value = self._names(statement.value) if statement.value is not None else set()
            self._set(statement.target, value | tests)
            if isinstance(statement, ast.AugAssign):
                self._mutated |= set(targets(statement.target))
        elif isinstance(statement, ast.Return):
            self._returns(statement.value, tests, function)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Yield):
            self._returns(statement.value.value, tests, function)
        elif isinstance(statement, ast.Expr):
            self._evaluated(statement.value, tests)
        elif self._channel and isinstance(statement, ast.Raise | ast.Assert):
            return  # an answer that says that all is well
        elif isinstance(statement, ast.Break | ast.Continue | ast.Raise | ast.Assert | ast.Delete):
            self._sinks |= tests | self._names(statement)

    def _call(self, code: ast.AST, tests: set[str]) -> None:
        """Follow what calls within code do, whatever becomes of their results."""
        for node in ast.walk(code):
            if isinstance(node, ast.Lambda) and _returns_nothing(node):
                self._evaluated(node.body, tests)
            if not isinstance(node, ast.Call) or (name := called(node)) in self._functions:
                continue
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            if name in TRAINS or (name.endswith("_") and not name.endswith("__")):
                self._sinks |= tests | self._names(node)
            elif not name or (name in self._set_somewhere and self._meter(node) is None):
                self._sinks |= {one for value in given for one in self._names(value)}

    def _meter(self, call: ast.Call) -> ast.expr | None:
        """Return the metric that a call counts in or clears, and does nothing else."""
        code = call.func
        if isinstance(code, ast.Attribute) and code.attr in ("reset", "update"):
            code = code.value
        return None if self._meters.isdisjoint(targets(code)) else code

    def _alias(self, target: ast.expr, value: ast.expr) -> None:
        """Note that ``target`` may be a part of what ``value`` names."""
        calls = [one for one in ast.walk(value) if isinstance(one, ast.Call)]
        if all(called(call) in PARTS for call in calls):
            owners = self._names(value)
            self._aliases += [(name, owners) for name in targets(target)]

    def _take_defaults(self, given: ast.arguments) -> None:
        names = reversed([*given.posonlyargs, *given.args])
        pairs = [*zip(names, reversed(given.defaults), strict=False)]
        for argument, default in [*pairs, *zip(given.kwonlyargs, given.kw_defaults, strict=True)]:
            if default is not None:
                self._sources[argument.arg] |= self._names(default)

    def _returns(self, value: ast.expr | None, tests: set[str], function: str) -> None:
        names = (self._names(value) if value is not None else set()) | tests
        if function in self._elsewhere:
            return  # a thread gives nobody what its function returns
        self._sources[function] |= names
        is_event = function.startswith(EVENTS) and function != SKIPS
        if function not in self._called and not is_event:
            self._sinks |= names

    def _evaluated(self, value: ast.expr, tests: set[str]) -> None:
        name = called(value)
        if name in SAVES:
            self._saves |= tests
            return
        if name in OUTPUTS or isinstance(value, ast.Constant):
            return
        owner = _collecting(value)
        is_sent = owner is not None and not self._channel.isdisjoint(self._names(owner))
        owner = owner if is_sent or name in COLLECTS else None
        if name == "at" and isinstance(value, ast.Call) and value.args:  # np.add.at(counts, …)
            owner = value.args[0]
        if isinstance(value, ast.Call) and (meter := self._meter(value)) is not None:
            owner = meter
        if owner is not None and isinstance(value, ast.Call):
            given = [*value.args, *(keyword.value for keyword in value.keywords)]
            sources = {one for argument in given for one in self._names(argument)} | tests
            self._set(owner, sources)
            for one in self._channel if is_sent else ():
                self._sources[one] |= sources
            return
        if name in self._functions:
            return  # the script's own: its arguments are followed into it
        self._sinks |= self._names(value) | tests

    def _pass_arguments(self, call: ast.Call) -> None:
        for function in (*self._functions.get(called(call), ()), *self._made[called(call)]):
            given = function.args
            names = [argument.arg for argument in given.args]
            names = names[1:] if names[:1] == ["self"] else names
            others = given.vararg.arg if given.vararg is not None else ""
            for number, argument in enumerate(call.args):
                parameter = names[number] if number < len(names) else others
                self._given.append((parameter, self._names(argument)))
            known = {one.partition("@")[0]: one for one in names}
            known |= {one.arg.partition("@")[0]: one.arg for one in given.kwonlyargs}
            others = given.kwarg.arg if given.kwarg is not None else ""
            for keyword in call.keywords:
                parameter = known.get(keyword.arg or "", others)
                self._given.append((parameter, self._names(keyword.value)))

    def _set(self, target: ast.expr, sources: set[str]) -> None:
        places = [one for one in ast.walk(target) if isinstance(one, ast.Subscript)]
        indices = {name for one in places for name in self._names(one.slice)}
        for one in targets(target):
            self._sources[one] |= sources | indices
        for place in places:
            self._mutated |= set(targets(place.value))

    def _names(self, node: ast.AST) -> set[str]:
        """Return the names that an expression reads; no names of functions of libraries."""
        nodes = list(_walk(node))
        calls = [one.func for one in nodes if isinstance(one, ast.Call)]
        methods = {
            id(one)
            for one in calls
            if (isinstance(one, ast.Attribute) and not self._is_own(one.attr))
            or (isinstance(one, ast.Name) and hasattr(builtins, one.id))
        }
        if self._channel:
            asked = [one for one in calls if getattr(one, "attr", None) in ASKS]
            methods |= {id(inner) for one in asked for inner in ast.walk(one)}
        read = [
            one
            for one in nodes
            if isinstance(one, ast.Name | ast.Attribute) and id(one) not in methods
        ]
        names = {one.id for one in read if isinstance(one, ast.Name)}
        attributes = {one.attr for one in read if isinstance(one, ast.Attribute)}
        attributes |= {name for one in nodes if (name := looked_up(one)) is not None}
        functions = attributes & self._functions.keys()
        return (names | functions | {f".{name}" for name in attributes}) - {"self"}

    def _is_own(self, name: str) -> bool:
        """Return whether a call by ``name`` is one of the script's functions, or may be."""
        return name in self._functions or name in self._set_somewhere


def _meters(nodes: list[ast.AST]) -> frozenset[str]:
    """Return the names of metrics of torchmetrics, and of what makes or holds them: a call of one
    alone only counts in it."""
    found = {
        (one.asname or one.name).partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for one in node.names
        if (getattr(node, "module", None) or one.name).partition(".")[0] == "torchmetrics"
    }
    pairs = list(assignments(nodes)) if found else []
    known = 0
    while known < len(found):
        known = len(found)
        for target, value in pairs:
            if isinstance(value, ast.Call | ast.Lambda | ast.Dict) and not found.isdisjoint(
                _makers(value)
            ):
                found |= set(targets(target))
    return frozenset(found)


def _makers(value: ast.expr) -> set[str]:
    """Return the names of what an expression calls to make an object."""
    if isinstance(value, ast.Lambda):
        return _makers(value.body)
    if isinstance(value, ast.Dict):
        return {name for one in value.values for name in _makers(one)}
    if not isinstance(value, ast.Call):
        return set()
    if called(value) in ("ModuleDict", "ModuleList"):
        return {name for one in value.args for name in _makers(one)}
    function = value.func
    if isinstance(function, ast.Attribute) and function.attr == "clone":
        return set(targets(function.value))
    return roots(function)


def _asks_ranks(node: ast.AST) -> bool:
    asked = getattr(node, "attr", getattr(node, "id", getattr(node, "value", None)))
    return isinstance(asked, str) and asked in RANKS


def _is_read(function: Function) -> bool:
    """Return whether a function is read as an attribute."""
    names = (targets(one) for one in function.decorator_list if isinstance(one, ast.expr))
    return any(name in PROPERTIES for each in names for name in each)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and what is below, but for functions that a call is given and that only keep or
    show what they get."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not _returns_nothing(child):
            yield from _walk(child)


def _returns_nothing(node: ast.AST) -> bool:
    return isinstance(node, ast.Lambda) and called(node.body) in PUTS | OUTPUTS


def _collecting(value: ast.expr) -> ast.expr | None:
    """Return the object whose method a call is."""
    is_method = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
    return value.func.value if is_method else None  # type: ignore[attr-defined]
