"""The tables of docs/architecture.md that the code holds, written from it.

    .venv/bin/python -m tests.support.architecture_tables

Each table stands below a line ``<!-- table: NAME -->`` and is replaced as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from reshape_controller.core.model import GpuState, Stage
from reshape_controller.core.reports import ON_REPORT
from reshape_controller.core.transitions import (
    ANY,
    ANY_BUT_ENDING,
    GPU_CHANGES,
    JOB_PHASES,
    STAGE_CHANGES,
    STATE_CHANGES,
    WITH_GPUS,
)

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
GROUPS = {
    ANY: "any with a container",
    ANY_BUT_ENDING: "any with a container but ending",
    WITH_GPUS: "any with GPUs",
}
MARK = re.compile(r"(?<=<!-- table: )([a-z ]+)( -->\n)((?:\|.*\n)*)")

Rows = Iterable[tuple[str, ...]]


def _stages(stages: tuple[Stage, ...]) -> str:
    return GROUPS.get(stages) or ", ".join(stage.value for stage in stages)


def _table(head: tuple[str, ...], rows: Rows) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return text.replace(f"| {' | '.join(lines[1])} |", "|" + "---|" * len(head))


def job_phases() -> str:
    """Return the table of the pairs of state and stage."""
    rows = ((phase.state.value, phase.stage.value, phase.meaning) for phase in JOB_PHASES)
    return _table(("JobState", "Stage", "Meaning"), rows)


def stage_changes() -> str:
    """Return the table of the ways out of each stage."""
    rows = (
        (_stages(change.before), change.after.value, change.event, f"`{change.code}`")
        for change in STAGE_CHANGES
    )
    return _table(("From", "To", "Event", "Code"), rows)


def state_changes() -> str:
    """Return the table of the states that may follow each state."""
    rows = (
        (before.value, ", ".join(state.value for state in after) or "none: the job is over")
        for before, after in STATE_CHANGES.items()
    )
    return _table(("From", "To"), rows)


def report_rules() -> str:
    """Return the table of the rules of a SideCar's report."""
    rows = (
        (_stages(rule.stages), rule.event, f"`reports.{rule.action.__name__}`")
        for rule in ON_REPORT
    )
    return _table(("Stage", "The report says", "Code"), rows)


def gpu_changes() -> str:
    """Return the table of the changes of a GPU's state."""
    rows = (
        (
            _gpu_states(change.before),
            change.after.value,
            change.event,
            f"`gpu_ledger.{change.code}`",
        )
        for change in GPU_CHANGES
    )
    return _table(("From", "To", "Event", "Code"), rows)


def _gpu_states(states: tuple[GpuState, ...]) -> str:
    return "any" if states == tuple(GpuState) else ", ".join(state.value for state in states)


TABLES: dict[str, Callable[[], str]] = {
    "job phases": job_phases,
    "stage changes": stage_changes,
    "state changes": state_changes,
    "report rules": report_rules,
    "gpu changes": gpu_changes,
}


def written(text: str) -> str:
    """Return the document's text with every marked table written from the code."""
    return MARK.sub(lambda mark: f"{mark[1]}{mark[2]}{TABLES[mark[1]]()}", text)


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text()))
