"""Table and picture of what handover.py has measured.

    python benchmarks/handover_table.py [FILE]

Prints the table of FILE, with one line for each model, change and mode, and draws FILE's name with
``.svg``. Never: measures.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reshape_controller.replay.figures import draw

MODES = ("terminate", "cold", "zygote", "successor")
MEASURED = Path(__file__).resolve().parents[1] / "out" / "bench" / "handover.jsonl"


@dataclass(frozen=True)
class Row:
    """One measured change."""

    model: str
    mode: str
    change: str
    repeat: int
    how: str
    fallback: str | None
    pause_s: float
    processor_s: float
    gpu_idle_s: float
    floor_s: float | None
    times: dict[str, Any]
    prepare_s: float | None
    slow_down: float | None
    memory_mb: float
    load: float


def read_rows(path: Path) -> list[Row]:
    """Return what was measured before; a line that was cut by an interruption is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(Row(**json.loads(line)))
        except (ValueError, TypeError):
            print(f"left out of {path}: {line[:60]}")
    return rows


def _middle(values: list[float | None]) -> str:
    """Return the median and the range of ``values``."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    return f"{statistics.median(known):.2f} ({min(known):.2f} to {max(known):.2f})"


def _count(rows: list[Row]) -> str:
    """Return how many measurements there are, and how many of them started in a slower way."""
    slower = [row for row in rows if row.mode in ("zygote", "successor") and row.how != row.mode]
    return f"{len(rows)}, {len(slower)} fell back" if slower else str(len(rows))


def _ratio(values: list[float], others: list[float]) -> str:
    """Return the ratio of the medians."""
    return f"{statistics.median(values) / statistics.median(others):.2f}" if others else "-"


def table(rows: list[Row]) -> str:
    """Return the figures of all cells as a Markdown table."""
    heads = (
        "model | change | mode | n | pause | of cold | processor | of cold | GPU-idle | floor | "
        "prepare | slow-down | memory MB | load"
    )
    lines = [f"| {heads} |", "|" + "---|" * (heads.count("|") + 1)]
    cells = dict.fromkeys((row.model, row.change, row.mode) for row in rows)
    for model, change, mode in cells:
        here = [row for row in rows if (row.model, row.change) == (model, change)]
        own = [row for row in here if row.mode == mode]
        cold = [row for row in here if row.mode == "cold"]
        figures = (
            model,
            change.replace("-", " to "),
            mode,
            _count(own),
            _middle([row.pause_s for row in own]),
            _ratio([row.pause_s for row in own], [row.pause_s for row in cold]),
            _middle([row.processor_s for row in own]),
            _ratio([row.processor_s for row in own], [row.processor_s for row in cold]),
            _middle([row.gpu_idle_s for row in own]),
            _middle([row.floor_s for row in own]),
            _middle([row.prepare_s for row in own]),
            _middle([row.slow_down for row in own]),
            f"{statistics.median(row.memory_mb for row in own):.0f}",
            f"{statistics.median(row.load for row in own):.0f}",
        )
        lines.append("| " + " | ".join(figures) + " |")
    return "\n".join(lines)


def picture(rows: list[Row], path: Path) -> None:
    """Draw the pause by change and mode, one panel per model: median, range and the floor."""
    shades = dict(zip(MODES, ("0.85", "0.6", "0.35", "0.1"), strict=True))
    models = list(dict.fromkeys(row.model for row in rows))

    def panel(model: str) -> Callable[[Any], None]:
        own = [row for row in rows if row.model == model]
        changes = list(dict.fromkeys(row.change for row in own))
        modes = [mode for mode in MODES if any(row.mode == mode for row in own)]
        width = 0.8 / len(modes)

        def on(axes: Any) -> None:
            for number, mode in enumerate(modes):
                for place, change in enumerate(changes):
                    values = [r.pause_s for r in own if (r.mode, r.change) == (mode, change)]
                    if not values:
                        continue
                    middle = statistics.median(values)
                    at = place + (number - (len(modes) - 1) / 2) * width
                    spread = [[middle - min(values)], [max(values) - middle]]
                    axes.bar(
                        at, middle, width, color=shades[mode], edgecolor="black", linewidth=0.5,
                        yerr=spread, capsize=2, error_kw={"linewidth": 0.6},
                        label=mode if place == 0 else None,
                    )  # fmt: skip
            for place, change in enumerate(changes):
                floors = [r.floor_s for r in own if r.change == change and r.floor_s is not None]
                if floors:
                    floor_s = statistics.median(floors)
                    axes.hlines(
                        floor_s, place - 0.45, place + 0.45, colors="black", linestyles="dashed",
                        linewidth=0.8, label="floor" if place == 0 else None,
                    )  # fmt: skip
            axes.set_xticks(range(len(changes)), [c.replace("-", " to ") for c in changes])
            axes.set_xlabel(f"devices, {model}")
            axes.set_ylabel("pause of training, s")
            axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
            axes.legend(loc="upper left", ncols=3, fontsize=7)

        return on

    draw(path, [panel(model) for model in models], (3.6 * len(models), 2.8))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path, default=MEASURED)
    path = parser.parse_args().file
    rows = read_rows(path)
    if not rows:
        raise SystemExit(f"{path} has no measurement; make it with benchmarks/handover.py")
    print(table(rows))
    picture(rows, path.with_suffix(".svg"))


if __name__ == "__main__":
    main()
