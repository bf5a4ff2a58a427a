"""The gate: what of the tests runs on every change, and that no tier is without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOW = "from tests.support.gate import examples; from hypothesis import settings; "


@pytest.mark.parametrize(("gate", "said"), [("", "1500 30 100"), ("1", "500 10 34")])
def test_the_gate_tries_a_third_of_the_examples_and_all_tries_all(gate: str, said: str) -> None:
    show = f"{SHOW}print(examples(1500), examples(30), settings().max_examples)"
    environ = os.environ | {"GATE": gate}
    found = subprocess.check_output([sys.executable, "-c", show], cwd=ROOT, env=environ, text=True)
    assert found.strip() == said


@pytest.mark.parametrize(
    ("target", "marked"),
    [
        ("test-tensorflow", '"tensorflow and not mongo and gate"'),
        ("test-pytorch", '"pytorch and gate"'),
        ("test-mongo", '"mongo and gate"'),
        ("test-ferretdb", '"ferretdb and gate"'),
        ("kubernetes", '"kubernetes and gate"'),
    ],
)
def test_make_asks_for_the_marked_tests_of_a_tier_in_the_gate_alone(
    target: str, marked: str
) -> None:
    environ = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "GATE")
    }

    def dry(*words: str) -> str:
        command = ["make", "--dry-run", target, *words]
        return subprocess.check_output(command, cwd=ROOT, env=environ, text=True)

    assert f"-m {marked}" in dry("GATE=1")
    whole = marked.strip('"').removesuffix(" and gate")
    assert f'-m "{whole}"' in dry()


def test_every_number_of_examples_goes_through_the_gate() -> None:
    fixed = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if "max_examples=" in line and "max_examples=examples(" not in line
    ]
    assert fixed == []
