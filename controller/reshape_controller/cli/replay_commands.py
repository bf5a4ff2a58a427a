"""The command replay: a workload under a policy in virtual time. Asks no daemon. State: none."""

from __future__ import annotations

from typing import Annotated

import typer

from reshape_controller.cli import case_study, judged
from reshape_controller.cli import replay_inputs as inputs
from reshape_controller.cli import replay_tables as tables
from reshape_controller.cli.options import OutputOption, form, settings
from reshape_controller.cli.output import emit
from reshape_controller.cli.replay_options import (
    ClusterOption,
    CostsOption,
    JobsOption,
    LastOption,
    OutOption,
    ProfilesOption,
    SizesOption,
    SpreadOption,
    TruthOption,
    WorkloadOption,
)
from reshape_controller.cli.replay_runs import about, keep, swept
from reshape_controller.replay.rows import Row, summary


def replay(
    workload: WorkloadOption = "one",
    policy: Annotated[str, typer.Option("--policy", "-p", help="Preset, or POLICY+MECHANISM.")] = (
        "adaptive"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Of arrivals, job types and real speeds.")] = 0,
    cluster: ClusterOption = None,
    costs: CostsOption = "paper",
    profiles: ProfilesOption = None,
    sizes: SizesOption = None,
    jobs: JobsOption = None,
    last_s: LastOption = None,
    spread: SpreadOption = None,
    device_truth: TruthOption = None,
    hindsight: Annotated[
        bool, typer.Option("--hindsight", help="Which reshapes cost or saved most.")
    ] = False,
    out: OutOption = None,
    output: OutputOption = None,
) -> None:
    """Replay a workload under a policy in virtual time, on the engine that also runs live."""
    config = settings(None, output)
    if workload == case_study.NAME:
        case_study.show(form(config))
        return
    chosen = inputs.contender(policy)
    asked = inputs.Asked(
        workload, cluster, costs, profiles, sizes, jobs, last_s, spread, device_truth
    )
    setup = inputs.setup_of(asked)
    if hindsight:
        judged.show(setup, chosen, seed, form(config))
        return
    (run,) = swept(setup, (chosen,), (seed,), out, 1)
    row: Row = {"workload": setup.name, "cluster": setup.cluster.text, "costs": costs, **run.row}
    if out is not None:
        keep(out, setup, (chosen,), [run], summary([run.row]), row)
    emit(row, form(config), lambda: tables.one(run.row, about(setup)))
