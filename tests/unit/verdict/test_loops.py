"""The names that a loop carries from turn to turn, and what a script asks to keep."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reshape_sidecar.verdict import carried, loops
from reshape_sidecar.verdict.loops import Keep, OwnState
from reshape_sidecar.verdict.reach import Reach

BODIES = {
    "a count": ("n = 0", "n += 1", {"n"}),
    "the best value": ("best = 9.0", "best = min(best, batch)", {"best"}),
    "what some turns set for the code behind": (
        "best = None",
        "if batch: best = batch",
        {"best"},
    ),
    "two names at once": (
        "best, wait = 9.0, 0",
        "best, wait = (batch, 0) if batch < best else (best, wait + 1)",
        {"best", "wait"},
    ),
    "a value that each turn sets": ("", "loss = batch * 2; print(loss)", set()),
    "a value of one branch": ("x = 0", "if batch: x = 1\nprint(x)", {"x"}),
    "a value of all branches": ("", "if batch: x = 1\nelse: x = 2\nprint(x)", set()),
    "a value of a handler": ("x = 0", "try: x = 1\nexcept ValueError: pass\nprint(x)", {"x"}),
    "a value of each micro-batch": (
        "job = None",
        "for part in job.micro_batches(batch): loss = part\nprint(loss)",
        {"job"},
    ),
    "a count of micro-batches": (
        "job, n = None, 0",
        "for part in job.micro_batches(batch): n += 1",
        {"job", "n"},
    ),
    "the target of an inner loop": ("", "for x in [1]: print(x)", set()),
    "the item of a comprehension": ("", "print([x for x in [1]])", set()),
    "a dictionary": ("shadow = {}", "shadow[batch] = 1", {"shadow"}),
    "a moment": ("t = 0", "import time\nprint(batch - t); t = time.time()", set()),
    "what a walrus takes": ("", "if (x := batch): print(x)", set()),
    "a file that is open": ("import io\nf = io.StringIO()", "with f as g: print(g)", {"f", "io"}),
    "an attribute": ("class A: n = 0\nstate = A()", "state.n += 1", {"state"}),
}


def indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.splitlines())


def loop(tmp_path: Path, before: str, body: str) -> Any:
    """Import a module whose function has the loop; return the function."""
    text = f"def train(batches):\n{indented(before or 'pass', 4)}\n    for batch in batches():\n"
    file = tmp_path / "a_loop.py"
    file.write_text(text + indented(body, 8) + "\n    'best' in locals() and print(best)\n")
    spec = importlib.util.spec_from_file_location("a_loop", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.train


@pytest.mark.parametrize("kind", BODIES)
def test_carried_names(kind: str, tmp_path: Path) -> None:
    before, body, wanted = BODIES[kind]
    found: list[frozenset[str]] = []

    def batches() -> list[int]:
        found.append(carried.names(sys._getframe(1))[0])
        return []

    loop(tmp_path, before, body)(batches)
    assert found[0] - {"print", "min"} == wanted - {"io"}


class LoopsAlone(Reach):
    """A walk that leaves out the globals, which are those of the tests here."""

    def script(self, skip: Iterable[str] = ()) -> None:
        """Enter none."""


def test_the_loops_of_the_callers_carry_names_too(tmp_path: Path) -> None:
    """The form of many references: a loop over epochs calls a function with the loop of batches."""
    file = tmp_path / "reference.py"
    file.write_text(
        "def one_epoch(temperature):\n"
        "    for batch in [1]:\n"
        "        look()\n"
        "def train():\n"
        "    temperature, before = 4.0, 9.0\n"
        "    for epoch in range(2):\n"
        "        now = one_epoch(temperature)\n"
        "        temperature *= 0.7 if now is None else 1.5\n"
    )
    found: list[dict[str, Any]] = []

    def look() -> None:
        walk = LoopsAlone()
        carried.enter(sys._getframe(1), walk)
        found.append({path: leaf.value for path, leaf in walk.leaves.items()})

    space: dict[str, Any] = {"look": look, "__name__": "reference"}
    exec(compile(file.read_text(), str(file), "exec"), space)
    space["train"]()
    assert [one["temperature"] for one in found] == [4.0, 2.8]
    assert all("now" not in one for one in found)


ACCUMULATES = {
    "a step each second batch": ("if (i + 1) % 2 == 0:\n  o.step()\n  o.zero_grad()", True),
    "a line each tenth batch too": ("if i % 2 == 1: o.step()\nif i % 10 == 9: print(1)", True),
    "a step each batch": ("o.step()\nif i % 2 == 0: target.load(m)", False),
    "another optimizer at times": ("first.step()\nif i % 5 == 0: second.step()", False),
    "a copy at times": ("if i % 2 == 1: o.step()\nif i % 10 == 0: target.load(m)", False),
    "the last batch": ("if i % 2 == 1 or i == last: o.step()", False),
    "a rate": ("if i % 2 == 1: o.step()\nrate = i / 10", False),
}


@pytest.mark.parametrize("kind", ACCUMULATES)
def test_a_number_that_only_accumulates_is_right_after_a_restart(kind: str, tmp_path: Path) -> None:
    body, only_accumulates = ACCUMULATES[kind]
    file = tmp_path / "accumulates.py"
    text = "for i, batch in enumerate(job.batches(loader)):\n    look()\n    break\n"
    file.write_text(text + indented(body, 4) + "\n")
    found: list[frozenset[str]] = []
    space = {
        "job": SimpleNamespace(batches=lambda _: [(1, 2)]),
        "loader": [(1, 2)],
        "look": lambda: found.append(carried.beside(sys._getframe(1))),
    }
    exec(compile(file.read_text(), str(file), "exec"), space)
    assert found == [set() if only_accumulates else {"i"}]


BESIDE = {
    "enumerate": ("enumerate(job.batches(loader))", "i, (x, y)", {"i"}),
    "a bar around it": ("bar(enumerate(job.batches(loader), 1))", "i, batch", {"i"}),
    "zip": ("zip(job.batches(loader), others)", "batch, other", {"other"}),
    "batches alone": ("job.batches(loader)", "x, y", set()),
    "another loop": ("enumerate(loader)", "i, batch", set()),
}


@pytest.mark.parametrize("kind", BESIDE)
def test_what_a_loop_takes_beside_the_batches_of_a_job(kind: str, tmp_path: Path) -> None:
    batches, target, wanted = BESIDE[kind]
    file = tmp_path / "beside.py"
    file.write_text(f"for {target} in {batches}:\n    look()\n")
    found: list[frozenset[str]] = []
    space = {
        "job": SimpleNamespace(batches=lambda _: [(1, 2)]),
        "loader": [(1, 2)],
        "others": [3],
        "bar": iter,
        "look": lambda: found.append(carried.beside(sys._getframe(1))),
    }
    exec(compile(file.read_text(), str(file), "exec"), space)
    assert found == [wanted]


def test_a_function_that_is_given_the_batches_numbers_them(tmp_path: Path) -> None:
    """The function asks for a batch while the look runs, which only the frames tell."""
    file = tmp_path / "given.py"
    file.write_text(
        "def train(batches):\n    for i, batch in enumerate(batches):\n        print(i)\n"
    )
    found: list[frozenset[str]] = []

    def batches() -> Iterator[int]:
        asking = sys._getframe(1)
        found.append(carried.beside(asking, runs=True))
        found.append(carried.beside(asking))
        yield 1

    space: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    space["train"](batches())
    assert found == [{"i"}, set()]


def test_a_comprehension_over_the_batches_carries_what_it_reads(tmp_path: Path) -> None:
    file = tmp_path / "comprehension.py"
    file.write_text(
        "def train(batches, box):\n    unused = {}\n"
        "    return [box.append(x) for x in batches] + [unused]\n"
    )
    found: list[dict[str, Any]] = []

    def batches() -> Iterator[int]:
        walk = LoopsAlone()
        carried.enter(sys._getframe(1), walk)
        found.append({path: leaf.value for path, leaf in walk.leaves.items()})
        yield 1

    space: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    box = [7]
    space["train"](batches(), box)
    assert found[0]["box"] is box
    assert "x" not in found[0]


def test_code_without_a_file_carries_nothing() -> None:
    frames: list[FrameType] = []
    exec("for _ in [1]: frames.append(get())", {"frames": frames, "get": lambda: sys._getframe(1)})
    assert carried.names(frames[0]) == (frozenset(), frozenset())


def test_kept_values_come_back(tmp_path: Path) -> None:
    kept = Keep()
    kept.add({"n": 0, "best": 9.0, "history": [], "weights": np.zeros(2), "text": "a"}, {})
    kept.n, kept.best, kept.weights = 3, float("inf"), np.array([1.0, 2.0])
    kept.history.append((1, 0.5))
    kept.write(tmp_path)
    again, saved = Keep(), loops.read(tmp_path)
    again.add({"n": 0, "best": 9.0, "history": []}, saved)
    again.add({"weights": np.zeros(2), "later": 5, "n": 0}, saved)
    assert (again.n, again.best, again.history, again.later) == (3, float("inf"), [(1, 0.5)], 5)
    assert again.weights.tolist() == [1.0, 2.0]


def test_without_values_a_checkpoint_has_no_file(tmp_path: Path) -> None:
    Keep().write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_no_checkpoint_holds_is_refused_at_once() -> None:
    kept = Keep()
    kept.add({"n": 0}, {})
    with pytest.raises(TypeError, match=r"job.keep: n is a .*object.* give numbers, texts, lists"):
        kept.n = object()
    assert kept.n == 0


def test_a_loop_that_saves_itself_is_unknown_and_its_draws_are_named() -> None:
    state = OwnState()
    first = state.step_ended()
    assert first is not None
    assert first.kind.value == "unknown"
    assert "the script saves its state itself" in (first.reason or "")
    assert state.step_ended() is None, "nothing is new"
    random.random()
    second = state.step_ended()
    assert second is not None
    assert "its steps draw random numbers (random)" in (second.reason or "")
