"""The command replay: a workload under a policy in virtual time. Asks no daemon. State: none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.options import HomeOption, OutputOption, client, form, settings
from reshape_controller.cli.output import emit
from reshape_controller.cli.replays import case_study, inputs, judged, tables
from reshape_controller.cli.replays.folder import held
from reshape_controller.cli.replays.options import (
    AddGpusOption,
    AddHostOption,
    ClusterOption,
    CostsOption,
    DrainOption,
    FromLiveOption,
    HindsightOption,
    JobsOption,
    LastOption,
    LiveOption,
    OutOption,
    ProfilesOption,
    RecordOption,
    RepeatsOption,
    SizesOption,
    SpeedUpOption,
    SpreadOption,
    StepOption,
    TruthOption,
    WorkloadOption,
    asked_once,
    given,
    shown,
    workload_of,
)
from reshape_controller.cli.replays.runs import about, keep, swept
from reshape_controller.replay.rows import Row, summary
from reshape_controller.replay.setup import Contender, Setup
from reshape_controller.replay.time_scaling import STEP_S
from reshape_profiles.loader import bundled

LIVE_CLUSTER = "8xV100"
"""Of a live run, which is on one host."""
CHANGES = ("add_host", "add_gpus", "drain")
"""What --from-live alone can change."""
GOES_ON = ("from_live", "policies", "home", "output", *CHANGES)
"""All that --from-live looks at: the daemon has the rest."""
OF_CASE_STUDY = ("workloads", "home", "output")
OF_LIVE = ("speed_up", "repeats", "record", "step_s")


def replay(
    context: typer.Context,
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
    cluster: ClusterOption = None,
    costs: CostsOption = "paper",
    profiles: ProfilesOption = None,
    sizes: SizesOption = None,
    jobs: JobsOption = None,
    last_s: LastOption = None,
    spread: SpreadOption = None,
    device_truth: TruthOption = None,
    hindsight: HindsightOption = False,
    live: LiveOption = None,
    speed_up: SpeedUpOption = 40.0,
    repeats: RepeatsOption = 3,
    record: RecordOption = None,
    step_s: StepOption = STEP_S,
    from_live: FromLiveOption = False,
    add_host: AddHostOption = None,
    add_gpus: AddGpusOption = 0,
    drain: DrainOption = None,
    home: HomeOption = None,
    out: OutOption = None,
    output: OutputOption = None,
) -> None:
    """Replay a workload under a policy in virtual time. The live controller's engine decides."""
    config = settings(home, output)
    workload, policy = _hold_together(context, workloads, policies)
    if from_live:
        from reshape_controller.cli.replays import from_live as going_on  # late, as below

        changes = going_on.Asked(policy, add_host, add_gpus, drain)
        going_on.show(client(config), changes, form(config))
        return
    if workload == case_study.NAME:
        case_study.show(form(config))
        return
    chosen = inputs.contender("adaptive" if policy is None else policy)
    if live is not None:
        cluster = LIVE_CLUSTER if cluster is None else cluster
        _measured(costs)
    asked = inputs.Asked(
        workload, cluster, costs, profiles, sizes, jobs, last_s, spread, device_truth
    )
    setup = inputs.setup_of(asked)
    if live is not None:
        # Late: they bring the daemon's parts.
        from reshape_controller.cli.replays import live_inputs, live_replay

        pace = live_inputs.Pace(speed_up, step_s)
        live_replay.show(setup, chosen, seed, live, pace, record, repeats, form(config))
        return
    if hindsight:
        judged.show(setup, chosen, seed, form(config))
        return
    row = _once(asked, setup, chosen, seed, out)
    emit(row, form(config), lambda: tables.one(row, about(setup)))


def _once(asked: inputs.Asked, setup: Setup, chosen: Contender, seed: int, out: Path | None) -> Row:
    """One replay, kept in a folder if there is one. Raises CliError."""
    with held(out, *asked.files):
        (run,) = swept(setup, (chosen,), (seed,), out, 1)
        own: Row = {"workload": setup.name, "cluster": setup.cluster.text}
        row = {**own, "costs": setup.costs.name, **run.row}
        if out is not None:
            keep(out, setup, (chosen,), [run], summary([run.row]), row)
    return row


def _hold_together(
    context: typer.Context, workloads: list[str] | None, policies: list[str] | None
) -> tuple[str, str | None]:
    """The workload and the policy; no option was written down that would mean nothing. Raises
    CliError."""
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
    """What speaks against an option beside the others, and the remedy; empty: nothing."""
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
        if other in flags and name in ("hindsight", "out") and name != other:
            return f"{flag} cannot be used with --{other}", f"leave out {flag}, or --{other}"
    return "", ""


def _measured(costs: str) -> None:
    """The costs of a live run are those of its program on this machine. Raises CliError."""
    if costs in dict(bundled().costs):
        what = (
            "a live run starts real processes on this machine, so a bundled set of costs is wrong"
        )
        remedy = "measure them: reshape profile costs --out costs.json, then --costs costs.json"
        raise failed(Exit.USAGE, what, f"--costs {costs}", remedy)
