"""How a PyTorch script trains on several GPUs, read from its text.

Does: parses the text and looks for the calls that tell. It imports and runs nothing of it.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

SESSION = "reshape_sidecar.session"
_PROCESSES = ("multiprocessing", "torch.multiprocessing")
_STARTS = ("Process", "spawn", "start_processes", "ProcessContext")
_LAUNCHES = (
    "accelerate.notebook_launcher",
    "accelerate.debug_launcher",
    "accelerate.launchers.notebook_launcher",
    "torch.distributed.run.main",
    "torch.distributed.launcher.api.elastic_launch",
)
_HUGGING_FACE = ("Trainer", "Seq2SeqTrainer")
_LIGHTNING = tuple(
    f"{package}.{name}"
    for package in ("lightning", "lightning.pytorch", "pytorch_lightning")
    for name in ("Trainer", "cli.LightningCLI")
)
_ALL_DEVICES = ("auto", "-1", -1)
_GROUP = "init_process_group"
_GROUP_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


class Form(StrEnum):
    """How a script trains."""

    BATCHES = "calls job.batches"
    TRAINER = "has a Trainer of Hugging Face"
    LIGHTNING = "has a Trainer of Lightning"
    GROUP = "joins a process group from the environment"
    SESSION = "calls the session API"
    OWN = "starts processes itself"
    OWN_COUNT = "has a number of processes of its own"
    NONE = "joins no process group"


UNDERSTOOD = (Form.BATCHES, Form.TRAINER, Form.LIGHTNING, Form.GROUP)
"""Forms that train in one process per GPU, on any number of GPUs."""
ALONE = (Form.SESSION, Form.OWN, Form.OWN_COUNT)
"""Forms that may count on a process that knows itself to be the first or the only one."""

_FIRST = (
    Form.OWN,
    Form.OWN_COUNT,
    Form.BATCHES,
    Form.TRAINER,
    Form.LIGHTNING,
    Form.SESSION,
    Form.GROUP,
)
"""Forms of one script, the one that counts first. With the session API one process may have the
session alone, so a process group beside it says nothing."""


@dataclass(frozen=True, slots=True)
class Found:
    """The form of a script, and the line that tells."""

    form: Form
    line: int | None = None

    @property
    def text(self) -> str:
        """Return the form and the line."""
        return f"{self.form} (line {self.line})" if self.line else str(self.form)


class Unreadable(ValueError):
    """The text is no Python that this version reads."""


@functools.lru_cache(maxsize=8)
def form_of(source: bytes) -> Found:
    """Return the form of a script's text, which members of an array share. Raises Unreadable."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(type(error).__name__) from None
    nodes = list(ast.walk(tree))
    names = _names(nodes)
    calls = [(_dotted(node.func, names), node) for node in nodes if isinstance(node, ast.Call)]
    numbered = any(isinstance(n, ast.Constant) and n.value in _GROUP_VARIABLES for n in nodes)
    found: dict[Form, int | None] = {
        form: line
        for name, call in reversed(calls)
        for form, line in _of_call(name, call, names, numbered=numbered)
    }
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            bases = [_dotted(base, names) for base in node.bases]
            if any(_is_hugging_face(base) for base in bases):
                found.setdefault(Form.TRAINER, node.lineno)
    if SESSION in names.values():
        found[Form.SESSION] = None
    return next((Found(form, found[form]) for form in _FIRST if form in found), Found(Form.NONE))


def _names(nodes: list[ast.AST]) -> dict[str, str]:
    """Return the dotted module or object that each name stands for."""
    names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or whole] = whole
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in nodes:
        match node:
            case ast.Assign([ast.Name(target)], ast.Call(func)):
                if _dotted(func, names).endswith("multiprocessing.get_context"):
                    names[target] = _PROCESSES[0]
    return names


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    """Return ``a.b.c`` with its first name resolved; empty for another expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ".".join(["", *reversed(parts)])
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


def _of_call(
    name: str, call: ast.Call, names: dict[str, str], *, numbered: bool
) -> Iterator[tuple[Form, int]]:
    module, _, last = name.rpartition(".")
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if (last in _STARTS and module in _PROCESSES) or name in _LAUNCHES:
        yield Form.OWN, call.lineno
    elif last == "batches" and SESSION in names.values() and "model" in given:
        yield Form.BATCHES, call.lineno
    elif _is_hugging_face(name):
        yield Form.TRAINER, call.lineno
    elif name in _LIGHTNING:
        counts = [given[key] for key in ("devices", "num_nodes") if key in given]
        is_own = any(_constant(value) not in _ALL_DEVICES for value in counts)
        yield Form.OWN_COUNT if is_own else Form.LIGHTNING, call.lineno
    elif last == _GROUP and module in ("torch.distributed", "dist", "distributed"):
        own = {"rank", "world_size", "store"} & given.keys() or len(call.args) > 1
        method = _constant(given["init_method"]) if "init_method" in given else "env://"
        is_own = "store" in given or method != "env://" or (own and not numbered)
        yield Form.OWN_COUNT if is_own else Form.GROUP, call.lineno


def _is_hugging_face(name: str) -> bool:
    package, _, rest = name.partition(".")
    return package == "transformers" and rest.rpartition(".")[2] in _HUGGING_FACE


def _constant(node: ast.expr) -> object:
    """Return the value of a constant, with its sign; None for another expression."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand)
        return -value if isinstance(value, int) else None
    return node.value if isinstance(node, ast.Constant) else None
