"""The makespans of the experiment on weighted DRAGON, as bars."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from reshape_controller.replay.figure_styles import style_of
from reshape_controller.replay.figures import INCHES, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def scenarios_figure(path: Path, times_s: Mapping[str, Mapping[str, float]]) -> None:
    """Draw the makespan of each approach in each scenario, as SVG and PNG. Raises NoMatplotlib,
    OSError."""
    approaches = list(next(iter(times_s.values())))
    width = 0.8 / len(approaches)

    def panel(axes: Axes) -> None:
        for number, approach in enumerate(approaches):
            shade, _, hatch = style_of(approach, approaches)
            places = [
                at + (number - (len(approaches) - 1) / 2) * width for at in range(len(times_s))
            ]
            axes.bar(
                places,
                [times[approach] for times in times_s.values()],
                width,
                color="white" if hatch else shade,
                edgecolor=shade,
                hatch=hatch,
                linewidth=0.6,
                label=approach,
            )
        axes.set_xticks(range(len(times_s)), list(times_s))
        axes.tick_params(axis="x", length=0)
        axes.set_ylabel("makespan (s)")
        axes.margins(y=0.2)
        axes.legend(fontsize=7, loc="upper left", ncols=len(approaches))

    draw(path, [panel], INCHES)
