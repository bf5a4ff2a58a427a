"""Tells the script's own classes and functions from those of libraries, and reads what they name.

Does: classifies by the file of the code; yields the outer names that a function loads or assigns.
It runs no code of the script.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import itertools
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from reshape_sidecar import foreign

LIBRARY_PARTS = ("site-packages", "dist-packages", "reshape_sidecar")
STORES = frozenset({"STORE_GLOBAL", "STORE_NAME", "STORE_DEREF", "STORE_ATTR"})
GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL"})
NAMES = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_METHOD", "LOAD_ATTR"})
CONSTANTS = frozenset(
    {"LOAD_CONST", "LOAD_SMALL_INT", "UNPACK_SEQUENCE", "COPY", "SWAP", "NOP", "RESUME"}
)
"""Instructions that make or move constants."""
_JOINED = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
"""Instructions of Python 3.13 and later that do the work of two."""
OF_PROCESS = frozenset(
    {
        *("fileno", "dup", "dup2", "pipe", "pipe2", "openpty", "memfd_create", "eventfd"),
        *("getpid", "getppid", "get_ident", "get_native_id", "getsockname"),
    }
)
"""Functions, beside ``os.open``, whose numbers mean something in one process alone."""
CLOCK = frozenset({"time", "perf_counter", "monotonic", "process_time", "time_ns", "now", "utcnow"})
"""Functions whose results mean something at their moment alone."""
CONSTANT = (types.ModuleType, bool, int, float, complex, str, bytes)
"""Types of globals that a function may read and still return the same each time."""
WRAPPED = functools._lru_cache_wrapper
"""The type of a function whose results are cached."""


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A name of the script that holds a value."""

    name: str
    """The name to show."""
    owner: Any
    """The dictionary, cell, class or object that holds it; None for a value without a name."""
    key: str = ""
    alone: Any = None
    """The value without a name: a default, say."""

    def value(self) -> Any:
        """Return the value; None while there is none."""
        with contextlib.suppress(KeyError, ValueError, AttributeError):
            if self.owner is None:
                return self.alone
            if isinstance(self.owner, types.CellType):
                return self.owner.cell_contents
            if isinstance(self.owner, dict):
                return self.owner[self.key]
            if isinstance(self.owner, type):
                return vars(self.owner)[self.key]
            held = getattr(self.owner, "__dict__", {})
            return held[self.key] if self.key in held else attributes(self.owner)[self.key]
        return None

    def rebind(self, value: Any) -> None:
        """Let the name hold ``value``; do nothing if there is no name."""
        if isinstance(self.owner, types.CellType):
            self.owner.cell_contents = value
        elif isinstance(self.owner, dict):
            self.owner[self.key] = value
        elif self.owner is not None:
            setattr(self.owner, self.key, value)

    def identity(self) -> tuple[int, str]:
        """Return what tells two places with the same name apart."""
        return id(self.alone if self.owner is None else self.owner), self.key


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


@functools.cache
def of_script_file(file: str) -> bool:
    """Return whether a file of code is the script's own, and of no library."""
    if file.startswith("<frozen") or file.startswith(_library_folders()):
        return False
    return not any(part in file for part in LIBRARY_PARTS)


@functools.cache
def tree_of(file: str) -> ast.Module | None:
    """Return the syntax tree of a file of the script; None if it cannot be read."""
    try:
        return ast.parse(foreign.read(file, foreign.SCRIPT_BYTES_MAX))
    except (OSError, SyntaxError, ValueError):
        return None


def of_script(thing: Any) -> bool:
    """Return whether a class or a function of Python is the script's own."""
    if isinstance(thing, types.FunctionType):
        return of_script_file(thing.__code__.co_filename)
    name = getattr(thing, "__module__", None)
    if not isinstance(thing, type) or name in (None, "builtins"):
        return False
    module = sys.modules.get(str(name))
    if module is None:  # of a script that another one runs
        return True
    file = getattr(module, "__file__", None)
    return name == "__main__" if file is None else of_script_file(file)


def methods(kind: type, own: Callable[[type], bool] = of_script) -> Iterator[types.FunctionType]:
    """Yield the functions in a class and those of its bases that are the script's ``own``."""
    for one in kind.__mro__:
        if own(one):
            for value in list(vars(one).values()):
                inner = getattr(value, "fget", None) or getattr(value, "__func__", value)
                inner = inner.__wrapped__ if isinstance(inner, WRAPPED) else inner
                if isinstance(inner, types.FunctionType):
                    yield inner


def code_of(function: types.FunctionType) -> Iterator[types.CodeType]:
    """Yield the code of a function and that of the functions inside of it."""
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [one for one in code.co_consts if isinstance(one, types.CodeType)]


def steps(code: types.CodeType) -> Iterator[dis.Instruction]:
    """Yield the instructions of ``code`` as Python 3.11 has them: each names one local variable."""
    for step in dis.get_instructions(code):
        if step.opname in _JOINED:
            first, second = _JOINED[step.opname]
            yield step._replace(opname=first, argval=step.argval[0])
            yield step._replace(opname=second, argval=step.argval[1], starts_line=None)
        elif step.opname == "LOAD_FAST_BORROW":
            yield step._replace(opname="LOAD_FAST")
        else:
            yield step


def outer_names(function: types.FunctionType) -> Iterator[Place]:
    """Yield each global, enclosed and default value that a function uses."""
    space = function.__globals__
    known = {""}
    for code in code_of(function):
        for instruction in steps(code):
            name = str(instruction.argval)
            named = instruction.opname in GLOBALS and name not in known
            if named and (name in space or instruction.opname == "STORE_GLOBAL"):
                known.add(name)
                yield Place(name, space, name)
                yield from _of_module(name, space.get(name), code.co_names)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield Place(name, cell)
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield Place(f"a default of {function.__name__}", None, alone=value)


def is_pure(function: Any, known: frozenset[str] = frozenset()) -> bool:
    """Return whether a function reads its arguments and constants alone, as far as its code shows.

    ``known``: names of the functions around it.
    """
    code = getattr(function, "__code__", None)
    if code is None or code.co_freevars or "self" in code.co_varnames[: code.co_argcount]:
        return False
    for step in steps(code):
        if step.opname != "LOAD_GLOBAL" or step.argval in known:
            continue
        value = function.__globals__.get(step.argval)
        inner = getattr(value, "__wrapped__", value)
        if of_script(inner) and isinstance(inner, types.FunctionType):
            if not is_pure(inner, known | {step.argval}):
                return False
        elif of_script(inner) or not (
            value is None or callable(value) or isinstance(value, CONSTANT)
        ):
            return False
    return True


def stored_names(function: types.FunctionType) -> set[str]:
    """Return the global, enclosed and attribute names that a function binds."""
    return {
        str(instruction.argval)
        for code in code_of(function)
        for instruction in steps(code)
        if instruction.opname in STORES
    }


def counted_names(function: types.FunctionType) -> set[str]:
    """Return the global, enclosed and attribute names that a function counts on, as ``+=`` does."""
    found: set[str] = set()
    for code in code_of(function):
        before: list[dis.Instruction] = []
        for step in steps(code):
            counts = any(one.opname == "BINARY_OP" and one.argrepr[-1:] == "=" for one in before)
            if counts and step.opname in STORES:
                found.add(str(step.argval))
            before = [*before[-1:], step]
    return found


def process_names(function: types.FunctionType) -> set[str]:
    """Return the names that a function binds to a number of its process, as a descriptor is."""
    return {
        str(step.argval)
        for code in code_of(function)
        for line in _lines(code)
        if _asks_for_number_of_process(line)
        for step in line
        if step.opname in STORES
    }


def clock_names(function: types.FunctionType) -> set[str]:
    """Return the names that a function binds to what a clock says."""
    found: set[str] = set()
    for code in code_of(function):
        loads: set[str] = set()
        has_stored = False
        for step in steps(code):
            if has_stored and step.opname not in STORES | CONSTANTS:
                loads = set()  # a statement ends with what it binds
            has_stored = step.opname in STORES
            if step.opname in NAMES:
                loads.add(str(step.argval))
            elif has_stored and not CLOCK.isdisjoint(loads):
                found.add(str(step.argval))
    return found


def _asks_for_number_of_process(line: list[dis.Instruction]) -> bool:
    loads = [str(step.argval) for step in line if step.opname in NAMES]
    return not OF_PROCESS.isdisjoint(loads) or ("os", "open") in itertools.pairwise(loads)


def switches(functions: Iterable[types.FunctionType]) -> set[str]:
    """Return the names that the ``functions`` bind to constants alone, as code does with flags."""
    constant: set[str] = set()
    other: set[str] = set()
    for function in functions:
        for code in code_of(function):
            for line in _lines(code):
                names = {str(step.argval) for step in line if step.opname in STORES}
                (constant if _binds_constants(line, code) else other).update(names)
    return constant - other


def _lines(code: types.CodeType) -> Iterator[list[dis.Instruction]]:
    line: list[dis.Instruction] = []
    for step in steps(code):
        if step.starts_line and line:
            yield line
            line = []
        line.append(step)
    yield line


def _binds_constants(line: list[dis.Instruction], code: types.CodeType) -> bool:
    """Return whether a line has constants on the right; the object of an attribute may be local."""
    own = code.co_varnames[:1]
    last = max((n for n, step in enumerate(line) if step.opname in STORES), default=0)
    for step, following in itertools.pairwise(line[: last + 1]):
        holder = step.opname == "LOAD_GLOBAL" or (step.opname == "LOAD_FAST" and step.argval in own)
        if holder and following.opname == "STORE_ATTR":
            continue
        if step.opname not in CONSTANTS | STORES:
            return False
    return True


def _of_module(name: str, value: Any, names: tuple[str, ...]) -> Iterator[Place]:
    """Yield the attributes that code may use of ``value``, a module of the script."""
    file = getattr(value, "__file__", None)
    if isinstance(value, types.ModuleType) and file is not None and of_script_file(file):
        for attribute in names:
            if attribute in vars(value):
                yield Place(f"{name}.{attribute}", vars(value), attribute)


def class_values(kind: type, own: Callable[[type], bool] = of_script) -> Iterator[Place]:
    """Yield the values in a class and those of its bases that are the script's ``own``."""
    for one in kind.__mro__:
        if own(one):
            for name, value in list(vars(one).items()):
                if not name.startswith("__") and not hasattr(type(value), "__get__"):
                    yield Place(f"{one.__name__}.{name}", one, name)


def attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, those in ``__slots__`` among them."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        for name, one in vars(kind).items():
            if isinstance(one, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # a slot without a value
                    found[name] = one.__get__(value)
    return found


def functions_in(value: Any) -> Iterator[types.FunctionType]:
    """Yield the script's functions behind a callable: a partial, a method, a callable object."""
    if isinstance(value, functools.partial):
        yield from functions_in(value.func)
    elif isinstance(value, types.MethodType):
        yield from functions_in(value.__func__)
    elif isinstance(value, WRAPPED):
        yield from functions_in(value.__wrapped__)
    elif isinstance(value, types.FunctionType):
        inner = getattr(value, "__wrapped__", None)
        if isinstance(inner, types.FunctionType):
            yield from functions_in(inner)
        if of_script(value):
            yield value
