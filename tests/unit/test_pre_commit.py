"""The hooks before a commit are the commands of ``make check`` that look at files."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def test_the_hooks_run_what_make_check_runs() -> None:
    (recipe,) = re.findall(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    lines = [line.strip() for line in recipe.splitlines() if ".ci/" not in line]
    commands = [line.replace("$(BIN)", ".venv/bin") for line in lines]
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["repo"] == "local"
    assert [hook["entry"] for hook in repo["hooks"]] == commands
    assert not any(hook["pass_filenames"] for hook in repo["hooks"])
