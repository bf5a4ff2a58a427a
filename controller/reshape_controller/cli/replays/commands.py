"""The command replay: a workload under a policy in virtual time; the dispatch of its variants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.options import client, form, options_from
from reshape_controller.cli.output import emit
from reshape_controller.cli.replays import case_study, inputs, judged, tables
from reshape_controller.cli.replays.folder import locked_folder
from reshape_controller.cli.replays.options import (
    HindsightOption,
    LiveOptions,
    OutOption,
    ParquetOption,
    SceneOptions,
    WhatIfOptions,
    WorkloadOption,
    asked_once,
    given,
    shown,
    workload_of,
)
from reshape_controller.cli.replays.runs import about, check_parquet, keep, run_sweep
from reshape_controller.replay.rows import Row, summary
from reshape_controller.replay.setup import Contender, Setup
from reshape_gpu.config import Config
from reshape_profiles.loader import bundled

LIVE_CLUSTER = "8xV100"
"""Cluster of a live run, which has one host."""
CHANGES = ("add_host", "add_gpus", "drain")
"""Changes that only --from-live has."""
GOES_ON = ("from_live", "policies", "home", "output", *CHANGES)
"""All options of --from-live; the daemon has the other inputs."""
OF_CASE_STUDY = ("workloads", "home", "output", "out")
OF_LIVE = ("speed_up", "repeats", "record", "step_s")


@options_from("home", "out", "output")
def replay(
    config: Config,
    context: typer.Context,
    *,
    workloads: WorkloadOption = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="PRESET|POLICY+MECHANISM",
            help="Policy to replay; default: adaptive.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed of arrivals, job types and real speeds.")
    ] = 0,
    scene: SceneOptions,
    hindsight: HindsightOption = False,
    live: LiveOptions,
    changes: WhatIfOptions,
    out: OutOption = None,
    parquet: ParquetOption = False,
) -> None:
    """Replay a workload under a policy in virtual time. The live controller's engine decides."""
    workload, policy = _hold_together(context, workloads, policies)
    if changes.from_live:
        from reshape_controller.cli.replays import from_live  # imported late, as below

        asked = from_live.WhatIfRequest(policy, changes.add_host, changes.add_gpus, changes.drain)
        from_live.show(client(config), asked, form(config))
        return
    if workload == case_study.NAME:
        case_study.show(form(config), out)
        return
    chosen = inputs.contender("adaptive" if policy is None else policy)
    if live.live is not None:
        if scene.cluster is None:
            scene = replace(scene, cluster=LIVE_CLUSTER)
        _measured(scene.costs)
    request = inputs.ReplayRequest(workload, **asdict(scene))
    setup = inputs.setup_of(request)
    if live.live is not None:
        # Imported late: they need the daemon's parts.
        from reshape_controller.cli.replays import live_inputs, live_replay

        pace = live_inputs.TimeScale(live.speed_up, live.step_s)
        folder, repeats = live.live, live.repeats
        live_replay.show(setup, chosen, seed, folder, pace, live.record, repeats, form(config))
        return
    if hindsight:
        judged.show(setup, chosen, seed, form(config))
        return
    row = _once(request, setup, chosen, seed, out, parquet)
    emit(row, form(config), lambda: tables.one(row, about(setup)))


def _once(
    request: inputs.ReplayRequest,
    setup: Setup,
    chosen: Contender,
    seed: int,
    out: Path | None,
    parquet: bool,
) -> Row:
    """Run a replay, and store it if a folder is given. Raises CliError."""
    check_parquet(parquet, out)
    with locked_folder(out, *request.files):
        (run,) = run_sweep(setup, (chosen,), (seed,), out, 1)
        own: Row = {"workload": setup.name, "cluster": setup.cluster.text}
        row = {**own, "costs": setup.costs.name, **run.row}
        if out is not None:
            keep(out, setup, (chosen,), [run], summary([run.row]), row, parquet=parquet)
    return row


def _hold_together(
    context: typer.Context, workloads: list[str] | None, policies: list[str] | None
) -> tuple[str, str | None]:
    """Return the workload and the policy. Raises CliError for an option without effect."""
    policy = asked_once(policies, "--policy", "reshape compare --policies A,B")
    workload = workload_of(workloads, "a command for each, or reshape compare")
    flags = given(context)
    for name, flag in flags.items():
        what, remedy = _means_nothing(name, flag, flags, workload)
        if what:
            raise failed(Exit.USAGE, what, shown(context, name, flag), remedy)
    return workload, policy


def _means_nothing(
    name: str, flag: str, flags: Mapping[str, str], workload: str
) -> tuple[str, str]:
    """Return why an option conflicts with others, and the remedy; both are empty if none does."""
    if "from_live" in flags:
        what = f"{flag} cannot be used with --from-live: the daemon sets jobs, GPUs and costs"
        return ("", "") if name in GOES_ON else (what, f"leave out {flag}, or --from-live")
    if workload == case_study.NAME and name not in OF_CASE_STUDY:
        what = f"{flag} cannot be used here: the case study sets its jobs, GPUs, costs and policies"
        return what, f"leave out {flag}, or give another --workload"
    if name in CHANGES:
        what = f"{flag} needs --from-live: it changes the GPUs of a running daemon"
        return what, "add --from-live, or set the hosts with --cluster"
    if name in OF_LIVE and "live" not in flags:
        return f"{flag} needs --live", f"add --live FOLDER, or leave out {flag}"
    for other in ("live", "hindsight"):
        if other in flags and name in ("hindsight", "out", "parquet") and name != other:
            return f"{flag} cannot be used with --{other}", f"leave out {flag}, or --{other}"
    return "", ""


def _measured(costs: str) -> None:
    """Check that the costs of a live run were measured. Raises CliError."""
    if costs in dict(bundled().costs):
        what = (
            "a live run starts real processes on this machine, so a bundled set of costs is wrong"
        )
        remedy = "measure them: reshape profile costs --out costs.json, then --costs costs.json"
        raise failed(Exit.USAGE, what, f"--costs {costs}", remedy)
