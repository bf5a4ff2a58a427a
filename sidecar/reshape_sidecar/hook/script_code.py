"""Tells the script's own classes and functions from those of libraries, and reads what they name.

Does: classifies by the file of the code; yields the outer names that a function loads or assigns.
It runs no code of the script.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from typing import Any

LIBRARY_PARTS = ("site-packages", "dist-packages", "reshape_sidecar")
GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL"})


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


@functools.cache
def _of_script_file(file: str) -> bool:
    if file.startswith("<frozen") or file.startswith(_library_folders()):
        return False
    return not any(part in file for part in LIBRARY_PARTS)


def of_script(thing: Any) -> bool:
    """Return whether a class or a function of Python is the script's own."""
    if isinstance(thing, types.FunctionType):
        return _of_script_file(thing.__code__.co_filename)
    name = getattr(thing, "__module__", None)
    if not isinstance(thing, type) or name in (None, "builtins"):
        return False
    module = sys.modules.get(str(name))
    if module is None:  # of a script that another one runs
        return True
    file = getattr(module, "__file__", None)
    return name == "__main__" if file is None else _of_script_file(file)


def methods(kind: type) -> Iterator[types.FunctionType]:
    """Yield the functions in a class and its bases that are the script's own."""
    for one in kind.__mro__:
        if of_script(one):
            for value in list(vars(one).values()):
                inner = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if isinstance(inner, types.FunctionType):
                    yield inner


def code_of(function: types.FunctionType) -> Iterator[types.CodeType]:
    """Yield the code of a function and that of the functions inside of it."""
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [one for one in code.co_consts if isinstance(one, types.CodeType)]


def outer_names(function: types.FunctionType) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield each global, enclosed and default value that a function uses: its name and a getter.

    The getter raises KeyError or ValueError while the name has no value.
    """
    space = function.__globals__
    known = {""}
    for code in code_of(function):
        for instruction in dis.get_instructions(code):
            name = str(instruction.argval)
            if instruction.opname in GLOBALS and name in space and name not in known:
                known.add(name)
                yield name, functools.partial(space.__getitem__, name)
                yield from _of_module(name, space[name], code.co_names)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, functools.partial(getattr, cell, "cell_contents")
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield f"a default of {function.__name__}", functools.partial(itself, value)


def _of_module(
    name: str, value: Any, attributes: tuple[str, ...]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the attributes that code may use of ``value``, a module of the script."""
    file = getattr(value, "__file__", None)
    if isinstance(value, types.ModuleType) and file is not None and _of_script_file(file):
        for attribute in attributes:
            if attribute in vars(value):
                getter = functools.partial(vars(value).__getitem__, attribute)
                yield f"{name}.{attribute}", getter


def class_values(kind: type) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the values in a class of the script and its bases: the name and a getter of each."""
    for one in kind.__mro__:
        if of_script(one):
            for name, value in list(vars(one).items()):
                if not name.startswith("__") and not hasattr(type(value), "__get__"):
                    yield f"{one.__name__}.{name}", functools.partial(vars(one).__getitem__, name)


def value_of(getter: Callable[[], Any]) -> Any:
    """Return the value of a getter; None while there is none."""
    with contextlib.suppress(KeyError, ValueError, AttributeError):
        return getter()
    return None


def itself(value: Any) -> Any:
    """Return the value: with ``functools.partial``, a getter of a value that has no name."""
    return value


def functions_in(value: Any) -> Iterator[types.FunctionType]:
    """Yield the script's functions behind a callable: a partial, a method, a callable object."""
    if isinstance(value, functools.partial):
        yield from functions_in(value.func)
    elif isinstance(value, types.MethodType):
        yield from functions_in(value.__func__)
    elif isinstance(value, types.FunctionType):
        inner = getattr(value, "__wrapped__", None)
        if isinstance(inner, types.FunctionType):
            yield from functions_in(inner)
        if of_script(value):
            yield value
