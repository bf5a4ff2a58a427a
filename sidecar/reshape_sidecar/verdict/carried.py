"""The names that the body of a loop carries from one turn to the next, by its text.

A name is carried if a turn reads it before it sets it, and sets it or changes what it holds; or if
some turns set it, and the code behind the loop reads it.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, TypeVar

from reshape_sidecar.hook.script_code import of_script_file, tree_of
from reshape_sidecar.verdict import influence, syntax
from reshape_sidecar.verdict.forms import PLAIN
from reshape_sidecar.verdict.reach import Reach
from reshape_sidecar.verdict.syntax import Function

BESIDE = "from enumerate or zip, which begin again: job.step counts on"
Loop = ast.For | ast.While | ast.AsyncFor
Statement = TypeVar("Statement", bound=ast.stmt)


def names(frame: FrameType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that the loops around a frame's line read before they set them, and all
    names that they set. Both are empty where there is no text."""
    return _names_at(frame.f_code.co_filename, frame.f_lineno)


@functools.cache
def _names_at(file: str, line: int) -> tuple[frozenset[str], frozenset[str]]:
    code, loops = _loops(file, line)
    read: set[str] = set()
    bound: set[str] = set()
    for loop in loops:
        asked = _set_within(loop.test) if isinstance(loop, ast.While) else set()
        body = _Body(asked).of(loop.body)
        bound |= _names(loop, ast.Store) | _names(loop, ast.Del)
        at_times = _names(loop, ast.Store) - body.done
        read |= body.read | (at_times & _read_after(code, loops[0]))
    targets = {
        name
        for loop in loops
        if not isinstance(loop, ast.While)
        for name in _names(loop.target, ast.Store)
    }
    clocks = {name for loop in loops for name in syntax.from_a_clock(loop)}
    return frozenset(read - targets - clocks), frozenset(bound)


@functools.cache
def _asked_at(file: str, line: int) -> frozenset[str]:
    """Return the names that the statement at a line reads, if it is in no loop: it may go through
    the batches itself, as a comprehension does."""
    code, loops = _loops(file, line)
    statements = (
        node
        for node in ast.walk(code)
        if isinstance(node, ast.stmt) and not isinstance(node, Function | ast.ClassDef)
    )
    found = _innermost(statements, line) if not loops else None
    return frozenset(_read_by(found)) if found is not None else frozenset()


def beside(frame: FrameType, *, runs: bool = False) -> frozenset[str]:
    """Return the names that a loop takes from ``enumerate`` or ``zip`` beside the batches of a job:
    these begin again at a restart in mid-epoch.

    runs: whether the loop at the frame's line is asking for a batch.
    """
    return _beside_at(frame.f_code.co_filename, frame.f_lineno, runs)


@functools.cache
def _beside_at(file: str, line: int, runs: bool) -> frozenset[str]:
    code, loops = _loops(file, line)
    assigned = (node for node in ast.walk(code) if isinstance(node, ast.Assign))
    known = {name for node in assigned if _asks_batches(node.value) for name in _stored(node)}
    found: set[str] = set()
    for loop in loops:
        if isinstance(loop, ast.While) or not isinstance(loop.target, ast.Tuple):
            continue
        calls = (one for one in ast.walk(loop.iter) if isinstance(one, ast.Call))
        for call in calls:
            given = [_asks_batches(one) or bool(_names(one, ast.Load) & known) for one in call.args]
            if runs and loop is loops[-1] and not any(given):
                given = [number == 0 for number, _ in enumerate(call.args)]
            name = getattr(call.func, "id", None)
            if name == "enumerate" and any(given):
                numbers = _names(loop.target.elts[0], ast.Store)
                found |= {number for number in numbers if not _accumulates(loop, number)}
            elif name == "zip" and any(given):
                for part, is_job in zip(loop.target.elts, given, strict=False):
                    found |= set() if is_job else _names(part, ast.Store)
    return frozenset(found)


def _accumulates(loop: ast.For | ast.AsyncFor, number: str) -> bool:
    """Return whether a loop makes its steps, and nothing else, where ``number`` has a multiple:
    a restart begins at the first batch of a step, so counting from 0 is right there."""
    tests = [
        node for node in ast.walk(loop) if isinstance(node, ast.If) and _is_multiple(node, number)
    ]
    steps = [node for node in ast.walk(loop) if _calls(node, "step")]
    guarded = {node for test in tests for node in ast.walk(test) if _calls(node, "step")}
    others = [test for test in tests if not any(_calls(one, "step") for one in ast.walk(test))]
    in_tests = sum(len(_reads(test.test, number)) for test in tests)
    return (
        bool(steps)
        and guarded.issuperset(steps)
        and len(_reads(loop, number)) - 1 == in_tests  # the target of the loop is one
        and all(influence.is_output(statement) for test in others for statement in test.body)
    )


def _is_multiple(node: ast.If, number: str) -> bool:
    """Return whether a test is ``(number + …) % … == …``, and reads the number there alone."""
    test = node.test
    if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.BinOp):
        return False
    is_rest = isinstance(test.left.op, ast.Mod) and isinstance(test.ops[0], ast.Eq)
    return is_rest and len(_reads(test.left.left, number)) == len(_reads(test, number)) > 0


def _reads(node: ast.AST, name: str) -> list[ast.Name]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Name) and one.id == name]


def _calls(node: ast.AST, method: str) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", None) == method


def _asks_batches(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Attribute) and one.attr == "batches" for one in ast.walk(node))


def _is_within_a_step(node: ast.AST) -> bool:
    """Return whether a loop is over the micro-batches of a step, of which there is at least one."""
    return isinstance(node, ast.For) and _calls(node.iter, "micro_batches")


def ends_its_loop(frame: FrameType) -> bool:
    """Return whether the call at a frame's line is the last thing that the loop around it does."""
    return _ends_loop(frame.f_code.co_filename, frame.f_lineno)


@functools.cache
def _ends_loop(file: str, line: int) -> bool:
    _, loops = _loops(file, line)
    found = _innermost(loops, line)
    body: Any = getattr(found, "body", [])
    while body and _holds(last := body[-1], line):
        parts = [getattr(last, name, []) for name in ("body", "orelse", "finalbody")]
        if not any(parts):
            return True
        body = next((part for part in parts if part and _holds(part[-1], line)), [])
    return False


def called_within_a_step(frame: FrameType) -> frozenset[str]:
    """Return the names of what the loop over micro-batches around a frame's line calls."""
    return _called_at(frame.f_code.co_filename, frame.f_lineno)


@functools.cache
def _called_at(file: str, line: int) -> frozenset[str]:
    nodes = ast.walk(tree_of(file) or ast.Module([], []))
    loops = [node for node in nodes if _is_within_a_step(node) and _holds(node, line)]
    calls = [one.func for loop in loops for one in ast.walk(loop) if isinstance(one, ast.Call)]
    return frozenset(getattr(one, "attr", getattr(one, "id", "")) for one in calls)


def _holds(node: Any, line: int) -> bool:
    return bool(node.lineno <= line <= (node.end_lineno or line))


def _stored(node: ast.Assign) -> set[str]:
    return {name for target in node.targets for name in _names(target, ast.Store)}


def _loops(file: str, line: int) -> tuple[ast.AST, list[Loop]]:
    """Return the function around a line, or its module, and the loops around the line."""
    tree = tree_of(file)
    if tree is None:
        return ast.Module([], []), []
    functions = (node for node in ast.walk(tree) if isinstance(node, Function))
    code = _innermost(functions, line) or tree
    loops = [
        node
        for node in ast.walk(code)
        if isinstance(node, Loop) and _holds(node, line)
        if not _is_within_a_step(node)
    ]
    return code, loops


def enter_running(made: FrameType, reach: Reach) -> None:
    """Enter the code that is asking for a batch, and the code ``made`` that called for them: it may
    have given them to another function."""
    enter(next(_callers(sys._getframe(1)), made), reach, made)


def enter(frame: FrameType, reach: Reach, made: FrameType | None = None) -> None:
    """Look at the names that the loops around the frame's line carry, at those around its callers
    and around ``made`` and its callers, and at the globals."""
    set_globally: frozenset[str] = frozenset()
    running = list(_callers(frame))
    asks = True
    for one in [*running, *(one for one in _callers(made) if one not in running)]:
        asks |= one is made
        set_globally |= _enter(one, reach, asks=asks)
        asks &= bool(one.f_code.co_flags & inspect.CO_GENERATOR)  # it goes on to the code around it
    reach.script(set_globally)


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of the script's code from ``frame`` outwards."""
    while frame is not None:
        if of_script_file(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _enter(frame: FrameType, reach: Reach, *, asks: bool) -> frozenset[str]:
    """Look at the names that the loops of one frame carry; return the globals that they set.

    asks: whether it asks for the batches. An outer one has read its names by then, so nothing
    that comes back would reach what it calls.
    """
    carried, bound = names(frame)
    if asks:
        carried |= _asked_at(frame.f_code.co_filename, frame.f_lineno)
    is_module = frame.f_locals is frame.f_globals
    owner = frame.f_globals if is_module and asks else None
    for name in sorted(beside(frame, runs=asks) & frame.f_locals.keys()):
        reach.place(f"{name} ({BESIDE})", frame.f_locals[name])
    for name in sorted(carried & frame.f_locals.keys()):
        value = frame.f_locals[name]
        is_constant = name not in bound and type(value) in PLAIN  # no turn sets it
        if not is_constant or type(value) is float:  # that is a measure
            reach.scopes[name] = 0 if is_module else frame.f_code.co_firstlineno
            reach.take(name, "the loop", owner, name, value)
    return bound if is_module else frozenset()


def _read_after(code: ast.AST, loop: Loop) -> set[str]:
    """Return the names that code reads behind a loop."""
    end = loop.end_lineno or loop.lineno
    nodes = (node for node in ast.walk(code) if isinstance(node, ast.Name))
    return {node.id for node in nodes if isinstance(node.ctx, ast.Load) and node.lineno > end}


def _innermost(statements: Iterable[Statement], line: int) -> Statement | None:
    """Return the innermost statement at a line, of those that a walk from the outside yields."""
    around = [one for one in statements if _holds(one, line)]
    return max(reversed(around), key=lambda one: one.lineno, default=None)


class _Body:
    """Names that statements read before they set them, and names that they set for certain."""

    def __init__(self, done: set[str] | None = None) -> None:
        """``done``: names that are set before."""
        self.read: set[str] = set()
        self.done: set[str] = set(done or ())

    def of(self, statements: Iterable[ast.stmt]) -> _Body:
        for statement in statements:
            self._add(statement)
        return self

    def _add(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.If):
            self._reads(_read_by(statement.test))
            self.done |= _set_within(statement.test)
            self._branches([statement.body, statement.orelse])
        elif isinstance(statement, ast.For) and _is_within_a_step(statement):
            self._reads(_read_by(statement.iter))
            self.done |= _names(statement.target, ast.Store)
            self._surely(statement.body)
        elif isinstance(statement, ast.For | ast.AsyncFor):
            self._reads(_read_by(statement.iter))
            self._maybe(statement.body, _names(statement.target, ast.Store))
            self._maybe(statement.orelse, set())
        elif isinstance(statement, ast.While):
            self._reads(_read_by(statement.test))
            self.done |= _set_within(statement.test)
            self._maybe(statement.body, set())
            self._maybe(statement.orelse, set())
        elif isinstance(statement, ast.With | ast.AsyncWith):
            for item in statement.items:
                self._reads(_read_by(item.context_expr))
                if item.optional_vars is not None:
                    self.done |= _names(item.optional_vars, ast.Store)
            self._surely(statement.body)
        elif isinstance(statement, ast.Try):
            self._branches([statement.body, *(handler.body for handler in statement.handlers)])
            for part in (statement.orelse, statement.finalbody):
                inner = _Body().of(part)
                self._reads(inner.read)
                self.done |= inner.done
        elif isinstance(statement, ast.Match):
            self._reads(_read_by(statement.subject))
            for case in statement.cases:
                self._maybe(case.body, _names(case.pattern, ast.Store))
        else:
            self._reads(_read_by(statement))
            self.done |= _names(statement, ast.Store) | _defined_by(statement)

    def _reads(self, found: set[str]) -> None:
        self.read |= found - self.done

    def _branches(self, bodies: list[list[ast.stmt]]) -> None:
        inner = [_Body().of(body) for body in bodies]
        for one in inner:
            self._reads(one.read)
        self.done |= set.intersection(*(one.done for one in inner))

    def _surely(self, body: list[ast.stmt]) -> None:
        inner = _Body().of(body)
        self._reads(inner.read)
        self.done |= inner.done

    def _maybe(self, body: list[ast.stmt], bound: set[str]) -> None:
        self._reads(_Body().of(body).read - bound)


def _read_by(node: ast.AST) -> set[str]:
    """Return the names that an expression or a simple statement reads from outside of it."""
    own: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.comprehension):
            own |= _names(inner.target, ast.Store)
        elif isinstance(inner, ast.Lambda):
            own |= {argument.arg for argument in inner.args.args}
    added = {
        inner.target.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.AugAssign) and isinstance(inner.target, ast.Name)
    }
    return (_names(node, ast.Load) | added) - own


def _set_within(code: ast.AST) -> set[str]:
    """Return the names that an expression sets, whatever its parts are."""
    inner = list(ast.walk(code))
    if any(isinstance(one, ast.BoolOp | ast.IfExp) for one in inner):
        return set()
    return {one.target.id for one in inner if isinstance(one, ast.NamedExpr)}


def _defined_by(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(one.asname or one.name).partition(".")[0] for one in statement.names}
    return {statement.name} if isinstance(statement, Function | ast.ClassDef) else set()


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, context)
    }
