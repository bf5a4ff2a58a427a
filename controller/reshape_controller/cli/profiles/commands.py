"""Commands about profiles: show, plot, run; import, export and costs are modules of their own.

Does: show the bundled profiles or those of a file, and measure a script. They need no daemon: a
measurement goes into a file, which ``reshape profile import`` records.
"""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.cli.options import OutputOption, form, settings
from reshape_controller.cli.output import emit, note
from reshape_controller.cli.profiles import exchange as profile_exchange
from reshape_controller.cli.profiles import files as profile_files
from reshape_controller.cli.profiles.costs import costs
from reshape_controller.cli.serve import devices as device_finder
from reshape_controller.cli.signals import ended_in_order
from reshape_controller.core.phrases import gpus
from reshape_controller.core.states import Framework
from reshape_launcher.spec import DeviceMode
from reshape_profiles import loader, profiler
from reshape_profiles import show as shown
from reshape_profiles.loader import Bundle
from reshape_profiles.schema import Profile
from reshape_profiles.training_run import RunFailed, Script

profile_app = typer.Typer(
    help="Profiles of job types: speeds, accuracies and costs.", no_args_is_help=True
)
profile_app.command("costs")(costs)
profile_app.command("import")(profile_exchange.import_)
profile_app.command("export")(profile_exchange.export)

TypeArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[TYPE]...", help="Job types; default: all.")
]
FileOption = Annotated[
    str | None,
    typer.Option("--file", metavar="FILE", help="File of profiles; default: the bundled ones."),
]


@profile_app.command("show")
def show(types: TypeArgument = None, file: FileOption = None, output: OutputOption = None) -> None:
    """Show the profiles of job types, each figure with its source."""
    config = settings(None, output)
    found = _chosen(file, types)
    emit(found, form(config), lambda: "\n\n".join(shown.show(profile) for profile in found))


@profile_app.command("plot")
def plot(
    types: TypeArgument = None,
    file: FileOption = None,
    gpu_type: Annotated[str, typer.Option(help="With --svg: GPU type to plot.")] = "V100",
    svg: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write an SVG file instead of text.")
    ] = None,
) -> None:
    """Plot training speed by GPU count."""
    found = [profile for profile in _chosen(file, types) if profile.speed]
    if svg is None:
        typer.echo("\n\n".join(shown.plot_text(profile) for profile in found))
        return
    drawn = [p for p in found if gpu_type in shown.gpu_types(p)]
    if not drawn:
        known = sorted({kind for profile in found for kind in shown.gpu_types(profile)})
        remedy = f"use one of: {', '.join(known) or 'none'}"
        raise failed(Exit.NOT_FOUND, f"no profile has speeds on {gpu_type}", "--gpu-type", remedy)
    try:
        Path(svg).write_text(shown.plot_svg(drawn, gpu_type), encoding="utf-8")
    except OSError as error:
        what = f"the chart cannot be written: {error.strerror}"
        raise failed(Exit.FAILED, what, svg, "name a file in an existing folder") from None
    note(f"plotted {len(drawn)} job types on {gpu_type} to {svg}")


@profile_app.command("run", context_settings={"ignore_unknown_options": True})
def run(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="Training script with arguments.")
    ],
    job_type: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="Name of the job type to measure.")
    ],
    sizes: Annotated[
        str, typer.Option(metavar="1,2,4", help="GPU counts to measure, separated by commas.")
    ] = "1",
    batch: Annotated[
        int | None, typer.Option(help="Global batch size; each GPU count must divide it.")
    ] = None,
    steps: Annotated[
        int, typer.Option(min=5, help="Iterations to measure on each GPU count.")
    ] = 30,
    timeout_s: Annotated[float, typer.Option(help="Time limit of each run in seconds.")] = 600.0,
    simulated_gpus: Annotated[
        int | None, typer.Option(help="Number of simulated GPUs to use instead of real ones.")
    ] = None,
    device_truth: Annotated[
        str | None, typer.Option(metavar="FILE", help="File with the step times of simulated GPUs.")
    ] = None,
    gpu_type: Annotated[
        str | None, typer.Option(help="GPU type, as the profile shall name it.")
    ] = None,
    framework: Annotated[
        Framework,
        typer.Option(help="Framework, as in a job record; pytorch and other use the session API."),
    ] = Framework.KERAS,
    into: Annotated[
        str | None, typer.Option(metavar="FILE", help="File to write; default: TYPE.profile.json.")
    ] = None,
) -> None:
    """Measure a script for a few iterations on each GPU count and write its profile."""
    numbers = _numbers(sizes)
    devices = device_finder.find(simulated_gpus, None, gpu_type)
    most = len(devices.gpus)
    if max(numbers) > most:
        what = f"--sizes asks for {gpus(max(numbers))}; {most} are available"
        raise failed(Exit.USAGE, what, "--sizes", f"give GPU counts up to {most}")
    if batch is not None and any(batch % size for size in numbers):
        what = f"a global batch of {batch} cannot be split evenly over {sizes} GPUs"
        raise failed(Exit.USAGE, what, "--batch", f"use a multiple of {math.lcm(*numbers)}")
    target = Path(into or f"{job_type}.profile.json")
    profile_files.new_file(target, "--into")
    script = Script(
        tuple(command),
        Path.cwd(),
        job_type,
        global_batch=batch,
        simulated=devices.mode is DeviceMode.SIMULATED,
        device_truth=Path(device_truth).absolute() if device_truth else None,
        steps=steps,
        timeout_s=timeout_s,
        framework=framework.value,
    )
    fallback = dict(loader.bundled().costs)["local"]
    try:
        with ended_in_order():
            found = profiler.profile(
                script, devices.gpu_type, devices.gpus, numbers, fallback, note
            )
    except RunFailed as error:
        raise failed(Exit.FAILED, str(error), shlex.join(command), error.remedy) from None
    target.write_text(loader.write((found,)), encoding="utf-8")
    typer.echo(shown.show(found))
    note(f"wrote {target}; import it: reshape profile import {target}")


def _chosen(file: str | None, types: list[str] | None) -> tuple[Profile, ...]:
    bundle = _bundle(file)
    if not types:
        return bundle.profiles
    missing = [kind for kind in types if bundle.of(kind) is None]
    if missing:
        known = ", ".join(profile.job_type for profile in bundle.profiles)
        what = f"no profile of {', '.join(missing)}"
        remedy = f"known types: {known}"
        if file is None:
            remedy += "; for a daemon's profiles: reshape profile export"
        raise failed(Exit.NOT_FOUND, what, file or "bundled profiles", remedy)
    return tuple(profile for profile in bundle.profiles if profile.job_type in types)


def _bundle(file: str | None) -> Bundle:
    if file is None:
        return loader.bundled()
    return profile_files.load_file(file, "--file").bundle


def _numbers(sizes: str) -> tuple[int, ...]:
    parts = [part.strip() for part in sizes.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise _bad_sizes(sizes)
    return tuple(int(part) for part in parts)


def _bad_sizes(sizes: str) -> CliError:
    return failed(
        Exit.USAGE, f"{sizes!r} is not a list of GPU counts", "--sizes", "for example 1,2,4"
    )
