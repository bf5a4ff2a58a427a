"""How a PyTorch script trains on several GPUs, read from its text.

Does: parses the text and looks for the calls that tell, by the definitions in which they stand.
It imports and runs nothing of it.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
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
_ACCELERATOR = ("accelerate.Accelerator", "accelerate.accelerator.Accelerator")
_HUGGING_FACE = ("transformers", "trl", "sentence_transformers")
"""Packages whose classes with a name that ends in ``Trainer`` are Trainers of Hugging Face."""
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
IN_MICRO_BATCHES = (Form.BATCHES, Form.TRAINER, Form.LIGHTNING)
"""Forms that can keep the samples of a micro-batch together."""
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
    place: str = ""
    """File of the line; empty: the script's own."""

    @property
    def text(self) -> str:
        """Return the form and the line."""
        line = f"line {self.line}" if self.line else ""
        where = ", ".join(filter(None, (self.place, line)))
        return f"{self.form} ({where})" if where else str(self.form)


class Unreadable(ValueError):
    """The text is no Python that this version reads."""


TOP, MAIN = "", "__main__"
"""Units of the other statements: those of every import, and those of a script alone."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A definition at the top of a module, or its other statements."""

    forms: Mapping[Form, int | None]
    """Forms that its calls show, with the line of the first."""
    uses: frozenset[str]
    """Dotted names that it mentions, those of imports as they are called elsewhere."""
    imports: frozenset[str]
    """Dotted modules that it imports, or their names."""
    calls: tuple[tuple[str, ast.Call | ast.ClassDef], ...]
    """What it calls or derives from of other modules, which may stand for something else there."""


@dataclass(frozen=True, slots=True)
class Module:
    """What the text of a module shows."""

    units: Mapping[str, Unit]
    names: Mapping[str, str]
    """Dotted module or object that each imported name stands for."""
    stars: tuple[str, ...]
    """Modules of which it imports all names."""
    is_numbered: bool
    """Whether it reads the number of a process from the environment."""

    def imports(self) -> Iterator[str]:
        """Yield the dotted names of all that the module imports."""
        yield from self.names.values()
        yield from self.stars

    def origins(self, name: str) -> Iterator[str]:
        """Yield what a ``name`` that the module does not define may stand for elsewhere."""
        if name in self.names:
            yield self.names[name]
        else:
            yield from (f"{star}.{name}" for star in self.stars)


@functools.lru_cache(maxsize=128)
def read_module(source: bytes, package: str = "") -> Module:
    """Return what a text shows; members of an array share it. Raises Unreadable.

    package: the dotted package of the module, for its relative imports.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(type(error).__name__) from None
    nodes = list(ast.walk(tree))
    names, stars = _names(nodes, package)
    numbered = any(isinstance(n, ast.Constant) and n.value in _GROUP_VARIABLES for n in nodes)
    parts: dict[str, list[ast.AST]] = {TOP: [], MAIN: []}
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = statement.name
        else:
            name = MAIN if _is_main(statement) else TOP
        parts.setdefault(name, []).extend(ast.walk(statement))
    known = names.keys() | parts.keys()
    units = {name: _unit(part, names, stars, known, numbered) for name, part in parts.items()}
    if SESSION in names.values():
        top = units[TOP]
        units[TOP] = replace(top, forms={**top.forms, Form.SESSION: None})
    return Module(units, names, tuple(stars), numbered)


def first(found: Iterable[Found]) -> Found:
    """Return the form that counts of all that a program shows."""
    forms = {each.form: each for each in reversed(list(found))}
    if Form.SESSION not in forms:
        forms.pop(Form.BATCHES, None)
    return next((forms[form] for form in _FIRST if form in forms), Found(Form.NONE))


def _unit(
    nodes: list[ast.AST],
    names: dict[str, str],
    stars: Sequence[str],
    known: Set[str],
    numbered: bool,
) -> Unit:
    """``known``: names that the module imports or defines."""
    forms: dict[Form, int | None] = {}
    uses: set[str] = set()
    imports: set[str] = set()
    calls: list[tuple[str, ast.Call | ast.ClassDef]] = []
    for node in nodes:
        match node:
            case ast.Call(func):
                calls.append((_dotted(func, names), node))
            case ast.ClassDef(bases=bases):
                calls += [(_dotted(base, names), node) for base in bases]
            case ast.Name() | ast.Attribute() if (root := _root(node)) and (stars or root in known):
                uses.add(_dotted(node, names))
            case ast.Import(aliases):
                imports |= {alias.name for alias in aliases}
            case ast.ImportFrom(names=aliases):
                imports |= {names.get(a.asname or a.name, "") for a in aliases} | set(stars)
    for name, node in calls:
        for form, line in forms_of(name, node, is_numbered=numbered):
            forms.setdefault(form, line)
    roots = {root.partition(".")[0] for root in names.values()}
    others = tuple(each for each in calls if stars or each[0].partition(".")[0] in roots)
    return Unit(forms, frozenset(uses), frozenset(imports - {""}), others)


def forms_of(
    name: str, node: ast.Call | ast.ClassDef, *, is_numbered: bool
) -> Iterator[tuple[Form, int]]:
    """Yield the forms that a call of ``name``, or a class that derives from it, shows."""
    if isinstance(node, ast.Call):
        yield from _of_call(name, node, numbered=is_numbered)
    elif _is_hugging_face(name):
        yield Form.TRAINER, node.lineno


def _is_main(statement: ast.stmt) -> bool:
    """Return whether a statement runs in a script and not in an imported module."""
    match statement:
        case ast.If(test=ast.Compare(left, [ast.Eq()], [right])):
            ends = [ast.unparse(left), ast.unparse(right).strip("\"'")]
            return sorted(ends) == [MAIN, "__name__"]
    return False


def _names(nodes: list[ast.AST], package: str) -> tuple[dict[str, str], list[str]]:
    """Return the dotted module or object that each name stands for, and modules of all names."""
    names: dict[str, str] = {}
    stars: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or whole] = whole
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: -node.level + 1 or None] if node.level else []
            origin = ".".join(filter(None, (*parents, node.module)))
            for alias in node.names:
                if alias.name == "*":
                    stars.append(origin)
                else:
                    names[alias.asname or alias.name] = f"{origin}.{alias.name}"
    for node in nodes:
        match node:
            case ast.Assign([ast.Name(target)], ast.Call(func)):
                if _dotted(func, names).endswith("multiprocessing.get_context"):
                    names[target] = _PROCESSES[0]
    return names, stars


def _root(node: ast.expr) -> str:
    """Return the first name of ``a.b.c``; empty for another expression."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    """Return ``a.b.c`` with its first name resolved; empty for another expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ".".join(["", *reversed(parts)])
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


def _of_call(name: str, call: ast.Call, *, numbered: bool) -> Iterator[tuple[Form, int]]:
    module, _, last = name.rpartition(".")
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if (last in _STARTS and module in _PROCESSES) or name in _LAUNCHES:
        yield Form.OWN, call.lineno
    elif last == "batches" and "model" in given:
        yield Form.BATCHES, call.lineno
    elif _is_hugging_face(name):
        yield Form.TRAINER, call.lineno
    elif name in _LIGHTNING:
        counts = [given[key] for key in ("devices", "num_nodes") if key in given]
        is_own = any(_constant(value) not in _ALL_DEVICES for value in counts)
        yield Form.OWN_COUNT if is_own else Form.LIGHTNING, call.lineno
    elif name in _ACCELERATOR:
        yield Form.GROUP, call.lineno
    elif last == _GROUP and module in ("torch.distributed", "dist", "distributed"):
        own = {"rank", "world_size", "store"} & given.keys() or len(call.args) > 1
        method = _constant(given["init_method"]) if "init_method" in given else "env://"
        is_own = "store" in given or method != "env://" or (own and not numbered)
        yield Form.OWN_COUNT if is_own else Form.GROUP, call.lineno


def _is_hugging_face(name: str) -> bool:
    return name.partition(".")[0] in _HUGGING_FACE and name.endswith("Trainer")


def _constant(node: ast.expr) -> object:
    """Return the value of a constant, with its sign; None for another expression."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand)
        return -value if isinstance(value, int) else None
    return node.value if isinstance(node, ast.Constant) else None
