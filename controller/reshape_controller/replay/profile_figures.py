"""The paper's Figure 2 from the profiles of a replay: training speed against the number of GPUs.

Does: draw ResNet-18 and ResNet-34 by batch, a panel for each GPU type. Points are filled where the
profile has a published or measured figure, and hollow where it assumes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reshape_controller.replay.figure_styles import OTHERS, STYLES
from reshape_controller.replay.figures import WIDE_INCHES, draw
from reshape_profiles.schema import Profile, SpeedPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHADES = [shade for shade, *_ in (*STYLES.values(), *OTHERS)]
MODELS = ("resnet18-", "resnet34-")
ASSUMED = "assumed"
"""Beginning of the source of an assumed figure."""


def figure_2(path: Path, profiles: Iterable[Profile], gpu_types: Iterable[str]) -> bool:
    """Draw the speeds on these GPU types, and on all with a figure that is not assumed.

    Returns False, and draws nothing, if the profiles have neither model.
    """
    shown = [each for each in profiles if each.job_type.startswith(MODELS)]
    published = {p.gpu_type for each in shown for p in each.speed if not _is_assumed(p)}
    known = {point.gpu_type for each in shown for point in each.speed}
    types = sorted(known & (published | set(gpu_types)))
    if types:
        draw(path, [_panel(shown, kind) for kind in types], WIDE_INCHES)
    return bool(types)


def _panel(profiles: Sequence[Profile], gpu_type: str) -> Callable[[Axes], None]:
    def draw_it(axes: Axes) -> None:
        for number, profile in enumerate(profiles):
            points = sorted(
                (point.gpus, 1.0 / point.seconds_per_step, _is_assumed(point))
                for point in profile.speed
                if point.gpu_type == gpu_type and point.hosts == 1
            )
            shade = SHADES[number % len(SHADES)]
            label = profile.job_type.removesuffix("-imagenet")
            gpus, speeds = [each[0] for each in points], [each[1] for each in points]
            axes.plot(gpus, speeds, color=shade, linewidth=1.0, label=label if points else None)
            for at, speed, is_assumed in points:
                face = "white" if is_assumed else shade
                axes.plot(at, speed, "o", color=shade, markerfacecolor=face, markersize=4)
        axes.set_title(gpu_type, fontsize=9)
        axes.set_xlabel("GPUs (hollow: assumed)")
        axes.set_ylabel("iterations per second")
        axes.set_xticks(sorted({point.gpus for each in profiles for point in each.speed}))
        axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
        axes.legend(fontsize=5.5, loc="lower right", ncols=2, handlelength=1, columnspacing=1)

    return draw_it


def _is_assumed(point: SpeedPoint) -> bool:
    return not point.source or point.source.startswith(ASSUMED)
