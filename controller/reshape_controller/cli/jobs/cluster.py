"""Commands about GPUs, hosts and the daemon: gpus, clear, drain, undrain, status.

Each command sends a request to the daemon and prints the response; ``gpus`` draws the inventory.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from reshape_controller.cli.options import (
    HomeOption,
    OutputOption,
    client,
    form,
    one_of,
    settings,
)
from reshape_controller.cli.output import emit, grid
from reshape_gpu import requests
from reshape_gpu.values import GpuList, GpuView, Status
from reshape_launcher.spec import Hold

STYLES = {
    "idle": "dim",
    "reserved": "yellow",
    "in use": "green",
    "releasing": "cyan",
    "quarantined": "bold red",
    "lost": "red",
}


def gpus_table(gpus: tuple[GpuView, ...]) -> RenderableType:
    """Return a table of all GPUs, with the job of each and the next job."""
    if not gpus:
        return Text("no GPUs in the inventory; add a host: reshape up")
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


HostArgument = Annotated[
    str,
    typer.Argument(metavar="HOST", help="Host name.", callback=one_of("host", "gpus", "HOST")),
]
GpuArgument = Annotated[
    str,
    typer.Argument(
        metavar="GPU", help="Id of a quarantined GPU.", callback=one_of("GPU", "gpus", "GPU")
    ),
]


def gpus(home: HomeOption = None, output: OutputOption = None) -> None:
    """List GPUs with their state, owner and next owner."""
    config = settings(home, output)
    found = client(config).ask(requests.gpus())
    emit(found, form(config), lambda: _with_containment(found))


def _with_containment(found: GpuList) -> RenderableType:
    """Return the table; below it that releases are verified by the marker alone, where they are."""
    table = gpus_table(found.gpus)
    if found.containment != Hold.MARKER:
        return table
    return Group(table, Text(f"containment: {found.containment} (why: reshape doctor)", "yellow"))


def clear(
    gpu: GpuArgument,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Return a quarantined GPU to use. First check that no process runs on it."""
    config = settings(home, output)
    view = client(config).ask(requests.clear(gpu))
    emit(view, form(config), lambda: f"{view.id} on {view.host} is {view.state}")


def drain(host: HostArgument, home: HomeOption = None, output: OutputOption = None) -> None:
    """Drain a host: its jobs save and leave, and no job starts there."""
    config = settings(home, output)
    view = client(config).ask(requests.drain(host, "drain"))
    emit(view, form(config), lambda: f"{view.id} is drained; its jobs save and leave")


def undrain(host: HostArgument, home: HomeOption = None, output: OutputOption = None) -> None:
    """Let jobs start on a host again."""
    config = settings(home, output)
    view = client(config).ask(requests.drain(host, "undrain"))
    emit(view, form(config), lambda: f"{view.id} accepts jobs again")


def status(home: HomeOption = None, output: OutputOption = None) -> None:
    """Show the daemon's role (leader or standby) and readiness."""
    config = settings(home, output)
    found = client(config).ask(requests.status())
    emit(found, form(config), lambda: _told(found))


def _told(found: Status) -> str:
    lines = [f"{found.role}, {'ready' if found.ready else f'not ready: {found.reason}'}"]
    if found.waits_for:
        lines.append(f"waits for {found.waits_for}")
    if found.role == "leader":
        lines.append(f"epoch {found.epoch}, newest record {found.seq}")
    if found.name:
        held = "held" if found.lease_held else "not held"
        lines.append(f"lease {held} by {found.name}; current holder: {found.leader or 'none'}")
    if found.containment:
        reason = f" ({found.containment_reason})" if found.containment_reason else ""
        lines.append(f"containment: {found.containment}{reason}")
    if found.isolation:
        lines.append(f"isolation: {found.isolation}")
    return "\n".join(lines)
