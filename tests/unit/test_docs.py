"""The documents say what the code says: tables, names, links and commands are compared.

Does: reads docs/ and the code, and plays random runs to see which states occur. Never: judges
prose.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from reshape_controller.cli import main
from reshape_controller.core import limits, proofs
from reshape_controller.core.model import (
    ChangeKind,
    Gpu,
    GpuState,
    JobState,
    Mechanism,
    Stage,
)
from reshape_controller.core.state import State
from reshape_controller.core.stop_table import TABLE, Program, Request
from reshape_controller.core.transitions import GPU_CHANGES, JOB_PHASES
from reshape_sidecar import limits as sidecar_limits
from tests.property.test_handover import ACTIONS, JOBS, Chaos
from tests.support import architecture_tables
from tests.support.world import World

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "controller" / "reshape_controller"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
CHAOS_RUNS = 40

HISTORY_KINDS_BUILT = {
    "proofs.ENTRIES[proofs.kind_of(proof)]": tuple(proofs.ENTRIES.values()),
    "f'{change.kind.value}-asked'": tuple(f"{kind.value}-asked" for kind in ChangeKind),
    "state.value": (
        JobState.COMPLETED.value,
        JobState.FAILED.value,
        JobState.CANCELLED.value,
    ),
}
"""Kinds that the code puts together: the expression, and everything that it can become."""


def documents() -> list[Path]:
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "playbooks").glob("*.md")]
    return sorted(found)


def section(path: Path, heading: str) -> str:
    """Text below a ``##`` heading, up to the next."""
    parts = re.split(r"^## +", path.read_text(), flags=re.MULTILINE)
    found = [part for part in parts if part.split("\n", 1)[0].strip() == heading]
    assert len(found) == 1, f"{path.name} has {len(found)} sections called {heading!r}"
    return found[0]


def tables(text: str) -> list[list[list[str]]]:
    """Every table of a text as rows of cells, without its head."""
    found: list[list[list[str]]] = []
    inside = False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if set("".join(cells)) <= set("-: "):
            found.append([])
            inside = True
        elif inside:
            found[-1].append(cells)
    return found


def plain(cell: str) -> str:
    return cell.strip("`* ")


class Seen:
    """What occurred in random runs: pairs between events, and every single change."""

    def __init__(self) -> None:
        self.pairs: set[tuple[str, str]] = set()
        self.gpus: set[tuple[str, str]] = set()
        self.kinds: set[str] = set()


@pytest.fixture(scope="module")
def seen() -> Seen:
    """Random runs with every put of a GPU watched."""
    seen = Seen()
    patch = pytest.MonkeyPatch()
    put_gpu, check = State.put_gpu, World.check

    def watched_gpu(self: State, gpu: Gpu) -> None:
        before = self.gpus.get(gpu.id)
        if before is not None and before.state is not gpu.state:
            seen.gpus.add((before.state.value, gpu.state.value))
        put_gpu(self, gpu)

    def watched_check(self: World) -> None:
        check(self)
        for job in self.engine.state.jobs.values():
            seen.pairs.add((job.state.value, job.stage.value))

    with patch.context() as context:
        context.setattr(State, "put_gpu", watched_gpu)
        context.setattr(World, "check", watched_check)
        for seed in range(CHAOS_RUNS):
            play(random.Random(seed), seen)
    return seen


def play(draw: random.Random, seen: Seen) -> None:
    chaos = Chaos(draw.choice([Mechanism.SIDECAR, Mechanism.TERMINATE]))
    for _ in range(draw.randint(20, 120)):
        chaos.act(draw.choice(ACTIONS), draw.choice(JOBS), draw.randint(0, 29))
    chaos.heal()
    seen.kinds.update(chaos.world.kinds)


def test_the_table_of_job_states_has_every_pair_that_occurs(seen: Seen) -> None:
    pairs = {(plain(row[0]), plain(row[1])) for row in tables(section(ARCHITECTURE, JOB_STATES))[0]}
    assert seen.pairs - pairs == set()
    assert pairs == {(phase.state.value, phase.stage.value) for phase in JOB_PHASES}
    assert {state for state, _ in pairs} == {s.value for s in JobState} - {"rejected"}
    assert {stage for _, stage in pairs} == {stage.value for stage in Stage}


JOB_STATES, GPU_STATES = "States of a job", "States of a GPU"


def test_the_architecture_has_the_tables_of_the_code() -> None:
    text = ARCHITECTURE.read_text()
    names = [mark[1] for mark in architecture_tables.MARK.finditer(text)]
    assert sorted(names) == sorted(architecture_tables.TABLES), "a table has no place or no code"
    assert architecture_tables.written(text) == text, "run `make tables`"


def test_a_table_that_differs_from_the_code_is_replaced_whole() -> None:
    text = "a\n<!-- table: state changes -->\n| old |\n|---|\n| row |\n\nb\n"
    written = architecture_tables.written(text)
    assert written == text.replace("| old |\n|---|\n| row |\n", architecture_tables.state_changes())


def test_the_table_of_gpu_states_has_every_state() -> None:
    states, _ = tables(section(ARCHITECTURE, GPU_STATES))
    assert {row[0] for row in states} == {state.value for state in GpuState}


def test_random_runs_need_every_way_of_a_gpu_between_its_owners(seen: Seen) -> None:
    ways = {
        (before.value, change.after.value)
        for change in GPU_CHANGES
        if change.code in ("reserve", "use", "release", "quarantine")
        for before in change.before
        if before is not change.after
    }
    assert ways - seen.gpus == set(), "a way that no run takes has no place in the table"


def test_the_table_of_deadlines_has_every_limit_with_its_figures() -> None:
    rows = {plain(row[0]): row for row in tables(section(ARCHITECTURE, "Deadlines"))[0]}
    local, kubernetes = limits.LOCAL, limits.KUBERNETES
    figures = {
        field.name: (float(getattr(local, field.name)), float(getattr(kubernetes, field.name)))
        for field in dataclasses.fields(limits.Limits)
    }
    figures |= {
        name: (float(value), float(value))
        for name, value in vars(limits).items()
        if name.isupper() and isinstance(value, (int, float))
    }
    assert {name: (float(row[1]), float(row[2])) for name, row in rows.items()} == figures
    assert [name for name, row in rows.items() if not row[5]] == [], "has no consequence"


def test_the_table_of_requests_and_programs_is_the_engines() -> None:
    stated, _ = tables(section(ARCHITECTURE, "Requests and programs"))
    rows = {row[0]: row[1:] for row in stated}
    assert list(rows) == [request.value for request in Request]
    for request in Request:
        assert rows[request.value] == [TABLE[request][program].value for program in Program]


def test_the_table_of_the_sidecars_deadlines_has_every_limit_with_its_figure() -> None:
    rows = tables(section(ARCHITECTURE, "Deadlines"))[1]
    figures = {
        name: float(value)
        for name, value in vars(sidecar_limits).items()
        if name.isupper() and isinstance(value, (int, float))
    }
    assert {plain(row[0]): float(row[1]) for row in rows} == figures


def test_the_table_of_the_core_has_every_module() -> None:
    listed = [plain(row[0]) for row in tables(section(ARCHITECTURE, "Layers"))[1]]
    assert sorted(listed) == sorted(
        ".".join(path.relative_to(CORE).with_suffix("").parts).removeprefix("core.")
        for folder in ("core", "scheduling")
        for path in (CORE / folder).rglob("*.py")
        if path.stem != "__init__"
    )


def calls(name: str) -> Iterator[ast.Call]:
    """Every call of this name in the controller, as it is written."""
    for path in sorted(CORE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                yield node


def kinds_in_code() -> set[str]:
    kinds: set[str] = set()
    expressions = [call.args[1] for call in calls("tx.note")]
    for call in calls("HistoryEntry"):
        named = [keyword.value for keyword in call.keywords if keyword.arg == "kind"]
        expressions += named or [call.args[2]]
    for expression in expressions:
        if isinstance(expression, ast.Constant):
            kinds.add(str(expression.value))
        elif ast.unparse(expression) != "kind":  # Transaction.note hands its own argument on
            kinds.update(HISTORY_KINDS_BUILT[ast.unparse(expression)])
    return kinds


def test_every_kind_of_history_entry_is_explained_and_nothing_else(seen: Seen) -> None:
    text = (ROOT / "docs" / "history.md").read_text()
    explained = [plain(row[0]) for table in tables(text) for row in table if row[0][0] == "`"]
    assert sorted(explained) == sorted(set(explained)), "explained twice"
    assert set(explained) == kinds_in_code()
    assert seen.kinds - set(explained) == set()


def test_each_decision_has_a_number_of_its_own_in_name_and_title() -> None:
    notes = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    numbers = [note.name.partition("-")[0] for note in notes]
    assert len(notes) > 10
    assert len(set(numbers)) == len(numbers)
    titles = [note.read_text().splitlines()[0] for note in notes]
    for number, title in zip(numbers, titles, strict=True):
        assert title.startswith(f"# {number}: ")


def test_every_link_in_the_documents_leads_somewhere() -> None:
    broken = []
    for path in documents():
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = (path.parent / name).resolve() if name else path
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert broken == []


def anchors(path: Path) -> set[str]:
    """Anchors of a document's headings, as code hosts make them."""
    heads = re.findall(r"^#+ +(.+)$", path.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_test_that_the_documents_name_is_there() -> None:
    files = [path for name in ("tests", "examples") for path in (ROOT / name).rglob("*.py")]
    code = "\n".join(path.read_text() for path in files)
    defined = set(re.findall(r"def (test_\w+)", code))
    defined |= {path.stem for path in files if path.stem.startswith("test_")}
    named = {
        (path.name, name)
        for path in documents()
        for name in re.findall(r"\btest_[a-z0-9_]+\b", path.read_text())
    }
    assert sorted(entry for entry in named if entry[1] not in defined) == []


def test_every_function_of_the_core_that_the_documents_name_is_there() -> None:
    modules = {path.stem for path in (CORE / "core").glob("*.py")}
    missing = []
    for path in documents():
        for module, rest in re.findall(r"`(\w+)\.([\w.]+)`", path.read_text()):
            if module not in modules or rest in ("py", "csv", "parquet"):
                continue
            found: object = importlib.import_module(f"reshape_controller.core.{module}")
            for part in rest.split("."):
                fields = getattr(found, "__dataclass_fields__", {})
                found = getattr(found, part, fields.get(part))
            if found is None:
                missing.append(f"{path.name}: {module}.{rest}")
    assert missing == []


def test_every_make_target_that_the_documents_name_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {
        (path.name, name)
        for path in documents()
        for name in re.findall(r"(?:`|^\s*)make ([a-z][a-z-]*)", path.read_text(), re.MULTILINE)
    }
    assert sorted(entry for entry in named if entry[1] not in targets) == []


def test_every_event_of_the_log_that_asks_for_attention_is_explained_for_operators() -> None:
    text = section(ROOT / "docs" / "operations.md", "Health, metrics, alerts")
    explained = {name for row in tables(text)[2] for name in re.findall(r"`([\w-]+)`", row[0])}
    logged = {
        str(node.args[0].value)
        for call in ("log.error", "log.warning", "log.exception")
        for node in calls(call)
        if isinstance(node.args[0], ast.Constant)
    }
    assert sorted(logged - explained) == []
    assert sorted(explained - logged) == []


def test_every_command_that_the_documents_name_is_there() -> None:
    commands = set(getattr(typer.main.get_command(main.build()), "commands", {}))
    assert {"up", "submit"} <= commands
    written = re.compile(r"(?:`|^(?:\$ )?)reshape ([a-z][a-z-]*)", re.MULTILINE)
    named = {
        (path.name, name) for path in documents() for name in written.findall(path.read_text())
    }
    assert sorted(entry for entry in named if entry[1] not in commands) == []


def test_every_document_that_the_code_names_is_there() -> None:
    missing = []
    for path in sorted(CORE.rglob("*.py")):
        for name in re.findall(r"docs/[\w/.-]*[\w]", path.read_text()):
            found = [*ROOT.glob(name), *ROOT.glob(f"{name}-*"), *ROOT.glob(f"{name}.md")]
            if not found:
                missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert missing == []
