"""Options that ``replay``, ``compare`` and ``workload`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli.exits import Exit, failed

SPREAD_MAX = 0.9
"""Largest spread: a job takes at least a tenth of its profile's time."""

WorkloadOption = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        "-w",
        metavar="one|two|three|four|case-study|FILE",
        help="What to replay; default: one.",
    ),
]
ClusterOption = Annotated[
    str | None, typer.Option(metavar="8xV100+8xP100", help="Hosts; default: the workload's own.")
]
CostsOption = Annotated[
    str, typer.Option(metavar="SET|FILE", help="Costs of starts, saves and stops.")
]
ProfilesOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Profiles over the bundled ones.")
]
SizesOption = Annotated[
    str | None, typer.Option(metavar="1,2,4,8", help="Optional numbers of GPUs of generated jobs.")
]
JobsOption = Annotated[int | None, typer.Option(min=1, help="So many generated jobs.")]
LastOption = Annotated[
    float | None,
    typer.Option("--last", metavar="SECONDS", help="When the last generated job comes."),
]
SpreadOption = Annotated[
    float | None,
    typer.Option(min=0.0, max=SPREAD_MAX, help="Real speeds lie so far around the profiles."),
]
TruthOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Device truth that the world follows.")
]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FOLDER", help="Keep everything there; resumes.")
]
HindsightOption = Annotated[
    bool, typer.Option("--hindsight", help="Which reshapes cost or saved most.")
]
LiveOption = Annotated[
    Path | None,
    typer.Option(
        "--live", metavar="FOLDER", help="Also on the real controller, paced; how far off?"
    ),
]
SpeedUpOption = Annotated[float, typer.Option(help="Of --live: so many times as fast.")]
RepeatsOption = Annotated[int, typer.Option(min=1, help="Of --live: live runs.")]
RecordOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Of --live: run this instead of a paced program."),
]
StepOption = Annotated[
    float,
    typer.Option("--step", min=0.01, max=3600.0, help="Of --live: seconds of the fastest steps."),
]
FromLiveOption = Annotated[
    bool, typer.Option("--from-live", help="Go on from a running daemon's queue: what if?")
]
AddHostOption = Annotated[
    str | None, typer.Option(metavar="8xV100", help="Of --from-live: hosts more.")
]
AddGpusOption = Annotated[int, typer.Option(min=0, help="Of --from-live: GPUs more on each host.")]
DrainOption = Annotated[
    str | None, typer.Option(metavar="HOST", help="Of --from-live: without this host.")
]


def given(context: typer.Context) -> dict[str, str]:
    """Return the options on the command line, by the name of their parameter."""
    found = {}
    for one in context.command.params:
        source = context.get_parameter_source(one.name or "")
        written = source is not None and source.name == "COMMANDLINE"
        if written and one.param_type_name == "option":
            found[one.name or ""] = max(one.opts, key=len)
    return found


def shown(context: typer.Context, name: str, flag: str) -> str:
    """Return an option as on the command line."""
    value = context.params[name]
    values = value if isinstance(value, (list, tuple)) else [value]
    return flag if value is True else " ".join(f"{flag} {each}" for each in values)


def workload_of(values: list[str] | None, remedy: str) -> str:
    """Return the workload of the option, or the first workload without the option.

    Raises CliError, also for an empty name, as from an unset variable.
    """
    named = asked_once(values, "--workload", remedy)
    return "one" if named is None else named


def asked_once(values: list[str] | None, flag: str, remedy: str) -> str | None:
    """Return the value of an option. Raises CliError if it was given twice."""
    if values is not None and len(values) > 1:
        where = " ".join(f"{flag} {value}" for value in values)
        raise failed(Exit.USAGE, f"{flag} is there {len(values)} times", where, remedy)
    return values[0] if values else None
