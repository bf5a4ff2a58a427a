"""Whose an object is: the script's, a framework's, or of a library whose state is not looked at.

Does: tells by the class and its module; names the attributes that a framework sets, or that mean
something in one process or at one moment alone.
"""

from __future__ import annotations

import ast
import functools
import itertools
import sys
import types
from collections.abc import Iterator
from typing import Any

from reshape_sidecar.hook import script_code
from reshape_sidecar.verdict import influence

FRAMEWORKS = frozenset({"torch", "transformers", "lightning", "pytorch_lightning"})
"""Packages whose own state a checkpoint holds already, as far as it is of training."""
CLOSED = FRAMEWORKS | {
    *("accelerate", "lightning_fabric", "lightning_utilities", "datasets", "tokenizers", "numpy"),
    *("huggingface_hub", "safetensors", "pandas", "pyarrow", "PIL", "matplotlib"),
    *("reshape_sidecar", "_reshape_hook"),
    *(
        "tensorflow",
        "keras",
        "jax",
        "tqdm",
        "rich",
        "wandb",
        "mlflow",
        "tensorboard",
        "tensorboardX",
    ),
    *(
        "comet_ml",
        "neptune",
        "clearml",
        "aim",
        "trackio",
        "loguru",
        "torchmetrics",
    ),
}
"""Packages whose objects are not entered: frameworks, data, and what shows training to people."""
OPEN_TYPES = (
    *("types.SimpleNamespace", "argparse.Namespace"),
    *("collections.UserDict", "collections.UserList", "collections.ChainMap", "_thread._local"),
    "torch.quasirandom.SobolEngine",
)
DATA_PACKAGE = "torch.utils.data"


def is_open(value: Any) -> bool:
    """Return whether the attributes of an object are looked at."""
    kind = type(value)
    if script_code.of_script(kind) or f"{kind.__module__}.{kind.__qualname__}" in OPEN_TYPES:
        return True
    root = root_of(kind)
    if kind.__module__.startswith(DATA_PACKAGE):
        return True
    return root not in CLOSED and root not in sys.stdlib_module_names and root != "builtins"


def root_of(kind: type) -> str:
    """Return the package of a class."""
    return (kind.__module__ or "").partition(".")[0]


@functools.lru_cache(maxsize=1)
def modules_of_script(_count: int) -> tuple[tuple[str, types.ModuleType], ...]:
    """Return the script and the modules beside it, by the names under which they are imported.

    ``_count``: how many modules are imported.
    """
    found = list(sys.modules.items())
    return tuple((name, module) for name, module in found if _is_of_script(name, module))


def files_of_script() -> frozenset[str]:
    """Return the files of the script and of the modules beside it."""
    found = (getattr(one, "__file__", None) for _, one in modules_of_script(len(sys.modules)))
    return frozenset(file for file in found if file is not None)


@functools.lru_cache(maxsize=1)
def words_of_script(_count: int) -> frozenset[str]:
    """Return the words that the script and the modules beside it hold as constants.

    ``_count``: how many modules are imported.
    """
    found: set[str] = set()
    for file in files_of_script():
        constants = (node.value for node in _nodes_of(file) if isinstance(node, ast.Constant))
        found |= {one for one in constants if isinstance(one, str) and " " not in one}
    return frozenset(found)


@functools.lru_cache(maxsize=1)
def patched_by_script(_count: int) -> tuple[tuple[str, types.ModuleType | type, str], ...]:
    """Return what the script's code sets in modules and classes of others: how it writes that,
    the module or class, the name.

    ``_count``: how many modules are imported.
    """
    found: dict[str, tuple[str, types.ModuleType | type, str]] = {}
    for _, module in modules_of_script(len(sys.modules)):
        for node in _nodes_of(getattr(module, "__file__", None)):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
                continue
            owner: Any = module
            for name in ast.unparse(node.value).split("."):
                owner = getattr(owner, name, None)
            is_module = isinstance(owner, types.ModuleType)
            is_others = is_module and not _is_of_script(owner.__name__, owner)
            if is_others or (isinstance(owner, type) and not script_code.of_script(owner)):
                path = ast.unparse(node)
                found[path] = path, owner, node.attr
    return tuple(found.values())


@functools.lru_cache(maxsize=1)
def attributes_of_others(_count: int) -> frozenset[str]:
    """Return the names of attributes that the script's code sets on objects but ``self``.

    ``_count``: how many modules are imported.
    """
    nodes = [node for file in files_of_script() for node in _nodes_of(file)]
    return frozenset(
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ) | frozenset(
        str(call.args[1].value)
        for call in nodes
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", None) == "setattr"
        and len(call.args) > 1
        and isinstance(call.args[1], ast.Constant)
    )


def functions_set(part: Any) -> list[str]:
    """Return the names of functions that the script's code has set on a part of a model."""
    names = attributes_of_others(len(sys.modules)) & vars(part).keys()
    return [name for name in sorted(names) if callable(vars(part)[name])]


def _nodes_of(file: str | None) -> Iterator[ast.AST]:
    """Yield the nodes of a file's code; none if it cannot be read."""
    if file is not None and (tree := script_code.tree_of(file)) is not None:
        yield from ast.walk(tree)


def _is_of_script(name: str, module: Any) -> bool:
    if not isinstance(module, types.ModuleType) or name.partition(".")[0] in CLOSED:
        return False
    if name == "__main__" or module.__name__ == "__main__":
        return name == module.__name__
    file = getattr(module, "__file__", None)
    return file is not None and script_code.of_script_file(file)


@functools.cache
def names_of_library(kind: type) -> frozenset[str]:
    """Return the attributes that the frameworks' own classes of an object set."""
    if f"{kind.__module__}.{kind.__qualname__}" in OPEN_TYPES:
        return frozenset()
    own = FRAMEWORKS | {"threading", "multiprocessing"}
    of_framework = script_code.methods(kind, lambda one: root_of(one) in own)
    return frozenset(name for function in of_framework for name in _set_on_self(function))


def _set_on_self(function: types.FunctionType) -> set[str]:
    own = function.__code__.co_varnames[:1]
    steps = script_code.steps(function.__code__)
    return {
        str(after.argval)
        for before, after in itertools.pairwise(steps)
        if after.opname == "STORE_ATTR" and before.opname == "LOAD_FAST" and before.argval in own
    }


@functools.cache
def names_of_moment(kind: type) -> frozenset[str]:
    """Return the attributes that a class sets to numbers of its process, or of a clock.

    A value of a clock that can change training is none of them: then it may be a count beside one.
    """
    found: set[str] = set()
    files = files_of_script()
    for function in script_code.methods(kind):
        found |= script_code.process_names(function)
        clock = script_code.clock_names(function)
        found |= {name for name in clock if not influence.steers(f".{name}", files)}
    return frozenset(found)


def is_iterator(value: Any) -> bool:
    """Return whether a value is an iterator whose attributes are not the script's."""
    return hasattr(type(value), "__next__") and not script_code.of_script(type(value))


def kind_of(value: Any) -> list[str]:
    """Return the class of an optimizer or schedule, and the functions that make its rates."""
    codes = [getattr(one, "__code__", None) for one in getattr(value, "lr_lambdas", ())]
    lines = [f"{one.co_filename}:{one.co_firstlineno}" for one in filter(None, codes)]
    return [type(value).__qualname__, *lines]


def saves_itself(value: Any) -> bool:
    """Return whether a value has a state that it returns and takes."""
    kind = type(value)
    return all(callable(getattr(kind, name, None)) for name in ("state_dict", "load_state_dict"))


def settings_of_torch() -> list[str]:
    """Return what PyTorch computes in, as far as a script may set it."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_default_dtype"):
        return []
    return [str(torch.get_default_dtype()), torch.get_float32_matmul_precision()]


def modes_of_torch() -> list[Any]:
    """Return the modes that see each function of PyTorch now."""
    overrides = sys.modules.get("torch.overrides")
    asks = getattr(overrides, "_get_current_function_mode_stack", None)
    return list(asks()) if asks is not None else []
