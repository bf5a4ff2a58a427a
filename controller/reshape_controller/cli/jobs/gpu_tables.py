"""GPUs and hosts as tables for a terminal of 100 columns. Pure."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from reshape_controller.cli.output import grid
from reshape_controller.http.views import GpuView

STYLES = {
    "idle": "dim",
    "reserved": "yellow",
    "in use": "green",
    "releasing": "cyan",
    "quarantined": "bold red",
    "lost": "red",
}


def gpus_table(gpus: tuple[GpuView, ...]) -> RenderableType:
    """The inventory with who has what, and who gets it next."""
    if not gpus:
        return Text("no GPUs in the inventory")
    table = grid("HOST", "GPU", "ID", "TYPE", "STATE", "JOB", "NEXT", "WHY", rest="WHY")
    for gpu in gpus:
        table.add_row(
            gpu.host + (" (drained)" if gpu.drained else ""),
            str(gpu.index),
            gpu.id,
            gpu.gpu_type,
            Text(gpu.state, STYLES.get(gpu.state, "")),
            gpu.owner_name or gpu.owner or "-",
            gpu.promised_to_name or gpu.promised_to or "-",
            Text(gpu.reason, "dim"),
        )
    return table
