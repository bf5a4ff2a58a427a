"""The command replay: a workload under a policy in virtual time. Asks no daemon. State: none."""

from __future__ import annotations

from typing import Annotated

import typer

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.options import HomeOption, OutputOption, client, form, settings
from reshape_controller.cli.output import emit
from reshape_controller.cli.replays import case_study, inputs, judged, tables
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
)
from reshape_controller.cli.replays.runs import about, keep, swept
from reshape_controller.replay.rows import Row, summary
from reshape_controller.replay.scaled import STEP_S

LIVE_CLUSTER = "8xV100"
"""Of a live run, which is on one host."""
CHANGES = ("add_host", "add_gpus", "drain")
"""What --from-live alone can change."""
GOES_ON = ("from_live", "policy", "home", "output", *CHANGES)
"""All that --from-live looks at: the daemon has the rest."""


def replay(
    context: typer.Context,
    workload: WorkloadOption = "one",
    policy: Annotated[
        str | None,
        typer.Option("--policy", "-p", help="Preset, or POLICY+MECHANISM; default: adaptive."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of arrivals, job types and real speeds.")] = 0,
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
    """Replay a workload under a policy in virtual time, on the engine that also runs live."""
    config = settings(home, output)
    _hold_together(context, from_live)
    if from_live:
        from reshape_controller.cli.replays import from_live as going_on  # late, as below

        changes = going_on.Asked(policy, add_host, add_gpus, drain)
        going_on.show(client(config), changes, form(config))
        return
    if workload == case_study.NAME:
        case_study.show(form(config))
        return
    chosen = inputs.contender(policy or "adaptive")
    if live is not None:
        cluster = cluster or LIVE_CLUSTER
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
    (run,) = swept(setup, (chosen,), (seed,), out, 1)
    row: Row = {
        "workload": setup.name,
        "cluster": setup.cluster.text,
        "costs": setup.costs.name,
        **run.row,
    }
    if out is not None:
        keep(out, setup, (chosen,), [run], summary([run.row]), row)
    emit(row, form(config), lambda: tables.one(run.row, about(setup)))


def _hold_together(context: typer.Context, from_live: bool) -> None:
    """No option was given that would mean nothing. Raises CliError."""
    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        if not given or (name in GOES_ON if from_live else name not in CHANGES):
            continue
        flag = max(option.opts, key=len)
        if from_live:
            what = f"{flag} means nothing here: jobs, GPUs and costs are those of the daemon"
            remedy = f"leave out {flag}, or --from-live"
        else:
            what = f"{flag} changes the GPUs of a running daemon"
            remedy = "add --from-live, or give the hosts with --cluster"
        value = "" if context.params[name] is True else f" {context.params[name]}"
        raise failed(Exit.USAGE, what, f"{flag}{value}", remedy)


def _measured(costs: str) -> None:
    """The costs of a live run are those of this machine. Raises CliError."""
    if costs == "paper":
        what = "a live run starts real processes, which do not cost what the paper's did"
        remedy = "reshape profile costs --out costs.json, then --costs costs.json"
        raise failed(Exit.USAGE, what, f"--costs {costs}", remedy)
