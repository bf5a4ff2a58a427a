"""Random draws in the ``__getitem__`` of a PyDataset that several workers read.

Does: reads the code of the method and of the script's functions that it uses, without running it.
Draws from a generator that the code makes from a seed of its own, by index say, are no such draws.
"""

from __future__ import annotations

import dis
import random
import sys
import types
from collections.abc import Iterator
from typing import Any

from reshape_sidecar.hook import script_code

AUGMENTING = frozenset(
    {"albumentations", "audiomentations", "imgaug", "keras_cv", "torchvision", "torchaudio"}
)
"""Libraries whose objects draw random numbers when they are called."""
MAKERS = frozenset(
    {"default_rng", "RandomState", "Random", "Generator", "SeedSequence", "PCG64", "MT19937"}
)
"""Functions that make a generator; without an argument they take their seed from the system."""
GENERATORS = frozenset(
    {"numpy.Generator", "numpy.RandomState", "keras.SeedGenerator", "tensorflow.Generator"}
)
"""Package and type of generators of random numbers."""
SEEDING = frozenset({"seed", "set_seed", "set_random_seed"})
NO_DRAWS = ("stateless_", "get_", "set_", "from_")
FUNCTIONS_MAX = 100
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_NOTHING = object()


def found(dataset: Any) -> list[str]:
    """Return the names of what draws when ``dataset`` makes a batch, sorted."""
    method = getattr(type(dataset), "__getitem__", None)
    waiting = list(script_code.functions_in(method))
    known: set[types.FunctionType] = set(waiting)
    names: set[str] = set()
    for _ in range(FUNCTIONS_MAX):
        if not waiting:
            break
        for name, value, unseeded in _used(waiting.pop(), dataset):
            if _draws(name, value, unseeded=unseeded):
                names.add(name)
            for function in script_code.functions_in(value):
                if function not in known:
                    known.add(function)
                    waiting.append(function)
    return sorted(names)


def _used(function: types.FunctionType, dataset: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield what the code loads: its dotted name, its value, and whether it has no argument."""
    values = {place.name: place for place in script_code.outer_names(function)}
    for code in script_code.code_of(function):
        own = code.co_varnames[0] if code.co_argcount else ""
        imported: dict[str, Any] = {}
        chain, value = "", _NOTHING
        steps = list(script_code.steps(code))
        for number, step in enumerate(steps):
            name = str(step.argval)
            if step.opname in _ATTRIBUTES and value is not _NOTHING:
                chain, value = f"{chain}.{name}", _attribute(value, name)
            elif step.opname in _LOADS and name in values:
                chain, value = name, values[name].value()
            elif step.opname.startswith("LOAD_FAST") and name in imported:
                chain, value = name, imported[name]
            elif step.opname.startswith("LOAD_FAST") and name == own:
                chain, value = name, dataset
            elif step.opname == "IMPORT_NAME":
                chain, value = name, sys.modules.get(name.partition(".")[0], _NOTHING)
            elif step.opname == "STORE_FAST" and value is not _NOTHING:
                imported[name] = value
                value = _NOTHING
            else:
                value = _NOTHING
            if value is not _NOTHING and value is not dataset:
                yield chain, value, _is_called_bare(steps, number)


def _attribute(value: Any, name: str) -> Any:
    """Return an attribute without running a property of the script."""
    if script_code.of_script(type(value)) and isinstance(
        getattr(type(value), name, None), property
    ):
        return getattr(type(value), name).fget
    try:
        return getattr(value, name, _NOTHING)
    except Exception:
        return _NOTHING


def _is_called_bare(steps: list[dis.Instruction], number: int) -> bool:
    """Return whether the value that step ``number`` loads is called without an argument."""
    for step in steps[number + 1 : number + 4]:
        if step.opname.startswith("CALL"):
            return bool(step.argval == 0)
        if step.opname not in ("PRECALL", "PUSH_NULL", "CACHE"):
            return False
    return False


def _draws(name: str, value: Any, *, unseeded: bool) -> bool:
    last = name.rpartition(".")[2]
    if last in SEEDING or last.startswith(NO_DRAWS):
        return False
    if last in MAKERS:
        return unseeded
    if isinstance(value, type | types.ModuleType):
        return False
    if is_generator(value) or isinstance(value, random.SystemRandom):
        return True
    if type(value).__module__.partition(".")[0] in AUGMENTING:
        return True
    return is_generator(getattr(value, "__self__", None)) or _of_framework(value)


def is_generator(value: Any) -> bool:
    """Return whether a value draws random numbers from a state of its own; layers may do so."""
    if isinstance(value, random.Random):
        return not isinstance(value, random.SystemRandom)
    if isinstance(value, type):
        return False
    kind = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
    return kind in GENERATORS or bool(list(seeds(value)))


def seeds(layer: Any) -> Iterator[Any]:
    """Yield the seed variables of a layer and of the layers in it."""
    flatten = getattr(layer, "_flatten_layers", None)
    for one in flatten() if callable(flatten) else ():
        for generator in getattr(one, "_seed_generators", None) or ():
            yield generator.state


def _of_framework(value: Any) -> bool:
    """Return whether a function is one of ``tf.random`` or ``keras.random``."""
    module = str(getattr(value, "__module__", ""))
    return module.startswith(
        ("tensorflow.python.ops.random_ops", "keras.src.random.random", "keras.random")
    )
